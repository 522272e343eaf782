//! Replaces the guard of a scope. Guards are checked when they are written, and read live at every call's place in
//! the log.

use audit::{Detail, Entry, Kind};
use decision::{GuardId, OrganizationId};

use crate::command::PutGuard;
use crate::guard_check::check;
use crate::guard_path::{GUARD_DEPTH_MAX, assigned, branch};
use crate::row::reply::{Refusal, Reply};
use crate::row::{Guard, Read as _, Record, Requester};
use crate::scope::{AccountId, GuardScope, Scope};
use crate::step::money;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, put: &PutGuard) -> Done {
    let what = || format!("guard {}", put.scope);
    turn.reaches(&put.by, put.scope.organization(), what)?;
    turn.once(Requester::identity(&put.by), &put.request, |turn| {
        carry_out(turn, put)
    })
}

fn carry_out(turn: &mut Turn<'_>, put: &PutGuard) -> Done {
    let earlier = turn.rows.guard(&put.scope)?;
    let version = earlier.as_ref().map_or(0, |earlier| earlier.version);
    if put.guard.version != 0 && put.guard.version != version {
        return Err(Refusal::Conflict(format!(
            "{} is at version {version}, not {}: look at it again",
            put.scope, put.guard.version
        ))
        .into());
    }
    check(&put.guard)?;
    parent_is_above(turn, put)?;
    place_is_kept(put, earlier.as_ref())?;
    leaves_no_halt(turn, put, earlier.as_ref())?;
    let mut guard = put.guard.clone();
    guard.version = version.saturating_add(1);
    // A named guard's budget opens the account that all below it share; later changes go through budgets.
    if let GuardScope::Named(organization, id) = &put.scope {
        let account = AccountId::Guard(organization.clone(), id.clone());
        money::open(turn, account, guard.budget)?;
    }
    let organization = put.scope.organization();
    let sequence = turn.record(Entry {
        operator_id: put.by.name.clone(),
        organization_id: organization.map_or(String::new(), |of| of.as_str().to_owned()),
        request_id: put.request.id.as_str().to_owned(),
        reason: put.justification.clone(),
        policy_digest: guard.digest().as_bytes().to_vec(),
        detail: Detail::Version {
            guard: put.scope.to_string(),
            version: guard.version,
        }
        .to_string(),
        ..turn.entry(Kind::GuardPut)
    });
    turn.save(Record::new(put.scope.clone(), guard.clone()));
    Ok(Reply::Guard(Box::new(guard), turn.place(sequence)))
}

/// The parent is there, and the guard has a place below it in its organization's tree.
fn parent_is_above(turn: &Turn<'_>, put: &PutGuard) -> Done<()> {
    let Some(parent) = &put.guard.parent else {
        return Ok(());
    };
    let Some(organization) = put.scope.organization() else {
        let none = "the default guard is of no organization: it has no parent";
        return Err(Refusal::Invalid(none.to_owned()).into());
    };
    let named = GuardScope::Named(organization.clone(), parent.clone());
    if turn.rows.guard(&named)?.is_none() {
        return Err(Refusal::Invalid(format!("the parent {named} is not there")).into());
    }
    let above = branch(&*turn.rows, organization, Some(parent))?;
    if above.iter().any(|(scope, _)| *scope == put.scope) {
        return Err(
            Refusal::Invalid(format!("{} would be above itself: guards form a tree", put.scope)).into(),
        );
    }
    if above.len() >= GUARD_DEPTH_MAX {
        return Err(Refusal::Invalid(format!(
            "{named} is {} deep already: a tree has at most {GUARD_DEPTH_MAX} levels",
            above.len()
        ))
        .into());
    }
    Ok(())
}

/// A named guard stays where it is: what is below it would move with it, limits and money and all.
fn place_is_kept(put: &PutGuard, earlier: Option<&Guard>) -> Result<(), Refusal> {
    match earlier.filter(|_| put.scope.named().is_some()) {
        Some(earlier) if earlier.parent != put.guard.parent => {
            let parent = earlier.parent.as_ref().map_or("no guard", GuardId::as_str);
            Err(Refusal::Precondition(format!(
                "{} stays below {parent}: put another guard below the new parent",
                put.scope
            )))
        }
        Some(_) | None => Ok(()),
    }
}

/// An agent does not leave what stops it: a halt of the tree that its guard is in holds until it is released.
fn leaves_no_halt(turn: &Turn<'_>, put: &PutGuard, earlier: Option<&Guard>) -> Done<()> {
    let (organization, parent) = match &put.scope {
        GuardScope::Agent(organization, agent) => {
            (organization, assigned(&*turn.rows, organization, agent)?.1.parent)
        }
        GuardScope::Organization(organization) => {
            (organization, earlier.and_then(|earlier| earlier.parent.clone()))
        }
        GuardScope::Default | GuardScope::Named(..) => return Ok(()),
    };
    let stays = branch(&*turn.rows, organization, put.guard.parent.as_ref())?;
    for (scope, _) in branch(&*turn.rows, organization, parent.as_ref())? {
        let left = stays.iter().all(|(kept, _)| *kept != scope);
        if left && let Some(id) = scope.named() {
            not_halted(turn, organization, id)?;
        }
    }
    Ok(())
}

fn not_halted(turn: &Turn<'_>, organization: &OrganizationId, id: &GuardId) -> Done<()> {
    let of = Scope::Guard(organization.clone(), id.clone());
    if turn.rows.halt(&of)?.is_some_and(|halt| halt.engaged) {
        return Err(Refusal::Precondition(format!(
            "{of} is stopped: what runs below it stays there until it is released"
        ))
        .into());
    }
    Ok(())
}
