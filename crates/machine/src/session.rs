//! Sessions: opened, resumed, paused, stale, ended.

use std::collections::BTreeMap;

use audit::Kind;
use decision::{AgentId, OrganizationId, SessionId};

use crate::apply::Turn;
use crate::budget;
use crate::command::{Act, EndSession, Register, Seen, SessionAct};
use crate::due;
use crate::event::Event;
use crate::guard_put;
use crate::post_exec::session_entry;
use crate::pre_exec::{mint, see_nonce};
use crate::replay;
use crate::reply::{Refusal, Registered, Reply};
use crate::table::{
    Call, DueWork, Fault, Key, Phase, Read, Row, Rows, SESSION_IDLE, SESSION_KEPT, Session, SessionStatus,
};

pub(crate) fn register<R: Rows>(turn: &mut Turn<'_, '_, R>, register: &Register) -> Result<Reply, Fault> {
    let Register {
        by,
        organization,
        agent,
        resume,
        request,
        metadata,
    } = register;
    if !by.speaks_for(organization, agent) {
        return Ok(turn.refuse(by, format!("org/{organization}/agent/{agent}")));
    }
    let requester = replay::identity(by);
    if let Some(request) = request
        && let Some(earlier) = replay::recall(turn, &requester, request)?
    {
        return Ok(earlier);
    }
    let guard = guard_put::effective(turn.rows, organization, agent)?;
    let (id, sequence) = match resume {
        Some(id) => {
            let Some(session) = turn.rows.session(id)? else {
                return Ok(Reply::Refused(Refusal::SessionNotFound));
            };
            let mut session = *session;
            if session.organization != *organization || session.agent != *agent {
                return Ok(turn.refuse(by, format!("session/{id}")));
            }
            match session.status {
                SessionStatus::Terminated => return Ok(Reply::Refused(Refusal::SessionNotFound)),
                SessionStatus::Stale => session.status = SessionStatus::Active,
                SessionStatus::Active | SessionStatus::Paused => {}
            }
            session.last_activity = turn.now();
            let sequence = turn.record(session_entry(turn, Kind::SessionResumed, id, &session));
            turn.rows
                .put(Key::Session(id.clone()), Row::Session(Box::new(session)));
            let work = DueWork::SessionIdle(id.clone());
            turn.rows
                .put(Key::Due(turn.now().plus(SESSION_IDLE), work), Row::Mark);
            (id.clone(), sequence)
        }
        None => {
            let Ok(id) = SessionId::parse(&mint(turn, "ses_")) else {
                return Ok(Reply::Refused(Refusal::Invalid(
                    "no session id could be minted".to_owned(),
                )));
            };
            let session = opened(turn, organization.clone(), agent.clone(), metadata.clone());
            budget::open_own(turn, &guard, &id, &session)?;
            let mut entry = session_entry(turn, Kind::SessionRegistered, &id, &session);
            entry.policy_digest = guard.digest().as_bytes().to_vec();
            let sequence = turn.record(entry);
            insert(turn, &id, session);
            let work = DueWork::SessionIdle(id.clone());
            turn.rows
                .put(Key::Due(turn.now().plus(SESSION_IDLE), work), Row::Mark);
            turn.events.push(Event::SessionOpened);
            (id, sequence)
        }
    };
    let reply = Reply::Registered(Registered {
        session: id,
        guard,
        place: turn.place(sequence),
    });
    if let Some(request) = request {
        replay::remember(turn, requester, request, &reply);
    }
    Ok(reply)
}

/// A session with nothing done in it.
pub(crate) fn opened<R: Rows>(
    turn: &Turn<'_, '_, R>,
    organization: OrganizationId,
    agent: AgentId,
    metadata: BTreeMap<String, String>,
) -> Session {
    Session {
        organization,
        agent,
        status: SessionStatus::Active,
        opened_at: turn.now(),
        last_activity: turn.now(),
        metadata,
        total_calls: 0,
        total_calls_base: 0,
        first_call_at: None,
        last_call: None,
        windows: BTreeMap::new(),
        trip: None,
        highest_call: 0,
        waiting: None,
        ended_at: None,
    }
}

/// Writes a new session and its index.
pub(crate) fn insert<R: Rows>(turn: &mut Turn<'_, '_, R>, id: &SessionId, session: Session) {
    let index = Key::SessionOf(session.organization.clone(), session.agent.clone(), id.clone());
    turn.rows.put(index, Row::Mark);
    turn.rows
        .put(Key::Session(id.clone()), Row::Session(Box::new(session)));
}

pub(crate) fn seen<R: Rows>(turn: &mut Turn<'_, '_, R>, seen: &Seen) -> Result<Reply, Fault> {
    let now = turn.now();
    for id in &seen.sessions {
        let Some(mut session) = turn.rows.session(id)? else {
            continue;
        };
        if matches!(session.status, SessionStatus::Active | SessionStatus::Paused) {
            session.last_activity = session.last_activity.max(now);
            turn.rows.put(Key::Session(id.clone()), Row::Session(session));
        }
    }
    Ok(Reply::Done(turn.place(0)))
}

