//! openraft, set up and watched: its configuration, and what it tells, in plain values.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use openraft::{Instant as _, ServerState, SnapshotPolicy};
use store::{Member, Owner, Raft, StateMachine};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::StartError;
use crate::status::{MemberStatus, Role, Status};

pub(crate) type RaftNode = openraft::Raft<Raft, StateMachine>;
type Metrics = openraft::RaftMetrics<Raft>;

/// Timings and sizes of the log; the daemon's configuration has the defaults and their reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub heartbeat: Duration,
    /// A follower that heard nothing for at least this long stands for election …
    pub election_min: Duration,
    /// … and at the latest after this long.
    pub election_max: Duration,
    /// Applied entries after which a snapshot is built.
    pub snapshot_every: u64,
    /// Applied entries that stay in the log behind a snapshot: what is purged must be far behind what is
    /// applied (openraft issue 2116), and a follower that is less far behind needs no snapshot.
    pub log_kept: u64,
    /// Encoded bytes of the commands in one log entry; one command alone may be larger.
    pub entry_bytes: usize,
    /// Encoded bytes of one command: a larger one is refused before it is proposed.
    pub command_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(150),
            election_min: Duration::from_millis(1_000),
            election_max: Duration::from_millis(1_200),
            snapshot_every: 100_000,
            log_kept: 100_000,
            entry_bytes: 256 << 10,
            command_bytes: 1 << 20,
        }
    }
}

impl Options {
    /// openraft lets a follower stand once a lease and then a random timeout are over. The lease is as long as the
    /// longest timeout, so half of `election_max`; the shortest timeout is what is left of `election_min`.
    fn timeouts(&self) -> (Duration, Duration) {
        let longest = self.election_max / 2;
        (self.election_min.saturating_sub(longest), longest)
    }

    pub(crate) fn raft_config(&self) -> Result<openraft::Config, StartError> {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let (shortest, longest) = self.timeouts();
        let config = openraft::Config {
            cluster_name: "haltgate".to_owned(),
            heartbeat_interval: millis(self.heartbeat),
            election_timeout_min: millis(shortest),
            election_timeout_max: millis(longest),
            max_append_entries: Some(4_096),
            max_payload_entries: 512,
            // A follower that is further behind gets a snapshot, and is then less far behind than this.
            replication_lag_threshold: self.snapshot_every.saturating_add(self.log_kept),
            // We build snapshots ourselves (`chores::snapshot`); what is behind them is purged up to the margin.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: self.log_kept,
            install_snapshot_timeout: 600_000,
            enable_pre_vote: Some(true),
            // A follower that lost its log refuses to start where it can see that (`store`). One that was put back to
            // an older copy as a whole cannot; ending the leader for it would only end the next leader too.
            allow_log_reversion: Some(true),
            // A leader that starts again asks to be elected. The state is written behind the log: restored to its
            // office it would answer from a state that lags behind what it had acknowledged.
            enable_leader_restore: Some(false),
            ..openraft::Config::default()
        };
        config
            .validate()
            .map_err(|error| StartError::Options(error.to_string()))
    }
}

/// When a leader's messages came last; a follower hears of its leader's end by silence alone.
#[derive(Clone, Default)]
pub(crate) struct LeaderHeard(Arc<Mutex<Option<Instant>>>);

impl LeaderHeard {
    pub fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn within(&self, span: Duration) -> bool {
        let heard = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.is_some_and(|heard| heard.elapsed() <= span)
    }
}

/// Where the leader is, as far as this node knows.
pub(crate) enum Leader {
    Here,
    /// This node leads, but has not heard from a quorum for longer than an election takes.
    HereAlone,
    There(u64, Member),
    Unknown,
}

