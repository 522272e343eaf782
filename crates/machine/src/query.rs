//! What is asked of the state: pure functions over any rows, RocksDB's or a map's in a test.

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use decision::{AgentId, ApprovalId, GuardId, HaltScope, NanoUsd, OrganizationId, SessionId, Timestamp};

use crate::guard_path::GuardPath;
use crate::principal::Principal;
use crate::row::{
    Account, Approval, DueWork, Fault, Guard, Halt, Key, Read as _, Row, Rows, Session, SessionStatus,
};
use crate::scope::{AccountId, GuardScope, Scope};
use crate::stops::{Stops, scope_of};

/// Rows that one page looks at before it gives up being full: a page has a bounded price.
const LOOKED_AT_MAX: usize = 20_000;
/// Rows that are read at once.
const CHUNK: usize = 500;
/// Open holds that are counted before the count stops.
const HOLDS_COUNTED_MAX: usize = 100_000;

/// Which part of a list is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub limit: usize,
    /// The last item of the page before; none for the first page.
    pub after: Option<T>,
}

/// Which accounts are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountsWanted {
    /// This one and those below it; none for all.
    pub below: Option<AccountId>,
    pub page: Page<AccountId>,
}

/// Which sessions are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsWanted {
    /// Of this organization or agent; none for all.
    pub of: Option<Scope>,
    /// In one of these; empty for every status.
    pub statuses: Vec<SessionStatus>,
    pub tripped: bool,
    pub page: Page<SessionPlace>,
}

/// A place in the list of approvals.
pub type ApprovalPlace = (OrganizationId, ApprovalId);

/// A place in the list of sessions, which is in the order of their agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPlace {
    pub organization: OrganizationId,
    pub agent: AgentId,
    pub session: SessionId,
}

/// A text that is no place in the list of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a place in the list of sessions")]
pub struct InvalidPlace;

impl FromStr for SessionPlace {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let parts: Vec<_> = text.split('/').collect();
        let [organization, agent, session] = parts.as_slice() else {
            return Err(InvalidPlace);
        };
        Ok(Self {
            organization: OrganizationId::parse(organization).map_err(|_| InvalidPlace)?,
            agent: AgentId::parse(agent).map_err(|_| InvalidPlace)?,
            session: SessionId::parse(session).map_err(|_| InvalidPlace)?,
        })
    }
}

impl fmt::Display for SessionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.organization, self.agent, self.session)
    }
}

/// A session's rows, read at one log position.
#[derive(Debug, Clone)]
pub struct SessionView {
    pub id: SessionId,
    pub session: Session,
    /// The session's own account.
    pub account: Option<Account>,
    /// The guard in force.
    pub guard: Guard,
    /// Scopes that have a guard, outermost first; the last one is in force.
    pub guard_path: Vec<GuardScope>,
    /// Log time of the position.
    pub now: Timestamp,
    pub log_index: u64,
}

/// Says whether any work is due at this time: what the leader looks at before it proposes `Due`.
///
/// # Errors
/// The rows cannot be read.
pub fn is_due(rows: &(impl Rows + ?Sized), now: Timestamp) -> Result<bool, Fault> {
    let first = Key::Due(Timestamp::ZERO, DueWork::first());
    let until = Key::Due(now.just_after(), DueWork::first());
    Ok(!rows.scan(&first, &until, 1)?.is_empty())
}

/// A page of a list: its items, and what the next one begins after.
#[derive(Debug)]
pub struct Listed<T, P> {
    pub items: Vec<T>,
    pub next: Option<P>,
}

/// Reads a session with all that is shown of it.
pub fn session_view<R: Rows>(rows: &R, id: &SessionId, log_index: u64) -> Result<Option<SessionView>, Fault> {
    match rows.session(id)? {
        Some(session) => view_of(rows, id.clone(), session, log_index).map(Some),
        None => Ok(None),
    }
}

fn view_of<R: Rows>(rows: &R, id: SessionId, session: Session, log_index: u64) -> Result<SessionView, Fault> {
    let path = GuardPath::of(rows, &session)?;
    Ok(SessionView {
        account: rows.account(&AccountId::Session(id.clone()))?,
        guard: path.effective().clone(),
        guard_path: path.guards().iter().map(|(scope, _)| scope.clone()).collect(),
        now: rows.cluster()?.map(|cluster| cluster.now).unwrap_or_default(),
        log_index,
        id,
        session,
    })
}

