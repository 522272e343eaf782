//! PostExec: a hold becomes what the call cost, once.

use audit::{Detail, Entry, Kind};
use decision::NanoUsd;

use crate::command::PostExec;
use crate::event::Event;
use crate::guard_path::GuardPath;
use crate::row::reply::{Refusal, Reply, Settled};
use crate::row::{Call, Guard, Hold, PARTIALS_MAX, Phase, Record, Requester, Session, price};
use crate::step::counters::{heard_from, note_outcome, trip_if_outgrown};
use crate::step::memory::close_call;
use crate::step::money::{self, Settle, own_available, settle};
use crate::step::settlement::disarm;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, report: &PostExec) -> Done {
    let session = turn.session_of_agent(&report.by, &report.session)?;
    money::not_negative("actual_cost", report.actual)?;
    if report.partial && report.request.is_none() {
        let needed = "a partial settlement needs a request_id";
        return Err(Refusal::Invalid(needed.to_owned()).into());
    }
    let by = Requester::Session(report.session.clone());
    turn.once(by, report.request.as_ref(), |turn| {
        settle_call(turn, report, session)
    })
}

fn settle_call(turn: &mut Turn<'_>, report: &PostExec, mut session: Record<Session>) -> Done {
    let number = report.call_number;
    let id = (report.session.clone(), number);
    let Some(call) = turn.find::<Call>(&id)? else {
        return Err(never_allowed(number));
    };
    let path = GuardPath::of(&*turn.rows, &session)?;
    let guard = path.effective();
    let before = own_available(turn, guard, &session)?;
    let late = match call.phase {
        Phase::Held => None,
        Phase::Expired(charged) => Some(charged),
        Phase::Denied | Phase::Waiting | Phase::Cancelled => return Err(never_allowed(number)),
        Phase::Settled { charged, reported } if !report.partial && reported == report.actual => {
            turn.tell(Event::Replayed);
            return Ok(settled(turn, charged, before, 0).again());
        }
        Phase::Settled { charged, .. } => {
            return Err(Refusal::Conflict(format!(
                "call {number} was settled at {charged}: corrections are entries of their own"
            ))
            .into());
        }
    };
    may_be_partial(report, &call, late.is_some())?;

    let mut hold = turn.need::<Hold>(&id)?;
    let charge = charge(report, &path, &hold, late.unwrap_or(NanoUsd::ZERO));
    let booked = charge.min(most(guard, &hold));
    let settlement = if report.partial {
        Settle::Part(booked)
    } else {
        Settle::Close(booked)
    };
    if !settle(turn, &mut hold, settlement)? {
        return Err(Refusal::Invalid("the account could not book this amount".to_owned()).into());
    }
    let remaining = own_available(turn, guard, &session)?;
    note(turn, report, &mut session, booked);
    trip_if_outgrown(turn, &mut session, path.tripping(), number)?;
    let detail = Detail::Settled {
        held: hold.amount,
        charged: hold.charged,
        success: report.success,
        not_booked: charge.saturating_sub(booked),
        overdraft: NanoUsd::ZERO.saturating_sub(remaining.unwrap_or(NanoUsd::ZERO)),
    };
    let word = match (report.partial, late) {
        (true, _) => "partial",
        (false, Some(_)) => "late",
        (false, None) => "settled",
    };
    let request = report.request.as_ref();
    let sequence = turn.record(Entry {
        call_number: number,
        tool_name: call.tool.as_str().to_owned(),
        budget_before: before.unwrap_or(NanoUsd::ZERO),
        budget_after: remaining.unwrap_or(NanoUsd::ZERO),
        request_id: request.map_or(String::new(), |request| request.id.as_str().to_owned()),
        reason: word.to_owned(),
        detail: detail.to_string(),
        ..turn.entry_of(Kind::Settlement, &session)
    });
    turn.tell(Event::Settled);
    let reply = settled(turn, hold.charged, remaining, sequence);
    close(turn, report, &session, call, hold);
    turn.save(session);
    Ok(reply)
}

