//! The kill switch: engaged at a scope, it stops everything below until it is released.

use audit::Kind;
use decision::{HaltScope, SessionId};

use crate::apply::Turn;
use crate::command::{Engage, Principal, Release};
use crate::event::Event;
use crate::replay;
use crate::reply::{HaltReply, Refusal, Reply};
use crate::scope::Scope;
use crate::session;
use crate::table::{Fault, HALT_HISTORY_MAX, Halt, HaltChange, Key, Read, Row, Rows, Session};

/// The outermost engaged halt above a session, if any.
pub(crate) fn above<R: Rows>(
    rows: &R,
    session: &Session,
    id: &SessionId,
) -> Result<Option<HaltScope>, Fault> {
    for kind in [
        HaltScope::Global,
        HaltScope::Organization,
        HaltScope::Agent,
        HaltScope::Session,
    ] {
        let Some(scope) = scope_of(&kind, session, id) else {
            continue;
        };
        if rows.halt(&scope)?.is_some_and(|halt| halt.engaged) {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

/// A halted scope as operators write it.
pub(crate) fn written(kind: &HaltScope, session: &Session, id: &SessionId) -> String {
    scope_of(kind, session, id).map_or_else(|| kind.to_string(), |scope| scope.to_string())
}

fn scope_of(kind: &HaltScope, session: &Session, id: &SessionId) -> Option<Scope> {
    match kind {
        HaltScope::Global => Some(Scope::Global),
        HaltScope::Organization => Some(Scope::Organization(session.organization.clone())),
        HaltScope::Agent => Some(Scope::Agent(session.organization.clone(), session.agent.clone())),
        HaltScope::Session => Some(Scope::Session(id.clone())),
        HaltScope::Guard(_) => None,
    }
}

pub(crate) fn engage<R: Rows>(turn: &mut Turn<'_, '_, R>, engage: &Engage) -> Result<Reply, Fault> {
    let requester = replay::identity(&engage.by);
    match admit(turn, &engage.by, &engage.scope)? {
        Admitted::Yes => {}
        Admitted::No(refusal) => return Ok(refusal),
    }
    if let Some(earlier) = replay::recall(turn, &requester, &engage.request)? {
        // What was engaged then and is released since is not said to be engaged.
        let stands = turn.rows.halt(&engage.scope)?.is_some_and(|halt| halt.engaged);
        return Ok(match earlier {
            Reply::Halt(_) if !stands => Reply::Refused(Refusal::Precondition(format!(
                "{} was engaged with this request and released since: engage it again with a new request_id",
                engage.scope
            ))),
            earlier => earlier,
        });
    }
    turn.cluster.halt_epoch = turn.cluster.halt_epoch.saturating_add(1);
    let epoch = turn.cluster.halt_epoch;
    let mut halt = turn.rows.halt(&engage.scope)?.unwrap_or(Halt {
        engaged: false,
        reason: String::new(),
        ticket: String::new(),
        by: String::new(),
        at: turn.now(),
        epoch,
        history: Vec::new(),
    });
    if !halt.engaged {
        // The first reason sticks; later ones join the history.
        halt.engaged = true;
        halt.reason.clone_from(&engage.reason);
        halt.ticket.clone_from(&engage.ticket);
        halt.by.clone_from(&engage.by.name);
        halt.at = turn.now();
    }
    halt.epoch = epoch;
    remember_change(turn, &mut halt, true, &engage.reason, &engage.by);

    let mut entry = turn.entry(Kind::HaltEngaged);
    entry.operator_id.clone_from(&engage.by.name);
    entry.reason.clone_from(&engage.reason);
    entry.request_id = engage.request.id.as_str().to_owned();
    entry.detail = match engage.ticket.as_str() {
        "" => format!("{} epoch {epoch}", engage.scope),
        ticket => format!("{} epoch {epoch} ticket {ticket}", engage.scope),
    };
    let sequence = turn.record(entry);
    turn.events.push(Event::Engaged {
        scope: engage.scope.clone(),
        epoch,
    });
    let reply = Reply::Halt(HaltReply {
        reason: halt.reason.clone(),
        engaged: true,
        place: turn.place(sequence),
    });
    turn.rows.put(Key::Halt(engage.scope.clone()), Row::Halt(halt));
    replay::remember(turn, requester, &engage.request, &reply);
    Ok(reply)
}

pub(crate) fn release<R: Rows>(turn: &mut Turn<'_, '_, R>, release: &Release) -> Result<Reply, Fault> {
    let requester = replay::identity(&release.by);
    match admit(turn, &release.by, &release.scope)? {
        Admitted::Yes => {}
        Admitted::No(refusal) => return Ok(refusal),
    }
    if let Some(earlier) = replay::recall(turn, &requester, &release.request)? {
        return Ok(earlier);
    }
    let Some(mut halt) = turn.rows.halt(&release.scope)?.filter(|halt| halt.engaged) else {
        return Ok(Reply::Refused(Refusal::NotFound(format!(
            "{} is not halted",
            release.scope
        ))));
    };
    turn.cluster.halt_epoch = turn.cluster.halt_epoch.saturating_add(1);
    let epoch = turn.cluster.halt_epoch;
    halt.engaged = false;
    halt.epoch = epoch;
    remember_change(turn, &mut halt, false, &release.justification, &release.by);

    let mut entry = turn.entry(Kind::HaltReleased);
    entry.operator_id.clone_from(&release.by.name);
    entry.reason.clone_from(&release.justification);
    entry.request_id = release.request.id.as_str().to_owned();
    entry.detail = format!("{} epoch {epoch}", release.scope);
    let sequence = turn.record(entry);
    turn.events.push(Event::Released {
        scope: release.scope.clone(),
        epoch,
    });
    let reply = Reply::Halt(HaltReply {
        reason: halt.reason.clone(),
        engaged: false,
        place: turn.place(sequence),
    });
    turn.rows.put(Key::Halt(release.scope.clone()), Row::Halt(halt));
    replay::remember(turn, requester, &release.request, &reply);
    Ok(reply)
}

enum Admitted {
    Yes,
    No(Reply),
}

/// A cluster-wide role reaches every scope; an organization's role its own, its agents, their sessions.
fn admit<R: Rows>(turn: &mut Turn<'_, '_, R>, by: &Principal, scope: &Scope) -> Result<Admitted, Fault> {
    let within = match scope {
        Scope::Global => by.organization.is_none(),
        Scope::Organization(organization) | Scope::Agent(organization, _) => by.reaches(organization),
        Scope::Session(id) => match session::find(turn, id)? {
            Some(session) => by.reaches(&session.organization),
            None => return Ok(Admitted::No(Reply::Refused(Refusal::SessionNotFound))),
        },
    };
    Ok(if within {
        Admitted::Yes
    } else {
        Admitted::No(turn.refuse(by, scope.to_string()))
    })
}

fn remember_change<R: Rows>(
    turn: &Turn<'_, '_, R>,
    halt: &mut Halt,
    engaged: bool,
    reason: &str,
    by: &Principal,
) {
    if halt.history.len() >= HALT_HISTORY_MAX {
        halt.history.remove(0);
    }
    halt.history.push(HaltChange {
        engaged,
        reason: reason.to_owned(),
        by: by.name.clone(),
        at: turn.now(),
        epoch: halt.epoch,
    });
}
