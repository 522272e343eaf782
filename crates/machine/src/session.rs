//! Sessions: opened, resumed, paused, stale, ended.

use audit::Kind;
use decision::limits::RateWindow;
use decision::{NanoUsd, Outcomes, Reason, SessionId, Timestamp};

use crate::apply::Turn;
use crate::approval;
use crate::budget;
use crate::command::{Act, EndSession, Principal, Register, Seen, SessionAct};
use crate::due::{self, DUE_MAX};
use crate::event::Event;
use crate::guard::LatchScope;
use crate::halt;
use crate::leash::Leash;
use crate::post_exec::session_entry;
use crate::pre_exec::mint;
use crate::replay;
use crate::reply::{Refusal, Registered, Reply};
use crate::scope::{AccountId, GuardScope};
use crate::table::{
    DueWork, Fault, Key, Read, Row, Rows, SESSION_IDLE, SESSION_KEPT, SESSION_TTL, Session, SessionStatus,
    Trip,
};
use crate::tally;

pub(crate) fn register<R: Rows>(turn: &mut Turn<'_, '_, R>, register: &Register) -> Result<Reply, Fault> {
    let Register {
        by,
        organization,
        agent,
        resume,
        request,
        metadata,
        guard: named,
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
    let (id, guard, sequence) = match resume {
        Some(id) => {
            let Some(mut session) = find(turn, id)? else {
                return Ok(Reply::Refused(Refusal::SessionNotFound));
            };
            if session.organization != *organization || session.agent != *agent {
                return Ok(turn.refuse(by, format!("session/{id}")));
            }
            match session.status {
                SessionStatus::Terminated => return Ok(Reply::Refused(Refusal::SessionNotFound)),
                SessionStatus::Stale => {
                    session.status = SessionStatus::Active;
                    // One timer a session: that of its end gives way to that of its silence.
                    turn.rows.delete(ends_at(id, &session));
                    arm_idle(turn, id);
                }
                SessionStatus::Active | SessionStatus::Paused => {}
            }
            session.last_activity = turn.now();
            let guard = Leash::of(turn.rows, &session)?.effective().clone();
            let sequence = turn.record(session_entry(turn, Kind::SessionResumed, id, &session));
            turn.rows
                .put(Key::Session(id.clone()), Row::Session(Box::new(session)));
            (id.clone(), guard, sequence)
        }
        None => {
            let mut session =
                Session::opened(organization.clone(), agent.clone(), metadata.clone(), turn.now());
            session.guard.clone_from(named);
            if let Err(refusal) = may_open(turn, by, &session)? {
                return Ok(Reply::Refused(refusal));
            }
            let leash = Leash::of(turn.rows, &session)?;
            let guard = leash.effective().clone();
            let minted = SessionId::parse(&mint(turn, "ses_")).ok();
            let Some(id) = fresh(turn, minted)? else {
                return Ok(Reply::Refused(Refusal::Invalid(
                    "no session id could be minted".to_owned(),
                )));
            };
            budget::open_own(turn, &guard, &id, &session)?;
            let mut entry = session_entry(turn, Kind::SessionRegistered, &id, &session);
            entry.policy_digest = leash.digest().as_bytes().to_vec();
            entry.detail = named
                .as_ref()
                .map_or(String::new(), |guard| format!("guard {guard}"));
            let sequence = turn.record(entry);
            if guard.latch_scope == LatchScope::Agent {
                start_tripped(turn, &id, &mut session)?;
            }
            insert(turn, &id, session)?;
            arm_idle(turn, &id);
            turn.events.push(Event::SessionOpened);
            (id, guard, sequence)
        }
    };
    let reply = Reply::Registered(Box::new(Registered {
        session: id,
        guard,
        place: turn.place(sequence),
    }));
    if let Some(request) = request {
        replay::remember(turn, requester, request, &reply);
    }
    Ok(reply)
}

/// Says whether this agent may open one more session, under the guard it names.
fn may_open<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    by: &Principal,
    session: &Session,
) -> Result<Result<(), Refusal>, Fault> {
    if let Some(named) = &session.guard {
        let scope = GuardScope::Named(session.organization.clone(), named.clone());
        let guard = turn.rows.guard(&scope)?;
        // What is not there and what is not for this agent are refused alike.
        if !guard.is_some_and(|guard| guard.agents.iter().any(|agent| agent.matches(&session.agent))) {
            turn.refuse(by, scope.to_string());
            return Ok(Err(Refusal::NotYours(scope.to_string())));
        }
    }
    let leash = Leash::of(turn.rows, session)?;
    let stops = halt::above_leash(turn.rows, session, None, &leash)?;
    if let Some(scope) = stops.drain {
        let drained = halt::scope_of(&scope, session, None).map_or(String::new(), |scope| scope.to_string());
        return Ok(Err(Refusal::Precondition(format!(
            "{drained} is drained: no new sessions until it is released"
        ))));
    }
    let organization = AccountId::Organization(session.organization.clone());
    let agent = AccountId::Agent(session.organization.clone(), session.agent.clone());
    let guard = leash.effective();
    for (place, most) in [
        (agent, guard.max_agent_sessions),
        (organization, guard.max_organization_sessions),
    ] {
        let open = turn.rows.tally(&place)?.unwrap_or_default().open;
        if most.is_some_and(|most| open >= most) {
            return Ok(Err(Refusal::Precondition(format!(
                "{place} has {open} open sessions, as many as its guard allows"
            ))));
        }
    }
    Ok(Ok(()))
}

