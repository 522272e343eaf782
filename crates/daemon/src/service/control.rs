//! `WaitApproval` and `WatchControl`: what agents are told without asking again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use decision::{ApprovalId, HaltScope, Reason, SessionId};
use machine::Event;
use machine::query;
use machine::row::ApprovalStatus;
use machine::row::{Fault, Read as _, Rows, Session, SessionStatus};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::proto::shackle::v1 as proto;
use wire::{Code, Failure, Invalid, approval};

use crate::admit::Ask;
use crate::door::{Door, log_index};
use crate::follow::{Follow, WAITING};
use crate::service::{Streamed, approvals};

/// Sessions that one stream follows.
const SESSIONS_MAX: usize = 100;
/// How often an open stream counts as a sign of life of its sessions, of the 90 s that a session may be silent.
const ALIVE: Duration = Duration::from_secs(15);

type Sender<T> = mpsc::Sender<Result<T, Status>>;

/// Follows one approval until the agent can act on it.
pub async fn wait_approval(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::WaitApprovalRequest,
) -> Result<Streamed<proto::WaitApprovalResponse>, Failure> {
    let session = wire::guard::session_id(&message.session_id)?;
    let id = approval::approval_id(&message.approval_id)?;
    let follow = Follow::new(door);
    let found = door
        .read(ask, |view| view.approval(&id))
        .await?
        .filter(|found| found.session == session)
        .ok_or_else(|| Failure::new(Code::NotFound, format!("no approval {id} of session/{session}")))?;
    if !ask.principal().speaks_for(&found.organization, &found.agent) {
        return Err(door.admission.not_theirs(ask, &session));
    }
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(tell_approval(Arc::clone(door), session, id, follow, sender));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

async fn tell_approval(
    door: Arc<Door>,
    session: SessionId,
    id: ApprovalId,
    mut follow: Follow,
    sender: Sender<proto::WaitApprovalResponse>,
) {
    let mut told = None;
    let mut alive = Alive::default();
    loop {
        alive.tell(&door, [&session]);
        let found = door.local(|view| Ok((view.approval(&id)?, log_index(view))));
        let now = match found {
            Ok((Some(row), index)) => {
                let arguments = approvals::arguments(&door, &id, &row).await;
                Ok(approval::waited(&id, &row, arguments, index))
            }
            // Kept for an hour after it is over: an agent that comes later asks PreExec.
            Ok((None, _)) => Err(Failure::new(Code::NotFound, format!("no approval {id}")).to_status()),
            Err(failure) => Err(failure.to_status()),
        };
        let ends = match &now {
            Ok(now) => !matches!(
                now.status(),
                proto::ApprovalStatus::Pending
                    | proto::ApprovalStatus::Deferred
                    | proto::ApprovalStatus::Escalated
            ),
            Err(_) => true,
        };
        let status = now.as_ref().map(|now| now.status).ok();
        let gone = (ends || status != told) && sender.send(now).await.is_err();
        if gone || ends {
            return;
        }
        told = status;
        let concerns = |event: &Event| matches!(event, Event::Approval { id: changed, .. } if *changed == id);
        if let Err(end) = wait(&mut follow, &sender, concerns).await {
            let _ = sender.send(Err(end)).await;
            return;
        }
    }
}

/// Follows what stops some sessions.
pub async fn watch_control(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::WatchControlRequest,
) -> Result<Streamed<proto::WatchControlResponse>, Failure> {
    if message.session_ids.is_empty() || message.session_ids.len() > SESSIONS_MAX {
        return Err(Invalid::new("session_ids", format!("must be 1 to {SESSIONS_MAX}")).into());
    }
    let ids = message
        .session_ids
        .iter()
        .map(|id| wire::guard::session_id(id))
        .collect::<Result<Vec<_>, _>>()?;
    let follow = Follow::new(door);
    let sessions = door
        .read(ask, |view| {
            ids.iter()
                .map(|id| view.session(id))
                .collect::<Result<Vec<_>, Fault>>()
        })
        .await?;
    for (id, session) in ids.iter().zip(sessions) {
        let session = session.ok_or(machine::Refusal::SessionNotFound)?;
        door.admission.speaks_for(ask, id, &session)?;
    }
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(tell_control(Arc::clone(door), ids, follow, sender));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

async fn tell_control(
    door: Arc<Door>,
    ids: Vec<SessionId>,
    mut follow: Follow,
    sender: Sender<proto::WatchControlResponse>,
) {
    let mut told: Vec<Standing> = ids.iter().map(|_| Standing::default()).collect();
    let mut alive = Alive::default();
    let mut is_open = false;
    loop {
        alive.tell(&door, &ids);
        let looked = door.local(|view| {
            let at = (
                view.cluster()?.map_or(0, |cluster| cluster.halt_epoch),
                log_index(view),
            );
            let now = ids
                .iter()
                .zip(&told)
                .map(|(id, told)| Standing::of(view, id, told))
                .collect::<Result<Vec<_>, Fault>>()?;
            Ok((now, at))
        });
        let (now, (halt_epoch, log_index)) = match looked {
            Ok(looked) => looked,
            Err(failure) => {
                let _ = sender.send(Err(failure.to_status())).await;
                return;
            }
        };
        let mut news = news(&ids, &told, &now);
        if !is_open {
            is_open = true;
            news.push(proto::WatchControlResponse {
                kind: proto::ControlKind::Ready.into(),
                ..Default::default()
            });
        }
        for change in news {
            let change = proto::WatchControlResponse {
                halt_epoch,
                log_index,
                ..change
            };
            if sender.send(Ok(change)).await.is_err() {
                return;
            }
        }
        told = now;
        let concerns = |event: &Event| match event {
            Event::Engaged { .. } | Event::Released { .. } => true,
            Event::Tripped { session }
            | Event::SessionClosed { session }
            | Event::Approval { session, .. } => ids.contains(session),
            Event::Decided { .. }
            | Event::Replayed
            | Event::Settled
            | Event::HoldExpired
            | Event::SessionOpened => false,
        };
        if let Err(end) = wait(&mut follow, &sender, concerns).await {
            let _ = sender.send(Err(end)).await;
            return;
        }
    }
}

/// What changed of each session.
fn news(ids: &[SessionId], told: &[Standing], now: &[Standing]) -> Vec<proto::WatchControlResponse> {
    let standings = ids.iter().zip(told).zip(now);
    let changes = standings.flat_map(|((id, before), after)| {
        let of = move |change| proto::WatchControlResponse {
            session_id: id.as_str().to_owned(),
            ..change
        };
        before.changes(after).into_iter().map(of)
    });
    changes.collect()
}

/// Waits for an event that concerns the stream, or until it has to look for itself.
async fn wait<T>(
    follow: &mut Follow,
    sender: &Sender<T>,
    concerns: impl Fn(&Event) -> bool,
) -> Result<(), Status> {
    loop {
        match follow.next(sender).await? {
            Some(events) if !events.iter().any(&concerns) => {}
            Some(_) | None => return Ok(()),
        }
    }
}

/// An open stream is a sign of life.
#[derive(Default)]
struct Alive(Option<Instant>);

impl Alive {
    fn tell<'s>(&mut self, door: &Door, sessions: impl IntoIterator<Item = &'s SessionId>) {
        if self.0.is_some_and(|last| last.elapsed() < ALIVE) {
            return;
        }
        self.0 = Some(Instant::now());
        for session in sessions {
            door.node.seen(session.clone());
        }
    }
}

/// What was told of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Standing {
    /// The scope that stops it, whether it halts or pauses, and what the operator wrote.
    stop: Option<(HaltScope, bool, String)>,
    /// It is over for good, or until its circuit is reset.
    abort: Option<Reason>,
    /// Of approvals that were open at some look.
    approvals: BTreeMap<ApprovalId, ApprovalStatus>,
}

