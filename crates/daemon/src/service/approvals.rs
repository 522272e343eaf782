//! `Approvals`: what people are asked, and what they decide.

use std::sync::Arc;

use decision::{ApprovalId, Digest};
use machine::Event;
use machine::command::{Decide, Principal, Ruling};
use machine::query;
use machine::row::{Approval, ApprovalStatus, Read as _};
use store::HeldPart;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::approval::{self, Arguments};
use wire::proto::haltgate::admin::v1 as proto;
use wire::{Code, Failure};

use crate::admit::Ask;
use crate::door::Door;
use crate::follow::{Follow, WAITING};
use crate::service::Streamed;

/// Open approvals that a watcher is told at once; the rest it lists.
const OPEN_MAX: usize = 1_000;

pub async fn list(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::ApprovalsListRequest,
) -> Result<proto::ApprovalsListResponse, Failure> {
    let page = approval::approvals_page(&message)?;
    let by = ask.principal();
    let (listed, log_index) = door
        .read_at(ask, |view, _| query::approvals(view, &by, message.all, page))
        .await?;
    Ok(proto::ApprovalsListResponse {
        approvals: listed
            .items
            .iter()
            .map(|(id, row)| approval::approval(id, row, Arguments::default()))
            .collect(),
        next_page_token: listed
            .next
            .map(|(organization, id)| format!("{organization}/{id}"))
            .unwrap_or_default(),
        log_index,
    })
}

pub async fn get(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::ApprovalsGetRequest,
) -> Result<proto::ApprovalsGetResponse, Failure> {
    let id = approval::approval_id(&message.approval_id)?;
    let (found, log_index) = door.read_at(ask, |view, _| view.approval(&id)).await?;
    // Of another organization nobody learns which approvals it has.
    let by = ask.principal();
    let found = found.filter(|row| by.reaches(&row.organization));
    let found = found.ok_or_else(|| Failure::new(Code::NotFound, format!("no approval {id}")))?;
    let arguments = arguments(door, &id, &found).await;
    Ok(proto::ApprovalsGetResponse {
        approval: Some(approval::approval(&id, &found, arguments)),
        log_index,
    })
}

pub async fn decide(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::ApprovalsDecideRequest,
) -> Result<proto::ApprovalsDecideResponse, Failure> {
    let decide = approval::decide(&message, ask.principal())?;
    bring_arguments(door, ask, &decide, &message).await?;
    let reply = door.propose(ask, decide).await?;
    door.applied_here(ask, reply.place.log_index).await;
    Ok(approval::decided(&reply))
}

/// An approver has seen what runs, or says that nobody could; what runs in its place is kept before it is decided.
async fn bring_arguments(
    door: &Arc<Door>,
    ask: &Ask,
    decide: &Decide,
    message: &proto::ApprovalsDecideRequest,
) -> Result<(), Failure> {
    let id = &decide.approval;
    let found = door.read(ask, |view| view.approval(id)).await?;
    // What is not there, or not theirs, or decided already, is the machine's to answer.
    let Some(row) = found.filter(|row| row.status.is_open() && ask.principal().reaches(&row.organization))
    else {
        return Ok(());
    };
    match &decide.ruling {
        Ruling::Approve if !message.unseen && arguments(door, id, &row).await.call.is_empty() => {
            let why =
                "no node that answers has the call's arguments: send the call again, or approve it unseen";
            Err(Failure::new(Code::FailedPrecondition, why))
        }
        Ruling::Modify(_) => {
            let params = message.successor.clone().unwrap_or_default().params_json;
            let organization = row.organization.clone();
            let node = &door.node;
            let kept = node.hold_arguments(organization, id.clone(), HeldPart::Successor, params);
            match kept.await {
                true => Ok(()),
                false => Err(Failure::new(
                    Code::DaemonUnavailable,
                    "there is no room for more arguments of held calls: decide some of those that wait",
                )),
            }
        }
        Ruling::Approve | Ruling::Reject | Ruling::Defer | Ruling::Escalate => Ok(()),
    }
}

/// The arguments that belong to an approval as it stands, from whichever node has them; checked against their digests.
pub async fn arguments(door: &Door, id: &ApprovalId, row: &Approval) -> Arguments {
    let held = async |part, digest: Option<Digest>, wanted: bool| {
        let digest = digest.filter(|_| wanted)?;
        let params = door.node.held_arguments(&row.organization, id, part).await?;
        (decision::params::inspect(&params).digest == Some(digest)).then_some(params)
    };
    let successor = row.successor.as_ref().map(|successor| successor.digest);
    let modified = row.status == ApprovalStatus::Modified;
    Arguments {
        call: held(HeldPart::Call, row.digest, row.status.is_open())
            .await
            .unwrap_or_default(),
        successor: held(HeldPart::Successor, successor, modified)
            .await
            .unwrap_or_default(),
    }
}

pub async fn watch(
    door: &Arc<Door>,
    ask: &Ask,
    _: proto::ApprovalsWatchRequest,
) -> Result<Streamed<proto::ApprovalsWatchResponse>, Failure> {
    // From before the first look, so that nothing falls in between.
    let follow = Follow::new(door);
    let by = ask.principal();
    let page = wire::page::Page {
        limit: OPEN_MAX,
        after: None,
    };
    let open = door
        .read(ask, |view| query::approvals(view, &by, false, page))
        .await?;
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(tell(Arc::clone(door), by, follow, open.items, sender));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

/// Tells what is open, then every change of what the caller may see.
async fn tell(
    door: Arc<Door>,
    by: Principal,
    mut follow: Follow,
    open: Vec<(ApprovalId, Approval)>,
    sender: mpsc::Sender<Result<proto::ApprovalsWatchResponse, Status>>,
) {
    let told = |approval: Option<proto::Approval>| proto::ApprovalsWatchResponse {
        approval,
        log_index: door.node.status().applied,
    };
    for (id, row) in &open {
        if sender
            .send(Ok(told(Some(approval::approval(id, row, Arguments::default())))))
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
                    .send(Ok(told(Some(approval::approval(
                        &id,
                        &row,
                        Arguments::default(),
                    )))))
                    .await
                    .is_err()
            {
                return;
            }
        }
    }
}
