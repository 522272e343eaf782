//! `Cluster`: members and their log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Force, Founding, MemberStatus, Role, Unavailable};
use machine::command::Principal;
use store::Member;
use wire::proto::haltgate::admin::v1 as proto;
use wire::{Code, Failure, Invalid, admin};

use crate::admit::Ask;
use crate::door::{Door, node_id};
use crate::identity::Identity;

/// How long the members may take to say that they are there.
const ASK_NODE: Duration = Duration::from_millis(500);

pub async fn init(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::ClusterInitRequest,
) -> Result<proto::ClusterInitResponse, Failure> {
    if let Identity::Node(id) = ask.identity
        && id != door.config.node.id
    {
        let why = "a node forms its own configuration's cluster only".to_owned();
        return Err(door.admission.refuse(ask, "role", why));
    }
    let members = wanted_members(door, &message)?;
    admin::cluster_request("init", &message.request_id, "")?;
    let is_formed = door.local(|view| machine::row::Read::chain(view))?.is_some();
    if is_formed {
        same_members(door, &members)?;
    } else {
        let founding = founding(door, ask.principal(), members)?;
        door.node
            .found(founding, ask.within())
            .await
            .map_err(|error| door.member_failure(&error))?;
    }
    Ok(proto::ClusterInitResponse {
        cluster_id: door.node.cluster_id(),
        members: listed(door).await,
        formed: !is_formed,
    })
}

/// Those that the message names, else those of the configuration: all different, this node among them.
fn wanted_members(door: &Door, message: &proto::ClusterInitRequest) -> Result<Vec<Member>, Failure> {
    let members = if message.members.is_empty() {
        door.config.members()
    } else {
        message
            .members
            .iter()
            .map(|member| named(member).map_err(|error| error.within("members")))
            .collect::<Result<Vec<_>, _>>()?
    };
    let own = &door.node.member().name;
    let names = names(&members);
    if names.len() != members.len() || !names.contains(own.as_str()) {
        let why = format!("must be different nodes, this one ({own}) among them");
        return Err(Invalid::new("members", why).into());
    }
    Ok(members)
}

/// Forming a cluster again is no error where it is the same one.
fn same_members(door: &Door, members: &[Member]) -> Result<(), Failure> {
    let known: Vec<Member> = door
        .node
        .status()
        .members
        .into_iter()
        .map(|known| known.member)
        .collect();
    if known.len() == members.len() && names(&known) == names(members) {
        return Ok(());
    }
    let what = "a cluster with other members exists already: nodes are added to it one by one";
    Err(Failure::new(Code::FailedPrecondition, what))
}

fn names(members: &[Member]) -> BTreeSet<&str> {
    members.iter().map(|member| member.name.as_str()).collect()
}

pub async fn status(
    door: &Arc<Door>,
    _: &Ask,
    message: proto::ClusterStatusRequest,
) -> Result<proto::ClusterStatusResponse, Failure> {
    let node = &door.node;
    let hash = if message.with_state_hash {
        let hash = node.reader().state_hash().await;
        Some(hash.map_err(|error| Failure::new(Code::DaemonUnavailable, error.to_string()))?)
    } else {
        None
    };
    let members = listed(door).await;
    let chain = door.local(|view| machine::row::Read::chain(view))?;
    let (status, progress) = (node.status(), node.progress());
    let not_ready = door.obstacles();
    Ok(proto::ClusterStatusResponse {
        node_id: node_id(node.member()),
        raft_id: node.raft_id(),
        cluster_id: node.cluster_id(),
        role: role(&status).into(),
        leader_id: status.leader.as_ref().map_or(0, |(raft_id, _)| *raft_id),
        term: status.term,
        last_log_index: status.last_log,
        applied_index: progress.applied_index,
        purged_index: status.purged,
        snapshot_index: status.snapshot,
        members,
        halt_epoch: progress.halt_epoch,
        chain_head: chain.as_ref().map(|chain| proto::ChainHead {
            sequence: chain.head.sequence,
            hash: chain.head.hash.to_vec(),
        }),
        state_hash: hash
            .as_ref()
            .map(|hash| hash.hash.as_bytes().to_vec())
            .unwrap_or_default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sealed_to: chain.map_or(0, |chain| chain.sealed_to),
        state_hash_index: hash.map_or(0, |hash| hash.applied_index),
        active_version: progress.version,
        newest_version: machine::VERSION,
        ready: not_ready.is_empty(),
        not_ready,
    })
}