/// What the account that a session's budget rule looks at has left; none where there is no limit.
pub fn budget_left<R: Rows>(rows: &R, id: &SessionId, session: &Session) -> Result<Option<NanoUsd>, Fault> {
    let path = GuardPath::of(rows, session)?;
    let account = session.account(id, path.effective().budget_scope);
    Ok(rows.account(&account)?.as_ref().and_then(Account::available))
}

/// What keeps a session's calls from running (K1): the outermost halt, else the outermost pause.
pub fn halted<R: Rows>(
    rows: &R,
    id: &SessionId,
    session: &Session,
) -> Result<Option<(HaltScope, Halt)>, Fault> {
    let stops = Stops::above(rows, session, Some(id))?;
    let Some(kind) = stops.any_call().cloned() else {
        return Ok(None);
    };
    let halt = match scope_of(&kind, session, Some(id)) {
        Some(scope) => rows.halt(&scope)?,
        None => None,
    };
    Ok(halt.map(|halt| (kind, halt)))
}

/// Lists the halts in force that reach into what a principal may see, outermost first.
pub fn halts<R: Rows>(
    rows: &R,
    by: &Principal,
    page: Page<Scope>,
) -> Result<Listed<(Scope, Halt), Scope>, Fault> {
    let first = Key::Halt(page.after.clone().unwrap_or(Scope::Global));
    let last = Key::Halt(Scope::Guard(OrganizationId::above_all(), GuardId::above_all()));
    let mut list = List::new(page.limit);
    scan(rows, first, &last, |key, row| {
        let (Key::Halt(scope), Row::Halt(halt)) = (key, row) else {
            return Ok(ControlFlow::Continue(()));
        };
        let seen = match &scope {
            // Everyone is under it.
            Scope::Global => true,
            Scope::Session(id) => reaches_session(rows, by, id)?,
            named => named.organization().is_some_and(|of| by.reaches(of)),
        };
        let wanted = seen && halt.engaged && page.after.as_ref() != Some(&scope);
        Ok(list.look(wanted.then(|| (scope.clone(), halt)), scope))
    })?;
    Ok(list.listed())
}

/// Lists the accounts that a principal may see.
pub fn accounts<R: Rows>(
    rows: &R,
    by: &Principal,
    wanted: AccountsWanted,
) -> Result<Listed<(AccountId, Account), AccountId>, Fault> {
    let AccountsWanted { below, page } = wanted;
    let first = Key::Account(
        page.after
            .clone()
            .unwrap_or(AccountId::Organization(OrganizationId::below_all())),
    );
    let last = Key::Account(AccountId::Guard(
        OrganizationId::above_all(),
        GuardId::above_all(),
    ));
    let mut list = List::new(page.limit);
    scan(rows, first, &last, |key, row| {
        let (Key::Account(id), Row::Account(account)) = (key, row) else {
            return Ok(ControlFlow::Continue(()));
        };
        let inside = match &below {
            Some(above) => is_below(rows, &id, above)?,
            None => true,
        };
        let wanted = inside && page.after.as_ref() != Some(&id) && reaches_account(rows, by, &id)?;
        Ok(list.look(wanted.then(|| (id.clone(), account)), id))
    })?;
    Ok(list.listed())
}

/// Says whether a principal may see an account.
pub fn reaches_account<R: Rows>(rows: &R, by: &Principal, id: &AccountId) -> Result<bool, Fault> {
    match id {
        AccountId::Session(id) => reaches_session(rows, by, id),
        named => Ok(named.organization().is_some_and(|of| by.reaches(of))),
    }
}

/// A session that is gone is nobody's but the whole cluster's.
fn reaches_session<R: Rows>(rows: &R, by: &Principal, id: &SessionId) -> Result<bool, Fault> {
    if by.organization.is_none() {
        return Ok(true);
    }
    Ok(rows
        .session(id)?
        .is_some_and(|session| by.reaches(&session.organization)))
}

fn is_below<R: Rows>(rows: &R, id: &AccountId, above: &AccountId) -> Result<bool, Fault> {
    let owner = match id {
        AccountId::Organization(organization) | AccountId::Guard(organization, _) => {
            Some((organization.clone(), None))
        }
        AccountId::Agent(organization, agent) => Some((organization.clone(), Some(agent.clone()))),
        AccountId::Session(id) => rows
            .session(id)?
            .map(|session| (session.organization, Some(session.agent))),
    };
    Ok(match (above, owner) {
        (AccountId::Organization(organization), Some((own, _))) => own == *organization,
        (AccountId::Agent(organization, agent), Some((own, Some(own_agent)))) => {
            own == *organization && own_agent == *agent
        }
        (AccountId::Session(_) | AccountId::Guard(..), _) => id == above,
        (AccountId::Agent(..) | AccountId::Organization(_), _) => false,
    })
}

