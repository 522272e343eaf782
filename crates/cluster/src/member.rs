//! Membership: founding a cluster, joining it, leaving it; one change at a time. A Raft id belongs to a data
//! directory: a wiped node comes back under a new one, and takes its old one's place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machine::command::{Init, Members, Principal};
use machine::{Command, Guard, Reply};
use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver as _;
use store::{Member, StoreError};
use tokio::time::Instant;
use wire::proto::haltgate::peer::v1 as peer;

use crate::connect::Lane;
use crate::error::{MemberError, Unavailable};
use crate::node::Node;
use crate::propose::{Leader, Urgency};
use crate::status::{MemberStatus, NodeHaltEpoch};

/// How long one peer may take to say who it is.
const HELLO: Duration = Duration::from_secs(2);
/// The pause before peers are asked again.
const AGAIN: Duration = Duration::from_millis(200);
/// How long a new leader may take to be elected, and the state's first entry to be applied.
const FOUNDING: Duration = Duration::from_secs(30);

/// How long a new node may take to catch up, a snapshot included; it is asked to come again after that.
const CATCH_UP: Duration = Duration::from_secs(300);

/// What a cluster begins with.
#[derive(Debug, Clone)]
pub struct Founding {
    /// Who founds it, for the audit log.
    pub by: Principal,
    /// All members, this node among them.
    pub members: Vec<Member>,
    pub default_guard: Guard,
    pub unfunded_organizations: bool,
    pub fixtures: bool,
}

impl Node {
    /// Founds a cluster of the listed members, once. All of them must answer, and none may know a cluster.
    ///
    /// # Errors
    /// A member does not answer within `within`, or already belongs to a cluster.
    pub async fn found(&self, founding: Founding, within: Duration) -> Result<(), MemberError> {
        let deadline = Instant::now() + within;
        let known = self.cluster_id();
        if self.reader().chain()?.is_some() {
            return Err(MemberError::Taken {
                member: self.member().clone(),
                cluster: known,
            });
        }
        // A founder that crashed half way goes on with the id it had chosen.
        let cluster_id = if known.is_empty() {
            self.new_cluster_id()
        } else {
            known
        };
        let mut nodes = BTreeMap::from([(self.raft_id(), self.member().clone())]);
        for member in founding
            .members
            .iter()
            .filter(|member| member.name != self.member().name)
        {
            let hello = self.hello_until(member, false, deadline).await?;
            if !hello.cluster_id.is_empty() && hello.cluster_id != cluster_id {
                return Err(MemberError::Taken {
                    member: member.clone(),
                    cluster: hello.cluster_id,
                });
            }
            nodes.insert(hello.raft_id, member.clone());
        }
        self.adopt(&cluster_id)?;
        for member in founding
            .members
            .iter()
            .filter(|member| member.name != self.member().name)
        {
            self.hello_until(member, true, deadline).await?;
        }
        let ended = |fatal: openraft::errors::Fatal<store::Raft>| Unavailable::Stopped(fatal.to_string());
        if !self.raft().is_initialized().await.map_err(ended)? {
            self.raft()
                .initialize(nodes)
                .await
                .map_err(|error| MemberError::Refused(error.to_string()))?;
        }

        let init = Command::Init(Init {
            chain_id: cluster_id,
            by: founding.by,
            default_guard: founding.default_guard,
            unfunded_organizations: founding.unfunded_organizations,
            fixtures: founding.fixtures,
        });
        match self.propose_until(&init, Instant::now() + FOUNDING).await? {
            Reply::Refused(machine::Refusal::AlreadyInitialized) | Reply::Done(_) => Ok(()),
            other => Err(MemberError::Refused(format!("{other:?}"))),
        }
    }

