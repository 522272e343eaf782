//! Approvals: a HITL verdict asks people; their decision releases exactly one call, once, or never.

use audit::{Entry, Kind};
use decision::{
    AgentId, ApprovalId, Digest, HumanDecision, NanoUsd, OrganizationId, Reason, SessionId, Terminal,
    Timestamp, ToolName, Transition,
};
use minicbor::{Decode, Encode};

use crate::apply::Turn;
use crate::command::{AttachShown, Decide, PreExec, Ruling, Successor};
use crate::event::Event;
use crate::guard::PauseScope;
use crate::leash::Leash;
use crate::nonce::{nonce_seen, see_nonce};
use crate::pre_exec::mint;
use crate::replay;
use crate::reply::{ApprovalReply, Refusal, Reply};
use crate::table::{
    Call, DueWork, Fault, Key, Phase, Read, Row, Rows, SESSION_KEPT, Session, SessionStatus, Waiting,
};

/// A question to people, and what they said. Kept for an hour after it is over.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Approval {
    #[n(0)]
    pub session: SessionId,
    #[n(1)]
    pub organization: OrganizationId,
    #[n(2)]
    pub agent: AgentId,
    /// The identity that asked; it never decides.
    #[n(3)]
    pub requested_by: String,
    #[n(4)]
    pub call_number: u64,
    #[n(5)]
    pub tool: ToolName,
    #[n(6)]
    pub digest: Option<Digest>,
    #[n(7)]
    pub nonce: u64,
    /// What the call would hold.
    #[n(8)]
    pub estimate: NanoUsd,
    /// Why a person was asked.
    #[n(9)]
    pub why: Reason,
    /// Of the guard that asked.
    #[n(10)]
    pub policy_digest: Digest,
    #[n(11)]
    pub opened_at: Timestamp,
    #[n(12)]
    pub expires_at: Timestamp,
    /// The parameters as the agent sent them, for the approver to see; gone once it is decided.
    #[cbor(n(13), with = "minicbor::bytes")]
    pub params: Vec<u8>,
    /// Digest of all that the approver is shown ([`Approval::shown`]).
    #[n(14)]
    pub info_digest: Digest,
    #[n(15)]
    pub status: ApprovalStatus,
    #[n(16)]
    pub decided: Option<Decided>,
    /// What may run in the original's place; its parameters are gone once it ran.
    #[n(17)]
    pub successor: Option<Successor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum ApprovalStatus {
    #[n(0)]
    Pending,
    /// Put off, or handed up: still open, its call still waits.
    #[n(1)]
    Deferred,
    #[n(2)]
    Escalated,
    /// The call may run once.
    #[n(3)]
    Approved,
    /// Its successor may run once.
    #[n(4)]
    Modified,
    #[n(5)]
    Rejected,
    #[n(6)]
    Consumed,
    #[n(7)]
    Expired,
    /// An operator resumed or ended the session.
    #[n(8)]
    Cancelled,
}

impl ApprovalStatus {
    /// Says whether nothing can become of it any more.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Pending | Self::Deferred | Self::Escalated | Self::Approved | Self::Modified => false,
            Self::Rejected | Self::Consumed | Self::Expired | Self::Cancelled => true,
        }
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Deferred => "deferred",
            Self::Escalated => "escalated",
            Self::Approved => "approved",
            Self::Modified => "modified",
            Self::Rejected => "rejected",
            Self::Consumed => "consumed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// Says whether a person may still decide.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Deferred | Self::Escalated)
    }
}

/// Who decided, when, and what they said.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Decided {
    #[n(0)]
    pub by: String,
    #[n(1)]
    pub at: Timestamp,
    #[n(2)]
    pub note: String,
    /// The digest of the decision's payload: an equal repetition is no conflict.
    #[n(3)]
    pub payload: Digest,
}

/// Calls of one session that may wait for people at once, where only the call pauses.
pub const OPEN_APPROVALS_MAX: usize = 64;

