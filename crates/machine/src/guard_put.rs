//! Guards: written by operators, checked when they are written, read live at every call's place in the log.

use audit::Kind;
use decision::policy::check_rules;
use decision::{NanoUsd, OrganizationId};

use crate::apply::Turn;
use crate::command::{Limit, PutGuard};
use crate::guard::Guard;
use crate::leash::{self, GUARD_DEPTH_MAX};
use crate::replay;
use crate::reply::{Refusal, Reply};
use crate::scope::{AccountId, GuardScope, Scope};
use crate::table::{Account, Fault, Key, Read, Row, Rows};

/// Entries of one list of a guard: it is read with every call.
pub const LIST_MAX: usize = 64;

/// What no guard may say, wherever it is put. The edge refuses it; so does this.
pub(crate) fn check(guard: &Guard) -> Result<(), Refusal> {
    let prices = &guard.prices;
    let amounts = [
        ("default_cost", Some(guard.default_cost)),
        ("max_overdraft", guard.max_overdraft),
    ]
    .into_iter()
    .chain(prices.tools.iter().map(|price| ("tool_prices", Some(price.cost))))
    .chain(
        prices
            .models
            .iter()
            .map(|row| row.price)
            .chain([prices.other_models])
            .flat_map(|price| [price.input, price.output])
            .map(|amount| ("model_prices", Some(amount))),
    );
    for (field, amount) in amounts {
        if amount.is_some_and(NanoUsd::is_negative) {
            return Err(Refusal::Invalid(format!("{field} must not be below zero")));
        }
    }
    for (field, amount) in [("budget", guard.budget), ("max_cost", guard.max_cost)] {
        if amount.is_some_and(|amount| amount <= NanoUsd::ZERO) {
            return Err(Refusal::Invalid(format!("{field} is above zero, or unset")));
        }
    }
    let lists = [
        ("agents", guard.agents.len()),
        ("allowed_tools", guard.allowed_tools.as_ref().map_or(0, Vec::len)),
        ("tool_limits", guard.tool_limits.len()),
        ("tool_prices", prices.tools.len()),
        ("model_prices", prices.models.len()),
    ];
    for (field, length) in lists {
        if length > LIST_MAX {
            return Err(Refusal::Invalid(format!(
                "{field} has more than {LIST_MAX} entries"
            )));
        }
    }
    if guard
        .rate
        .is_some_and(|rate| rate.calls == 0 || rate.span.nanos() == 0)
    {
        return Err(Refusal::Invalid(
            "rate needs calls and a span above zero, or is unset".to_owned(),
        ));
    }
    guard
        .breakers
        .check()
        .map_err(|invalid| Refusal::Invalid(invalid.to_string()))?;
    check_rules(&guard.rules).map_err(|invalid| Refusal::Invalid(invalid.to_string()))
}

/// Checks where a guard stands in its organization's tree.
fn check_place<R: Rows>(rows: &R, put: &PutGuard) -> Result<Result<(), Refusal>, Fault> {
    let Some(parent) = &put.guard.parent else {
        return place_is_kept(rows, put);
    };
    let organization = match &put.scope {
        GuardScope::Default => {
            return Ok(Err(Refusal::Invalid(
                "the default guard is of no organization: it has no parent".to_owned(),
            )));
        }
        GuardScope::Organization(organization)
        | GuardScope::Agent(organization, _)
        | GuardScope::Named(organization, _) => organization,
    };
    let named = GuardScope::Named(organization.clone(), parent.clone());
    if rows.guard(&named)?.is_none() {
        return Ok(Err(Refusal::Invalid(format!("the parent {named} is not there"))));
    }
    let above = leash::branch(rows, organization, Some(parent))?;
    if above.iter().any(|(scope, _)| *scope == put.scope) {
        return Ok(Err(Refusal::Invalid(format!(
            "{} would be above itself: guards form a tree",
            put.scope
        ))));
    }
    if above.len() >= GUARD_DEPTH_MAX {
        return Ok(Err(Refusal::Invalid(format!(
            "{named} is {} deep already: a tree has at most {GUARD_DEPTH_MAX} levels",
            above.len()
        ))));
    }
    place_is_kept(rows, put)
}

