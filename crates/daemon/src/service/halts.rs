//! `Halts`: the kill switch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::NodeHaltEpoch;
use machine::Scope;
use machine::query;
use machine::reply::HaltReply;
use machine::row::{Halt, Read as _};
use wire::proto::haltgate::admin::v1 as proto;
use wire::{Failure, admin};

use crate::admit::Ask;
use crate::door::{Door, node_id};

pub use crate::drill::drill;

/// When the order has to be answered, counted from its arrival, whoever has confirmed it by then: within a second
/// at the operator, with the way there and back.
const ANSWER: Duration = Duration::from_millis(600);
/// What the nodes get at least to say that they have applied it.
const CONFIRM: Duration = Duration::from_millis(100);
/// How long one node may take to say so.
const ASK_NODE: Duration = Duration::from_millis(300);
/// The pause before those that have not applied it are asked again.
const AGAIN: Duration = Duration::from_millis(20);

pub async fn engage(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::HaltsEngageRequest,
) -> Result<proto::HaltsEngageResponse, Failure> {
    let engage = admin::engage(&message, ask.principal())?;
    let scope = engage.scope.clone();
    let reply = door.propose(ask, engage).await?;
    let nodes = confirm(door, ask, ask.arrived, reply.place.halt_epoch).await;
    door.metrics
        .halt_confirm_seconds
        .observe(ask.arrived.elapsed().as_secs_f64());
    door.applied_here(ask, reply.place.log_index).await;
    let halt = door.local(|view| view.halt(&scope))?;
    Ok(engaged(&scope, halt, &reply, nodes))
}

pub async fn release(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::HaltsReleaseRequest,
) -> Result<proto::HaltsReleaseResponse, Failure> {
    let release = admin::release(&message, ask.principal())?;
    let reply = door.propose(ask, release).await?;
    let nodes = confirm(door, ask, Instant::now(), reply.place.halt_epoch).await;
    door.applied_here(ask, reply.place.log_index).await;
    Ok(proto::HaltsReleaseResponse {
        log_index: reply.place.log_index,
        halt_epoch: reply.place.halt_epoch,
        nodes: nodes.iter().map(told).collect(),
        needs_second: reply.needs_second,
    })
}

pub async fn list(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::HaltsListRequest,
) -> Result<proto::HaltsListResponse, Failure> {
    let page = admin::halts_page(&message)?;
    let by = ask.principal();
    let ((listed, halt_epoch), log_index) = door
        .read_at(ask, |view, _| {
            let epoch = view.cluster()?.map_or(0, |cluster| cluster.halt_epoch);
            Ok((query::halts(view, &by, page)?, epoch))
        })
        .await?;
    let nodes = door.node.halt_epochs(ASK_NODE.min(ask.within())).await;
    Ok(proto::HaltsListResponse {
        nodes: voters_first(nodes, &door.node.status())
            .iter()
            .map(told)
            .collect(),
        halts: listed
            .items
            .iter()
            .map(|(scope, halt)| admin::halt(scope, halt))
            .collect(),
        next_page_token: listed.next.map(|scope| scope.to_string()).unwrap_or_default(),
        halt_epoch,
        log_index,
    })
}

/// Asks the nodes until each that answers has applied the epoch, or time is up. What a node has not said is not
/// said for it.
async fn confirm(door: &Door, ask: &Ask, begun: Instant, epoch: u64) -> Vec<NodeHaltEpoch> {
    let until = (begun + ANSWER).max(Instant::now() + CONFIRM.min(ask.within()));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let nodes = door.node.halt_epochs(ASK_NODE.min(left)).await;
        let behind = nodes
            .iter()
            .any(|node| node.applied.is_some_and(|applied| applied < epoch));
        if !behind || Instant::now() + AGAIN >= until {
            return voters_first(nodes, &door.node.status());
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn voters_first(mut nodes: Vec<NodeHaltEpoch>, status: &cluster::Status) -> Vec<NodeHaltEpoch> {
    let votes = |node: &NodeHaltEpoch| {
        status
            .members
            .iter()
            .any(|member| member.raft_id == node.raft_id && member.voter)
    };
    nodes.sort_by_key(|node| (!votes(node), node_id(&node.member)));
    nodes
}

fn told(node: &NodeHaltEpoch) -> proto::NodeHaltEpoch {
    proto::NodeHaltEpoch {
        node_id: node_id(&node.member),
        applied_epoch: node.applied.unwrap_or(0),
        reachable: node.applied.is_some(),
    }
}

fn engaged(
    scope: &Scope,
    halt: Option<Halt>,
    reply: &HaltReply,
    nodes: Vec<NodeHaltEpoch>,
) -> proto::HaltsEngageResponse {
    let epoch = reply.place.halt_epoch;
    // Engaged before: the change before this one was an engagement too.
    let before = halt.as_ref().and_then(|halt| {
        halt.history
            .iter()
            .take_while(|change| change.epoch < epoch)
            .last()
            .map(|change| change.engaged)
    });
    proto::HaltsEngageResponse {
        halt: halt.as_ref().map(|halt| admin::halt(scope, halt)),
        log_index: reply.place.log_index,
        halt_epoch: epoch,
        nodes: nodes.iter().map(told).collect(),
        already_engaged: before.unwrap_or(false),
    }
}
