//! The kill switch: engaged at a scope, it stops everything below until it is released.

use audit::Kind;
use decision::{HaltScope, SessionId};

use crate::apply::Turn;
use crate::command::{Engage, Principal, Release};
use crate::event::Event;
use crate::leash::Leash;
use crate::replay;
use crate::reply::{HaltReply, Refusal, Reply};
use crate::scope::{AccountId, GuardScope, Scope};
use crate::session;
use crate::table::{
    DueWork, Fault, HALT_HISTORY_MAX, Halt, HaltChange, HaltMode, Key, Read, ReleaseAsked, Row, Rows, Session,
};

/// The outermost engaged halt of each mode above a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stops {
    pub halt: Option<HaltScope>,
    pub pause: Option<HaltScope>,
    pub drain: Option<HaltScope>,
}

impl Stops {
    /// Where nothing may run without a person: the outermost halt, else the outermost pause.
    pub fn any_call(&self) -> Option<&HaltScope> {
        self.halt.as_ref().or(self.pause.as_ref())
    }
}

/// What stops a session's calls, by its own scopes and those above: global, organization, agent, guards from the
/// root of their tree, session.
///
/// # Errors
/// The rows cannot be read.
pub fn above<R: Rows>(rows: &R, session: &Session, id: Option<&SessionId>) -> Result<Stops, Fault> {
    let leash = Leash::of(rows, session)?;
    above_leash(rows, session, id, &leash)
}

/// The same, of a leash that was read already; without an id, of a session that is not there yet.
pub(crate) fn above_leash<R: Rows>(
    rows: &R,
    session: &Session,
    id: Option<&SessionId>,
    leash: &Leash,
) -> Result<Stops, Fault> {
    let mut stops = Stops::default();
    for kind in kinds(id, leash) {
        let Some(scope) = scope_of(&kind, session, id) else {
            continue;
        };
        let Some(halt) = rows.halt(&scope)?.filter(|halt| halt.engaged) else {
            continue;
        };
        if halt.drains {
            stops.drain.get_or_insert_with(|| kind.clone());
        }
        match halt.mode {
            HaltMode::Halt => stops.halt.get_or_insert(kind),
            HaltMode::Pause => stops.pause.get_or_insert(kind),
            HaltMode::Drain => continue,
        };
    }
    Ok(stops)
}

/// The newest halt epoch of all scopes above a session: what was engaged since an older one stopped it.
pub(crate) fn last_change<R: Rows>(
    rows: &R,
    session: &Session,
    id: &SessionId,
    leash: &Leash,
) -> Result<u64, Fault> {
    let mut newest = 0;
    for kind in kinds(Some(id), leash) {
        if let Some(scope) = scope_of(&kind, session, Some(id))
            && let Some(halt) = rows.halt(&scope)?
        {
            newest = newest.max(halt.epoch);
        }
    }
    Ok(newest)
}

/// The scopes above a session, outermost first.
fn kinds(id: Option<&SessionId>, leash: &Leash) -> Vec<HaltScope> {
    let guards = leash
        .named()
        .map(|(guard, _)| HaltScope::Guard(guard.as_str().to_owned()));
    [HaltScope::Global, HaltScope::Organization, HaltScope::Agent]
        .into_iter()
        .chain(guards)
        .chain(id.map(|_| HaltScope::Session))
        .collect()
}

/// The scope of an operator's words that a reason's scope is, for one session.
pub fn scope_of(kind: &HaltScope, session: &Session, id: Option<&SessionId>) -> Option<Scope> {
    let organization = session.organization.clone();
    match kind {
        HaltScope::Global => Some(Scope::Global),
        HaltScope::Organization => Some(Scope::Organization(organization)),
        HaltScope::Agent => Some(Scope::Agent(organization, session.agent.clone())),
        HaltScope::Guard(guard) => Some(Scope::Guard(organization, decision::GuardId::parse(guard).ok()?)),
        HaltScope::Session => id.cloned().map(Scope::Session),
    }
}

/// A halted scope as operators write it.
pub(crate) fn written(kind: &HaltScope, session: &Session, id: &SessionId) -> String {
    scope_of(kind, session, Some(id)).map_or_else(|| kind.to_string(), |scope| scope.to_string())
}

