//! One Raft node, and the small facade that everything above sees of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use audit::Signer;
use openraft::async_runtime::WatchReceiver as _;
use openraft::{Instant as _, ServerState, SnapshotPolicy};
use openraft_rt::deterministic_rng::DeterministicRng;
use openraft_rt_tokio::TokioRuntime;
use store::{Member, Owner, Progress, Raft, Snapshots, StateMachine, StateReader, Store};
use tokio::sync::watch;
use tokio::time::Instant;
use wire::proto::haltgate::peer::v1::peer_server::PeerServer;

use crate::chores::{self, Heard};
use crate::clock::{Clock, Entropy};
use crate::clocks::Clocks;
use crate::connect::{Connector, PEER_MESSAGE_MAX, Peers};
use crate::error::StartError;
use crate::network::Network;
use crate::peer::{PeerDoor, Vouched, Whoami};
use crate::propose::{Leader, Proposer, Queues};
use crate::status::{MemberStatus, Role, Status};

pub(crate) type RaftNode = openraft::Raft<Raft, StateMachine>;

/// Timings and sizes of the log; the daemon's configuration has the defaults and their reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub heartbeat: Duration,
    pub election_min: Duration,
    pub election_max: Duration,
    /// Applied entries after which a snapshot is built.
    pub snapshot_every: u64,
    /// Applied entries that stay in the log behind a snapshot: what is purged must be far behind what is
    /// applied (openraft issue 2116), and a follower that is less far behind needs no snapshot.
    pub log_kept: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(200),
            election_min: Duration::from_millis(1_000),
            election_max: Duration::from_millis(2_000),
            snapshot_every: 100_000,
            log_kept: 100_000,
        }
    }
}

/// Everything a node is made of.
pub struct Setup {
    /// This node's name and addresses.
    pub member: Member,
    /// The members that the configuration lists: besides those of the membership it knows, this node takes Raft's
    /// messages from them.
    pub listed: Vec<Member>,
    pub store: Store,
    pub options: Options,
    pub connector: Arc<dyn Connector>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// Signs the audit chain when this node leads.
    pub signer: Signer,
}

