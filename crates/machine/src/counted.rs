//! What an allowed call moves, and how near that brings the session to its limits.

use decision::behaviour::Outcome;
use decision::{DurationNs, NanoUsd, PerBillion, Reason, RecentCall, Timestamp};

use crate::asked::candidate;
use crate::command::PreExec;
use crate::guard::Guard;
use crate::reply::Warning;
use crate::table::{Account, LastCall, Session, WINDOW_TOOLS_MAX};

/// The counters an allowed call moves.
pub(crate) fn count(session: &mut Session, call: &PreExec, guard: &Guard, now: Timestamp) {
    session.total_calls = session.total_calls.saturating_add(1);
    session.first_call_at = session.first_call_at.or(Some(now));
    let counted = match session.last_call.as_ref() {
        Some(last) if last.tool == call.tool && last.digest == call.digest => last.repeats,
        Some(_) | None => 0,
    };
    let repeats = guard
        .breakers
        .repeats(counted, &session.recent, &candidate(call))
        .saturating_add(1);
    session.last_call = Some(LastCall {
        call_number: call.call_number,
        tool: call.tool.clone(),
        digest: call.digest,
        repeats,
        failed: false,
    });
    session.denials = 0;
    if let Some(window) = guard.window_of(&call.tool) {
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
    if let Some(rate) = guard.rate {
        session.rate.count(now, rate);
    }
    remember_recent(session, call, guard.breakers.recent_needed());
}

/// Keeps as many of the last calls as the breakers look at.
pub(crate) fn remember_recent(session: &mut Session, call: &PreExec, needed: usize) {
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
    let near = |used: u128, limit: u128| {
        let parts = |amount: u128, ratio: PerBillion| amount.saturating_mul(u128::from(ratio.parts()));
        parts(used, PerBillion::ONE) >= parts(limit, warn_at)
    };
    let nanos = |amount: NanoUsd| u128::try_from(amount.nanos()).unwrap_or(0);
    let calls = session.total_calls.saturating_sub(session.total_calls_base);
    let used = |account: &Account| nanos(account.spent.saturating_add(account.held));
    let budget = account.and_then(|account| Some((used(account), nanos(account.granted()?))));
    let span = session
        .first_call_at
        .map(|first| u128::from(now.since(first).nanos()));
    let rows = [
        (Warning::Budget, budget),
        (
            Warning::TotalCalls,
            guard
                .max_total_calls
                .map(|max| (u128::from(calls), u128::from(max))),
        ),
        (
            Warning::Repeats,
            guard
                .max_repeat_calls
                .map(|max| (u128::from(repeats), u128::from(max))),
        ),
        (
            Warning::Tokens,
            guard
                .max_tokens
                .map(|max| (u128::from(session.tokens), u128::from(max))),
        ),
        (
            Warning::Cost,
            guard.max_cost.map(|max| (nanos(session.cost), nanos(max))),
        ),
        (
            Warning::Timeout,
            guard
                .timeout
                .and_then(|limit| Some((span?, u128::from(limit.nanos())))),
        ),
    ];
    rows.into_iter()
        .filter(|(_, row)| row.is_some_and(|(used, limit)| near(used, limit)))
        .map(|(warning, _)| warning)
        .collect()
}
