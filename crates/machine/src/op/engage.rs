//! Engages the kill switch at a scope.

use audit::{Detail, Entry, Kind};
use decision::HaltMode;

use crate::command::Engage;
use crate::event::Event;
use crate::row::reply::{HaltReply, Refusal, Reply};
use crate::row::{DueWork, Halt, Read as _, Record, Requester};
use crate::step::halts::{self, Word, change, disarm};
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, engage: &Engage) -> Done {
    let organization = halts::reach(turn, &engage.by, &engage.scope)?;
    let reply = turn.once(Requester::identity(&engage.by), &engage.request, |turn| {
        let organization = organization.map_or(String::new(), |of| of.as_str().to_owned());
        carry_out(turn, engage, organization)
    })?;
    // What was engaged then and is released since is not said to be engaged.
    let stands = turn.rows.halt(&engage.scope)?.is_some_and(|halt| halt.engaged);
    match reply {
        Reply::Halt(_) if !stands => Err(Refusal::Precondition(format!(
            "{} was engaged with this request and released since: engage it again with a new request_id",
            engage.scope
        ))
        .into()),
        reply => Ok(reply),
    }
}

fn carry_out(turn: &mut Turn<'_>, engage: &Engage, organization: String) -> Done {
    if engage.ttl.is_some() && engage.mode != HaltMode::Drain {
        return Err(Refusal::Invalid(
            "only a drain ends by itself: a halt stays until it is released".to_owned(),
        )
        .into());
    }
    let mut halt = match turn.find::<Halt>(&engage.scope)? {
        Some(halt) if halt.engaged => stronger(turn, engage, halt),
        released => first(turn, engage, released),
    };
    halt.drains |= engage.mode == HaltMode::Drain;
    // Whoever engages it again does not want it released.
    halt.release_asked = None;
    if let Some(until) = halt.until {
        turn.arm(until, DueWork::DrainEnd(engage.scope.clone()));
    }
    let word = Word {
        reason: &engage.reason,
        ticket: &engage.ticket,
        by: &engage.by.name,
    };
    change(turn, &mut halt, word);
    let sequence = turn.record(Entry {
        operator_id: engage.by.name.clone(),
        organization_id: organization,
        reason: engage.reason.clone(),
        request_id: engage.request.id.as_str().to_owned(),
        detail: Detail::Engaged {
            scope: engage.scope.to_string(),
            mode: engage.mode,
            stays: Some(halt.mode).filter(|mode| *mode != engage.mode),
            epoch: halt.epoch,
            ticket: engage.ticket.clone(),
        }
        .to_string(),
        ..turn.entry(Kind::HaltEngaged)
    });
    turn.tell(Event::Engaged {
        scope: engage.scope.clone(),
        mode: halt.mode,
        epoch: halt.epoch,
    });
    let reply = HaltReply {
        reason: halt.reason.clone(),
        engaged: true,
        place: turn.place(sequence),
        mode: halt.mode,
        needs_second: false,
    };
    turn.save(halt);
    Ok(Reply::Halt(reply))
}

/// The first reason sticks; later ones join the history.
fn first(turn: &Turn<'_>, engage: &Engage, released: Option<Record<Halt>>) -> Record<Halt> {
    let earlier = released.map(|halt| halt.row);
    let halt = Halt {
        engaged: true,
        reason: engage.reason.clone(),
        ticket: engage.ticket.clone(),
        by: engage.by.name.clone(),
        at: turn.now(),
        epoch: turn.cluster.halt_epoch,
        drains: earlier.as_ref().is_some_and(|halt| halt.drains),
        history: earlier.map(|halt| halt.history).unwrap_or_default(),
        mode: engage.mode,
        until: engage.ttl.map(|ttl| turn.now().plus(ttl)),
        two_person: engage.two_person,
        release_asked: None,
    };
    Record::new(engage.scope.clone(), halt)
}

/// A stronger mode takes the place of a weaker one, and what lasts longer that of what ends.
fn stronger(turn: &mut Turn<'_>, engage: &Engage, mut halt: Record<Halt>) -> Record<Halt> {
    disarm(turn, &halt);
    let until = engage.ttl.map(|ttl| turn.now().plus(ttl));
    let was = (halt.mode, halt.until);
    halt.mode = halt.mode.max(engage.mode);
    halt.until = match (was, until) {
        ((HaltMode::Drain, Some(earlier)), Some(later)) if halt.mode == HaltMode::Drain => {
            Some(earlier.max(later))
        }
        _ => None,
    };
    halt.two_person |= engage.two_person;
    halt
}
