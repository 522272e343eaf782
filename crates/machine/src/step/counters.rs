//! What a session's calls are counted by: what an allowed call moves, how near that brings the session to its
//! limits, and the latch of its circuit.

use decision::behaviour::{Candidate, Outcome};
use decision::{DurationNs, NanoUsd, PerBillion, Reason, RecentCall, Timestamp};

use crate::command::{PostExec, PreExec};
use crate::event::Event;
use crate::row::reply::Warning;
use crate::row::{
    Account, Fault, Guard, LastCall, Record, Session, SessionStatus, Tally, Trip, WINDOW_TOOLS_MAX, Window,
};
use crate::turn::Turn;

/// What the breakers compare a call by.
pub(crate) fn candidate(call: &PreExec) -> Candidate<'_> {
    Candidate {
        tool: &call.tool,
        digest: call.digest,
        numbers: &call.numbers,
    }
}

/// The last allowed call, where this one is identical with it.
pub(crate) fn identical<'s>(session: &'s Session, call: &PreExec) -> Option<&'s LastCall> {
    let last = session.last_call.as_ref();
    last.filter(|last| last.tool == call.tool && last.digest == call.digest)
}

/// The counters an allowed call moves.
pub(crate) fn count(session: &mut Session, call: &PreExec, guard: &Guard, now: Timestamp) {
    session.total_calls = session.total_calls.saturating_add(1);
    session.first_call_at = session.first_call_at.or(Some(now));
    let before = identical(session, call).map_or(0, |last| last.repeats);
    let breakers = &guard.breakers;
    let before = breakers.repeats(before, &session.recent, &candidate(call));
    session.last_call = Some(LastCall {
        call_number: call.call_number,
        tool: call.tool.clone(),
        digest: call.digest,
        repeats: before.saturating_add(1),
        failed: false,
    });
    session.denials = 0;
    count_in_window(session, call, guard, now);
    if let Some(rate) = guard.rate {
        session.rate.count(now, rate);
    }
    remember_recent(session, call, breakers.recent_needed());
}

fn count_in_window(session: &mut Session, call: &PreExec, guard: &Guard, now: Timestamp) {
    let Some(window) = guard.window_of(&call.tool) else {
        return;
    };
    if session.windows.len() >= WINDOW_TOOLS_MAX {
        session.windows.retain(|tool, counted| {
            guard
                .window_of(tool)
                .is_some_and(|window| now.since(counted.start) < window.duration)
        });
    }
    let counted = session.windows.entry(call.tool.clone()).or_default();
    *counted = counted.at(now, window.duration).counted();
}

/// Keeps as many of the last calls as the breakers look at.
fn remember_recent(session: &mut Session, call: &PreExec, needed: usize) {
    session.recent.push(RecentCall {
        tool: call.tool.clone(),
        digest: call.digest,
        outcome: Outcome::Pending,
        result: None,
        numbers: call.numbers.clone(),
    });
    session.recent_numbers.push(call.call_number);
    let over = session.recent.len().saturating_sub(needed);
    session.recent.drain(..over);
    session.recent_numbers.drain(..over);
}

/// Q4: the tool's window is full, or there is no room to count one more tool apart.
pub(crate) fn window_exceeded(session: &Session, call: &PreExec, window: Window, now: Timestamp) -> bool {
    let open = |session: &Session| {
        let windows = session.windows.values();
        windows
            .filter(|counted| now.since(counted.start) < window.duration)
            .count()
    };
    match session.windows.get(&call.tool) {
        Some(counted) => counted.at(now, window.duration).is_full(window.max_calls),
        None => window.max_calls == 0 || open(session) >= WINDOW_TOOLS_MAX,
    }
}

/// How long a full rate or window stays full.
pub(crate) fn retry_after(
    guard: &Guard,
    session: &Session,
    call: &PreExec,
    reason: &Reason,
    now: Timestamp,
) -> Option<DurationNs> {
    match reason {
        Reason::RateExceeded => guard.rate.map(|rate| session.rate.opens_in(now, rate)),
        Reason::WindowExceeded => {
            let counted = session.windows.get(&call.tool)?;
            let ends = counted.start.plus(guard.window_of(&call.tool)?.duration);
            Some(ends.since(now))
        }
        _ => None,
    }
}

