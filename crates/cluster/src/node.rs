//! One Raft node, as everything in this crate and above it sees it: its parts, and who leads.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use decision::{SessionId, Timestamp};
use openraft::async_runtime::WatchReceiver as _;
use store::{HeldArguments, Member, Owner, Progress, Snapshots, StateReader};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Entropy;
use crate::clocks::{Clocks, Voters};
use crate::connect::Peers;
use crate::error::{OutOfService, Unavailable};
use crate::heard::Heard;
use crate::log_time::Reading;
use crate::proposer::Queues;
use crate::raft::{Leader, LeaderHeard, Options, RaftNode};
use crate::standing::Standing;
use crate::status::Status;
use crate::whoami::{Vouched, Whoami};

/// A running node. Clones are handles of the same one.
#[derive(Clone)]
pub struct Node(pub(crate) Arc<Parts>);

/// What a node is made of, once it runs.
pub(crate) struct Parts {
    pub raft: RaftNode,
    pub raft_id: u64,
    pub member: Member,
    pub owner: Owner,
    pub snapshots: Snapshots,
    pub held: HeldArguments,
    pub reader: StateReader,
    pub options: Options,
    pub peers: Peers,
    /// The members that the configuration lists.
    pub listed: Vec<Member>,
    pub names_listed: BTreeSet<String>,
    pub vouched: Vouched,
    pub clocks: Arc<Clocks>,
    pub entropy: Arc<dyn Entropy>,
    pub queues: Queues,
    pub heard: Heard,
    pub leader_heard: LeaderHeard,
    pub standing: Standing,
    pub status: watch::Receiver<Status>,
    pub leading: watch::Sender<Leading>,
    /// Why a task that the node cannot do without has ended; none while all of them run.
    pub ended: watch::Sender<Option<String>>,
    /// Since when no leader could be reached.
    pub leaderless: Mutex<Option<Instant>>,
    pub membership_turn: Arc<tokio::sync::Mutex<()>>,
    pub tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

/// Whether this node leads; told to all that wait for a place in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leading {
    Yes,
    /// It does not reach a quorum.
    Alone,
    No,
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

    /// What this node has applied.
    pub fn progress(&self) -> Progress {
        *self.0.reader.progress().borrow()
    }

    /// How this node stands beside its cluster.
    pub fn standing(&self) -> &Standing {
        &self.0.standing
    }

    /// Refuses where what this node holds is not what its cluster holds: nothing of it may be answered.
    ///
    /// # Errors
    /// Why the node is out of service.
    pub fn in_service(&self) -> Result<(), OutOfService> {
        self.0.standing.out_of_service().map_or(Ok(()), Err)
    }

    /// Why nothing goes on here, where that is so.
    pub(crate) fn ended(&self) -> Option<String> {
        let ended = self.0.ended.borrow().clone();
        ended.or_else(|| self.0.status.borrow().stopped.clone())
    }

    pub(crate) fn runs(&self) -> bool {
        self.ended().is_none()
    }

    /// Waits until Raft or a task that this node cannot do without has ended, and says why. The process must end
    /// then: nothing may go on answering.
    pub async fn stopped(&self) -> String {
        let mut status = self.0.status.clone();
        let mut ended = self.0.ended.subscribe();
        let said = tokio::select! {
            status = status.wait_for(|status| status.stopped.is_some()) => {
                status.ok().and_then(|status| status.stopped.clone())
            }
            ended = ended.wait_for(Option::is_some) => ended.ok().and_then(|ended| ended.clone()),
        };
        said.unwrap_or_else(|| "the status watcher ended".to_owned())
    }

    /// Ends Raft, then everything around it. What is queued is answered with `Stopped`.
    pub async fn shutdown(&self) {
        if let Err(error) = self.0.raft.shutdown().await {
            tracing::warn!(%error, "Raft did not end cleanly");
        }
        let tasks = std::mem::take(&mut *self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            let _aborted = task.await;
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

    /// The arguments of held calls that are on this node.
    pub(crate) fn held(&self) -> &HeldArguments {
        &self.0.held
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

    /// Notes that a session's agent is alive; written down together with others, some seconds later.
    pub fn seen(&self, session: SessionId) {
        self.0.heard.note(session);
    }

    pub(crate) fn entropy(&self) -> &dyn Entropy {
        &*self.0.entropy
    }

    pub(crate) fn clocks(&self) -> &Clocks {
        &self.0.clocks
    }

    /// How far this node's clock is from the median of the voters', in nanoseconds, above 0 ahead; none while a
    /// majority has not told its clock.
    pub fn clock_skew(&self) -> Option<i64> {
        let own = self.clocks().own();
        let median = self.clocks().median(&Voters::of(self.raft()), own)?;
        Some(median.skew(Reading::exact(own)))
    }

    /// The log time that this node would stamp, if it leads.
    pub(crate) fn log_time(&self) -> Option<Timestamp> {
        self.clocks().log_time(&Voters::of(self.raft()))
    }

    /// The members that the configuration lists.
    pub(crate) fn listed(&self) -> &[Member] {
        &self.0.listed
    }

    /// Whether the configuration lists a member of this name.
    pub(crate) fn lists(&self, name: &str) -> bool {
        self.0.names_listed.contains(name)
    }

    pub(crate) fn vouched(&self) -> &Vouched {
        &self.0.vouched
    }

    pub(crate) fn leader_heard(&self) -> &LeaderHeard {
        &self.0.leader_heard
    }

    pub(crate) fn whoami(&self) -> Whoami {
        Whoami::new(&self.0.owner, &self.0.member)
    }

    /// Who leads, as far as Raft has told.
    pub(crate) fn leader(&self) -> Leader {
        let metrics = self.0.raft.metrics();
        let leader = Leader::of(&metrics.borrow_watched(), &self.0.options, &self.0.leader_heard);
        match leader {
            Leader::Here => self.leader_found(),
            Leader::Unknown => self.leader_lost(),
            Leader::HereAlone | Leader::There(..) => {}
        }
        leader
    }

    pub(crate) fn leads(&self) -> bool {
        matches!(self.leader(), Leader::Here)
    }

    /// Waits until this node does not lead, or leads nobody.
    pub(crate) async fn stops_leading(&self) -> Leading {
        let mut leading = self.0.leading.subscribe();
        let stopped = leading.wait_for(|leading| *leading != Leading::Yes).await;
        stopped.map_or(Leading::No, |leading| *leading)
    }

    /// The leader, and how to say that it is no more.
    pub(crate) fn now_leading(&self, leading: Leading) {
        self.0.leading.send_if_modified(|current| {
            let modified = *current != leading;
            *current = leading;
            modified
        });
    }

    /// Says whether no leader could be reached for longer than an election takes: waiting is no use.
    pub(crate) fn is_leaderless(&self) -> bool {
        let since = *self.0.leaderless.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() > self.0.options.election_max * 2)
    }

    pub(crate) fn leader_lost(&self) {
        let mut since = self.0.leaderless.lock().unwrap_or_else(PoisonError::into_inner);
        since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn leader_found(&self) {
        *self.0.leaderless.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl From<OutOfService> for crate::error::MemberError {
    fn from(why: OutOfService) -> Self {
        Unavailable::from(why).into()
    }
}
