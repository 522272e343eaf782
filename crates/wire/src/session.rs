//! A session as it is shown: `shackle.v1.SessionState`.

use machine::query::SessionView;

use crate::guard::nanoseconds;
use crate::money;
use crate::proto::shackle::v1 as proto;
use crate::same;

/// How much of a session is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// All of it.
    Whole,
    /// Without counters and metadata: one of many.
    Listed,
}

/// Writes the session.
pub fn state(view: &SessionView, shown: Shown) -> proto::SessionState {
    let SessionView {
        id,
        session,
        account,
        guard,
        guard_path,
        now,
        log_index,
    } = view;
    let last = session.last_call.as_ref();
    let windows: Vec<_> = match guard.window {
        Some(window) => session
            .windows
            .iter()
            .filter(|(_, counted)| counted.at(*now, window.duration).calls > 0)
            .collect(),
        None => Vec::new(),
    };
    let whole = shown == Shown::Whole;
    proto::SessionState {
        session_id: id.as_str().to_owned(),
        agent_id: session.agent.as_str().to_owned(),
        organization_id: session.organization.as_str().to_owned(),
        status: same::session_status(session.status).into(),
        budget_initial_usd: account
            .and_then(|account| account.granted())
            .map_or(0.0, money::to_dollars),
        budget_remaining_usd: account
            .and_then(|account| account.available())
            .map_or(0.0, money::to_dollars),
        budget_spent_usd: account.map_or(0.0, |account| money::to_dollars(account.spent)),
        total_calls: session.total_calls,
        repeat_counts: last
            .filter(|_| whole)
            .map(|last| (last.tool.as_str().to_owned(), last.repeats))
            .into_iter()
            .collect(),
        window_counts: windows
            .iter()
            .filter(|_| whole)
            .map(|(tool, counted)| (tool.as_str().to_owned(), counted.calls))
            .collect(),
        circuit_tripped: session.trip.is_some(),
        circuit_trip_reason: session
            .trip
            .as_ref()
            .map(|trip| trip.reason.word().into_owned())
            .unwrap_or_default(),
        circuit_tripped_at_ns: session.trip.as_ref().map_or(0, |trip| nanoseconds(trip.at)),
        // Each tool has a window of its own: the oldest one that is open.
        window_start_ns: windows
            .iter()
            .map(|(_, counted)| nanoseconds(counted.start))
            .min()
            .unwrap_or(0),
        window_duration_s: guard.window.map_or(0, |window| {
            u32::try_from(window.duration.secs()).unwrap_or(u32::MAX)
        }),
        window_max_calls: guard.window.map_or(0, |window| window.max_calls),
        last_tool_name: last.map(|last| last.tool.as_str().to_owned()).unwrap_or_default(),
        last_tool_params_hash: last
            .and_then(|last| last.digest)
            .map(|digest| digest.as_bytes().to_vec())
            .unwrap_or_default(),
        last_activity_ns: nanoseconds(session.last_activity),
        metadata: session
            .metadata
            .iter()
            .filter(|_| whole)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        budget_held_nanos: account.map_or(0, |account| account.held.nanos()),
        overdraft_nanos: account.map_or(0, |account| account.overdraft().nanos()),
        open_approvals: u32::try_from(session.waiting.len()).unwrap_or(u32::MAX),
        guard_path: guard_path.iter().map(ToString::to_string).collect(),
        log_index: *log_index,
    }
}