pub(crate) fn end<R: Rows>(turn: &mut Turn<'_, '_, R>, end: &EndSession) -> Result<Reply, Fault> {
    let Some(session) = turn.rows.session(&end.session)? else {
        return Ok(Reply::Refused(Refusal::SessionNotFound));
    };
    if !end.by.speaks_for(&session.organization, &session.agent) {
        return Ok(turn.refuse(&end.by, format!("session/{}", end.session)));
    }
    let sequence = match session.status {
        // Ending twice is one end.
        SessionStatus::Terminated => 0,
        SessionStatus::Active | SessionStatus::Paused | SessionStatus::Stale => {
            terminate(turn, &end.session, *session, &end.by.name, "ended by its agent")?
        }
    };
    Ok(Reply::Session(SessionStatus::Terminated, turn.place(sequence)))
}

/// Ends a session: what waits is cancelled, what is held is settled, the rows stay for an hour.
pub(crate) fn terminate<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    mut session: Session,
    by: &str,
    why: &str,
) -> Result<u64, Fault> {
    cancel_waiting(turn, id, &mut session)?;
    session.status = SessionStatus::Terminated;
    session.ended_at = Some(turn.now());
    let mut entry = session_entry(turn, Kind::SessionEnded, id, &session);
    entry.operator_id = by.to_owned();
    entry.reason = why.to_owned();
    let sequence = turn.record(entry);
    turn.rows
        .put(Key::Session(id.clone()), Row::Session(Box::new(session)));
    let removal = DueWork::SessionRemoval(id.clone());
    turn.rows
        .put(Key::Due(turn.now().plus(SESSION_KEPT), removal), Row::Mark);
    due::settle_ended(turn, id)?;
    turn.events.push(Event::SessionClosed);
    Ok(sequence)
}

pub(crate) fn act<R: Rows>(turn: &mut Turn<'_, '_, R>, act: &SessionAct) -> Result<Reply, Fault> {
    let Some(session) = turn.rows.session(&act.session)? else {
        return Ok(Reply::Refused(Refusal::SessionNotFound));
    };
    let mut session = *session;
    if !act.by.reaches(&session.organization) {
        return Ok(turn.refuse(&act.by, format!("session/{}", act.session)));
    }
    let requester = replay::identity(&act.by);
    if let Some(earlier) = replay::recall(turn, &requester, &act.request)? {
        return Ok(earlier);
    }
    let kind = match (act.act, session.status) {
        (_, SessionStatus::Terminated) => {
            return Ok(Reply::Refused(Refusal::Precondition(
                "the session has ended".to_owned(),
            )));
        }
        (Act::Terminate, _) => {
            let sequence = terminate(turn, &act.session, session, &act.by.name, &act.justification)?;
            let reply = Reply::Session(SessionStatus::Terminated, turn.place(sequence));
            replay::remember(turn, requester, &act.request, &reply);
            return Ok(reply);
        }
        (Act::ResetCircuit, _) => {
            if session.trip.is_none() {
                return Ok(Reply::Refused(Refusal::Precondition(
                    "the circuit is not tripped".to_owned(),
                )));
            }
            reset_circuit(&mut session);
            Kind::CircuitReset
        }
        (Act::Pause, SessionStatus::Active | SessionStatus::Paused) => {
            session.status = SessionStatus::Paused;
            Kind::SessionPaused
        }
        (Act::Resume, SessionStatus::Paused) => {
            cancel_waiting(turn, &act.session, &mut session)?;
            session.status = SessionStatus::Active;
            // Resuming counts as hearing from it: it does not go stale in the same breath.
            session.last_activity = turn.now();
            Kind::SessionUnpaused
        }
        (Act::Pause, SessionStatus::Stale) => {
            return Ok(Reply::Refused(Refusal::Precondition(
                "a stale session denies every call already".to_owned(),
            )));
        }
        (Act::Resume, SessionStatus::Active | SessionStatus::Stale) => {
            return Ok(Reply::Refused(Refusal::Precondition(
                "the session is not paused".to_owned(),
            )));
        }
    };
    let mut entry = session_entry(turn, kind, &act.session, &session);
    entry.operator_id.clone_from(&act.by.name);
    entry.reason.clone_from(&act.justification);
    entry.request_id = act.request.id.as_str().to_owned();
    let sequence = turn.record(entry);
    let reply = Reply::Session(session.status, turn.place(sequence));
    turn.rows
        .put(Key::Session(act.session.clone()), Row::Session(Box::new(session)));
    replay::remember(turn, requester, &act.request, &reply);
    Ok(reply)
}

/// Unlatches the circuit and clears what counted towards it, so that it does not trip again at once.
fn reset_circuit(session: &mut Session) {
    session.trip = None;
    session.total_calls_base = session.total_calls;
    session.first_call_at = None;
    session.windows.clear();
    if let Some(last) = session.last_call.as_mut() {
        last.repeats = 0;
        last.failed = false;
    }
}

/// A call that waited for a human and now never runs: its nonce is used up.
fn cancel_waiting<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    session: &mut Session,
) -> Result<(), Fault> {
    let Some(waiting) = session.waiting.take() else {
        return Ok(());
    };
    let Some(call) = turn.rows.call(id, waiting.call_number)? else {
        return Ok(());
    };
    see_nonce(turn, id, call.nonce)?;
    let call = Call {
        phase: Phase::Cancelled,
        ..*call
    };
    turn.rows.put(
        Key::Call(id.clone(), waiting.call_number),
        Row::Call(Box::new(call)),
    );
    Ok(())
}