impl Approval {
    /// What the core decides by (docs/SPEC.md 8.3). Its time is over at its end, whenever that is written down.
    pub fn transition(&self, now: Timestamp) -> Transition {
        let (decision, terminal) = match self.status {
            status if !status.is_over() && now >= self.expires_at => {
                (HumanDecision::Approve, Some(Terminal::Expired))
            }
            ApprovalStatus::Pending => (HumanDecision::Unknown, None),
            ApprovalStatus::Deferred => (HumanDecision::Defer, None),
            ApprovalStatus::Escalated => (HumanDecision::Escalate, None),
            ApprovalStatus::Approved => (HumanDecision::Approve, None),
            ApprovalStatus::Modified => (HumanDecision::Modify, None),
            ApprovalStatus::Rejected => (HumanDecision::Reject, Some(Terminal::Rejected)),
            ApprovalStatus::Consumed => (HumanDecision::Approve, Some(Terminal::Consumed)),
            ApprovalStatus::Expired => (HumanDecision::Approve, Some(Terminal::Expired)),
            ApprovalStatus::Cancelled => (HumanDecision::Approve, Some(Terminal::Cancelled)),
        };
        Transition {
            decision,
            original_nonce: Some(self.nonce),
            original_digest: self.digest,
            successor_nonce: self.successor.as_ref().map(|successor| successor.nonce),
            successor_digest: self.successor.as_ref().map(|successor| successor.digest),
            terminal,
            resume_attempt: false,
        }
    }

    /// The bytes that an approver is shown, of which `info_digest` is the SHA-256: a label, then each field
    /// as its length in 4 bytes and its bytes, numbers in 8, all big-endian (docs/SPEC.md 15.2).
    pub fn shown(&self, id: &ApprovalId) -> Vec<u8> {
        let number = |number: u64| number.to_be_bytes().to_vec();
        let fields = [
            id.as_str().as_bytes().to_vec(),
            self.organization.as_str().as_bytes().to_vec(),
            self.agent.as_str().as_bytes().to_vec(),
            self.session.as_str().as_bytes().to_vec(),
            self.requested_by.as_bytes().to_vec(),
            number(self.call_number),
            self.tool.as_str().as_bytes().to_vec(),
            self.digest
                .map(|digest| digest.as_bytes().to_vec())
                .unwrap_or_default(),
            number(self.nonce),
            self.estimate.nanos().to_be_bytes().to_vec(),
            self.why.word().as_bytes().to_vec(),
            self.policy_digest.as_bytes().to_vec(),
            number(self.expires_at.nanos()),
            self.params.clone(),
        ];
        let mut bytes = b"haltgate approval v1\n".to_vec();
        for field in fields {
            let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&field);
        }
        bytes
    }

    /// Says whether the call is what was approved, tool and money included: the digest covers the arguments only.
    pub fn is_about(&self, call: &PreExec, hold: NanoUsd) -> bool {
        self.tool == call.tool && hold <= self.estimate
    }
}

/// A transition that releases nothing: the approval that was named is none of this session's.
pub(crate) fn unbound() -> Transition {
    Transition {
        decision: HumanDecision::Approve,
        original_nonce: None,
        original_digest: None,
        successor_nonce: None,
        successor_digest: None,
        terminal: None,
        resume_attempt: false,
    }
}

/// Opens the approval of a call that was answered with HITL; the session or only the call waits for it.
pub(crate) fn open<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    session: &mut Session,
    call: &PreExec,
    leash: &Leash,
    hold: NanoUsd,
    why: &Reason,
) -> Option<ApprovalId> {
    let id = ApprovalId::parse(&mint(turn, "apr_")).ok()?;
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
        policy_digest: leash.digest(),
        opened_at: turn.now(),
        expires_at: turn.now().plus(leash.effective().approval_ttl),
        params: Vec::new(),
        info_digest: Digest::of(&[]),
        status: ApprovalStatus::Pending,
        decided: None,
        successor: None,
    };
    approval.info_digest = Digest::of(&approval.shown(&id));
    if leash.effective().pause_scope == PauseScope::Session {
        session.status = SessionStatus::Paused;
    }
    session.waiting.push(Waiting {
        call_number: call.call_number,
        approval_id: id.clone(),
    });
    let expiry = DueWork::ApprovalExpiry(id.clone());
    turn.rows.put(Key::Due(approval.expires_at, expiry), Row::Mark);
    let index = Key::ApprovalOf(approval.organization.clone(), id.clone());
    turn.rows.put(index, Row::Mark);
    put(turn, &id, approval);
    Some(id)
}

