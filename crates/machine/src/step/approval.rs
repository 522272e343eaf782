//! Approvals: a HITL verdict asks people; their decision releases exactly one call, once, or never.

use audit::{Entry, Kind};
use decision::{ApprovalId, Digest, NanoUsd, Reason};

use crate::command::PreExec;
use crate::event::Event;
use crate::guard_path::GuardPath;
use crate::row::reply::{ApprovalReply, Refusal};
use crate::row::{
    Approval, ApprovalStatus, Call, DueWork, Fault, Key, PauseScope, Phase, Record, SESSION_KEPT, Session,
    SessionStatus, Waiting,
};
use crate::step::memory::{close_call, see_nonce};
use crate::turn::{Done, Turn};

/// Reads an approval that an order names.
pub(crate) fn named(turn: &Turn<'_>, id: &ApprovalId) -> Done<Record<Approval>> {
    let found = turn.find(id)?;
    Ok(found.ok_or_else(|| Refusal::NotFound(format!("no approval {id}")))?)
}

/// Opens the approval of a call that was answered with HITL; the session or only the call waits for it.
pub(crate) fn open(
    turn: &mut Turn<'_>,
    session: &mut Record<Session>,
    call: &PreExec,
    path: &GuardPath,
    hold: NanoUsd,
    why: &Reason,
) -> Option<ApprovalId> {
    let guard = path.effective();
    let id = ApprovalId::parse(&turn.mint("apr_")).ok()?;
    let mut approval = Approval {
        session: call.session.clone(),
        organization: session.organization.clone(),
        agent: session.agent.clone(),
        requested_by: call.by.name.clone(),
        call_number: call.call_number,
        tool: call.tool.clone(),
        digest: call.digest,
        nonce: call.nonce,
        estimate: hold,
        why: why.clone(),
        policy_digest: path.digest(),
        opened_at: turn.now(),
        expires_at: turn.now().plus(guard.approval_ttl),
        info_digest: Digest::of(&[]),
        status: ApprovalStatus::Pending,
        decided: None,
        successor: None,
    };
    approval.info_digest = Digest::of(&approval.shown(&id));
    if guard.pause_scope == PauseScope::Session {
        session.status = SessionStatus::Paused;
    }
    session.waiting.push(Waiting {
        call_number: call.call_number,
        approval_id: id.clone(),
    });
    turn.arm(approval.expires_at, DueWork::ApprovalExpiry(id.clone()));
    turn.mark(Key::ApprovalOf(approval.organization.clone(), id.clone()));
    save(turn, Record::new(id.clone(), approval));
    Some(id)
}

/// Writes an approval, and tells whoever follows it.
pub(crate) fn save(turn: &mut Turn<'_>, approval: Record<Approval>) {
    turn.tell(Event::Approval {
        session: approval.session.clone(),
        id: approval.id.clone(),
    });
    turn.save(approval);
}

/// Ends an approval: its timer gives way to that of its removal.
pub(crate) fn finish(turn: &mut Turn<'_>, mut approval: Record<Approval>, status: ApprovalStatus) {
    let id = approval.id.clone();
    turn.disarm(approval.expires_at, DueWork::ApprovalExpiry(id.clone()));
    turn.arm(turn.now().plus(SESSION_KEPT), DueWork::ApprovalRemoval(id));
    approval.status = status;
    save(turn, approval);
}

/// The session no longer waits for this call; it goes on unless something else holds it.
fn stop_waiting(session: &mut Session, call_number: u64) {
    session
        .waiting
        .retain(|waiting| waiting.call_number != call_number);
    if session.waiting.is_empty() && session.status == SessionStatus::Paused && !session.paused_by_operator {
        session.status = SessionStatus::Active;
    }
}

/// The held call never runs: its nonce, and its successor's, are spent.
pub(crate) fn cancel_call(
    turn: &mut Turn<'_>,
    session: &mut Session,
    approval: &Approval,
) -> Result<(), Fault> {
    let (id, number) = (&approval.session, approval.call_number);
    stop_waiting(session, number);
    see_nonce(turn, id, approval.nonce)?;
    if let Some(successor) = &approval.successor {
        see_nonce(turn, id, successor.nonce)?;
    }
    let call = turn.find::<Call>(&(id.clone(), number))?;
    if let Some(mut call) = call.filter(|call| call.phase == Phase::Waiting) {
        call.phase = Phase::Cancelled;
        close_call(turn, session, call);
    }
    Ok(())
}

/// The call runs on this approval: the approval is used up with the ALLOW it made.
pub(crate) fn consume(
    turn: &mut Turn<'_>,
    session: &mut Session,
    call: &PreExec,
    approval: Record<Approval>,
) -> Result<(), Fault> {
    if approval.call_number == call.call_number {
        stop_waiting(session, call.call_number);
    } else {
        cancel_call(turn, session, &approval)?;
    }
    finish(turn, approval, ApprovalStatus::Consumed);
    Ok(())
}

/// Every call of the session that waits never runs: an operator resumed or ended the session.
pub(crate) fn cancel_all(turn: &mut Turn<'_>, session: &mut Session) -> Result<(), Fault> {
    for waiting in session.waiting.clone() {
        let approval = turn.need::<Approval>(&waiting.approval_id)?;
        cancel_call(turn, session, &approval)?;
        finish(turn, approval, ApprovalStatus::Cancelled);
    }
    Ok(())
}

/// Log time has reached its end: a decision of its own, with an entry of its own.
pub(crate) fn expire(turn: &mut Turn<'_>, id: &ApprovalId) -> Result<(), Fault> {
    let found = turn.find::<Approval>(id)?;
    let Some(approval) = found.filter(|approval| !approval.status.is_over()) else {
        return Ok(());
    };
    let mut session = turn.need::<Session>(&approval.session)?;
    cancel_call(turn, &mut session, &approval)?;
    turn.record(entry(turn, Kind::ApprovalExpired, &approval));
    turn.save(session);
    finish(turn, approval, ApprovalStatus::Expired);
    Ok(())
}

/// Forgets an approval that has been over for long enough.
pub(crate) fn forget(turn: &mut Turn<'_>, id: ApprovalId) -> Result<(), Fault> {
    if let Some(approval) = turn.find::<Approval>(&id)? {
        turn.unmark(Key::ApprovalOf(approval.organization.clone(), id.clone()));
        turn.remove::<Approval>(&id);
    }
    Ok(())
}

/// An approval as it now stands.
pub(crate) fn reply(turn: &Turn<'_>, approval: &Record<Approval>, sequence: u64) -> ApprovalReply {
    ApprovalReply {
        id: approval.id.clone(),
        status: approval.status,
        info_digest: approval.info_digest,
        successor: approval.successor.clone(),
        place: turn.place(sequence),
    }
}

/// An entry about an approval.
pub(crate) fn entry(turn: &Turn<'_>, kind: Kind, approval: &Record<Approval>) -> Entry {
    let digest = approval.digest.map(|digest| digest.as_bytes().to_vec());
    Entry {
        session_id: approval.session.as_str().to_owned(),
        agent_id: approval.agent.as_str().to_owned(),
        organization_id: approval.organization.as_str().to_owned(),
        call_number: approval.call_number,
        tool_name: approval.tool.as_str().to_owned(),
        tool_params_hash: digest.unwrap_or_default(),
        nonce: Some(approval.nonce),
        policy_digest: approval.policy_digest.as_bytes().to_vec(),
        approval_id: approval.id.as_str().to_owned(),
        info_digest: approval.info_digest.as_bytes().to_vec(),
        ..turn.entry(kind)
    }
}