pub async fn members(
    door: &Arc<Door>,
    _: &Ask,
    _: proto::ClusterMembersRequest,
) -> Result<proto::ClusterMembersResponse, Failure> {
    let members = listed(door).await;
    let status = door.node.status();
    Ok(proto::ClusterMembersResponse {
        members,
        leader_id: status.leader.map_or(0, |(raft_id, _)| raft_id),
        log_index: status.applied,
    })
}

pub async fn add_learner(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::ClusterAddLearnerRequest,
) -> Result<proto::ClusterAddLearnerResponse, Failure> {
    let member = message
        .member
        .ok_or_else(|| Invalid::new("member", "is needed"))?;
    let raft_id = member.raft_id;
    let member = named(&member).map_err(|error| error.within("member"))?;
    known("raft_id", raft_id).map_err(|error| error.within("member"))?;
    admin::cluster_request("add_learner", &message.request_id, &format!("{raft_id} {member}"))?;
    leads(door)?;
    let by = ask.principal();
    let log_index = within(door, ask, door.node.add_learner(&by, raft_id, member)).await?;
    Ok(proto::ClusterAddLearnerResponse { log_index })
}

pub async fn promote(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::ClusterPromoteRequest,
) -> Result<proto::ClusterPromoteResponse, Failure> {
    let raft_id = message.raft_id;
    known("raft_id", raft_id)?;
    admin::cluster_request("promote", &message.request_id, &raft_id.to_string())?;
    leads(door)?;
    is_member(door, raft_id)?;
    let log_index = within(door, ask, door.node.promote(&ask.principal(), raft_id)).await?;
    Ok(proto::ClusterPromoteResponse { log_index })
}

pub async fn remove(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::ClusterRemoveRequest,
) -> Result<proto::ClusterRemoveResponse, Failure> {
    let raft_id = message.raft_id;
    known("raft_id", raft_id)?;
    admin::justification(&message.justification)?;
    admin::cluster_request("remove", &message.request_id, &raft_id.to_string())?;
    leads(door)?;
    is_member(door, raft_id)?;
    let force = if message.force { Force::Yes } else { Force::No };
    let log_index = within(door, ask, door.node.remove(&ask.principal(), raft_id, force)).await?;
    Ok(proto::ClusterRemoveResponse { log_index })
}

pub async fn transfer_leader(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::ClusterTransferLeaderRequest,
) -> Result<proto::ClusterTransferLeaderResponse, Failure> {
    let to = message.to_raft_id;
    admin::cluster_request("transfer_leader", &message.request_id, &to.to_string())?;
    leads(door)?;
    let to = (to != 0).then_some(to);
    let moved = door.node.transfer_leader(to, ask.within()).await;
    let leader_id = moved.map_err(|error| door.member_failure(&error))?;
    let term = door.node.status().term;
    Ok(proto::ClusterTransferLeaderResponse { leader_id, term })
}

pub async fn activate_version(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::ClusterActivateVersionRequest,
) -> Result<proto::ClusterActivateVersionResponse, Failure> {
    let wanted = message.version;
    admin::cluster_request("activate_version", &message.request_id, &wanted.to_string())?;
    let wanted = (wanted != 0).then_some(wanted);
    let activated = door.node.activate_version(&ask.principal(), wanted).await;
    let (version, log_index) = activated.map_err(|error| door.member_failure(&error))?;
    Ok(proto::ClusterActivateVersionResponse { version, log_index })
}

pub async fn snapshot(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::ClusterSnapshotRequest,
) -> Result<proto::ClusterSnapshotResponse, Failure> {
    admin::cluster_request("snapshot", &message.request_id, "")?;
    let applied = door.node.status().applied;
    let begun = door.node.snapshot().await;
    begun.map_err(|error| door.unavailable(&error))?;
    let mut changed = door.node.changed();
    let built = changed.wait_for(|status| status.snapshot >= applied || status.stopped.is_some());
    match tokio::time::timeout(ask.within(), built).await {
        Ok(Ok(status)) if status.stopped.is_none() => Ok(proto::ClusterSnapshotResponse {
            snapshot_index: status.snapshot,
        }),
        Ok(_) => Err(door.unavailable(&Unavailable::Stopped("Raft ended".to_owned()))),
        Err(_elapsed) => Err(door.unavailable(&Unavailable::Deadline)),
    }
}

