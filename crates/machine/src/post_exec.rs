//! PostExec: a hold becomes what the call cost, once.

use audit::{Entry, Kind};
use decision::behaviour::Outcome;
use decision::{NanoUsd, Reason, SessionId};

use crate::apply::Turn;
use crate::budget::{self, Overflow, Settle};
use crate::command::PostExec;
use crate::event::Event;
use crate::guard::Guard;
use crate::leash::Leash;
use crate::price;
use crate::replay;
use crate::reply::{Refusal, Reply, Settled};
use crate::session;
use crate::table::{
    Call, DueWork, Fault, Hold, Key, PARTIALS_MAX, Phase, Read, Requester, Row, Rows, Session, SessionStatus,
};

pub(crate) fn post_exec<R: Rows>(turn: &mut Turn<'_, '_, R>, report: &PostExec) -> Result<Reply, Fault> {
    let Some(mut session) = session::find(turn, &report.session)? else {
        return Ok(Reply::Refused(Refusal::SessionNotFound));
    };
    if !report.by.speaks_for(&session.organization, &session.agent) {
        return Ok(turn.refuse(&report.by, format!("session/{}", report.session)));
    }
    if report.actual.is_some_and(NanoUsd::is_negative) {
        return Ok(budget::negative("actual_cost"));
    }
    if report.partial && report.request.is_none() {
        return Ok(Reply::Refused(Refusal::Invalid(
            "a partial settlement needs a request_id".to_owned(),
        )));
    }
    if let Some(request) = &report.request {
        let by = Requester::Session(report.session.clone());
        if let Some(earlier) = replay::recall(turn, &by, request)? {
            return Ok(match earlier {
                Reply::Settled(settled) => Reply::Settled(Settled {
                    replayed: true,
                    ..settled
                }),
                other => other,
            });
        }
    }
    let number = report.call_number;
    let Some(call) = turn.rows.call(&report.session, number)? else {
        return Ok(never_allowed(number));
    };
    let mut call = *call;
    let leash = Leash::of(turn.rows, &session)?;
    let guard = leash.effective();
    let before = budget::own_available(turn, guard, &report.session, &session)?;
    let by_time = match call.phase {
        Phase::Held => None,
        Phase::Expired(charged) => Some(charged),
        Phase::Denied | Phase::Waiting | Phase::Cancelled => return Ok(never_allowed(number)),
        Phase::Settled { charged, reported } if !report.partial && reported == report.actual => {
            turn.events.push(Event::Replayed);
            return Ok(Reply::Settled(Settled {
                charged,
                remaining: before,
                replayed: true,
                place: turn.place(0),
            }));
        }
        Phase::Settled { charged, .. } => {
            return Ok(Reply::Refused(Refusal::Conflict(format!(
                "call {number} was settled at {charged}: corrections are entries of their own"
            ))));
        }
    };
    let late = by_time.is_some();
    if report.partial && late {
        return Ok(Reply::Refused(Refusal::Precondition(format!(
            "the hold of call {number} has expired: only one final report may still correct it"
        ))));
    }
    if report.partial && call.reports.len() >= PARTIALS_MAX {
        return Ok(Reply::Refused(Refusal::Precondition(format!(
            "call {number} has had {PARTIALS_MAX} partial reports: only the final one is taken"
        ))));
    }

    let key = Key::Hold(report.session.clone(), number);
    let mut hold = turn
        .rows
        .hold(&report.session, number)?
        .ok_or(Fault::Missing(key.clone()))?;
    let actual = report.actual.or_else(|| priced(&leash, report));
    let charge = if report.partial {
        actual.unwrap_or(NanoUsd::ZERO)
    } else {
        final_charge(actual, &hold, by_time.unwrap_or(NanoUsd::ZERO))
    };
    let booked = charge.min(most(guard, &hold));
    let settlement = if report.partial {
        Settle::Part(booked)
    } else {
        Settle::Close(booked)
    };
    if let Err(Overflow) = budget::settle(turn, &mut hold, &settlement)? {
        return Ok(Reply::Refused(Refusal::Invalid(
            "the account could not book this amount".to_owned(),
        )));
    }
    let charged = hold.charged;
    let remaining = budget::own_available(turn, guard, &report.session, &session)?;
    session::heard_from(&mut session, turn.now());
    session.cost = session.cost.saturating_add(booked);
    session.tokens = session
        .tokens
        .saturating_add(report.tokens_in)
        .saturating_add(report.tokens_out);
    // A part is not an end: it says nothing of success yet.
    if !report.partial {
        note_outcome(&mut session, report);
    }
    let limits = leash.enforced().unwrap_or(guard);
    if let Some(reason) = outgrown(limits, &session) {
        session::trip(turn, &report.session, &mut session, reason, number)?;
    }

    let entry = Entry {
        call_number: number,
        tool_name: call.tool.as_str().to_owned(),
        budget_before: before.unwrap_or(NanoUsd::ZERO),
        budget_after: remaining.unwrap_or(NanoUsd::ZERO),
        request_id: report
            .request
            .as_ref()
            .map(|request| request.id.as_str().to_owned())
            .unwrap_or_default(),
        reason: match (report.partial, late) {
            (true, _) => "partial",
            (false, true) => "late",
            (false, false) => "settled",
        }
        .to_owned(),
        detail: settled_as(report, &hold, charge, booked, remaining),
        ..session_entry(turn, Kind::Settlement, &report.session, &session)
    };
    let sequence = turn.record(entry);
    turn.events.push(Event::Settled);
    if let (true, Some(request)) = (report.partial, &report.request) {
        turn.rows.put(key, Row::Hold(hold));
        call.reports.push(request.id.clone());
        let row = Row::Call(Box::new(call));
        turn.rows.put(Key::Call(report.session.clone(), number), row);
    } else {
        disarm(turn, &report.session, number, &hold);
        turn.rows.delete(key);
        call.reports
            .extend(report.request.iter().map(|request| request.id.clone()));
        call.phase = Phase::Settled {
            charged,
            reported: report.actual,
        };
        replay::close_call(turn, &report.session, &session, call);
    }
    turn.rows.put(
        Key::Session(report.session.clone()),
        Row::Session(Box::new(session)),
    );
    let reply = Reply::Settled(Settled {
        charged,
        remaining,
        replayed: false,
        place: turn.place(sequence),
    });
    if let Some(request) = &report.request {
        replay::remember(turn, Requester::Session(report.session.clone()), request, &reply);
    }
    Ok(reply)
}