pub(crate) fn engage<R: Rows>(turn: &mut Turn<'_, '_, R>, engage: &Engage) -> Result<Reply, Fault> {
    let requester = replay::identity(&engage.by);
    let organization = match admit(turn, &engage.by, &engage.scope)? {
        Admitted::Yes(organization) => organization,
        Admitted::No(refusal) => return Ok(*refusal),
    };
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
    if engage.ttl.is_some() && engage.mode != HaltMode::Drain {
        return Ok(Reply::Refused(Refusal::Invalid(
            "only a drain ends by itself: a halt stays until it is released".to_owned(),
        )));
    }
    turn.cluster.halt_epoch = turn.cluster.halt_epoch.saturating_add(1);
    let epoch = turn.cluster.halt_epoch;
    let before = turn.rows.halt(&engage.scope)?;
    let mut halt = before.unwrap_or(Halt {
        engaged: false,
        reason: String::new(),
        ticket: String::new(),
        by: String::new(),
        at: turn.now(),
        epoch,
        history: Vec::new(),
        mode: engage.mode,
        until: None,
        two_person: false,
        release_asked: None,
        drains: false,
    });
    let until = engage.ttl.map(|ttl| turn.now().plus(ttl));
    if halt.engaged {
        // A stronger mode takes the place of a weaker one, and what lasts longer that of what ends.
        let was = (halt.mode, halt.until);
        disarm(turn, &engage.scope, &halt);
        halt.mode = halt.mode.max(engage.mode);
        halt.until = match (was, until) {
            ((HaltMode::Drain, Some(earlier)), Some(later)) if halt.mode == HaltMode::Drain => {
                Some(earlier.max(later))
            }
            _ => None,
        };
        halt.two_person |= engage.two_person;
    } else {
        // The first reason sticks; later ones join the history.
        halt.engaged = true;
        halt.reason.clone_from(&engage.reason);
        halt.ticket.clone_from(&engage.ticket);
        halt.by.clone_from(&engage.by.name);
        halt.at = turn.now();
        halt.mode = engage.mode;
        halt.until = until;
        halt.two_person = engage.two_person;
    }
    halt.drains |= engage.mode == HaltMode::Drain;
    // Whoever engages it again does not want it released.
    halt.release_asked = None;
    if let Some(until) = halt.until {
        let end = DueWork::DrainEnd(engage.scope.clone());
        turn.rows.put(Key::Due(until, end), Row::Mark);
    }
    halt.epoch = epoch;
    remember_change(
        turn,
        &mut halt,
        true,
        &engage.reason,
        &engage.ticket,
        &engage.by.name,
    );

    let mut entry = turn.entry(Kind::HaltEngaged);
    entry.operator_id.clone_from(&engage.by.name);
    entry.organization_id = organization;
    entry.reason.clone_from(&engage.reason);
    entry.request_id = engage.request.id.as_str().to_owned();
    let stays = match halt.mode {
        mode if mode == engage.mode => String::new(),
        stronger => format!(" (stays {})", word(stronger)),
    };
    entry.detail = format!(
        "{} {}{stays} epoch {epoch}{}",
        engage.scope,
        word(engage.mode),
        ticketed(&engage.ticket)
    );
    let sequence = turn.record(entry);
    turn.events.push(Event::Engaged {
        scope: engage.scope.clone(),
        mode: halt.mode,
        epoch,
    });
    let reply = Reply::Halt(HaltReply {
        reason: halt.reason.clone(),
        engaged: true,
        place: turn.place(sequence),
        mode: halt.mode,
        needs_second: false,
    });
    turn.rows.put(Key::Halt(engage.scope.clone()), Row::Halt(halt));
    replay::remember(turn, requester, &engage.request, &reply);
    Ok(reply)
}

pub(crate) fn release<R: Rows>(turn: &mut Turn<'_, '_, R>, release: &Release) -> Result<Reply, Fault> {
    let requester = replay::identity(&release.by);
    let organization = match admit(turn, &release.by, &release.scope)? {
        Admitted::Yes(organization) => organization,
        Admitted::No(refusal) => return Ok(*refusal),
    };
    if let Some(earlier) = replay::recall(turn, &requester, &release.request)? {
        return Ok(earlier);
    }
    let Some(mut halt) = turn.rows.halt(&release.scope)?.filter(|halt| halt.engaged) else {
        return Ok(Reply::Refused(Refusal::NotFound(format!(
            "{} is not halted",
            release.scope
        ))));
    };
    let is_first = match &halt.release_asked {
        _ if !halt.two_person => false,
        None => true,
        Some(first) => person(&first.by).eq_ignore_ascii_case(person(&release.by.name)),
    };
    let mut entry = turn.entry(if is_first {
        Kind::ReleaseAsked
    } else {
        Kind::HaltReleased
    });
    entry.operator_id.clone_from(&release.by.name);
    entry.organization_id = organization;
    entry.reason.clone_from(&release.justification);
    entry.request_id = release.request.id.as_str().to_owned();
    if is_first {
        halt.release_asked = Some(ReleaseAsked {
            by: release.by.name.clone(),
            at: turn.now(),
        });
        entry.detail = format!("{}{}", release.scope, ticketed(&release.ticket));
    } else {
        let epoch = lift(turn, &release.scope, &mut halt);
        remember_change(
            turn,
            &mut halt,
            false,
            &release.justification,
            &release.ticket,
            &release.by.name,
        );
        entry.detail = format!("{} epoch {epoch}{}", release.scope, ticketed(&release.ticket));
    }
    let sequence = turn.record(entry);
    let reply = Reply::Halt(HaltReply {
        reason: halt.reason.clone(),
        engaged: halt.engaged,
        place: turn.place(sequence),
        mode: halt.mode,
        needs_second: is_first,
    });
    turn.rows.put(Key::Halt(release.scope.clone()), Row::Halt(halt));
    replay::remember(turn, requester, &release.request, &reply);
    Ok(reply)
}