impl Standing {
    fn of<R: Rows>(rows: &R, id: &SessionId, told: &Self) -> Result<Self, Fault> {
        let Some(session) = rows.session(id)? else {
            return Ok(Self {
                abort: Some(Reason::SessionTerminated),
                ..Self::default()
            });
        };
        Ok(Self {
            stop: query::halted(rows, id, &session)?
                .map(|(kind, halt)| (kind, halt.mode == machine::row::HaltMode::Halt, halt.reason)),
            abort: match (session.status, &session.trip) {
                (SessionStatus::Terminated, _) => Some(Reason::SessionTerminated),
                (_, Some(_)) => Some(Reason::CircuitOpen),
                (SessionStatus::Active | SessionStatus::Paused | SessionStatus::Stale, None) => None,
            },
            approvals: approvals(rows, &session, told)?,
        })
    }

    /// What has to be told, so that the agent knows how it stands now.
    fn changes(&self, now: &Self) -> Vec<proto::WatchControlResponse> {
        let mut changes = Vec::new();
        let mut push = |kind: proto::ControlKind, reason: String, note: String| {
            changes.push(proto::WatchControlResponse {
                kind: kind.into(),
                reason,
                note,
                ..Default::default()
            });
        };
        match &now.stop {
            Some((scope, halts, note)) if self.stop != now.stop => {
                let kind = if *halts {
                    proto::ControlKind::Halt
                } else {
                    proto::ControlKind::Pause
                };
                let reason = Reason::RunHalted(scope.clone()).word().into_owned();
                push(kind, reason, note.clone());
            }
            None if self.stop.is_some() => {
                push(proto::ControlKind::Resume, String::new(), String::new());
            }
            Some(_) | None => {}
        }
        match &now.abort {
            Some(reason) if self.abort != now.abort => {
                push(
                    proto::ControlKind::Abort,
                    reason.word().into_owned(),
                    String::new(),
                );
            }
            None if self.abort.is_some() => {
                push(proto::ControlKind::Resume, String::new(), String::new());
            }
            Some(_) | None => {}
        }
        for (id, status) in &now.approvals {
            if self.approvals.get(id) != Some(status) {
                changes.push(proto::WatchControlResponse {
                    kind: proto::ControlKind::Approval.into(),
                    approval_id: id.as_str().to_owned(),
                    approval_status: approval::status(*status).into(),
                    ..Default::default()
                });
            }
        }
        changes
    }
}