/// A running node. Clones are handles of the same one.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    raft: RaftNode,
    raft_id: u64,
    member: Member,
    owner: Owner,
    snapshots: Snapshots,
    reader: StateReader,
    options: Options,
    peers: Peers,
    listed: BTreeSet<String>,
    vouched: Vouched,
    clocks: Arc<Clocks>,
    entropy: Arc<dyn Entropy>,
    queues: Queues,
    heard: Heard,
    status: watch::Receiver<Status>,
    /// Since when no leader could be reached.
    leaderless: Mutex<Option<Instant>>,
    membership_turn: Arc<tokio::sync::Mutex<()>>,
    chores: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("member", &self.member)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("raft_id", &self.0.raft_id)
            .field("member", &self.0.member)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Starts Raft over the store. The node answers to peers once its `peer_service` is served.
    ///
    /// # Errors
    /// The store cannot be read, or the timings do not fit each other.
    pub async fn start(setup: Setup) -> Result<Self, StartError> {
        let Setup {
            member,
            listed,
            store,
            options,
            connector,
            clock,
            entropy,
            signer,
        } = setup;
        let Store {
            log,
            state,
            reader,
            snapshots,
            owner,
        } = store;
        let raft_id = owner.identity().raft_id;
        let known = reader.at(|view| view.membership().membership().get_node(&raft_id).cloned())?;
        if let Some(known) = known.filter(|known| known.name != member.name) {
            return Err(StartError::Options(format!(
                "this data directory is node {}'s, the configuration is node {}'s",
                known.name, member.name
            )));
        }
        let config = raft_config(&options)?;
        let peers = Peers::new(connector);
        let whoami = whoami(&owner, &member);
        let network = Network {
            whoami,
            peers: peers.clone(),
        };
        // Elections draw from the injected source, so that a simulation repeats them.
        let starting = openraft::Raft::new(raft_id, Arc::new(config), network, log, state);
        let raft = DeterministicRng::<TokioRuntime>::scope(entropy.number(), starting)
            .await
            .map_err(|error| StartError::Raft(error.to_string()))?;

        let (status_out, status) = watch::channel(Status {
            raft_id,
            ..Status::default()
        });
        let watching = tokio::spawn(watch_status(raft.clone(), owner.clone(), status_out));
        let clocks = Arc::new(Clocks::new(clock));
        let (queues, proposer) = Proposer::new(raft.clone(), clocks.clone(), entropy.clone());
        let proposing = tokio::spawn(proposer.run());
        let node = Self(Arc::new(Inner {
            raft,
            raft_id,
            member,
            owner,
            snapshots,
            reader,
            options,
            peers,
            listed: listed.into_iter().map(|member| member.name).collect(),
            vouched: Vouched::default(),
            clocks,
            entropy,
            queues,
            heard: Heard::default(),
            status,
            leaderless: Mutex::new(Some(Instant::now())),
            membership_turn: Arc::default(),
            chores: Mutex::new(vec![watching, proposing]),
        }));
        let chores = tokio::spawn(chores::run(node.clone(), signer));
        node.0
            .chores
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(chores);
        Ok(node)
    }

    /// The service that peers call; the TLS layer puts a `PeerIdentity` into every request.
    pub fn peer_service(&self) -> PeerServer<PeerDoor> {
        PeerServer::new(PeerDoor::new(self.clone()))
            .max_decoding_message_size(PEER_MESSAGE_MAX)
            .max_encoding_message_size(PEER_MESSAGE_MAX)
    }

    /// Local state: what this node has applied, without asking anyone.
    pub fn reader(&self) -> &StateReader {
        &self.0.reader
    }

    pub fn member(&self) -> &Member {
        &self.0.member
    }

    pub fn raft_id(&self) -> u64 {
        self.0.raft_id
    }

    /// The cluster's id; empty until the node belongs to one.
    pub fn cluster_id(&self) -> String {
        self.0.owner.identity().cluster_id
    }

    pub fn status(&self) -> Status {
        self.0.status.borrow().clone()
    }

    /// Tells of every change of the status.
    pub fn changed(&self) -> watch::Receiver<Status> {
        self.0.status.clone()
    }

    /// Waits until Raft has ended, and says why. The process must end then: nothing may go on answering.
    pub async fn stopped(&self) -> String {
        let mut status = self.0.status.clone();
        match status.wait_for(|status| status.stopped.is_some()).await {
            Ok(status) => status.stopped.clone().unwrap_or_default(),
            Err(_closed) => "the status watcher ended".to_owned(),
        }
    }

    /// Ends Raft, then everything around it. What is queued is answered with `Stopped`.
    pub async fn shutdown(&self) {
        if let Err(error) = self.0.raft.shutdown().await {
            tracing::warn!(%error, "Raft did not end cleanly");
        }
        let chores = std::mem::take(&mut *self.0.chores.lock().unwrap_or_else(PoisonError::into_inner));
        for chore in chores {
            chore.abort();
            let _aborted = chore.await;
        }
    }

    pub(crate) fn raft(&self) -> &RaftNode {
        &self.0.raft
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.0.owner
    }

    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.0.snapshots
    }

    /// Held while a membership is changed: one change at a time.
    pub(crate) fn membership_turn(&self) -> Arc<tokio::sync::Mutex<()>> {
        self.0.membership_turn.clone()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.0.peers
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.0.queues
    }

    pub(crate) fn heard(&self) -> &Heard {
        &self.0.heard
    }

    pub(crate) fn entropy(&self) -> &dyn Entropy {
        &*self.0.entropy
    }

    pub(crate) fn clocks(&self) -> &Clocks {
        &self.0.clocks
    }

    /// Whether the configuration lists a member of this name.
    pub(crate) fn lists(&self, name: &str) -> bool {
        self.0.listed.contains(name)
    }

    pub(crate) fn vouched(&self) -> &Vouched {
        &self.0.vouched
    }

    pub(crate) fn whoami(&self) -> Whoami {
        whoami(&self.0.owner, &self.0.member)
    }

    /// Who leads, as far as Raft has told.
    pub(crate) fn leader(&self) -> Leader {
        let metrics = self.0.raft.metrics();
        let metrics = metrics.borrow_watched();
        if metrics.state == ServerState::Leader {
            let alone = metrics.membership_config.membership().voter_ids().count() > 1
                && metrics
                    .last_quorum_acked
                    .is_none_or(|acked| acked.elapsed() > self.0.options.election_max);
            if alone {
                return Leader::HereAlone;
            }
            self.leader_found();
            return Leader::Here;
        }
        match metrics.current_leader.filter(|leader| *leader != self.0.raft_id) {
            Some(id) => match metrics.membership_config.membership().get_node(&id) {
                Some(member) => Leader::There(id, member.clone()),
                None => Leader::Unknown,
            },
            None => {
                self.leader_lost();
                Leader::Unknown
            }
        }
    }

    /// Says whether no leader could be reached for longer than an election takes: waiting is no use.
    pub(crate) fn is_leaderless(&self) -> bool {
        let since = *self.0.leaderless.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() > self.0.options.election_max)
    }

    pub(crate) fn leader_lost(&self) {
        let mut since = self.0.leaderless.lock().unwrap_or_else(PoisonError::into_inner);
        since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn leader_found(&self) {
        *self.0.leaderless.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What this node has applied.
    pub fn progress(&self) -> Progress {
        *self.0.reader.progress().borrow()
    }
}

fn whoami(owner: &Owner, member: &Member) -> Whoami {
    Whoami {
        raft_id: owner.identity().raft_id,
        member: member.clone(),
        owner: owner.clone(),
    }
}

fn raft_config(options: &Options) -> Result<openraft::Config, StartError> {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let config = openraft::Config {
        cluster_name: "haltgate".to_owned(),
        heartbeat_interval: millis(options.heartbeat),
        election_timeout_min: millis(options.election_min),
        election_timeout_max: millis(options.election_max),
        max_append_entries: Some(4_096),
        max_payload_entries: 512,
        // A follower that is further behind gets a snapshot, and is then less far behind than this.
        replication_lag_threshold: options.snapshot_every.saturating_add(options.log_kept),
        // We build snapshots ourselves (`chores::snapshot`); what is behind them is purged up to the margin.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: options.log_kept,
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

/// Puts what Raft tells into plain values, for everyone above.
async fn watch_status(raft: RaftNode, owner: Owner, out: watch::Sender<Status>) {
    let mut metrics = raft.metrics();
    loop {
        let status = {
            let metrics = metrics.borrow_watched();
            let membership = metrics.membership_config.membership();
            let voters: Vec<u64> = membership.voter_ids().collect();
            let index = |log_id: &Option<store::LogId>| log_id.as_ref().map_or(0, |log_id| log_id.index);
            let matched = |id: u64| {
                let known = metrics.replication.as_ref().and_then(|all| all.get(&id));
                known.map_or(0, index)
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
                leader: metrics
                    .current_leader
                    .and_then(|id| membership.get_node(&id).map(|member| (id, member.clone()))),
                members: membership
                    .nodes()
                    .map(|(id, member)| MemberStatus {
                        raft_id: *id,
                        member: member.clone(),
                        voter: voters.contains(id),
                        matched: matched(*id),
                    })
                    .collect(),
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
        };
        let ended = status.stopped.is_some();
        out.send_if_modified(|current| {
            let modified = *current != status;
            *current = status;
            modified
        });
        if ended {
            return;
        }
        if metrics.changed().await.is_err() {
            out.send_modify(|status| {
                status.stopped.get_or_insert_with(|| "Raft ended".to_owned());
            });
            return;
        }
    }
}