/// A drain's time is over.
pub(crate) fn end_drain<R: Rows>(turn: &mut Turn<'_, '_, R>, scope: Scope) -> Result<(), Fault> {
    let now = turn.now();
    let over = |halt: &Halt| halt.engaged && halt.until.is_some_and(|until| until <= now);
    let Some(mut halt) = turn.rows.halt(&scope)?.filter(over) else {
        return Ok(());
    };
    let epoch = lift(turn, &scope, &mut halt);
    remember_change(turn, &mut halt, false, "its time was over", "", "");
    let mut entry = turn.entry(Kind::HaltExpired);
    if let Scope::Organization(organization) | Scope::Agent(organization, _) | Scope::Guard(organization, _) =
        &scope
    {
        entry.organization_id = organization.as_str().to_owned();
    }
    entry.detail = format!("{scope} epoch {epoch}");
    turn.record(entry);
    turn.rows.put(Key::Halt(scope), Row::Halt(halt));
    Ok(())
}

/// Opens the scope again; gives the epoch of that.
fn lift<R: Rows>(turn: &mut Turn<'_, '_, R>, scope: &Scope, halt: &mut Halt) -> u64 {
    disarm(turn, scope, halt);
    turn.cluster.halt_epoch = turn.cluster.halt_epoch.saturating_add(1);
    halt.engaged = false;
    halt.until = None;
    halt.drains = false;
    halt.two_person = false;
    halt.release_asked = None;
    halt.epoch = turn.cluster.halt_epoch;
    turn.events.push(Event::Released {
        scope: scope.clone(),
        epoch: halt.epoch,
    });
    halt.epoch
}

/// The scope is gone: its halt goes too, with the timer of a drain.
pub(crate) fn forget<R: Rows>(turn: &mut Turn<'_, '_, R>, scope: Scope) -> Result<(), Fault> {
    if let Some(halt) = turn.rows.halt(&scope)? {
        disarm(turn, &scope, &halt);
        turn.rows.delete(Key::Halt(scope));
    }
    Ok(())
}

fn disarm<R: Rows>(turn: &mut Turn<'_, '_, R>, scope: &Scope, halt: &Halt) {
    if let Some(until) = halt.until {
        let end = DueWork::DrainEnd(scope.clone());
        turn.rows.delete(Key::Due(until, end));
    }
}

/// Who it is, whatever role the certificate gives: two certificates of one person are one.
fn person(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The mode as operators write it.
pub(crate) const fn word(mode: HaltMode) -> &'static str {
    match mode {
        HaltMode::Halt => "halt",
        HaltMode::Pause => "pause",
        HaltMode::Drain => "drain",
    }
}

fn ticketed(ticket: &str) -> String {
    match ticket {
        "" => String::new(),
        ticket => format!(" ticket {ticket}"),
    }
}

enum Admitted {
    /// With the organization that the scope is of; empty for all.
    Yes(String),
    No(Box<Reply>),
}

/// A cluster-wide role reaches every scope; an organization's role its own, its agents, guards and sessions.
fn admit<R: Rows>(turn: &mut Turn<'_, '_, R>, by: &Principal, scope: &Scope) -> Result<Admitted, Fault> {
    let organization = match scope {
        Scope::Global => None,
        Scope::Organization(organization) | Scope::Agent(organization, _) => Some(organization.clone()),
        Scope::Guard(organization, guard) => {
            let place = GuardScope::Named(organization.clone(), guard.clone());
            // Of a foreign organization nobody learns which guards it has.
            if by.reaches(organization) && turn.rows.guard(&place)?.is_none() {
                return Ok(Admitted::No(Box::new(Reply::Refused(Refusal::NotFound(
                    format!(
                        "no guard {}",
                        AccountId::Guard(organization.clone(), guard.clone())
                    ),
                )))));
            }
            Some(organization.clone())
        }
        Scope::Session(id) => match session::find(turn, id)? {
            Some(session) => Some(session.organization),
            None => return Ok(Admitted::No(Box::new(Reply::Refused(Refusal::SessionNotFound)))),
        },
    };
    let within = match &organization {
        None => by.organization.is_none(),
        Some(organization) => by.reaches(organization),
    };
    Ok(if within {
        Admitted::Yes(organization.map_or(String::new(), |organization| organization.as_str().to_owned()))
    } else {
        Admitted::No(Box::new(turn.refuse(by, scope.to_string())))
    })
}

fn remember_change<R: Rows>(
    turn: &Turn<'_, '_, R>,
    halt: &mut Halt,
    engaged: bool,
    reason: &str,
    ticket: &str,
    by: &str,
) {
    if halt.history.len() >= HALT_HISTORY_MAX {
        halt.history.remove(0);
    }
    halt.history.push(HaltChange {
        engaged,
        reason: reason.to_owned(),
        by: by.to_owned(),
        at: turn.now(),
        epoch: halt.epoch,
        ticket: ticket.to_owned(),
    });
}