/// Writes an approval, and tells whoever follows it.
fn put<R: Rows>(turn: &mut Turn<'_, '_, R>, id: &ApprovalId, approval: Approval) {
    turn.events.push(Event::Approval {
        session: approval.session.clone(),
        id: id.clone(),
    });
    turn.rows
        .put(Key::Approval(id.clone()), Row::Approval(Box::new(approval)));
}

/// Ends an approval: what was shown leaves the state, its timer gives way to that of its removal.
fn finish<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &ApprovalId,
    mut approval: Approval,
    status: ApprovalStatus,
) {
    let expiry = DueWork::ApprovalExpiry(id.clone());
    turn.rows.delete(Key::Due(approval.expires_at, expiry));
    let removal = DueWork::ApprovalRemoval(id.clone());
    turn.rows
        .put(Key::Due(turn.now().plus(SESSION_KEPT), removal), Row::Mark);
    approval.status = status;
    approval.params.clear();
    if let Some(successor) = approval.successor.as_mut() {
        successor.params.clear();
    }
    put(turn, id, approval);
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
fn close_call<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    session: &mut Session,
    approval: &Approval,
) -> Result<(), Fault> {
    let (id, number) = (&approval.session, approval.call_number);
    stop_waiting(session, number);
    see_nonce(turn, id, approval.nonce)?;
    if let Some(successor) = &approval.successor {
        see_nonce(turn, id, successor.nonce)?;
    }
    if let Some(call) = turn.rows.call(id, number)?
        && call.phase == Phase::Waiting
    {
        let call = Call {
            phase: Phase::Cancelled,
            ..*call
        };
        replay::close_call(turn, id, session, call);
    }
    Ok(())
}

/// The call runs on this approval: the approval is used up with the ALLOW it made.
pub(crate) fn consume<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    session: &mut Session,
    call: &PreExec,
    id: &ApprovalId,
) -> Result<(), Fault> {
    let approval = turn
        .rows
        .approval(id)?
        .ok_or_else(|| Fault::Missing(Key::Approval(id.clone())))?;
    if approval.call_number == call.call_number {
        stop_waiting(session, call.call_number);
    } else {
        close_call(turn, session, &approval)?;
    }
    finish(turn, id, *approval, ApprovalStatus::Consumed);
    Ok(())
}

/// Every call of the session that waits never runs: an operator resumed or ended the session.
pub(crate) fn cancel_all<R: Rows>(turn: &mut Turn<'_, '_, R>, session: &mut Session) -> Result<(), Fault> {
    for waiting in session.waiting.clone() {
        let id = waiting.approval_id;
        let approval = turn
            .rows
            .approval(&id)?
            .ok_or_else(|| Fault::Missing(Key::Approval(id.clone())))?;
        close_call(turn, session, &approval)?;
        finish(turn, &id, *approval, ApprovalStatus::Cancelled);
    }
    Ok(())
}

/// Log time has reached its end: a decision of its own, with an entry of its own.
pub(crate) fn expire<R: Rows>(turn: &mut Turn<'_, '_, R>, id: &ApprovalId) -> Result<(), Fault> {
    let Some(approval) = turn
        .rows
        .approval(id)?
        .filter(|approval| !approval.status.is_over())
    else {
        return Ok(());
    };
    let Some(session) = turn.rows.session(&approval.session)? else {
        return Err(Fault::Missing(Key::Session(approval.session.clone())));
    };
    let mut session = *session;
    close_call(turn, &mut session, &approval)?;
    turn.record(entry(turn, Kind::ApprovalExpired, id, &approval));
    turn.rows.put(
        Key::Session(approval.session.clone()),
        Row::Session(Box::new(session)),
    );
    finish(turn, id, *approval, ApprovalStatus::Expired);
    Ok(())
}

