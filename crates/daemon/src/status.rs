//! Whether this node can decide, and why not.

use std::time::Duration;

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::door::Door;
use crate::drill;
use crate::emergency;

/// How far behind the commit index a node may be and count as caught up: less than a second of full load.
const BEHIND_MAX: u64 = 5_000;
/// How long the cluster may take to confirm that it answers.
const PROBE: Duration = Duration::from_millis(1_000);
/// How often it is asked, while it does and while it does not.
const PROBE_EVERY: Duration = Duration::from_secs(1);
const PROBE_SOON: Duration = Duration::from_millis(200);

/// Looks again and again, and tells the metric and the health service.
pub async fn keep_current(door: &Door, health: &HealthReporter, mut draining: watch::Receiver<bool>) {
    loop {
        let obstacles = obstacles(door).await;
        let ready = obstacles.is_empty();
        if door.set_obstacles(&obstacles) {
            tracing::info!(ready, obstacles = obstacles.join("; "), "readiness changed");
        }
        tell(door, health, ready).await;
        let pause = if ready { PROBE_EVERY } else { PROBE_SOON };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = draining.changed() => if changed.is_err() { return },
        }
    }
}

async fn tell(door: &Door, health: &HealthReporter, ready: bool) {
    door.metrics.ready.set(i64::from(ready));
    door.metrics
        .emergency_stop
        .set(i64::from(door.emergency.is_engaged()));
    let serving = if ready {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    };
    for service in ["", "shackle.v1.ShackleDaemon"] {
        health.set_service_status(service, serving).await;
    }
}

async fn obstacles(door: &Door) -> Vec<String> {
    let status = door.node.status();
    let mut found = Vec::new();
    if let Some(why) = &status.stopped {
        found.push(format!("Raft has ended: {why}"));
    }
    if *door.draining.borrow() {
        found.push("stopping".to_owned());
    }
    if door.emergency.is_engaged() {
        found.push(emergency::ENGAGED.to_owned());
    }
    if status.cluster_id.is_none() {
        found.push("not a member of a cluster: run `haltgate init`, or `haltgate join`".to_owned());
        return found;
    }
    if let Err(why) = door.node.in_service() {
        found.push(format!("{}: {why}", why.word()));
    }
    if door.node.standing().is_stuck() {
        found.push("stuck: the leader's oldest entry is not committed within two seconds".to_owned());
    }
    let behind = status.committed.saturating_sub(status.applied);
    if behind > BEHIND_MAX {
        found.push(format!("catching up: {behind} log entries behind"));
    }
    if !found.is_empty() {
        return found;
    }
    // The one question that counts: does a leader confirm itself, and has this node applied what it has?
    match door.node.read(PROBE, |view| drill::holds(view)).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(why))) => found.push(why),
        Ok(Err(fault)) => found.push(fault.to_string()),
        Err(unavailable) => found.push(unavailable.to_string()),
    }
    found
}
