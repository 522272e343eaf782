//! `Approvals`: what people are asked, and what they decide.

use std::sync::Arc;

use cluster::Urgency;
use decision::ApprovalId;
use machine::query;
use machine::row::Approval;
use machine::row::Read as _;
use machine::{Command, Event, Reply};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use wire::proto::haltgate::admin::v1 as proto;
use wire::proto::haltgate::admin::v1::approvals_server::Approvals;
use wire::{Code, Failure, approval};

use crate::door::{Ask, Door};
use crate::follow::{Follow, WAITING};
use crate::roles::Rpc;
use crate::service::{Streamed, unexpected};

/// Open approvals that a watcher is told at once; the rest it lists.
const OPEN_MAX: usize = 1_000;

#[derive(Debug, Clone)]
pub struct Approving(pub Arc<Door>);

#[tonic::async_trait]
impl Approvals for Approving {
    async fn list(
        &self,
        request: Request<proto::ApprovalsListRequest>,
    ) -> Result<Response<proto::ApprovalsListResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::ApprovalsList)?;
        let listed = self.page(&ask, request.get_ref()).await;
        listed
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn get(
        &self,
        request: Request<proto::ApprovalsGetRequest>,
    ) -> Result<Response<proto::ApprovalsGetResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::ApprovalsGet)?;
        let found = self.one(&ask, &request.get_ref().approval_id).await;
        found.map(Response::new).map_err(|failure| self.0.status(failure))
    }

    async fn decide(
        &self,
        request: Request<proto::ApprovalsDecideRequest>,
    ) -> Result<Response<proto::ApprovalsDecideResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::ApprovalsDecide)?;
        let decided = self.have_decided(&ask, request.get_ref()).await;
        decided
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    type WatchStream = Streamed<proto::ApprovalsWatchResponse>;

    async fn watch(
        &self,
        request: Request<proto::ApprovalsWatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let ask = self.0.admit(&request, Rpc::ApprovalsWatch)?;
        // From before the first look, so that nothing falls in between.
        let follow = Follow::new(&self.0);
        let open = self.open(&ask).await.map_err(|failure| self.0.status(failure))?;
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(watch(self.clone(), ask, follow, open, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

impl Approving {
    async fn page(
        &self,
        ask: &Ask,
        message: &proto::ApprovalsListRequest,
    ) -> Result<proto::ApprovalsListResponse, Failure> {
        let page = approval::approvals_page(message)?;
        let by = ask.principal();
        let (listed, log_index) = self
            .0
            .read(ask, |view| {
                Ok((
                    query::approvals(view, &by, message.all, page)?,
                    view.applied().map_or(0, |id| id.index),
                ))
            })
            .await?;
        Ok(proto::ApprovalsListResponse {
            approvals: listed
                .items
                .iter()
                .map(|(id, row)| approval::approval(id, row))
                .collect(),
            next_page_token: listed
                .next
                .map(|(organization, id)| format!("{organization}/{id}"))
                .unwrap_or_default(),
            log_index,
        })
    }

    async fn one(&self, ask: &Ask, id: &str) -> Result<proto::ApprovalsGetResponse, Failure> {
        let id = approval::approval_id(id)?;
        let (found, log_index) = self
            .0
            .read(ask, |view| {
                Ok((view.approval(&id)?, view.applied().map_or(0, |id| id.index)))
            })
            .await?;
        // Of another organization nobody learns which approvals it has.
        let by = ask.principal();
        let found = found.filter(|row| by.reaches(&row.organization));
        let found = found.ok_or_else(|| Failure::new(Code::NotFound, format!("no approval {id}")))?;
        Ok(proto::ApprovalsGetResponse {
            approval: Some(approval::approval(&id, &found)),
            log_index,
        })
    }

    async fn have_decided(
        &self,
        ask: &Ask,
        message: &proto::ApprovalsDecideRequest,
    ) -> Result<proto::ApprovalsDecideResponse, Failure> {
        let decide = approval::decide(message, ask.principal())?;
        match self
            .0
            .propose(ask, Command::Decide(decide), Urgency::Urgent)
            .await?
        {
            Reply::Approval(reply) => {
                self.0.applied_here(ask, reply.place.log_index).await;
                Ok(approval::decided(&reply))
            }
            _ => Err(unexpected("a decision")),
        }
    }

    async fn open(&self, ask: &Ask) -> Result<Vec<(ApprovalId, Approval)>, Failure> {
        let by = ask.principal();
        let page = wire::page::Page {
            limit: OPEN_MAX,
            after: None,
        };
        let listed = self
            .0
            .read(ask, |view| query::approvals(view, &by, false, page))
            .await?;
        Ok(listed.items)
    }
}

/// Tells what is open, then every change of what the caller may see.
async fn watch(
    approving: Approving,
    ask: Ask,
    mut follow: Follow,
    open: Vec<(ApprovalId, Approval)>,
    sender: mpsc::Sender<Result<proto::ApprovalsWatchResponse, Status>>,
) {
    let door = &approving.0;
    let by = ask.principal();
    let told = |approval: Option<proto::Approval>| proto::ApprovalsWatchResponse {
        approval,
        log_index: door.node.status().applied,
    };
    for (id, row) in &open {
        if sender
            .send(Ok(told(Some(approval::approval(id, row)))))
            .await
            .is_err()
        {
            return;
        }
    }
    if sender.send(Ok(told(None))).await.is_err() {
        return;
    }
    loop {
        let changed: Vec<ApprovalId> = match follow.next(&sender).await {
            Ok(Some(events)) => events
                .iter()
                .filter_map(|event| match event {
                    Event::Approval { id, .. } => Some(id.clone()),
                    _ => None,
                })
                .collect(),
            // Nothing is known of what was missed: the watcher asks again.
            Ok(None) => Vec::new(),
            Err(end) => {
                let _ = sender.send(Err(end)).await;
                return;
            }
        };
        for id in changed {
            let found = door.local(|view| view.approval(&id));
            let Ok(Some(row)) = found else { continue };
            if by.reaches(&row.organization)
                && sender
                    .send(Ok(told(Some(approval::approval(&id, &row)))))
                    .await
                    .is_err()
            {
                return;
            }
        }
    }
}
