//! The kill switch: engaged at a scope, it stops everything below until it is released.

use audit::Detail;
use decision::OrganizationId;

use crate::command::Principal;
use crate::event::Event;
use crate::row::reply::Refusal;
use crate::row::{DueWork, Fault, HALT_HISTORY_MAX, Halt, HaltChange, Read as _, Record};
use crate::scope::{AccountId, GuardScope, Scope};
use crate::turn::{Done, Turn};

/// Lets an order about a scope through: a cluster-wide role reaches every scope, an organization's role its own, its
/// agents, guards and sessions. Gives the organization that the scope is of; none for all.
pub(crate) fn reach(turn: &mut Turn<'_>, by: &Principal, scope: &Scope) -> Done<Option<OrganizationId>> {
    let organization = match scope {
        Scope::Session(id) => Some(turn.session(id)?.organization.clone()),
        scope => scope.organization().cloned(),
    };
    if let Scope::Guard(organization, guard) = scope {
        let place = GuardScope::Named(organization.clone(), guard.clone());
        // Of a foreign organization nobody learns which guards it has.
        if by.reaches(organization) && turn.rows.guard(&place)?.is_none() {
            let guard = AccountId::Guard(organization.clone(), guard.clone());
            return Err(Refusal::NotFound(format!("no guard {guard}")).into());
        }
    }
    turn.reaches(by, organization.as_ref(), || scope.to_string())?;
    Ok(organization)
}

/// Why a halt was changed, and by whom.
#[derive(Clone, Copy)]
pub(crate) struct Word<'w> {
    pub reason: &'w str,
    pub ticket: &'w str,
    pub by: &'w str,
}

/// Counts one more change of the kill switch, and keeps it with the halt.
pub(crate) fn change(turn: &mut Turn<'_>, halt: &mut Halt, word: Word<'_>) {
    turn.cluster.halt_epoch = turn.cluster.halt_epoch.saturating_add(1);
    halt.epoch = turn.cluster.halt_epoch;
    if halt.history.len() >= HALT_HISTORY_MAX {
        halt.history.remove(0);
    }
    halt.history.push(HaltChange {
        engaged: halt.engaged,
        reason: word.reason.to_owned(),
        by: word.by.to_owned(),
        at: turn.now(),
        epoch: halt.epoch,
        ticket: word.ticket.to_owned(),
    });
}

/// Opens the scope again.
pub(crate) fn lift(turn: &mut Turn<'_>, halt: &mut Record<Halt>, word: Word<'_>) {
    disarm(turn, halt);
    halt.engaged = false;
    halt.until = None;
    halt.drains = false;
    halt.two_person = false;
    halt.release_asked = None;
    change(turn, halt, word);
    turn.tell(Event::Released {
        scope: halt.id.clone(),
        epoch: halt.epoch,
    });
}

/// A drain's time is over.
pub(crate) fn end_drain(turn: &mut Turn<'_>, scope: &Scope) -> Result<(), Fault> {
    let now = turn.now();
    let over = |halt: &Record<Halt>| halt.engaged && halt.until.is_some_and(|until| until <= now);
    let Some(mut halt) = turn.find::<Halt>(scope)?.filter(over) else {
        return Ok(());
    };
    let word = Word {
        reason: "its time was over",
        ticket: "",
        by: "",
    };
    lift(turn, &mut halt, word);
    let mut entry = turn.entry(audit::Kind::HaltExpired);
    entry.organization_id = scope.organization().map_or(String::new(), ToString::to_string);
    entry.detail = Detail::Lifted {
        scope: scope.to_string(),
        epoch: halt.epoch,
        ticket: String::new(),
    }
    .to_string();
    turn.record(entry);
    turn.save(halt);
    Ok(())
}

/// The scope is gone: its halt goes too, with the timer of a drain.
pub(crate) fn forget(turn: &mut Turn<'_>, scope: &Scope) -> Result<(), Fault> {
    if let Some(halt) = turn.find::<Halt>(scope)? {
        disarm(turn, &halt);
        turn.remove::<Halt>(scope);
    }
    Ok(())
}

/// A drain that ends by itself no longer does.
pub(crate) fn disarm(turn: &mut Turn<'_>, halt: &Record<Halt>) {
    if let Some(until) = halt.until {
        turn.disarm(until, DueWork::DrainEnd(halt.id.clone()));
    }
}