/// The latch of the agent's other sessions holds for a new one.
fn start_tripped<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    session: &mut Session,
) -> Result<(), Fault> {
    let agent = AccountId::Agent(session.organization.clone(), session.agent.clone());
    if turn.rows.tally(&agent)?.unwrap_or_default().tripped > 0 {
        trip(turn, id, session, Reason::CircuitOpen, 0)?;
    }
    Ok(())
}

/// Latches the circuit with its first reason.
pub(crate) fn trip<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    session: &mut Session,
    reason: Reason,
    call_number: u64,
) -> Result<(), Fault> {
    if session.trip.is_some() {
        return Ok(());
    }
    session.tickets_void_to = turn.next_sequence();
    session.trip = Some(Trip {
        reason,
        at: turn.now(),
        call_number,
    });
    tally::count(turn, session, |tally| {
        tally.tripped = tally.tripped.saturating_add(1)
    })?;
    turn.events.push(Event::Tripped { session: id.clone() });
    Ok(())
}

/// A session as it may still be asked for: an hour after its end it is gone, however far its removal is.
pub(crate) fn find<R: Rows>(turn: &Turn<'_, '_, R>, id: &SessionId) -> Result<Option<Session>, Fault> {
    let there = |session: &Session| {
        session
            .ended_at
            .is_none_or(|ended| turn.now() < ended.plus(SESSION_KEPT))
    };
    Ok(turn.rows.session(id)?.map(|session| *session).filter(there))
}

/// A minted id, unless it is somebody's already: no seed may ever give one session's rows to another.
fn fresh<R: Rows>(turn: &Turn<'_, '_, R>, id: Option<SessionId>) -> Result<Option<SessionId>, Fault> {
    match id {
        Some(id) if turn.rows.session(&id)?.is_none() => Ok(Some(id)),
        Some(_) | None => Ok(None),
    }
}

/// Arms the look whether the session is silent.
fn arm_idle<R: Rows>(turn: &mut Turn<'_, '_, R>, id: &SessionId) {
    let at = turn.now().plus(SESSION_IDLE);
    turn.rows
        .put(Key::Due(at, DueWork::SessionIdle(id.clone())), Row::Mark);
}

/// The timer of a silent session's end.
fn ends_at(id: &SessionId, session: &Session) -> Key {
    let at = session.last_activity.plus(SESSION_TTL);
    Key::Due(at, DueWork::SessionIdle(id.clone()))
}

/// Notes a sign of life. Only a registration brings a stale session back, and nothing an ended one.
pub(crate) fn heard_from(session: &mut Session, now: Timestamp) {
    match session.status {
        SessionStatus::Active | SessionStatus::Paused => {
            session.last_activity = session.last_activity.max(now);
        }
        SessionStatus::Stale | SessionStatus::Terminated => {}
    }
}

/// Writes a new session, its index, and counts it.
pub(crate) fn insert<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    session: Session,
) -> Result<(), Fault> {
    tally::count(turn, &session, |tally| tally.open = tally.open.saturating_add(1))?;
    let index = Key::SessionOf(session.organization.clone(), session.agent.clone(), id.clone());
    turn.rows.put(index, Row::Mark);
    turn.rows
        .put(Key::Session(id.clone()), Row::Session(Box::new(session)));
    Ok(())
}

pub(crate) fn seen<R: Rows>(turn: &mut Turn<'_, '_, R>, seen: &Seen) -> Result<Reply, Fault> {
    let now = turn.now();
    for id in &seen.sessions {
        let Some(mut session) = turn.rows.session(id)? else {
            continue;
        };
        let before = session.last_activity;
        heard_from(&mut session, now);
        if session.last_activity != before {
            turn.rows.put(Key::Session(id.clone()), Row::Session(session));
        }
    }
    Ok(Reply::Done(turn.place(0)))
}

