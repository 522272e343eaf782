//! A node's door for its peers. What comes in is checked before it is looked at: which cluster, which copy
//! of the log it is meant for, and whether the certificate is the one of the node that is named.

use std::time::Duration;

use decision::{ApprovalId, OrganizationId};
use machine::Command;
use openraft::raft::VoteResponse;
use store::{Chunk, HeldPart, Member, Raft, Snapshot, SnapshotInfo};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tonic::{Request, Response, Status, Streaming};
use wire::proto::haltgate::peer::v1 as peer;
use wire::proto::haltgate::peer::v1::peer_server::Peer;

use crate::error::{Lost, Unavailable};
use crate::network::{SnapshotHeader, decode, encode};
use crate::node::Node;
use crate::probe::is_probe;
use crate::proposer::Urgency;
use crate::standing::Building;
use crate::status::MemberStatus;

/// The name in the certificate of the peer that called; put into the request by the TLS layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity(pub String);

/// The sender of Raft's messages as this node knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acquaintance {
    Known,
    /// It uses the Raft id of another member.
    Another,
    Unknown,
}

impl Acquaintance {
    /// By name, where the id is new: a wiped node comes back under one.
    fn of(node: &Node, sender: &peer::Sender) -> Self {
        let status = node.status();
        let named = |known: &MemberStatus| known.member.name == sender.node;
        match status.member(sender.raft_id) {
            Some(known) if known.name == sender.node => Self::Known,
            Some(_) => Self::Another,
            None if status.members.is_empty() => Self::Known,
            None if node.lists(&sender.node) || status.members.iter().any(named) => Self::Known,
            None => Self::Unknown,
        }
    }
}

/// How long a member may take to say who leads; the message waits for it.
const VOUCH: Duration = Duration::from_millis(500);
/// How long its word holds: until the log has brought the membership, a snapshot before it.
const VOUCHED: Duration = Duration::from_secs(30);

/// The gRPC service of the peer port.
#[derive(Clone, Debug)]
pub struct PeerDoor {
    node: Node,
}

impl PeerDoor {
    pub(crate) fn new(node: Node) -> Self {
        Self { node }
    }

    /// Refuses what is not from a member of this cluster, or not for this copy of its log.
    fn admit(&self, identity: Option<&PeerIdentity>, sender: Option<&peer::Sender>) -> Result<(), Status> {
        let sender = self.identify(identity, sender)?;
        let own = self.node.cluster_id();
        if own.is_empty() || sender.cluster_id != own {
            return Err(Status::failed_precondition(format!(
                "cluster {:?} is not the cluster of this node, {own:?}",
                sender.cluster_id
            )));
        }
        if sender.to_raft_id != 0 && sender.to_raft_id != self.node.raft_id() {
            return Err(Status::failed_precondition(format!(
                "this is raft id {}, the message is for {}",
                self.node.raft_id(),
                sender.to_raft_id
            )));
        }
        Ok(())
    }

    /// As `admit`, and from a member as this node knows them. Commands and reads go to the leader, who knows.
    fn admit_member(
        &self,
        identity: Option<&PeerIdentity>,
        sender: Option<&peer::Sender>,
    ) -> Result<(), Status> {
        self.admit(identity, sender)?;
        let status = self.node.status();
        let known = sender.and_then(|sender| Some((status.member(sender.raft_id)?, sender)));
        match known {
            Some((member, sender)) if member.name == sender.node => Ok(()),
            Some(_) | None => Err(Status::permission_denied(
                "the sender is not a member of this cluster",
            )),
        }
    }

    /// As `admit`, for Raft's own messages. A member that was away may hear of a new leader first by its messages: it
    /// takes them from whoever the configuration lists, and from the leader that a member it knows follows. A node
    /// that knows no members yet has nothing to lose.
    async fn admit_raft(
        &self,
        identity: Option<&PeerIdentity>,
        sender: Option<&peer::Sender>,
    ) -> Result<(), Status> {
        self.admit(identity, sender)?;
        let sender = sender.ok_or_else(|| Status::invalid_argument("no sender"))?;
        let admitted = match Acquaintance::of(&self.node, sender) {
            Acquaintance::Known => true,
            Acquaintance::Another => false,
            Acquaintance::Unknown => self.is_vouched_for(sender).await,
        };
        match admitted {
            true => Ok(()),
            false => Err(Status::permission_denied(
                "the sender is not a member of this cluster as far as this node knows",
            )),
        }
    }