/// The approvals that are open now, and those told of before until they are over.
fn approvals<R: Rows>(
    rows: &R,
    session: &Session,
    told: &Standing,
) -> Result<BTreeMap<ApprovalId, ApprovalStatus>, Fault> {
    let open = session.waiting.iter().map(|waiting| waiting.approval_id.clone());
    let known = told
        .approvals
        .iter()
        .filter(|(_, status)| !status.is_over())
        .map(|(id, _)| id.clone());
    let mut approvals = BTreeMap::new();
    for id in open.chain(known) {
        if let Some(row) = rows.approval(&id)? {
            approvals.insert(id, row.status);
        }
    }
    Ok(approvals)
}

#[cfg(test)]
mod tests {
    use decision::{ApprovalId, HaltScope, Reason};
    use machine::row::ApprovalStatus;
    use wire::proto::shackle::v1::ControlKind;

    use super::Standing;

    fn kinds(before: &Standing, after: &Standing) -> Vec<ControlKind> {
        before.changes(after).iter().map(|change| change.kind()).collect()
    }

    #[test]
    fn what_changed_is_told_and_nothing_else() {
        let stopped = |halts| Standing {
            stop: Some((HaltScope::Organization, halts, "why".to_owned())),
            ..Standing::default()
        };
        let aborted = |reason| Standing {
            abort: Some(reason),
            ..Standing::default()
        };
        let asked = |status| Standing {
            approvals: [(ApprovalId::parse("apr_1").unwrap(), status)].into(),
            ..Standing::default()
        };
        let free = Standing::default;
        let rows = [
            (free(), free(), vec![]),
            (free(), stopped(true), vec![ControlKind::Halt]),
            (free(), stopped(false), vec![ControlKind::Pause]),
            (stopped(false), stopped(true), vec![ControlKind::Halt]),
            (stopped(true), stopped(true), vec![]),
            (stopped(true), free(), vec![ControlKind::Resume]),
            (free(), aborted(Reason::CircuitOpen), vec![ControlKind::Abort]),
            (
                aborted(Reason::CircuitOpen),
                aborted(Reason::SessionTerminated),
                vec![ControlKind::Abort],
            ),
            (aborted(Reason::CircuitOpen), free(), vec![ControlKind::Resume]),
            (
                free(),
                asked(ApprovalStatus::Pending),
                vec![ControlKind::Approval],
            ),
            (
                asked(ApprovalStatus::Pending),
                asked(ApprovalStatus::Approved),
                vec![ControlKind::Approval],
            ),
            (asked(ApprovalStatus::Consumed), free(), vec![]),
        ];
        for (before, after, told) in rows {
            assert_eq!(kinds(&before, &after), told, "{before:?} -> {after:?}");
        }
    }
}