pub(crate) fn end<R: Rows>(turn: &mut Turn<'_, '_, R>, end: &EndSession) -> Result<Reply, Fault> {
    let Some(session) = find(turn, &end.session)? else {
        return Ok(Reply::Refused(Refusal::SessionNotFound));
    };
    if !end.by.speaks_for(&session.organization, &session.agent) {
        return Ok(turn.refuse(&end.by, format!("session/{}", end.session)));
    }
    let sequence = match session.status {
        // Ending twice is one end.
        SessionStatus::Terminated => 0,
        SessionStatus::Active | SessionStatus::Paused | SessionStatus::Stale => {
            terminate(
                turn,
                &end.session,
                session,
                &end.by.name,
                "ended by its agent",
                DUE_MAX,
            )?
            .sequence
        }
    };
    Ok(Reply::Session(SessionStatus::Terminated, turn.place(sequence)))
}

/// A session's end: its entry, and how many holds were settled with it.
pub(crate) struct Ended {
    pub sequence: u64,
    pub settled: usize,
}

/// Ends a session: what waits is cancelled, what is held is settled (so many at once), the rows stay for an
/// hour.
pub(crate) fn terminate<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    mut session: Session,
    by: &str,
    why: &str,
    limit: usize,
) -> Result<Ended, Fault> {
    approval::cancel_all(turn, &mut session)?;
    session.status = SessionStatus::Terminated;
    session.ended_at = Some(turn.now());
    tally::count(turn, &session, |tally| tally.open = tally.open.saturating_sub(1))?;
    let mut entry = session_entry(turn, Kind::SessionEnded, id, &session);
    entry.operator_id = by.to_owned();
    entry.reason = why.to_owned();
    let sequence = turn.record(entry);
    turn.rows
        .put(Key::Session(id.clone()), Row::Session(Box::new(session)));
    let removal = DueWork::SessionRemoval(id.clone());
    turn.rows
        .put(Key::Due(turn.now().plus(SESSION_KEPT), removal), Row::Mark);
    let settled = due::settle_ended(turn, id, limit)?;
    turn.events.push(Event::SessionClosed { session: id.clone() });
    Ok(Ended { sequence, settled })
}

pub(crate) fn act<R: Rows>(turn: &mut Turn<'_, '_, R>, act: &SessionAct) -> Result<Reply, Fault> {
    let Some(mut session) = find(turn, &act.session)? else {
        return Ok(Reply::Refused(Refusal::SessionNotFound));
    };
    if !act.by.reaches(&session.organization) {
        return Ok(turn.refuse(&act.by, format!("session/{}", act.session)));
    }
    let requester = replay::identity(&act.by);
    if let Some(earlier) = replay::recall(turn, &requester, &act.request)? {
        return Ok(earlier);
    }
    let kind = match (act.act, session.status) {
        (Act::Pause | Act::Resume | Act::Terminate, SessionStatus::Terminated) => {
            return Ok(Reply::Refused(Refusal::Precondition(
                "the session has ended".to_owned(),
            )));
        }
        (Act::Terminate, _) => {
            let (id, by, why) = (&act.session, &act.by.name, &act.justification);
            let ended = terminate(turn, id, session, by, why, DUE_MAX)?;
            let reply = Reply::Session(SessionStatus::Terminated, turn.place(ended.sequence));
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
            tally::count(turn, &session, |tally| {
                tally.tripped = tally.tripped.saturating_sub(1);
            })?;
            Kind::CircuitReset
        }
        (Act::Pause, SessionStatus::Active | SessionStatus::Paused) => {
            session.status = SessionStatus::Paused;
            session.paused_by_operator = true;
            session.tickets_void_to = turn.next_sequence();
            Kind::SessionPaused
        }
        (Act::Resume, SessionStatus::Paused) => {
            session.paused_by_operator = false;
            approval::cancel_all(turn, &mut session)?;
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

/// Unlatches the circuit and clears the counter that tripped it, so that it does not trip again at once. The
/// others keep their count: a reset is not a new session.
fn reset_circuit(session: &mut Session) {
    let Some(trip) = session.trip.take() else { return };
    match trip.reason {
        Reason::GlobalLimit => session.total_calls_base = session.total_calls,
        Reason::Timeout => session.first_call_at = None,
        Reason::WindowExceeded => session.windows.clear(),
        Reason::RateExceeded => session.rate = RateWindow::default(),
        Reason::ErrorRateExceeded => session.outcomes = Outcomes::default(),
        Reason::ConsecutiveDenials => session.denials = 0,
        Reason::TokenCeiling => session.tokens = 0,
        Reason::CostCeiling => session.cost = NanoUsd::ZERO,
        Reason::NameRepeatExceeded | Reason::RetryStorm | Reason::LoopDetected => {
            session.recent.clear();
            session.recent_numbers.clear();
        }
        Reason::MaxRepeatExceeded => {
            if let Some(last) = session.last_call.as_mut() {
                last.repeats = 0;
                last.failed = false;
            }
        }
        // Nothing is counted towards the others: an operator removes their cause.
        _ => {}
    }
}