/// Saves what the report leaves of the call and its hold.
fn close(
    turn: &mut Turn<'_>,
    report: &PostExec,
    session: &Session,
    mut call: Record<Call>,
    hold: Record<Hold>,
) {
    call.reports
        .extend(report.request.iter().map(|request| request.id.clone()));
    if report.partial {
        turn.save(hold);
        turn.save(call);
        return;
    }
    disarm(turn, &hold);
    turn.remove::<Hold>(&hold.id);
    call.phase = Phase::Settled {
        charged: hold.charged,
        reported: report.actual,
    };
    close_call(turn, session, call);
}

/// What the session is counted by.
fn note(turn: &Turn<'_>, report: &PostExec, session: &mut Session, booked: NanoUsd) {
    heard_from(session, turn.now());
    session.cost = session.cost.saturating_add(booked);
    let tokens = report.tokens_in.saturating_add(report.tokens_out);
    session.tokens = session.tokens.saturating_add(tokens);
    // A part is not an end: it says nothing of success yet.
    if !report.partial {
        note_outcome(session, report);
    }
}

fn may_be_partial(report: &PostExec, call: &Call, late: bool) -> Result<(), Refusal> {
    let number = report.call_number;
    if report.partial && late {
        return Err(Refusal::Precondition(format!(
            "the hold of call {number} has expired: only one final report may still correct it"
        )));
    }
    if report.partial && call.reports.len() >= PARTIALS_MAX {
        return Err(Refusal::Precondition(format!(
            "call {number} has had {PARTIALS_MAX} partial reports: only the final one is taken"
        )));
    }
    Ok(())
}

fn never_allowed(number: u64) -> crate::turn::Stop {
    Refusal::Precondition(format!(
        "call {number} was never allowed in this session: nothing to settle"
    ))
    .into()
}

fn settled(turn: &Turn<'_>, charged: NanoUsd, remaining: Option<NanoUsd>, sequence: u64) -> Reply {
    Reply::Settled(Settled {
        charged,
        remaining,
        replayed: false,
        place: turn.place(sequence),
    })
}

/// What the report adds to what is charged: a part, or the final amount on top of the partial ones and in the place
/// of what time has charged. An unknown cost is charged at the hold, never at zero.
fn charge(report: &PostExec, path: &GuardPath, hold: &Hold, by_time: NanoUsd) -> NanoUsd {
    let actual = report.actual.or_else(|| priced(path, report));
    if report.partial {
        return actual.unwrap_or(NanoUsd::ZERO);
    }
    let in_parts = hold.charged.saturating_sub(by_time);
    let rest_of_hold = hold.amount.saturating_sub(in_parts).max(NanoUsd::ZERO);
    let due = match actual {
        None => rest_of_hold,
        Some(actual) if hold.at_least => actual.max(rest_of_hold),
        Some(actual) => actual,
    };
    due.saturating_sub(by_time)
}

/// What reported tokens cost, where no cost came with them.
fn priced(path: &GuardPath, report: &PostExec) -> Option<NanoUsd> {
    let tokens = report.tokens_in.saturating_add(report.tokens_out);
    let prices = path.guards().iter().map(|(_, guard)| &guard.prices);
    let model = report.model.as_ref().filter(|_| tokens > 0)?;
    price::of_tokens(prices, model, report.tokens_in, report.tokens_out)
}

/// The most that may still be charged for a call: its hold, and as far beyond it as its guard lets one report go.
fn most(guard: &Guard, hold: &Hold) -> NanoUsd {
    let beyond = |overdraft| hold.amount.saturating_add(overdraft).saturating_sub(hold.charged);
    guard
        .max_overdraft
        .map_or(NanoUsd::MAX, beyond)
        .max(NanoUsd::ZERO)
}