    /// Whether a member that this node knows says that the sender leads. One question at a time: a stranger's
    /// messages keep nobody busy.
    async fn is_vouched_for(&self, sender: &peer::Sender) -> bool {
        let Ok(mut vouched) = self.node.vouched().0.try_lock() else {
            return false;
        };
        let named = (sender.raft_id, sender.node.clone());
        if let Some((whom, until)) = &*vouched
            && *whom == named
            && Instant::now() < *until
        {
            return true;
        }
        let members = self.node.status().members;
        let asking = members
            .iter()
            .filter(|known| known.raft_id != self.node.raft_id())
            .map(|known| self.node.ask(&known.member, VOUCH));
        let leads = futures::future::join_all(asking)
            .await
            .into_iter()
            .flatten()
            .any(|hello| {
                hello.cluster_id == sender.cluster_id
                    && hello.leader_id == sender.raft_id
                    && hello.leader_node == sender.node
            });
        if leads {
            *vouched = Some((named, Instant::now() + VOUCHED));
        }
        leads
    }

    /// The certificate names the node that the message names.
    fn identify<'s>(
        &self,
        identity: Option<&PeerIdentity>,
        sender: Option<&'s peer::Sender>,
    ) -> Result<&'s peer::Sender, Status> {
        let sender = sender.ok_or_else(|| Status::invalid_argument("no sender"))?;
        match identity {
            Some(PeerIdentity(name)) if *name == sender.node => Ok(sender),
            Some(PeerIdentity(name)) => Err(Status::permission_denied(format!(
                "the certificate is node {name}'s, the message says {}",
                sender.node
            ))),
            None => Err(Status::unauthenticated("no node certificate")),
        }
    }
}

#[tonic::async_trait]
impl Peer for PeerDoor {
    async fn hello(
        &self,
        request: Request<peer::HelloRequest>,
    ) -> Result<Response<peer::HelloResponse>, Status> {
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let hello = request.into_inner();
        let sender = self.identify(identity.as_ref(), hello.sender.as_ref())?;
        if hello.found && !sender.cluster_id.is_empty() {
            self.node
                .adopt(&sender.cluster_id)
                .map_err(|error| Status::failed_precondition(error.to_string()))?;
        }
        let status = self.node.status();
        let knows_sender = status.member(sender.raft_id).is_some();
        let progress = self.node.progress();
        let digest = |index| {
            let digest = self.node.reader().digest_at(index);
            digest.map_or_else(Default::default, |digest| digest.to_vec().into())
        };
        let uncommitted = self.node.standing().uncommitted_for();
        let member = self.node.member();
        let (leader_id, leader_node) = status
            .leader
            .map_or((0, String::new()), |(id, leader)| (id, leader.name));
        Ok(Response::new(peer::HelloResponse {
            cluster_id: self.node.cluster_id(),
            raft_id: self.node.raft_id(),
            node: member.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            leader_id,
            term: status.term,
            grpc_addr: member.client.clone(),
            peer_addr: member.peer.clone(),
            http_addr: member.http.clone(),
            halt_epoch: progress.halt_epoch,
            applied_index: progress.applied_index,
            leader_node,
            clock_ns: self.node.clocks().own().nanos(),
            knows_sender,
            digest: digest(progress.applied_index),
            asked_index: hello.applied_index,
            digest_asked: digest(hello.applied_index),
            uncommitted_ms: u64::try_from(uncommitted.as_millis()).unwrap_or(u64::MAX),
            wants_snapshot: self.node.standing().building() >= Building::Wanted,
            machine_version: machine::VERSION,
            builds_snapshot: self.node.standing().building() == Building::UnderWay,
        }))
    }

    async fn append_entries(
        &self,
        request: Request<peer::AppendEntriesRequest>,
    ) -> Result<Response<peer::AppendEntriesResponse>, Status> {
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let message = request.into_inner();
        self.admit_raft(identity.as_ref(), message.sender.as_ref())
            .await?;
        let rpc = decode(&message.payload).map_err(malformed)?;
        let answer = self.node.raft().append_entries(rpc).await.map_err(ended)?;
        self.node.leader_heard().now();
        Ok(Response::new(peer::AppendEntriesResponse {
            payload: encode(&answer).map_err(malformed)?,
        }))
    }