pub(crate) fn remove<R: Rows>(turn: &mut Turn<'_, '_, R>, id: ApprovalId) -> Result<(), Fault> {
    if let Some(approval) = turn.rows.approval(&id)? {
        turn.rows
            .delete(Key::ApprovalOf(approval.organization.clone(), id.clone()));
        turn.rows.delete(Key::Approval(id));
    }
    Ok(())
}

/// The parameters of a held call, from the node that has them: what the approver sees.
pub(crate) fn attach<R: Rows>(turn: &mut Turn<'_, '_, R>, shown: &AttachShown) -> Result<Reply, Fault> {
    let id = &shown.approval;
    let Some(mut approval) = turn.rows.approval(id)? else {
        return Ok(not_found(id));
    };
    if !shown.by.speaks_for(&approval.organization, &approval.agent) {
        return Ok(turn.refuse(&shown.by, format!("approval/{id}")));
    }
    if approval.status != ApprovalStatus::Pending || !approval.params.is_empty() {
        return Ok(Reply::Approval(reply(turn, id, &approval, 0)));
    }
    if decision::params::inspect(&shown.params).digest != approval.digest || approval.digest.is_none() {
        return Ok(Reply::Refused(Refusal::Invalid(
            "the parameters are not those of the held call".to_owned(),
        )));
    }
    approval.params.clone_from(&shown.params);
    approval.info_digest = Digest::of(&approval.shown(id));
    let sequence = turn.record(entry(turn, Kind::ApprovalShown, id, &approval));
    let answer = reply(turn, id, &approval, sequence);
    put(turn, id, *approval);
    Ok(Reply::Approval(answer))
}

/// A person decides. The first decision that ends the question wins.
pub(crate) fn decide<R: Rows>(turn: &mut Turn<'_, '_, R>, decide: &Decide) -> Result<Reply, Fault> {
    let id = &decide.approval;
    let Some(approval) = turn.rows.approval(id)? else {
        return Ok(not_found(id));
    };
    let mut approval = *approval;
    if !decide.by.reaches(&approval.organization) {
        return Ok(turn.refuse(&decide.by, format!("approval/{id}")));
    }
    let asked = decide.by.name == approval.requested_by
        || decide.by.speaks_for(&approval.organization, &approval.agent);
    if asked {
        return Ok(turn.refuse(&decide.by, format!("approval/{id}: who asked does not decide")));
    }
    let requester = replay::identity(&decide.by);
    if let Some(earlier) = replay::recall(turn, &requester, &decide.request)? {
        return Ok(earlier);
    }
    if !approval.status.is_open() {
        let same = approval
            .decided
            .as_ref()
            .is_some_and(|decided| decided.payload == decide.said());
        return Ok(if same {
            Reply::Approval(reply(turn, id, &approval, 0))
        } else {
            Reply::Refused(Refusal::Conflict(format!(
                "approval {id} is {} already",
                approval.status.word()
            )))
        });
    }
    if turn.now() >= approval.expires_at {
        return Ok(Reply::Refused(Refusal::Conflict(format!(
            "approval {id} has expired"
        ))));
    }
    if decide.info_digest != approval.info_digest {
        return Ok(Reply::Refused(Refusal::Conflict(
            "info_digest is not of what is shown now: look at the approval again".to_owned(),
        )));
    }
    if let Err(refusal) = rule(turn, &mut approval, &decide.ruling)? {
        return Ok(Reply::Refused(refusal));
    }
    approval.decided = Some(Decided {
        by: decide.by.name.clone(),
        at: turn.now(),
        note: decide.note.clone(),
        payload: decide.said(),
    });
    let mut record = entry(turn, Kind::ApprovalDecided, id, &approval);
    record.operator_id.clone_from(&decide.by.name);
    record.reason = decide.ruling.word().to_owned();
    record.detail.clone_from(&decide.note);
    record.request_id = decide.request.id.as_str().to_owned();
    let sequence = turn.record(record);
    let mut answer = reply(turn, id, &approval, sequence);
    if approval.status == ApprovalStatus::Rejected {
        let session = turn.rows.session(&approval.session)?;
        let key = Key::Session(approval.session.clone());
        let mut session = *session.ok_or_else(|| Fault::Missing(key.clone()))?;
        close_call(turn, &mut session, &approval)?;
        turn.rows.put(key, Row::Session(Box::new(session)));
        finish(turn, id, approval, ApprovalStatus::Rejected);
    } else {
        // Nobody needs to see the original any more; a successor's parameters wait for their agent.
        if !approval.status.is_open() {
            approval.params.clear();
        }
        put(turn, id, approval);
    }
    answer.place = turn.place(sequence);
    let answer = Reply::Approval(answer);
    replay::remember(turn, requester, &decide.request, &answer);
    Ok(answer)
}