    /// Asks the listed peers to take this node in again, where its name is a member's and its directory is
    /// new; returns once it votes, or at once where no listed peer knows a cluster.
    ///
    /// # Errors
    /// The cluster does not know this node's name: an operator must add it.
    pub async fn rejoin(&self, listed: &[Member]) -> Result<Rejoined, MemberError> {
        let mut ask: Vec<Member> = listed
            .iter()
            .filter(|member| member.name != self.member().name)
            .cloned()
            .collect();
        loop {
            if self.status().is_voter() {
                return Ok(Rejoined::Votes);
            }
            if let Some(why) = self.status().stopped {
                return Err(Unavailable::Stopped(why).into());
            }
            let mut clusters = 0_usize;
            for member in ask.clone() {
                let Ok(hello) = self.hello(&member, false).await else {
                    continue;
                };
                if hello.cluster_id.is_empty() {
                    continue;
                }
                clusters = clusters.saturating_add(1);
                match self.ask_to_join(&member).await {
                    Ok(answer) if answer.leader_node.is_empty() => {
                        self.adopt(&answer.cluster_id)?;
                    }
                    Ok(answer) => {
                        let leader = Member {
                            name: answer.leader_node,
                            peer: answer.leader_peer_addr,
                            ..Member::default()
                        };
                        if !ask.iter().any(|member| member.name == leader.name) {
                            ask.push(leader);
                        }
                    }
                    Err(refused) => tracing::info!(peer = %member, %refused, "not taken in yet"),
                }
            }
            if clusters == 0 && self.cluster_id().is_empty() {
                return Ok(Rejoined::NoCluster);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn ask_to_join(&self, member: &Member) -> Result<peer::JoinResponse, tonic::Status> {
        let own = self.member();
        let request = peer::JoinRequest {
            sender: Some(self.whoami().sender(0)),
            grpc_addr: own.client.clone(),
            peer_addr: own.peer.clone(),
            http_addr: own.http.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut client = self.peers().client(member, Lane::Urgent);
        match tokio::time::timeout(HELLO, client.join(request)).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_elapsed) => Err(tonic::Status::deadline_exceeded("no answer")),
        }
    }

    /// Takes a node in again that a member's name and a new Raft id: learner first, voter when it has caught
    /// up, and the old id leaves in the same change. The work goes on after the answer.
    pub(crate) fn admit_again(
        &self,
        raft_id: u64,
        member: Member,
    ) -> Result<peer::JoinResponse, MemberError> {
        let status = self.status();
        match self.leader() {
            Leader::Here => {}
            Leader::There(_, leader) => {
                return Ok(peer::JoinResponse {
                    cluster_id: self.cluster_id(),
                    leader_node: leader.name,
                    leader_peer_addr: leader.peer,
                });
            }
            Leader::HereAlone | Leader::Unknown => return Err(Unavailable::NoLeader.into()),
        }
        let named: Vec<&MemberStatus> = status
            .members
            .iter()
            .filter(|known| known.member.name == member.name)
            .collect();
        if named.is_empty() {
            return Err(MemberError::Unknown(member.name));
        }
        let old: BTreeSet<u64> = named
            .iter()
            .map(|known| known.raft_id)
            .filter(|id| *id != raft_id)
            .collect();
        let votes = named.iter().any(|known| known.raft_id == raft_id && known.voter);
        // One change at a time: who comes in the middle of one asks again.
        if !(votes && old.is_empty())
            && let Ok(turn) = self.membership_turn().try_lock_owned()
        {
            let node = self.clone();
            tokio::spawn(async move {
                let name = member.name.clone();
                match node.replace(raft_id, member, &old).await {
                    Ok(()) => tracing::info!(node = name, raft_id, "a wiped node votes again"),
                    Err(error) => {
                        tracing::warn!(node = name, raft_id, %error, "a node was not taken in: it asks again")
                    }
                }
                drop(turn);
            });
        }
        Ok(peer::JoinResponse {
            cluster_id: self.cluster_id(),
            ..peer::JoinResponse::default()
        })
    }

    async fn replace(&self, raft_id: u64, member: Member, old: &BTreeSet<u64>) -> Result<(), MemberError> {
        // Two machines with one node's certificate are a mistake: the one that lives stays.
        for known in self
            .status()
            .members
            .iter()
            .filter(|known| old.contains(&known.raft_id))
        {
            let hello = tokio::time::timeout(HELLO, self.hello(&known.member, false)).await;
            if hello.is_ok_and(|hello| hello.is_ok_and(|hello| hello.raft_id == known.raft_id)) {
                return Err(MemberError::Refused(format!(
                    "{} lives, as {}: two nodes have one name",
                    known.member, known.raft_id
                )));
            }
        }
        let by = Principal {
            name: format!("node/{}", member.name),
            organization: None,
            agents: Vec::new(),
        };
        self.add_learner(&by, raft_id, member).await?;
        let mut voters = self.voters();
        voters.insert(raft_id);
        for id in old {
            voters.remove(id);
        }
        self.change(
            &by,
            ChangeMembers::ReplaceAllVoters(voters),
            &format!("replace {old:?} by {raft_id}"),
        )
        .await
    }

    /// Adds a node that replicates but does not vote, and waits until it has caught up.
    ///
    /// # Errors
    /// This node does not lead, or the change did not commit.
    pub async fn add_learner(&self, by: &Principal, raft_id: u64, member: Member) -> Result<(), MemberError> {
        let name = member.name.clone();
        // The node takes the cluster's id before it takes the log, and is the one that was meant.
        let hello = self.hello_until(&member, true, Instant::now() + FOUNDING).await?;
        if hello.raft_id != raft_id {
            return Err(MemberError::Refused(format!(
                "{member} has the Raft id {}, not {raft_id}",
                hello.raft_id
            )));
        }
        self.raft()
            .add_learner(raft_id, member, false)
            .await
            .map_err(|error| MemberError::Refused(error.to_string()))?;
        self.caught_up(raft_id).await?;
        self.record(by, format!("add learner {name} as {raft_id}")).await
    }

    /// Waits until a node has what this leader's log holds now: a voter that lacks it counts for nothing.
    async fn caught_up(&self, raft_id: u64) -> Result<(), MemberError> {
        let mut metrics = self.raft().metrics();
        let wanted = metrics.borrow_watched().last_log_index;
        let waiting = async {
            loop {
                {
                    let metrics = metrics.borrow_watched();
                    let matched = metrics.replication.as_ref().and_then(|all| all.get(&raft_id));
                    if matched.is_some_and(|matched| matched.as_ref().map(|log_id| log_id.index) >= wanted) {
                        return Ok(());
                    }
                    if metrics.state != openraft::ServerState::Leader {
                        return Err(Unavailable::NoLeader);
                    }
                }
                let ended = |_closed| Unavailable::Stopped("Raft ended".to_owned());
                metrics.changed().await.map_err(ended)?;
            }
        };
        let waited = tokio::time::timeout(CATCH_UP, waiting).await;
        waited
            .unwrap_or(Err(Unavailable::Deadline))
            .map_err(MemberError::Unavailable)
    }

    /// Makes a learner vote.
    ///
    /// # Errors
    /// As `add_learner`.
    pub async fn promote(&self, by: &Principal, raft_id: u64) -> Result<(), MemberError> {
        let mut voters = self.voters();
        voters.insert(raft_id);
        self.change(
            by,
            ChangeMembers::ReplaceAllVoters(voters),
            &format!("promote {raft_id}"),
        )
        .await
    }

    /// Removes a member, voter or not.
    ///
    /// # Errors
    /// As `add_learner`.
    pub async fn remove(&self, by: &Principal, raft_id: u64) -> Result<(), MemberError> {
        let voters = self.voters();
        if voters.contains(&raft_id) {
            let left = voters.into_iter().filter(|id| *id != raft_id).collect();
            self.change(
                by,
                ChangeMembers::ReplaceAllVoters(left),
                &format!("remove {raft_id}"),
            )
            .await
        } else {
            let learner = BTreeSet::from([raft_id]);
            self.change(
                by,
                ChangeMembers::RemoveNodes(learner),
                &format!("remove {raft_id}"),
            )
            .await
        }
    }

    /// Hands leadership to another voter, the one named or any, and waits until it leads.
    ///
    /// # Errors
    /// This node does not lead, or nobody took over in time.
    pub async fn transfer_leader(&self, to: Option<u64>, within: Duration) -> Result<u64, MemberError> {
        let status = self.status();
        if !status.leads() {
            return Err(Unavailable::NoLeader.into());
        }
        let to = match to {
            Some(to) => to,
            None => status
                .members
                .iter()
                .find(|member| member.voter && member.raft_id != status.raft_id)
                .map(|member| member.raft_id)
                .ok_or_else(|| MemberError::Refused("there is no other voter".to_owned()))?,
        };
        if status.member(to).is_none() {
            return Err(MemberError::Unknown(to.to_string()));
        }
        self.raft()
            .trigger()
            .transfer_leader(to)
            .await
            .map_err(|fatal| Unavailable::Stopped(fatal.to_string()))?;
        let mut changed = self.changed();
        let moved = changed.wait_for(|status| {
            status
                .leader
                .as_ref()
                .is_some_and(|(leader, _)| *leader != status.raft_id)
        });
        match tokio::time::timeout(within, moved).await {
            Ok(Ok(status)) => Ok(status.leader.as_ref().map_or(0, |(leader, _)| *leader)),
            Ok(Err(_closed)) => Err(Unavailable::Stopped("the status watcher ended".to_owned()).into()),
            Err(_elapsed) => Err(Unavailable::Deadline.into()),
        }
    }

    /// Builds a snapshot of what is applied; the log behind it is purged up to its margin.
    ///
    /// # Errors
    /// Raft has ended.
    pub async fn snapshot(&self) -> Result<(), Unavailable> {
        self.raft()
            .trigger()
            .snapshot()
            .await
            .map_err(|fatal| Unavailable::Stopped(fatal.to_string()))
    }

    /// Asks every member what halt epoch it has applied; one that does not answer is listed without.
    pub async fn halt_epochs(&self, within: Duration) -> Vec<NodeHaltEpoch> {
        let asking = self.status().members.into_iter().map(|known| async move {
            let applied = if known.raft_id == self.raft_id() {
                Some(self.progress().halt_epoch)
            } else {
                let hello = tokio::time::timeout(within, self.hello(&known.member, false)).await;
                hello
                    .ok()
                    .and_then(Result::ok)
                    .filter(|hello| hello.raft_id == known.raft_id)
                    .map(|hello| hello.halt_epoch)
            };
            NodeHaltEpoch {
                raft_id: known.raft_id,
                member: known.member,
                applied,
            }
        });
        futures::future::join_all(asking).await
    }

    /// Takes a cluster's id; refuses where the node belongs to another.
    pub(crate) fn adopt(&self, cluster_id: &str) -> Result<(), StoreError> {
        self.owner().set_cluster_id(cluster_id)
    }

    async fn hello(&self, member: &Member, found: bool) -> Result<peer::HelloResponse, tonic::Status> {
        self.hello_by(Lane::Urgent, member, found).await
    }

    async fn hello_by(
        &self,
        lane: Lane,
        member: &Member,
        found: bool,
    ) -> Result<peer::HelloResponse, tonic::Status> {
        let request = peer::HelloRequest {
            sender: Some(self.whoami().sender(0)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            found,
        };
        self.peers()
            .client(member, lane)
            .hello(request)
            .await
            .map(tonic::Response::into_inner)
    }

    /// Asks a peer how it stands, beside Raft's heartbeats: no operator's command loses its connection by it.
    pub(crate) async fn ask(
        &self,
        member: &Member,
        within: Duration,
    ) -> Result<peer::HelloResponse, tonic::Status> {
        match tokio::time::timeout(within, self.hello_by(Lane::Raft, member, false)).await {
            Ok(answer) => answer,
            Err(_elapsed) => {
                self.peers().give_up(member, Lane::Raft);
                Err(tonic::Status::deadline_exceeded("no answer"))
            }
        }
    }

    async fn hello_until(
        &self,
        member: &Member,
        found: bool,
        deadline: Instant,
    ) -> Result<peer::HelloResponse, MemberError> {
        loop {
            let why = match tokio::time::timeout(HELLO, self.hello(member, found)).await {
                Ok(Ok(hello)) => return Ok(hello),
                Ok(Err(status)) => status.message().to_owned(),
                Err(_elapsed) => {
                    self.peers().give_up(member, Lane::Urgent);
                    "no answer".to_owned()
                }
            };
            if Instant::now() + AGAIN > deadline {
                return Err(MemberError::Unreachable {
                    member: member.clone(),
                    why,
                });
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn voters(&self) -> BTreeSet<u64> {
        self.status()
            .members
            .iter()
            .filter(|member| member.voter)
            .map(|member| member.raft_id)
            .collect()
    }

    async fn change(
        &self,
        by: &Principal,
        change: ChangeMembers<u64, Member>,
        words: &str,
    ) -> Result<(), MemberError> {
        self.raft()
            .change_membership(change, false)
            .await
            .map_err(|error| MemberError::Refused(error.to_string()))?;
        self.record(by, words.to_owned()).await
    }

    /// Puts a change that Raft has made into the audit log.
    async fn record(&self, by: &Principal, change: String) -> Result<(), MemberError> {
        let command = Command::Members(Members {
            by: by.clone(),
            change,
        });
        self.propose_until(&command, Instant::now() + FOUNDING).await?;
        Ok(())
    }

    /// Proposes again where there was no leader or no quorum: right after a change of membership, a leader has not
    /// heard from a quorum of the new one yet.
    async fn propose_until(&self, command: &Command, deadline: Instant) -> Result<Reply, Unavailable> {
        loop {
            match self.propose(command.clone(), Urgency::Urgent, FOUNDING).await {
                Ok(reply) => return Ok(reply),
                Err(unavailable) if Instant::now() > deadline => return Err(unavailable),
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    fn new_cluster_id(&self) -> String {
        let mut bytes = [0; 16];
        self.entropy().fill(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// How a node came back to its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejoined {
    Votes,
    /// No listed peer belongs to a cluster: there is none to join.
    NoCluster,
}