    async fn vote(
        &self,
        request: Request<peer::VoteRequest>,
    ) -> Result<Response<peer::VoteResponse>, Status> {
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let message = request.into_inner();
        self.admit_raft(identity.as_ref(), message.sender.as_ref())
            .await?;
        let rpc = decode(&message.payload).map_err(malformed)?;
        let raft = self.node.raft();
        let answer: VoteResponse<Raft> = match message.pre_vote {
            true => raft.pre_vote(rpc).await.map_err(ended)?,
            false => raft.vote(rpc).await.map_err(ended)?,
        };
        Ok(Response::new(peer::VoteResponse {
            payload: encode(&answer).map_err(malformed)?,
        }))
    }

    async fn transfer_leader(
        &self,
        request: Request<peer::TransferLeaderRequest>,
    ) -> Result<Response<peer::TransferLeaderResponse>, Status> {
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let message = request.into_inner();
        self.admit_raft(identity.as_ref(), message.sender.as_ref())
            .await?;
        let rpc = decode(&message.payload).map_err(malformed)?;
        let answer = self
            .node
            .raft()
            .handle_transfer_leader(rpc)
            .await
            .map_err(ended)?;
        Ok(Response::new(peer::TransferLeaderResponse {
            payload: encode(&answer).map_err(malformed)?,
        }))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<peer::InstallSnapshotRequest>>,
    ) -> Result<Response<peer::InstallSnapshotResponse>, Status> {
        use peer::install_snapshot_request::Part;
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let mut parts = request.into_inner();
        let first = parts
            .next()
            .await
            .ok_or_else(|| Status::invalid_argument("an empty stream"))??;
        self.admit_raft(identity.as_ref(), first.sender.as_ref()).await?;
        let Some(Part::Header(header)) = first.part else {
            return Err(Status::invalid_argument("a snapshot begins with its header"));
        };
        let header: SnapshotHeader = decode(&header).map_err(malformed)?;
        let info = SnapshotInfo::decode(&header.info).map_err(malformed)?;
        let meta = info.meta();
        let mut receiving = self.node.snapshots().receive(info).map_err(storage)?;
        while let Some(part) = parts.next().await {
            let Some(Part::Chunk(chunk)) = part?.part else {
                return Err(Status::invalid_argument("a chunk was expected"));
            };
            let sha256 = <[u8; 32]>::try_from(&chunk.sha256[..]).map_err(malformed)?;
            let chunk = Chunk {
                number: chunk.number,
                sha256,
                bytes: chunk.data.into(),
            };
            receiving.chunk(chunk).map_err(storage)?;
        }
        let snapshot = Snapshot {
            meta,
            snapshot: receiving.finish().await.map_err(storage)?,
        };
        let answer = self
            .node
            .raft()
            .install_full_snapshot(header.vote, snapshot)
            .await
            .map_err(ended)?;
        Ok(Response::new(peer::InstallSnapshotResponse {
            payload: encode(&answer).map_err(malformed)?,
        }))
    }

    async fn forward(
        &self,
        request: Request<peer::ForwardRequest>,
    ) -> Result<Response<peer::ForwardResponse>, Status> {
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let message = request.into_inner();
        self.admit_member(identity.as_ref(), message.sender.as_ref())?;
        // Who vouches is whose certificate it is, not what the message says.
        let PeerIdentity(node) = identity.ok_or_else(|| Status::unauthenticated("no node certificate"))?;
        let command: Command = minicbor::decode(&message.command).map_err(malformed)?;
        let urgency = if message.urgent {
            Urgency::Urgent
        } else {
            Urgency::Call
        };
        let within = Duration::from_millis(u64::from(message.deadline_ms));
        let outcome = tokio::time::timeout(within, self.node.propose_for(node, command, urgency)).await;
        let outcome = match outcome {
            Ok(Ok(reply)) => peer::forward_response::Outcome::Reply(machine::row::bytes(&reply).into()),
            Ok(Err(lost)) => peer::forward_response::Outcome::Unavailable(lost.to_wire().into()),
            Err(_elapsed) => {
                let lost = Lost::Unavailable(Unavailable::Deadline);
                peer::forward_response::Outcome::Unavailable(lost.to_wire().into())
            }
        };
        Ok(Response::new(peer::ForwardResponse {
            outcome: Some(outcome),
        }))
    }