/// The members, and which of them answer.
async fn listed(door: &Door) -> Vec<proto::Member> {
    let reached = door.node.halt_epochs(ASK_NODE).await;
    let status = door.node.status();
    let answers = |raft_id| {
        reached
            .iter()
            .any(|node| node.raft_id == raft_id && node.applied.is_some())
    };
    let shown = |known: &MemberStatus| proto::Member {
        node_id: node_id(&known.member),
        raft_id: known.raft_id,
        grpc_addr: known.member.client.clone(),
        peer_addr: known.member.peer.clone(),
        http_addr: known.member.http.clone(),
        voter: known.voter,
        matched_index: known.matched,
        reachable: answers(known.raft_id),
    };
    let mut members: Vec<_> = status.members.iter().map(shown).collect();
    members.sort_by_key(|member| (member.node_id, member.raft_id));
    members
}

/// Membership is the leader's to change: whoever asks another node is sent there.
fn leads(door: &Door) -> Result<(), Failure> {
    if door.node.status().leads() {
        return Ok(());
    }
    Err(Failure::new(
        Code::DaemonUnavailable,
        "this node does not lead: ask the leader",
    ))
}

fn is_member(door: &Door, raft_id: u64) -> Result<(), Failure> {
    match door.node.status().member(raft_id) {
        Some(_) => Ok(()),
        None => Err(Failure::new(
            Code::NotFound,
            format!("there is no member with the Raft id {raft_id}"),
        )),
    }
}

/// Waits for a change of membership, and gives the log index that this node has then.
async fn within(
    door: &Door,
    ask: &Ask,
    change: impl Future<Output = Result<(), cluster::MemberError>>,
) -> Result<u64, Failure> {
    match tokio::time::timeout(ask.within(), change).await {
        Ok(Ok(())) => Ok(door.node.status().applied),
        Ok(Err(error)) => Err(door.member_failure(&error)),
        Err(_elapsed) => Err(door.unavailable(&Unavailable::Deadline)),
    }
}

/// What a cluster of these members begins with, by this node's configuration.
pub fn founding(door: &Door, by: Principal, members: Vec<Member>) -> Result<Founding, Failure> {
    let default_guard = door
        .config
        .default_guard()
        .map_err(|error| Failure::new(Code::FailedPrecondition, error.to_string()))?;
    Ok(Founding {
        by,
        members,
        default_guard,
        unfunded_organizations: door.config.cluster.unfunded_organizations,
        fixtures: false,
    })
}

fn role(status: &cluster::Status) -> proto::NodeRole {
    match status.role {
        Role::Leader => proto::NodeRole::Leader,
        Role::Follower => proto::NodeRole::Follower,
        Role::Candidate => proto::NodeRole::Candidate,
        Role::Learner
            if status
                .members
                .iter()
                .any(|member| member.raft_id == status.raft_id) =>
        {
            proto::NodeRole::Learner
        }
        Role::Learner => proto::NodeRole::Pristine,
        Role::Stopped => proto::NodeRole::Unspecified,
    }
}

fn named(member: &proto::Member) -> Result<Member, Invalid> {
    let id = u32::try_from(member.node_id).ok().filter(|id| *id > 0);
    let id = id.ok_or_else(|| Invalid::new("node_id", "must be a configured node id"))?;
    for (field, address) in [("peer_addr", &member.peer_addr), ("grpc_addr", &member.grpc_addr)] {
        if address.is_empty() || address.len() > 256 {
            return Err(Invalid::new(field, "must be host:port"));
        }
    }
    Ok(Member {
        name: id.to_string(),
        peer: member.peer_addr.clone(),
        client: member.grpc_addr.clone(),
        http: member.http_addr.clone(),
    })
}

fn known(field: &'static str, raft_id: u64) -> Result<(), Invalid> {
    if raft_id == 0 {
        Err(Invalid::new(field, "must be a Raft id"))
    } else {
        Ok(())
    }
}
