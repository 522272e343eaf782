//! Opens a session, or resumes one.

use audit::{Detail, Entry, Kind};
use decision::{Reason, SessionId};

use crate::command::Register;
use crate::event::Event;
use crate::guard_path::GuardPath;
use crate::row::reply::{Refusal, Registered, Reply};
use crate::row::{Guard, LatchScope, Read as _, Record, Requester, Session, SessionStatus};
use crate::scope::{AccountId, GuardScope};
use crate::step::counters::trip;
use crate::step::{money, session};
use crate::stops::{Stops, scope_of};
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, register: &Register) -> Done {
    let Register {
        by,
        organization,
        agent,
        ..
    } = register;
    if !by.speaks_for(organization, agent) {
        return Err(turn.not_yours(by, format!("org/{organization}/agent/{agent}")));
    }
    turn.once(Requester::identity(by), register.request.as_ref(), |turn| {
        let (session, guard, sequence) = match &register.resume {
            Some(id) => resume(turn, register, id)?,
            None => open(turn, register)?,
        };
        Ok(Reply::Registered(Box::new(Registered {
            session,
            guard,
            place: turn.place(sequence),
        })))
    })
}

fn resume(turn: &mut Turn<'_>, register: &Register, id: &SessionId) -> Done<(SessionId, Guard, u64)> {
    let mut session = turn.session(id)?;
    if session.organization != register.organization || session.agent != register.agent {
        return Err(turn.not_yours(&register.by, format!("session/{id}")));
    }
    match session.status {
        SessionStatus::Terminated => return Err(Refusal::SessionNotFound.into()),
        SessionStatus::Stale => session::wake(turn, &mut session),
        SessionStatus::Active | SessionStatus::Paused => {}
    }
    session.last_activity = turn.now();
    let guard = GuardPath::of(&*turn.rows, &session)?.effective().clone();
    let sequence = turn.record(turn.entry_of(Kind::SessionResumed, &session));
    turn.save(session);
    Ok((id.clone(), guard, sequence))
}

fn open(turn: &mut Turn<'_>, register: &Register) -> Done<(SessionId, Guard, u64)> {
    let mut session = Session::opened(
        register.organization.clone(),
        register.agent.clone(),
        register.metadata.clone(),
        turn.now(),
    );
    session.guard.clone_from(&register.guard);
    may_name_guard(turn, register)?;
    let path = GuardPath::of(&*turn.rows, &session)?;
    may_open(turn, &session, &path)?;
    let guard = path.effective().clone();
    let id = mint(turn)?;
    let mut session = Record::new(id.clone(), session);
    money::open(turn, money::own_account(&guard, &session), guard.budget)?;
    let named = register.guard.as_ref();
    let sequence = turn.record(Entry {
        policy_digest: path.digest().as_bytes().to_vec(),
        detail: named.map_or(String::new(), |guard| {
            Detail::Under(guard.to_string()).to_string()
        }),
        ..turn.entry_of(Kind::SessionRegistered, &session)
    });
    if guard.latch_scope == LatchScope::Agent {
        start_tripped(turn, &mut session)?;
    }
    session::insert(turn, session)?;
    session::arm_idle(turn, &id);
    turn.tell(Event::SessionOpened);
    Ok((id, guard, sequence))
}

/// A new id, unless it is somebody's already: no seed may ever give one session's rows to another.
fn mint(turn: &mut Turn<'_>) -> Done<SessionId> {
    let minted = SessionId::parse(&turn.mint("ses_")).ok();
    match minted {
        Some(id) if turn.rows.session(&id)?.is_none() => Ok(id),
        Some(_) | None => Err(Refusal::Invalid("no session id could be minted".to_owned()).into()),
    }
}

/// What is not there and what is not for this agent are refused alike.
fn may_name_guard(turn: &mut Turn<'_>, register: &Register) -> Done<()> {
    let Some(named) = &register.guard else {
        return Ok(());
    };
    let scope = GuardScope::Named(register.organization.clone(), named.clone());
    match turn.rows.guard(&scope)? {
        Some(guard) if guard.is_for(&register.agent) => Ok(()),
        Some(_) | None => Err(turn.not_yours(&register.by, scope.to_string())),
    }
}

/// Says whether this agent may open one more session.
fn may_open(turn: &Turn<'_>, session: &Session, path: &GuardPath) -> Done<()> {
    let stops = Stops::on(&*turn.rows, session, None, path)?;
    if let Some(scope) = stops.drain {
        let drained = scope_of(&scope, session, None).map_or(String::new(), |scope| scope.to_string());
        return Err(Refusal::Precondition(format!(
            "{drained} is drained: no new sessions until it is released"
        ))
        .into());
    }
    let guard = path.effective();
    let organization = AccountId::Organization(session.organization.clone());
    for (place, most) in [
        (agent_of(session), guard.max_agent_sessions),
        (organization, guard.max_organization_sessions),
    ] {
        let open = turn.rows.tally(&place)?.unwrap_or_default().open;
        if most.is_some_and(|most| open >= most) {
            return Err(Refusal::Precondition(format!(
                "{place} has {open} open sessions, as many as its guard allows"
            ))
            .into());
        }
    }
    Ok(())
}

fn agent_of(session: &Session) -> AccountId {
    AccountId::Agent(session.organization.clone(), session.agent.clone())
}

/// The latch of the agent's other sessions holds for a new one.
fn start_tripped(turn: &mut Turn<'_>, session: &mut Record<Session>) -> Done<()> {
    if turn.rows.tally(&agent_of(session))?.unwrap_or_default().tripped > 0 {
        trip(turn, session, Reason::CircuitOpen, 0)?;
    }
    Ok(())
}