fn never_allowed(number: u64) -> Reply {
    Reply::Refused(Refusal::Precondition(format!(
        "call {number} was never allowed in this session: nothing to settle"
    )))
}

/// What the final report adds to what is charged: its amount comes on top of the partial ones, and in the
/// place of what time has charged. An unknown cost is charged at the hold, never at zero.
fn final_charge(actual: Option<NanoUsd>, hold: &Hold, by_time: NanoUsd) -> NanoUsd {
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
fn priced(leash: &Leash, report: &PostExec) -> Option<NanoUsd> {
    let tokens = report.tokens_in.saturating_add(report.tokens_out);
    let prices = leash.guards().iter().map(|(_, guard)| &guard.prices);
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

/// The settlement in words; what was not booked and what is overdrawn is said.
fn settled_as(
    report: &PostExec,
    hold: &Hold,
    charge: NanoUsd,
    booked: NanoUsd,
    remaining: Option<NanoUsd>,
) -> String {
    let mut words = format!(
        "held {} charged {} success {}",
        hold.amount, hold.charged, report.success
    );
    if booked < charge {
        words.push_str(&format!(" not_booked {}", charge.saturating_sub(booked)));
    }
    if let Some(left) = remaining.filter(|left| left.is_negative()) {
        words.push_str(&format!(" overdraft {}", NanoUsd::ZERO.saturating_sub(left)));
    }
    words
}

/// What later calls are judged by: how this one ended, and with what.
fn note_outcome(session: &mut Session, report: &PostExec) {
    let failed = !report.success || report.error_signal;
    let outcome = if failed {
        Outcome::Failed
    } else {
        Outcome::Succeeded
    };
    session.outcomes = session.outcomes.with(outcome);
    let place = session
        .recent_numbers
        .iter()
        .position(|number| *number == report.call_number);
    if let Some(recent) = place.and_then(|place| session.recent.get_mut(place)) {
        recent.outcome = outcome;
        recent.result = report.result;
    }
    if let Some(last) = session
        .last_call
        .as_mut()
        .filter(|last| last.call_number == report.call_number)
    {
        last.failed |= failed;
    }
}

/// What a report has brought to its end: the next call finds the circuit open.
fn outgrown(guard: &Guard, session: &Session) -> Option<Reason> {
    if session.status == SessionStatus::Terminated {
        return None;
    }
    if guard.max_tokens.is_some_and(|max| session.tokens >= max) {
        return Some(Reason::TokenCeiling);
    }
    if guard.max_cost.is_some_and(|max| session.cost >= max) {
        return Some(Reason::CostCeiling);
    }
    guard
        .breakers
        .error_rate_exceeded(&session.outcomes)
        .then_some(Reason::ErrorRateExceeded)
}

/// Settles a hold that nobody settled: its lease ran out, or its session ended. Says whether it was open.
pub(crate) fn expire_hold<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    number: u64,
    why: &str,
) -> Result<bool, Fault> {
    let (Some(call), Some(session)) = (turn.rows.call(id, number)?, turn.rows.session(id)?) else {
        return Ok(false);
    };
    if call.phase != Phase::Held {
        return Ok(false);
    }
    let key = Key::Hold(id.clone(), number);
    let mut hold = turn.rows.hold(id, number)?.ok_or(Fault::Missing(key.clone()))?;
    let mut session = *session;
    let leash = Leash::of(turn.rows, &session)?;
    let before = budget::own_available(turn, leash.effective(), id, &session)?;
    let in_parts = hold.charged;
    let charge = budget::unsettled_charge(&hold);
    if budget::settle(turn, &mut hold, &Settle::Close(charge))?.is_err() {
        // An account that full can book nothing more: the money is freed instead, and the entry says so.
        let _freed = budget::settle(turn, &mut hold, &Settle::Close(NanoUsd::ZERO))?;
    }
    let after = budget::own_available(turn, leash.effective(), id, &session)?;
    let entry = Entry {
        call_number: number,
        tool_name: call.tool.as_str().to_owned(),
        budget_before: before.unwrap_or(NanoUsd::ZERO),
        budget_after: after.unwrap_or(NanoUsd::ZERO),
        reason: why.to_owned(),
        detail: format!("held {} charged {}", hold.amount, hold.charged),
        ..session_entry(turn, Kind::HoldExpired, id, &session)
    };
    turn.record(entry);
    turn.events.push(Event::HoldExpired);
    disarm(turn, id, number, &hold);
    let charged = hold.charged.saturating_sub(in_parts);
    // Silence is no way around a ceiling.
    session.cost = session.cost.saturating_add(charged);
    let limits = leash.enforced().unwrap_or(leash.effective());
    if let Some(reason) = outgrown(limits, &session) {
        session::trip(turn, id, &mut session, reason, number)?;
    }
    let phase = Phase::Expired(charged);
    // The hold stays for a late report, and goes with its call.
    turn.rows.put(key, Row::Hold(hold));
    replay::close_call(turn, id, &session, Call { phase, ..*call });
    turn.rows
        .put(Key::Session(id.clone()), Row::Session(Box::new(session)));
    Ok(true)
}

fn disarm<R: Rows>(turn: &mut Turn<'_, '_, R>, id: &SessionId, number: u64, hold: &Hold) {
    let work = DueWork::HoldExpiry(id.clone(), number);
    turn.rows.delete(Key::Due(hold.expires_at, work));
}

/// An entry about a session, its owner filled in.
pub(crate) fn session_entry<R: Rows>(
    turn: &Turn<'_, '_, R>,
    kind: Kind,
    id: &SessionId,
    session: &Session,
) -> Entry {
    let mut entry = turn.entry(kind);
    entry.session_id = id.as_str().to_owned();
    entry.agent_id = session.agent.as_str().to_owned();
    entry.organization_id = session.organization.as_str().to_owned();
    entry
}