/// Counts the open holds on an account, up to a bound.
pub fn open_holds<R: Rows>(rows: &R, id: &AccountId, account: &Account) -> Result<u64, Fault> {
    if account.held == NanoUsd::ZERO {
        return Ok(0);
    }
    let (first, last) = match id {
        AccountId::Session(id) => (Key::Hold(id.clone(), 0), Key::Hold(id.clone(), u64::MAX)),
        AccountId::Organization(_) | AccountId::Agent(..) | AccountId::Guard(..) => (
            Key::Hold(SessionId::below_all(), 0),
            Key::Hold(SessionId::above_all(), 0),
        ),
    };
    let mut open = 0_u64;
    let mut looked_at = 0_usize;
    scan(rows, first, &last, |_, row| {
        looked_at = looked_at.saturating_add(1);
        if let Row::Hold(hold) = row
            && hold.open > NanoUsd::ZERO
            && hold.accounts.contains(id)
        {
            open = open.saturating_add(1);
        }
        Ok(if looked_at < HOLDS_COUNTED_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    Ok(open)
}

/// Lists the guards that a principal may see: its own, and the default one that is in force for everyone.
pub fn guards<R: Rows>(
    rows: &R,
    by: &Principal,
    page: Page<GuardScope>,
) -> Result<Listed<(GuardScope, Guard), GuardScope>, Fault> {
    let first = Key::Guard(page.after.clone().unwrap_or(GuardScope::Default));
    let last = Key::Guard(GuardScope::Named(
        OrganizationId::above_all(),
        GuardId::above_all(),
    ));
    let mut list = List::new(page.limit);
    scan(rows, first, &last, |key, row| {
        let (Key::Guard(scope), Row::Guard(guard)) = (key, row) else {
            return Ok(ControlFlow::Continue(()));
        };
        let seen = scope.organization().is_none_or(|of| by.reaches(of));
        let wanted = seen && page.after.as_ref() != Some(&scope);
        Ok(list.look(wanted.then(|| (scope.clone(), *guard)), scope))
    })?;
    Ok(list.listed())
}

/// The guard of a scope, or, where asked for, the one in force there; with the scope that it is of.
pub fn guard<R: Rows>(
    rows: &R,
    scope: &GuardScope,
    effective: bool,
) -> Result<Option<(GuardScope, Guard)>, Fault> {
    let outwards = match scope {
        GuardScope::Default | GuardScope::Named(..) => vec![scope.clone()],
        GuardScope::Organization(_) => vec![scope.clone(), GuardScope::Default],
        GuardScope::Agent(organization, _) => vec![
            scope.clone(),
            GuardScope::Organization(organization.clone()),
            GuardScope::Default,
        ],
    };
    for scope in outwards.into_iter().take(if effective { 3 } else { 1 }) {
        if let Some(guard) = rows.guard(&scope)? {
            return Ok(Some((scope, guard)));
        }
    }
    Ok(None)
}

/// Lists the approvals that a principal may see: those that are not over, or all that are kept.
pub fn approvals<R: Rows>(
    rows: &R,
    by: &Principal,
    all: bool,
    page: Page<ApprovalPlace>,
) -> Result<Listed<(ApprovalId, Approval), ApprovalPlace>, Fault> {
    let (first_org, last_org) = match &by.organization {
        Some(own) => (own.clone(), own.clone()),
        None => (OrganizationId::below_all(), OrganizationId::above_all()),
    };
    let mut first = Key::ApprovalOf(first_org, ApprovalId::below_all());
    let last = Key::ApprovalOf(last_org, ApprovalId::above_all());
    if let Some((organization, id)) = page.after.clone() {
        // A token from elsewhere does not widen what is seen.
        first = first.max(Key::ApprovalOf(organization, id));
    }
    let mut list = List::new(page.limit);
    scan(rows, first, &last, |key, _| {
        let Key::ApprovalOf(organization, id) = key else {
            return Ok(ControlFlow::Continue(()));
        };
        let place = (organization, id.clone());
        let wanted = page.after.as_ref() != Some(&place);
        let row = if wanted { rows.approval(&id)? } else { None };
        let row = row.filter(|row| all || !row.status.is_over());
        Ok(list.look(row.map(|row| (id, row)), place))
    })?;
    Ok(list.listed())
}

/// Lists the sessions that a principal may see, in the order of their agents.
pub fn sessions<R: Rows>(
    rows: &R,
    by: &Principal,
    wanted: &SessionsWanted,
    log_index: u64,
) -> Result<Listed<SessionView, SessionPlace>, Fault> {
    let agents = match (&wanted.of, &by.organization) {
        (Some(Scope::Agent(organization, agent)), _) => {
            [(); 2].map(|()| (organization.clone(), agent.clone()))
        }
        (Some(Scope::Organization(organization)), _) | (None, Some(organization)) => [
            (organization.clone(), AgentId::below_all()),
            (organization.clone(), AgentId::above_all()),
        ],
        (Some(Scope::Global | Scope::Session(_) | Scope::Guard(..)) | None, _) => [
            (OrganizationId::below_all(), AgentId::below_all()),
            (OrganizationId::above_all(), AgentId::above_all()),
        ],
    };
    let [(first_org, first_agent), (last_org, last_agent)] = agents;
    let mut first = Key::SessionOf(first_org, first_agent, SessionId::below_all());
    let last = Key::SessionOf(last_org, last_agent, SessionId::above_all());
    if let Some(SessionPlace {
        organization,
        agent,
        session,
    }) = wanted.page.after.clone()
    {
        // A token from elsewhere does not widen what is seen.
        first = first.max(Key::SessionOf(organization, agent, session));
    }
    let mut list = List::new(wanted.page.limit);
    scan(rows, first, &last, |key, _| {
        let Key::SessionOf(organization, agent, id) = key else {
            return Ok(ControlFlow::Continue(()));
        };
        let place = SessionPlace {
            organization,
            agent,
            session: id.clone(),
        };
        let mut item = None;
        if by.reaches(&place.organization)
            && wanted.page.after.as_ref() != Some(&place)
            && let Some(session) = rows.session(&id)?
            && (wanted.statuses.is_empty() || wanted.statuses.contains(&session.status))
            && (!wanted.tripped || session.trip.is_some())
        {
            item = Some(view_of(rows, id, session, log_index)?);
        }
        Ok(list.look(item, place))
    })?;
    Ok(list.listed())
}

/// Items as they are collected for one page.
struct List<T, P> {
    items: Vec<T>,
    limit: usize,
    looked_at: usize,
    last: Option<P>,
    /// Where the page ends, when there is more behind it.
    next: Option<P>,
}

impl<T, P> List<T, P> {
    fn new(limit: usize) -> Self {
        Self {
            items: Vec::new(),
            limit,
            looked_at: 0,
            last: None,
            next: None,
        }
    }

    /// Looks at one row. The page ends before the first item that it has no room for, or when it has looked at
    /// enough.
    fn look(&mut self, item: Option<T>, place: P) -> ControlFlow<()> {
        if item.is_some() && self.items.len() >= self.limit {
            self.next = self.last.take();
            return ControlFlow::Break(());
        }
        self.items.extend(item);
        self.looked_at = self.looked_at.saturating_add(1);
        if self.looked_at >= LOOKED_AT_MAX {
            self.next = Some(place);
            return ControlFlow::Break(());
        }
        self.last = Some(place);
        ControlFlow::Continue(())
    }

    fn listed(self) -> Listed<T, P> {
        Listed {
            items: self.items,
            next: self.next,
        }
    }
}

/// Walks the rows from `first` up to `last`, a chunk at a time, until it is told to stop.
fn scan<R: Rows>(
    rows: &R,
    first: Key,
    last: &Key,
    mut each: impl FnMut(Key, Row) -> Result<ControlFlow<()>, Fault>,
) -> Result<(), Fault> {
    let mut from = first;
    let mut seen = None;
    loop {
        let chunk = rows.scan(&from, last, CHUNK)?;
        let full = chunk.len() >= CHUNK;
        for (key, row) in chunk {
            if seen.as_ref() == Some(&key) {
                continue;
            }
            seen = Some(key.clone());
            if each(key, row)?.is_break() {
                return Ok(());
            }
        }
        match seen.clone() {
            Some(key) if full => from = key,
            Some(_) | None => return Ok(()),
        }
    }
}