/// An agent does not leave what stops it: a halt of the tree that its guard is in holds until it is released.
fn leaves_a_halt<R: Rows>(rows: &R, put: &PutGuard) -> Result<Result<(), Refusal>, Fault> {
    let earlier = match &put.scope {
        GuardScope::Agent(organization, agent) => {
            Some((organization, leash::assigned(rows, organization, agent)?.1))
        }
        GuardScope::Organization(organization) => rows.guard(&put.scope)?.map(|guard| (organization, *guard)),
        GuardScope::Default | GuardScope::Named(..) => None,
    };
    let Some((organization, earlier)) = earlier else {
        return Ok(Ok(()));
    };
    let stays = leash::branch(rows, organization, put.guard.parent.as_ref())?;
    for (scope, _) in leash::branch(rows, organization, earlier.parent.as_ref())? {
        let GuardScope::Named(organization, id) = &scope else {
            continue;
        };
        let of = Scope::Guard(organization.clone(), id.clone());
        let is_left = stays.iter().all(|(kept, _)| *kept != scope);
        if is_left && rows.halt(&of)?.is_some_and(|halt| halt.engaged) {
            return Ok(Err(Refusal::Precondition(format!(
                "{of} is stopped: what runs below it stays there until it is released"
            ))));
        }
    }
    Ok(Ok(()))
}

/// A named guard stays where it is: what is below it would move with it, limits and money and all.
fn place_is_kept<R: Rows>(rows: &R, put: &PutGuard) -> Result<Result<(), Refusal>, Fault> {
    let named = matches!(put.scope, GuardScope::Named(..));
    let earlier = rows.guard(&put.scope)?.filter(|_| named);
    Ok(match earlier {
        Some(earlier) if earlier.parent != put.guard.parent => Err(Refusal::Precondition(format!(
            "{} stays below {}: put another guard below the new parent",
            put.scope,
            earlier
                .parent
                .as_ref()
                .map_or("no guard", |parent| parent.as_str())
        ))),
        Some(_) | None => Ok(()),
    })
}

pub(crate) fn put<R: Rows>(turn: &mut Turn<'_, '_, R>, put: &PutGuard) -> Result<Reply, Fault> {
    let organization = organization(&put.scope);
    let within = match organization {
        None => put.by.organization.is_none(),
        Some(organization) => put.by.reaches(organization),
    };
    if !within {
        return Ok(turn.refuse(&put.by, format!("guard {}", put.scope)));
    }
    let requester = replay::identity(&put.by);
    if let Some(earlier) = replay::recall(turn, &requester, &put.request)? {
        return Ok(earlier);
    }
    let earlier = turn.rows.guard(&put.scope)?.map_or(0, |earlier| earlier.version);
    if put.guard.version != 0 && put.guard.version != earlier {
        return Ok(Reply::Refused(Refusal::Conflict(format!(
            "{} is at version {earlier}, not {}: look at it again",
            put.scope, put.guard.version
        ))));
    }
    if let Err(refusal) = check(&put.guard) {
        return Ok(Reply::Refused(refusal));
    }
    for check in [check_place, leaves_a_halt] {
        if let Err(refusal) = check(turn.rows, put)? {
            return Ok(Reply::Refused(refusal));
        }
    }
    let mut guard = put.guard.clone();
    guard.version = earlier.saturating_add(1);
    open_account(turn, &put.scope, &guard)?;

    let mut entry = turn.entry(Kind::GuardPut);
    entry.operator_id.clone_from(&put.by.name);
    entry.organization_id =
        organization.map_or(String::new(), |organization| organization.as_str().to_owned());
    entry.request_id = put.request.id.as_str().to_owned();
    entry.reason.clone_from(&put.justification);
    entry.policy_digest = guard.digest().as_bytes().to_vec();
    entry.detail = format!("{} version {}", put.scope, guard.version);
    let sequence = turn.record(entry);
    turn.rows
        .put(Key::Guard(put.scope.clone()), Row::Guard(Box::new(guard.clone())));
    let reply = Reply::Guard(Box::new(guard), turn.place(sequence));
    replay::remember(turn, requester, &put.request, &reply);
    Ok(reply)
}

/// A named guard's budget opens the account that all below it share; later changes go through budgets.
fn open_account<R: Rows>(turn: &mut Turn<'_, '_, R>, scope: &GuardScope, guard: &Guard) -> Result<(), Fault> {
    let (GuardScope::Named(organization, id), Some(budget)) = (scope, guard.budget) else {
        return Ok(());
    };
    let account = AccountId::Guard(organization.clone(), id.clone());
    if turn.rows.account(&account)?.is_none() {
        let opened = Account::opened(Limit::Amount(budget));
        turn.rows.put(Key::Account(account), Row::Account(opened));
    }
    Ok(())
}

/// The organization that a guard is of; none for the default.
fn organization(scope: &GuardScope) -> Option<&OrganizationId> {
    match scope {
        GuardScope::Default => None,
        GuardScope::Organization(organization)
        | GuardScope::Agent(organization, _)
        | GuardScope::Named(organization, _) => Some(organization),
    }
}
