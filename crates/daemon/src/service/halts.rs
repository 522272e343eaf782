//! `Halts`: the kill switch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{NodeHaltEpoch, Urgency};
use machine::query;
use machine::reply::HaltReply;
use machine::row::{Halt, Read as _};
use machine::{Command, Reply, Scope};
use tonic::{Request, Response, Status};
use wire::proto::haltgate::admin::v1 as proto;
use wire::proto::haltgate::admin::v1::halts_server::Halts;
use wire::{Failure, admin};

use crate::door::{Ask, Door, node_id};
use crate::drill;
use crate::roles::{self, Rpc};
use crate::service::unexpected;

/// When the order has to be answered, counted from its arrival, whoever has confirmed it by then: within a second
/// at the operator, with the way there and back.
const ANSWER: Duration = Duration::from_millis(600);
/// What the nodes get at least to say that they have applied it.
const CONFIRM: Duration = Duration::from_millis(100);
/// How long one node may take to say so.
const ASK_NODE: Duration = Duration::from_millis(300);
/// The pause before those that have not applied it are asked again.
const AGAIN: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct Halting(pub Arc<Door>);

#[tonic::async_trait]
impl Halts for Halting {
    async fn engage(
        &self,
        request: Request<proto::HaltsEngageRequest>,
    ) -> Result<Response<proto::HaltsEngageResponse>, Status> {
        let begun = Instant::now();
        let ask = self.0.admit(&request, Rpc::HaltsEngage)?;
        let engage =
            admin::engage(request.get_ref(), ask.principal()).map_err(|error| self.0.status(error.into()))?;
        self.0.permit(&ask, roles::of_scope(&engage.scope))?;
        let scope = engage.scope.clone();
        let answer = async {
            let reply = self.order(&ask, Command::Engage(engage)).await?;
            let epoch = reply.place.halt_epoch;
            let nodes = self.confirm(&ask, begun, epoch).await;
            self.0
                .metrics
                .halt_confirm_seconds
                .observe(begun.elapsed().as_secs_f64());
            self.0.applied_here(&ask, reply.place.log_index).await;
            let halt = self.0.local(|view| view.halt(&scope))?;
            Ok(engaged(&scope, halt, &reply, nodes))
        };
        answer
            .await
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn release(
        &self,
        request: Request<proto::HaltsReleaseRequest>,
    ) -> Result<Response<proto::HaltsReleaseResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::HaltsRelease)?;
        let release = admin::release(request.get_ref(), ask.principal())
            .map_err(|error| self.0.status(error.into()))?;
        self.0.permit(&ask, roles::of_scope(&release.scope))?;
        let answer = async {
            let reply = self.order(&ask, Command::Release(release)).await?;
            let epoch = reply.place.halt_epoch;
            let nodes = self.confirm(&ask, Instant::now(), epoch).await;
            self.0.applied_here(&ask, reply.place.log_index).await;
            Ok(proto::HaltsReleaseResponse {
                log_index: reply.place.log_index,
                halt_epoch: epoch,
                nodes: nodes.iter().map(told).collect(),
                needs_second: reply.needs_second,
            })
        };
        answer
            .await
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn list(
        &self,
        request: Request<proto::HaltsListRequest>,
    ) -> Result<Response<proto::HaltsListResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::HaltsList)?;
        let answer = async {
            let page = admin::halts_page(request.get_ref())?;
            let by = ask.principal();
            let (listed, halt_epoch, log_index) = self
                .0
                .read(&ask, |view| {
                    let epoch = view.cluster()?.map_or(0, |cluster| cluster.halt_epoch);
                    Ok((
                        query::halts(view, &by, page)?,
                        epoch,
                        view.applied().map_or(0, |id| id.index),
                    ))
                })
                .await?;
            let nodes = self.0.node.halt_epochs(ASK_NODE.min(ask.within())).await;
            Ok(proto::HaltsListResponse {
                nodes: voters_first(nodes, &self.0.node.status())
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
        };
        answer
            .await
            .map(Response::new)
            .map_err(|failure: Failure| self.0.status(failure))
    }

    async fn drill(
        &self,
        request: Request<proto::HaltsDrillRequest>,
    ) -> Result<Response<proto::HaltsDrillResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::HaltsDrill)?;
        let drilled = drill::drill(&self.0, &ask).await;
        drilled
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }
}

impl Halting {
    async fn order(&self, ask: &Ask, command: Command) -> Result<HaltReply, Failure> {
        match self.0.propose(ask, command, Urgency::Urgent).await? {
            Reply::Halt(reply) => Ok(reply),
            _ => Err(unexpected("an order about a halt")),
        }
    }

    /// Asks the nodes until each that answers has applied the epoch, or time is up. What a node has not said is not
    /// said for it.
    async fn confirm(&self, ask: &Ask, begun: Instant, epoch: u64) -> Vec<NodeHaltEpoch> {
        let until = (begun + ANSWER).max(Instant::now() + CONFIRM.min(ask.within()));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let nodes = self.0.node.halt_epochs(ASK_NODE.min(left)).await;
            let behind = nodes
                .iter()
                .any(|node| node.applied.is_some_and(|applied| applied < epoch));
            if !behind || Instant::now() + AGAIN >= until {
                return voters_first(nodes, &self.0.node.status());
            }
            tokio::time::sleep(AGAIN).await;
        }
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