/// The limits that are used up beyond the guard's `warn_at`.
pub(crate) fn warnings(
    guard: &Guard,
    session: &Session,
    account: Option<&Account>,
    repeats: u32,
    now: Timestamp,
) -> Vec<Warning> {
    let Some(warn_at) = guard.warn_at else {
        return Vec::new();
    };
    let parts = |amount: u128, ratio: PerBillion| amount.saturating_mul(u128::from(ratio.parts()));
    let near = |used: u128, limit: u128| parts(used, PerBillion::ONE) >= parts(limit, warn_at);
    let nanos = |amount: NanoUsd| u128::try_from(amount.nanos()).unwrap_or(0);
    let calls = session.total_calls.saturating_sub(session.total_calls_base);
    let used = |account: &Account| nanos(account.spent.saturating_add(account.held));
    let span = session.first_call_at.map(|first| now.since(first).nanos());
    let of = |used: u64, max: Option<u64>| Some((u128::from(used), u128::from(max?)));
    let rows = [
        (
            Warning::Budget,
            account.and_then(|account| Some((used(account), nanos(account.granted()?)))),
        ),
        (
            Warning::TotalCalls,
            of(calls, guard.max_total_calls.map(u64::from)),
        ),
        (
            Warning::Repeats,
            of(u64::from(repeats), guard.max_repeat_calls.map(u64::from)),
        ),
        (Warning::Tokens, of(session.tokens, guard.max_tokens)),
        (
            Warning::Cost,
            guard.max_cost.map(|max| (nanos(session.cost), nanos(max))),
        ),
        (
            Warning::Timeout,
            span.and_then(|span| of(span, guard.timeout.map(|limit| limit.nanos()))),
        ),
    ];
    rows.into_iter()
        .filter(|(_, row)| row.is_some_and(|(used, limit)| near(used, limit)))
        .map(|(warning, _)| warning)
        .collect()
}

/// What later calls are judged by: how this one ended, and with what.
pub(crate) fn note_outcome(session: &mut Session, report: &PostExec) {
    let failed = !report.success || report.error_signal;
    let outcome = if failed {
        Outcome::Failed
    } else {
        Outcome::Succeeded
    };
    session.outcomes = session.outcomes.with(outcome);
    let number = report.call_number;
    let place = session.recent_numbers.iter().position(|recent| *recent == number);
    if let Some(recent) = place.and_then(|place| session.recent.get_mut(place)) {
        recent.outcome = outcome;
        recent.result = report.result;
    }
    let last = session.last_call.as_mut();
    if let Some(last) = last.filter(|last| last.call_number == number) {
        last.failed |= failed;
    }
}

/// Trips the session where what its calls used and came to is at its end: the next call finds the circuit open.
pub(crate) fn trip_if_outgrown(
    turn: &mut Turn<'_>,
    session: &mut Record<Session>,
    guard: &Guard,
    call_number: u64,
) -> Result<(), Fault> {
    match outgrown(guard, session) {
        Some(reason) => trip(turn, session, reason, call_number),
        None => Ok(()),
    }
}

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

/// Latches the circuit with its first reason.
pub(crate) fn trip(
    turn: &mut Turn<'_>,
    session: &mut Record<Session>,
    reason: Reason,
    call_number: u64,
) -> Result<(), Fault> {
    if session.trip.is_some() {
        return Ok(());
    }
    session.tickets_void_to = turn.next_sequence();
    session.trip = Some(Trip {
        reason,
        at: turn.now(),
        call_number,
    });
    tally(turn, session, |tally| {
        tally.tripped = tally.tripped.saturating_add(1)
    })?;
    turn.tell(Event::Tripped {
        session: session.id.clone(),
    });
    Ok(())
}

/// Changes the tallies that a session counts in.
pub(crate) fn tally(
    turn: &mut Turn<'_>,
    session: &Session,
    change: impl Fn(&mut Tally),
) -> Result<(), Fault> {
    for of in session.tallies() {
        let mut tally = turn.find_or_default::<Tally>(&of)?;
        change(&mut tally);
        if tally.row == Tally::default() {
            turn.remove::<Tally>(&of);
        } else {
            turn.save(tally);
        }
    }
    Ok(())
}

/// Notes a sign of life. Only a registration brings a stale session back, and nothing an ended one.
pub(crate) fn heard_from(session: &mut Session, now: Timestamp) {
    match session.status {
        SessionStatus::Active | SessionStatus::Paused => {
            session.last_activity = session.last_activity.max(now);
        }
        SessionStatus::Stale | SessionStatus::Terminated => {}
    }
}