/// Makes of the approval what the person said.
fn rule<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    approval: &mut Approval,
    ruling: &Ruling,
) -> Result<Result<(), Refusal>, Fault> {
    approval.status = match ruling {
        Ruling::Approve => ApprovalStatus::Approved,
        Ruling::Reject => ApprovalStatus::Rejected,
        Ruling::Defer => ApprovalStatus::Deferred,
        Ruling::Escalate => ApprovalStatus::Escalated,
        Ruling::Modify(successor) => {
            let mut successor = successor.clone();
            if decision::params::inspect(&successor.params).digest != Some(successor.digest) {
                return Ok(Err(Refusal::Invalid(
                    "the successor's parameters are not what its digest says".to_owned(),
                )));
            }
            if successor.nonce == 0 {
                successor.nonce = fresh_nonce(turn, approval)?;
            }
            if successor.nonce == approval.nonce || nonce_seen(turn.rows, &approval.session, successor.nonce)?
            {
                return Ok(Err(Refusal::Invalid(
                    "the successor's nonce was used in this session".to_owned(),
                )));
            }
            if successor.call_number == 0 {
                let session = turn.rows.session(&approval.session)?;
                let highest = session.map_or(0, |session| session.highest_call);
                successor.call_number = highest.saturating_add(1);
            }
            approval.successor = Some(successor);
            ApprovalStatus::Modified
        }
    };
    Ok(Ok(()))
}

/// A nonce that the session has not seen, drawn alike on every replica.
fn fresh_nonce<R: Rows>(turn: &mut Turn<'_, '_, R>, approval: &Approval) -> Result<u64, Fault> {
    loop {
        let [a, b, c, d, e, f, g, h, ..] = *turn.random().as_bytes();
        // As many bits as a number of JSON keeps in every language.
        let nonce = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 11;
        let seen = nonce_seen(turn.rows, &approval.session, nonce)?;
        if nonce != 0 && nonce != approval.nonce && !seen {
            return Ok(nonce);
        }
    }
}

fn not_found(id: &ApprovalId) -> Reply {
    Reply::Refused(Refusal::NotFound(format!("no approval {id}")))
}

fn reply<R: Rows>(
    turn: &Turn<'_, '_, R>,
    id: &ApprovalId,
    approval: &Approval,
    sequence: u64,
) -> ApprovalReply {
    ApprovalReply {
        id: id.clone(),
        status: approval.status,
        info_digest: approval.info_digest,
        successor: approval.successor.as_ref().map(|successor| Successor {
            params: Vec::new(),
            ..successor.clone()
        }),
        place: turn.place(sequence),
    }
}

/// An entry about an approval.
fn entry<R: Rows>(turn: &Turn<'_, '_, R>, kind: Kind, id: &ApprovalId, approval: &Approval) -> Entry {
    let mut entry = turn.entry(kind);
    entry.session_id = approval.session.as_str().to_owned();
    entry.agent_id = approval.agent.as_str().to_owned();
    entry.organization_id = approval.organization.as_str().to_owned();
    entry.call_number = approval.call_number;
    entry.tool_name = approval.tool.as_str().to_owned();
    entry.tool_params_hash = approval
        .digest
        .map(|digest| digest.as_bytes().to_vec())
        .unwrap_or_default();
    entry.nonce = Some(approval.nonce);
    entry.policy_digest = approval.policy_digest.as_bytes().to_vec();
    entry.approval_id = id.as_str().to_owned();
    entry.info_digest = approval.info_digest.as_bytes().to_vec();
    entry
}
