//! Puts what the cluster knows of itself into the metrics.

use std::time::Duration;

use decision::DurationNs;
use machine::Event;
use tokio::sync::broadcast::error::RecvError;

use crate::door::Door;

/// Sets the gauges to what is true now; for a scrape.
pub fn now(door: &Door) {
    let (metrics, status, progress) = (&door.metrics, door.node.status(), door.node.progress());
    let voters = status.members.iter().filter(|member| member.voter).count();
    let learners = status.members.len().saturating_sub(voters);
    metrics
        .raft_members
        .with_label_values(&["voter"])
        .set(gauge(voters));
    metrics
        .raft_members
        .with_label_values(&["learner"])
        .set(gauge(learners));
    metrics.raft_has_leader.set(i64::from(status.leader.is_some()));
    metrics.raft_is_leader.set(i64::from(status.leads()));
    metrics.raft_term.set(gauge(status.term));
    metrics.raft_last_log_index.set(gauge(status.last_log));
    metrics.raft_committed_index.set(gauge(status.committed));
    metrics.raft_applied_index.set(gauge(progress.applied_index));
    metrics.raft_snapshot_index.set(gauge(status.snapshot));
    metrics.raft_purged_index.set(gauge(status.purged));
    let standing = door.node.standing();
    metrics
        .raft_uncommitted_seconds
        .set(standing.uncommitted_for().as_secs_f64());
    metrics.snapshot_failures.set(gauge(standing.snapshots_failed()));
    metrics.out_of_service.reset();
    if let Err(why) = door.node.in_service() {
        metrics.out_of_service.with_label_values(&[why.word()]).set(1);
    }
    metrics.halt_epoch.set(gauge(progress.halt_epoch));
    metrics.audit_sequence.set(gauge(progress.head_sequence));
    metrics
        .log_time_seconds
        .set(gauge(DurationNs::from_nanos(progress.log_time.nanos()).secs()));
    metrics
        .clock_skew_seconds
        .set(door.node.clock_skew().map_or(f64::NAN, seconds));
    if let Ok(Some(chain)) = door.node.reader().chain() {
        metrics.audit_sealed_sequence.set(gauge(chain.sealed_to));
    }
}

/// Counts what happens, until the state ends.
pub async fn keep_counting(door: &Door) {
    let metrics = &door.metrics;
    metrics
        .build_info
        .with_label_values(&[env!("CARGO_PKG_VERSION")])
        .set(1);
    let mut events = door.node.reader().events();
    let mut changed = door.node.changed();
    let mut leader = None;
    loop {
        tokio::select! {
            happened = events.recv() => match happened {
                Ok(happened) => happened.iter().for_each(|event| count(door, event)),
                // Counters may miss some: they are for looking at, the chain has all.
                Err(RecvError::Lagged(missed)) => tracing::debug!(missed, "events were missed"),
                Err(RecvError::Closed) => return,
            },
            status = changed.changed() => {
                if status.is_err() {
                    return;
                }
                let now = changed.borrow_and_update().leader.as_ref().map(|(raft_id, _)| *raft_id);
                if now.is_some() && now != leader {
                    metrics.raft_leader_changes_total.inc();
                    leader = now;
                }
            }
        }
    }
}

fn count(door: &Door, event: &Event) {
    let metrics = &door.metrics;
    match event {
        // Counted where they are answered.
        Event::Decided { .. } | Event::Replayed | Event::Approval { .. } => {}
        Event::Settled => metrics.holds_settled_total.inc(),
        Event::HoldExpired => metrics.holds_expired_total.inc(),
        Event::Tripped { .. } => metrics.circuit_trips_total.inc(),
        Event::Engaged { .. } => metrics.halts_engaged_total.inc(),
        Event::Released { .. } => metrics.halts_released_total.inc(),
        Event::SessionOpened => metrics.sessions_opened_total.inc(),
        Event::SessionClosed { .. } => metrics.sessions_closed_total.inc(),
    }
}

fn seconds(nanos: i64) -> f64 {
    let span = Duration::from_nanos(nanos.unsigned_abs()).as_secs_f64();
    if nanos < 0 { -span } else { span }
}

fn gauge(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
