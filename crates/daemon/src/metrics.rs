//! Every metric (docs/METRICS.md). Labels are of closed sets: no session, agent, tool or organization.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use prometheus::{
    Encoder as _, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

/// A handle of the node's metrics.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

/// Which port a connection came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    Clients,
    Peers,
}

impl Port {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Peers => "peers",
        }
    }
}

/// From a tenth of a millisecond, an answer from memory, to what a client waits for at most.
const SECONDS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Declares the families: field, kind, name, help, labels.
macro_rules! families {
    ($($field:ident: $kind:ident $name:literal $help:literal $([$($label:literal),*])?;)*) => {
        /// The families of metrics, each under its name.
        pub struct Families {
            registry: Registry,
            $(pub $field: $kind,)*
        }

        impl Metrics {
            /// Makes the families, all at 0.
            ///
            /// # Errors
            /// Two families have one name: found by the first test that starts anything.
            pub fn new() -> Result<Self, prometheus::Error> {
                let registry = Registry::new();
                $(
                    let $field = $kind::made($name, $help, &[$($($label),*)?])?;
                    registry.register(Box::new($field.clone()))?;
                )*
                Ok(Self(Arc::new(Families { registry, $($field,)* })))
            }
        }
    };
}

families! {
    build_info: IntGaugeVec "haltgate_build_info" "Always 1; the label has the software version." ["version"];
    ready: IntGauge "haltgate_ready" "1 when this node can decide.";
    emergency_stop: IntGauge "haltgate_emergency_stop" "1 while the emergency stop of this node is engaged.";

    connections: IntGaugeVec "haltgate_connections" "Open connections." ["port"];
    handshake_failures_total: IntCounterVec "haltgate_handshake_failures_total"
        "Connections that were closed before their first request." ["port", "why"];
    rpc_seconds: HistogramVec "haltgate_rpc_seconds" "Time from a request to its answer." ["rpc"];
    rpc_total: IntCounterVec "haltgate_rpc_total" "Answered requests by gRPC status." ["rpc", "status"];
    calls_in_flight: IntGauge "haltgate_calls_in_flight" "Agents' requests under way on this node.";
    rate_limited_total: IntCounterVec "haltgate_rate_limited_total" "Requests refused for their rate." ["limit"];
    unavailable_total: IntCounterVec "haltgate_unavailable_total"
        "Requests that got no answer from the cluster." ["why"];
    refused_identities_total: IntCounterVec "haltgate_refused_identities_total"
        "Requests refused for who made them." ["why"];
    certificate_expiry_seconds: IntGauge "haltgate_certificate_expiry_seconds"
        "End of this node's certificate, in seconds since the Unix epoch.";
    certificate_reloads_total: IntCounterVec "haltgate_certificate_reloads_total"
        "Times that changed certificate files were read." ["outcome"];

    verdicts_total: IntCounterVec "haltgate_verdicts_total"
        "Verdicts given by this node, repeated ones included." ["verdict", "reason"];
    replays_total: IntCounter "haltgate_replays_total" "Recorded answers given again by this node.";
    withheld_allows_total: IntCounter "haltgate_withheld_allows_total"
        "ALLOW answers that a newer halt kept from being sent.";
    halt_confirm_seconds: Histogram "haltgate_halt_confirm_seconds"
        "Time from an order to halt until each node that answers has applied it.";

    sessions_opened_total: IntCounter "haltgate_sessions_opened_total" "Sessions opened in the cluster.";
    sessions_closed_total: IntCounter "haltgate_sessions_closed_total" "Sessions ended in the cluster.";
    circuit_trips_total: IntCounter "haltgate_circuit_trips_total" "Circuits tripped in the cluster.";
    holds_settled_total: IntCounter "haltgate_holds_settled_total" "Holds settled by their agents.";
    holds_expired_total: IntCounter "haltgate_holds_expired_total" "Holds settled by time or by their session's end.";
    halts_engaged_total: IntCounter "haltgate_halts_engaged_total" "Orders to halt, in the cluster.";
    halts_released_total: IntCounter "haltgate_halts_released_total" "Releases of halts, in the cluster.";
    halt_epoch: IntGauge "haltgate_halt_epoch" "Halt epoch that this node has applied.";

    audit_sequence: IntGauge "haltgate_audit_sequence" "Newest audit entry on this node.";
    audit_sealed_sequence: IntGauge "haltgate_audit_sealed_sequence" "Newest audit entry that a seal covers.";
    log_time_seconds: IntGauge "haltgate_log_time_seconds" "The cluster's log time, in seconds since the Unix epoch.";
    clock_skew_seconds: Gauge "haltgate_clock_skew_seconds"
        "How far this node's clock is ahead of the median of the voters'; NaN while a majority's are unknown.";

    raft_has_leader: IntGauge "haltgate_raft_has_leader" "1 when this node knows a leader.";
    raft_is_leader: IntGauge "haltgate_raft_is_leader" "1 when this node leads.";
    raft_leader_changes_total: IntCounter "haltgate_raft_leader_changes_total" "Changes of leader seen by this node.";
    raft_term: IntGauge "haltgate_raft_term" "Raft term.";
    raft_members: IntGaugeVec "haltgate_raft_members" "Members of the cluster." ["kind"];
    raft_last_log_index: IntGauge "haltgate_raft_last_log_index" "Newest entry in this node's log.";
    raft_committed_index: IntGauge "haltgate_raft_committed_index" "Newest entry that this node knows as committed.";
    raft_applied_index: IntGauge "haltgate_raft_applied_index" "Newest entry that this node has applied.";
    raft_snapshot_index: IntGauge "haltgate_raft_snapshot_index" "Last entry in this node's snapshot.";
    raft_purged_index: IntGauge "haltgate_raft_purged_index" "Last entry that is only in snapshots.";
    raft_uncommitted_seconds: Gauge "haltgate_raft_uncommitted_seconds"
        "How long the leader's oldest uncommitted entry has waited, as far as this node knows.";
    out_of_service: IntGaugeVec "haltgate_out_of_service"
        "1 for what keeps this node from answering: its data is not its cluster's." ["why"];
    snapshot_failures: IntGauge "haltgate_snapshot_failures" "Snapshots that could not be built since the start.";
}