impl Leader {
    pub fn of(metrics: &Metrics, options: &Options, heard: &LeaderHeard) -> Self {
        let membership = metrics.membership_config.membership();
        if metrics.state == ServerState::Leader {
            let alone = membership.voter_ids().count() > 1
                && metrics
                    .last_quorum_acked
                    .is_none_or(|acked| acked.elapsed() > options.election_max);
            return if alone { Self::HereAlone } else { Self::Here };
        }
        let named = metrics.current_leader.filter(|leader| *leader != metrics.id);
        match named.and_then(|id| Some((id, membership.get_node(&id)?))) {
            // One that says nothing for as long as two elections take leads nobody.
            Some((id, member)) if heard.within(options.election_max * 2) => Self::There(id, member.clone()),
            Some(_) | None => Self::Unknown,
        }
    }
}

/// Puts what Raft tells into plain values, for everyone above.
pub(crate) async fn watch_status(
    raft: RaftNode,
    owner: Owner,
    options: Options,
    heard: LeaderHeard,
    out: watch::Sender<Status>,
) {
    let mut metrics = raft.metrics();
    loop {
        let status = status(&metrics.borrow_watched(), &owner, &options, &heard);
        let ended = status.stopped.is_some();
        out.send_if_modified(|current| {
            let modified = *current != status;
            *current = status;
            modified
        });
        if ended {
            return;
        }
        // Silence changes what is known, too.
        match tokio::time::timeout(options.heartbeat, metrics.changed()).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(_closed)) => {
                out.send_modify(|status| {
                    status.stopped.get_or_insert_with(|| "Raft ended".to_owned());
                });
                return;
            }
        }
    }
}

fn status(metrics: &Metrics, owner: &Owner, options: &Options, heard: &LeaderHeard) -> Status {
    let membership = metrics.membership_config.membership();
    let voters: Vec<u64> = membership.voter_ids().collect();
    let index = |log_id: &Option<store::LogId>| log_id.as_ref().map_or(0, |log_id| log_id.index);
    let matched = |id: u64| {
        let known = metrics.replication.as_ref().and_then(|all| all.get(&id));
        known.map_or(0, index)
    };
    let leader = match Leader::of(metrics, options, heard) {
        Leader::Here => membership
            .get_node(&metrics.id)
            .map(|member| (metrics.id, member.clone())),
        Leader::There(id, member) => Some((id, member)),
        Leader::HereAlone | Leader::Unknown => None,
    };
    let cluster_id = owner.identity().cluster_id;
    Status {
        raft_id: metrics.id,
        cluster_id: (!cluster_id.is_empty()).then_some(cluster_id),
        role: match metrics.state {
            ServerState::Learner => Role::Learner,
            ServerState::Follower => Role::Follower,
            ServerState::Candidate => Role::Candidate,
            ServerState::Leader => Role::Leader,
            ServerState::Shutdown => Role::Stopped,
        },
        term: metrics.current_term,
        leader,
        members: membership
            .nodes()
            .map(|(id, member)| MemberStatus {
                raft_id: *id,
                member: member.clone(),
                voter: voters.contains(id),
                matched: matched(*id),
            })
            .collect(),
        changing: membership.get_joint_config().len() > 1,
        last_log: metrics.last_log_index.unwrap_or(0),
        committed: index(&metrics.local_committed),
        applied: index(&metrics.last_applied),
        snapshot: index(&metrics.snapshot),
        purged: index(&metrics.purged),
        stopped: match (&metrics.running_state, metrics.state) {
            (Err(fatal), _) => Some(fatal.to_string()),
            (Ok(()), ServerState::Shutdown) => Some("shut down".to_owned()),
            (Ok(()), _) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Options;

    /// What a follower waits is the lease and a timeout: between them they keep what the options promise.
    #[test]
    fn lease_and_timeout_together_are_what_the_options_say() {
        for (min, max) in [(1_000, 1_200), (1_000, 1_500), (500, 600), (400, 500)] {
            let options = Options {
                heartbeat: Duration::from_millis(100),
                election_min: Duration::from_millis(min),
                election_max: Duration::from_millis(max),
                ..Options::default()
            };
            let config = options.raft_config().unwrap();
            let lease = config.election_timeout_max;
            assert_eq!(lease + config.election_timeout_min, min, "{min} to {max}");
            assert_eq!(lease + config.election_timeout_max, max, "{min} to {max}");
        }
    }
}
