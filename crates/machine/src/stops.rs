//! What stops a session's calls: the halts engaged above it.

use decision::{GuardId, HaltMode, HaltScope, SessionId};

use crate::guard_path::GuardPath;
use crate::row::{Fault, Read, Rows, Session};
use crate::scope::Scope;

/// The outermost engaged halt of each mode above a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stops {
    pub halt: Option<HaltScope>,
    pub pause: Option<HaltScope>,
    pub drain: Option<HaltScope>,
    /// The newest halt epoch of all scopes above it, released ones too.
    pub epoch: u64,
}

impl Stops {
    /// What stops a session's calls, by its own scopes and those above: global, organization, agent, guards from
    /// the root of their tree, session.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub fn above(
        rows: &(impl Rows + ?Sized),
        session: &Session,
        id: Option<&SessionId>,
    ) -> Result<Self, Fault> {
        Self::on(rows, session, id, &GuardPath::of(rows, session)?)
    }

    /// The same on a path that was read already; without an id, of a session that is not there yet.
    pub(crate) fn on(
        rows: &(impl Rows + ?Sized),
        session: &Session,
        id: Option<&SessionId>,
        path: &GuardPath,
    ) -> Result<Self, Fault> {
        let mut stops = Self::default();
        for kind in kinds(id, path) {
            let Some(scope) = scope_of(&kind, session, id) else {
                continue;
            };
            let Some(halt) = rows.halt(&scope)? else {
                continue;
            };
            stops.epoch = stops.epoch.max(halt.epoch);
            if !halt.engaged {
                continue;
            }
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

    /// Where nothing may run without a person: the outermost halt, else the outermost pause.
    pub fn any_call(&self) -> Option<&HaltScope> {
        self.halt.as_ref().or(self.pause.as_ref())
    }
}

/// The scopes above a session, outermost first.
fn kinds(id: Option<&SessionId>, path: &GuardPath) -> Vec<HaltScope> {
    let guards = path
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
        HaltScope::Guard(guard) => Some(Scope::Guard(organization, GuardId::parse(guard).ok()?)),
        HaltScope::Session => id.cloned().map(Scope::Session),
    }
}