    async fn probe(
        &self,
        request: Request<peer::ProbeRequest>,
    ) -> Result<Response<peer::ProbeResponse>, Status> {
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let message = request.into_inner();
        self.admit_member(identity.as_ref(), message.sender.as_ref())?;
        let command: Command = minicbor::decode(&message.command).map_err(malformed)?;
        if !is_probe(&command) {
            return Err(Status::permission_denied(
                "a probe is a call of the organization of drills",
            ));
        }
        let within = Duration::from_millis(u64::from(message.deadline_ms));
        let (outcome, halt_epoch) = self.node.probe_here(command, within).await;
        Ok(Response::new(peer::ProbeResponse {
            outcome: Some(match outcome {
                Ok(reply) => peer::probe_response::Outcome::Reply(machine::row::bytes(&reply).into()),
                Err(error) => peer::probe_response::Outcome::Error(error),
            }),
            halt_epoch,
        }))
    }

    async fn read_index(
        &self,
        request: Request<peer::ReadIndexRequest>,
    ) -> Result<Response<peer::ReadIndexResponse>, Status> {
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let message = request.into_inner();
        self.admit_member(identity.as_ref(), message.sender.as_ref())?;
        let answer = match self.node.read_point_here().await {
            Ok(point) => peer::ReadIndexResponse {
                index: point.index,
                now_ns: point.now.nanos(),
                unavailable: 0,
            },
            Err(unavailable) => peer::ReadIndexResponse {
                unavailable: Lost::Unavailable(unavailable).to_wire().into(),
                ..peer::ReadIndexResponse::default()
            },
        };
        Ok(Response::new(answer))
    }

    async fn hold_arguments(
        &self,
        request: Request<peer::HoldArgumentsRequest>,
    ) -> Result<Response<peer::HoldArgumentsResponse>, Status> {
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let message = request.into_inner();
        self.admit_member(identity.as_ref(), message.sender.as_ref())?;
        let organization = OrganizationId::parse(&message.organization_id).map_err(malformed)?;
        let approval = ApprovalId::parse(&message.approval_id).map_err(malformed)?;
        let kept = self
            .node
            .held()
            .put(&organization, &approval, part(message.successor), &message.params);
        Ok(Response::new(peer::HoldArgumentsResponse { held: kept.is_ok() }))
    }

    async fn get_arguments(
        &self,
        request: Request<peer::GetArgumentsRequest>,
    ) -> Result<Response<peer::GetArgumentsResponse>, Status> {
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let message = request.into_inner();
        self.admit_member(identity.as_ref(), message.sender.as_ref())?;
        let approval = ApprovalId::parse(&message.approval_id).map_err(malformed)?;
        let params = self.node.held().get(&approval, part(message.successor));
        Ok(Response::new(peer::GetArgumentsResponse {
            held: params.is_some(),
            params: params.unwrap_or_default().into(),
        }))
    }

    async fn join(
        &self,
        request: Request<peer::JoinRequest>,
    ) -> Result<Response<peer::JoinResponse>, Status> {
        let identity = request.extensions().get::<PeerIdentity>().cloned();
        let message = request.into_inner();
        let sender = self.identify(identity.as_ref(), message.sender.as_ref())?;
        if !sender.cluster_id.is_empty() && sender.cluster_id != self.node.cluster_id() {
            return Err(Status::failed_precondition(format!(
                "cluster {:?} is not the cluster of this node",
                sender.cluster_id
            )));
        }
        let member = Member {
            name: sender.node.clone(),
            peer: message.peer_addr,
            client: message.grpc_addr,
            http: message.http_addr,
        };
        let answer = self
            .node
            .admit_again(
                sender.raft_id,
                member,
                message.last_log_index,
                message.machine_version,
            )
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        Ok(Response::new(answer))
    }
}

fn part(successor: bool) -> HeldPart {
    if successor {
        HeldPart::Successor
    } else {
        HeldPart::Call
    }
}

fn malformed(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

fn storage(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

/// Raft has ended: the process is about to.
fn ended(error: impl std::fmt::Display) -> Status {
    Status::unavailable(error.to_string())
}
