//! How a node comes to its cluster: it founds it with the others, or is taken in again. A Raft id belongs to a data
//! directory: a wiped node comes back under a new one, and takes its old one's place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machine::command::{Init, Principal};
use machine::{Command, Guard, Reply};
use openraft::ChangeMembers;
use store::Member;
use tokio::time::Instant;
use wire::proto::haltgate::peer::v1 as peer;

use crate::connect::Lane;
use crate::error::{MemberError, Unavailable};
use crate::hello::{AGAIN, HELLO};
use crate::member::FOUNDING;
use crate::node::Node;
use crate::raft::Leader;
use crate::status::MemberStatus;

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

/// How a node came back to its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejoined {
    Votes,
    /// No listed peer belongs to a cluster: there is none to join.
    NoCluster,
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
            last_log_index: self.status().last_log,
            machine_version: machine::VERSION,
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
        last_log_index: u64,
        machine_version: u32,
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
        let active = self.progress().version;
        if machine_version < active {
            return Err(MemberError::Refused(format!(
                "the cluster runs version {active} of the rules, {member} has none above {machine_version}: start a \
                 release there that has version {active}"
            )));
        }
        // A Raft id with a log that is no member's was removed: it is never used again, since what its log promised
        // was promised to a membership that no longer counts it.
        if last_log_index > 0 && status.member(raft_id).is_none() {
            return Err(MemberError::Refused(format!(
                "{member} comes with the log of a removed member: start it with an empty data directory"
            )));
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
        self.learn(&by, raft_id, member).await?;
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

    fn new_cluster_id(&self) -> String {
        let mut bytes = [0; 16];
        self.entropy().fill(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