impl Metrics {
    /// Writes them in the text format of Prometheus.
    pub fn text(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.0.registry.gather(), &mut text)?;
        Ok(text)
    }
}

impl Deref for Metrics {
    type Target = Families;

    fn deref(&self) -> &Families {
        &self.0
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Families").finish_non_exhaustive()
    }
}

/// One way to make each kind of family.
trait Made: Sized {
    fn made(name: &str, help: &str, labels: &[&str]) -> Result<Self, prometheus::Error>;
}

impl Made for IntCounter {
    fn made(name: &str, help: &str, _labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(name, help)
    }
}

impl Made for IntGauge {
    fn made(name: &str, help: &str, _labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(name, help)
    }
}

impl Made for IntCounterVec {
    fn made(name: &str, help: &str, labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(Opts::new(name, help), labels)
    }
}

impl Made for Gauge {
    fn made(name: &str, help: &str, _labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(name, help)
    }
}

impl Made for IntGaugeVec {
    fn made(name: &str, help: &str, labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(Opts::new(name, help), labels)
    }
}

impl Made for Histogram {
    fn made(name: &str, help: &str, _labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()))
    }
}

impl Made for HistogramVec {
    fn made(name: &str, help: &str, labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), labels)
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn every_family_has_its_own_name_and_is_written() {
        let metrics = Metrics::new().unwrap();
        metrics
            .verdicts_total
            .with_label_values(&["ALLOW", "within_thresholds"])
            .inc();
        let text = String::from_utf8(metrics.text().unwrap()).unwrap();
        assert!(
            text.contains("haltgate_verdicts_total{reason=\"within_thresholds\",verdict=\"ALLOW\"} 1"),
            "{text}"
        );
        assert!(text.contains("haltgate_halt_epoch 0"));
    }
}
