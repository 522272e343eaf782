//! Money: an account is granted, held, settled and released along the whole path at once, or not at all.
//! Available is granted − spent − held; nothing is derived twice.

use audit::{Detail, Entry, Kind};
use decision::facts::Mode;
use decision::{GuardId, Limit, NanoUsd};

use crate::command::{PreExec, Principal, Request};
use crate::guard_path::GuardPath;
use crate::row::reply::{Refusal, Reply};
use crate::row::{Account, DueWork, Fault, Guard, Hold, Read as _, Record, Requester, Session, Unsettled};
use crate::scope::AccountId;
use crate::turn::{Done, Turn};

/// The accounts a call draws on, innermost first, and which of them would not bear it.
pub(crate) struct Accounts {
    accounts: Vec<Record<Account>>,
    /// The place in `accounts` of the one that the guard's budget scope names.
    own: Option<usize>,
    denied: Option<String>,
    observed: Option<String>,
    pub organization_exceeded: bool,
    /// What the call holds where it is allowed.
    pub hold: NanoUsd,
}

impl Accounts {
    pub fn of(
        turn: &Turn<'_>,
        call: &PreExec,
        session: &Record<Session>,
        path: &GuardPath,
        hold: NanoUsd,
    ) -> Result<Self, Fault> {
        let mut accounts = Self {
            accounts: Vec::with_capacity(3),
            own: None,
            denied: None,
            observed: None,
            organization_exceeded: false,
            hold,
        };
        let own_id = own_account(path.effective(), session);
        for (id, mode) in accounts_above(session, path, &own_id) {
            accounts.draw(turn, id, mode, &own_id)?;
        }
        // A trip in a session stops what runs below its guard, and not what runs beside it.
        let own_guard = session.guard.as_ref();
        for (guard, by) in path.named().rev().filter(|(guard, _)| Some(*guard) != own_guard) {
            let of = AccountId::Guard(session.organization.clone(), guard.clone());
            if turn.rows.tally(&of)?.unwrap_or_default().tripped > 0 {
                accounts.stop(guard.as_str().to_owned(), by.mode);
            }
        }
        // A guard named by the caller that is not on the path is refused like one that is used up.
        if let Some(claimed) = call.parent_guard.as_ref().filter(|claimed| !path.has(claimed)) {
            accounts.stop(claimed.clone(), Mode::Enforce);
        }
        Ok(accounts)
    }

    /// Takes one account onto the path, where it is there.
    fn draw(&mut self, turn: &Turn<'_>, id: AccountId, mode: Mode, own: &AccountId) -> Result<(), Fault> {
        let is_organization = matches!(id, AccountId::Organization(_));
        let Some(account) = turn.find::<Account>(&id)? else {
            self.organization_exceeded |= is_organization && !turn.cluster.unfunded_organizations;
            return Ok(());
        };
        let is_own = id == *own;
        // R5 and R5b ask whether the session's own account bears it, and a person may lift them; an account that
        // others share answers for itself, whosever own it is.
        let left_to_r5 = is_own && matches!(id, AccountId::Session(_));
        if !fits(&account, self.hold) || !(left_to_r5 || bears(&account, self.hold)) {
            match &id {
                AccountId::Organization(_) => self.organization_exceeded = true,
                id => {
                    let suspended = account.limit == Limit::Suspended;
                    self.stop(shown(id), if suspended { Mode::Enforce } else { mode });
                }
            }
        }
        if is_own {
            self.own = Some(self.accounts.len());
        }
        self.accounts.push(account);
        Ok(())
    }

    /// Q1: the first that stops the call, of those that enforce and of those that observe.
    fn stop(&mut self, name: String, mode: Mode) {
        match mode {
            Mode::Enforce => self.denied.get_or_insert(name),
            Mode::Observe => self.observed.get_or_insert(name),
        };
    }

    /// The account R5 is about.
    pub fn own(&self) -> Option<&Account> {
        self.own
            .and_then(|place| self.accounts.get(place))
            .map(|account| &account.row)
    }

    pub fn own_available(&self) -> Option<NanoUsd> {
        self.own().and_then(Account::available)
    }

    /// Q1: the first account above the session and below the organization that would not bear the hold.
    pub fn denied_ancestor(&self) -> Option<&str> {
        self.denied.as_deref()
    }

    /// Q1: the same among those whose guard only observes.
    pub fn observed_ancestor(&self) -> Option<&str> {
        self.observed.as_deref()
    }

    /// Takes an allowed call's hold from every account on its path.
    pub fn hold(&mut self, turn: &mut Turn<'_>, call: &PreExec, guard: &Guard) {
        for account in &mut self.accounts {
            account.held = account.held.saturating_add(self.hold);
            turn.save(account.clone());
        }
        let hold = Hold {
            amount: self.hold,
            open: self.hold,
            charged: NanoUsd::ZERO,
            accounts: self.accounts.iter().map(|account| account.id.clone()).collect(),
            expires_at: turn.now().plus(guard.hold_ttl),
            unsettled: guard.unsettled,
            at_least: guard.settle_at_least_hold,
        };
        let id = (call.session.clone(), call.call_number);
        turn.arm(hold.expires_at, DueWork::HoldExpiry(id.0.clone(), id.1));
        turn.save(Record::new(id, hold));
    }
}

/// Whose accounts a session draws on, innermost first, and whether what they say is enforced.
fn accounts_above<'p>(
    session: &'p Record<Session>,
    path: &'p GuardPath,
    own: &'p AccountId,
) -> impl Iterator<Item = (AccountId, Mode)> + 'p {
    let organization = &session.organization;
    let of_guard =
        |(guard, by): (&GuardId, &Guard)| (AccountId::Guard(organization.clone(), guard.clone()), by.mode);
    // A guard that only observes does so with the account it has; an organization's is nobody's own.
    let whole = |id: AccountId| match &id {
        AccountId::Organization(_) => (id, Mode::Enforce),
        _ if id == *own && !path.enforces_own_account() => (id, Mode::Observe),
        _ => (id, Mode::Enforce),
    };
    let agent = AccountId::Agent(organization.clone(), session.agent.clone());
    std::iter::once(whole(AccountId::Session(session.id.clone())))
        .chain(path.named().rev().map(of_guard))
        .chain([whole(agent), whole(AccountId::Organization(organization.clone()))])
}

/// Guards go by their id, other accounts by their scope.
fn shown(id: &AccountId) -> String {
    match id {
        AccountId::Guard(_, guard) => guard.as_str().to_owned(),
        id => id.to_string(),
    }
}

/// The account that the guard's budget scope names.
pub(crate) fn own_account(guard: &Guard, session: &Record<Session>) -> AccountId {
    session.account(&session.id, guard.budget_scope)
}

/// What is left in the account that the guard's budget scope names; none where it has no limit.
pub(crate) fn own_available(
    turn: &Turn<'_>,
    guard: &Guard,
    session: &Record<Session>,
) -> Result<Option<NanoUsd>, Fault> {
    let account = turn.rows.account(&own_account(guard, session))?;
    Ok(account.as_ref().and_then(Account::available))
}

/// An amount below zero would lift every limit it meets. The edge refuses it; so does this.
pub(crate) fn not_negative(field: &str, amount: Option<NanoUsd>) -> Result<(), Refusal> {
    match amount {
        Some(amount) if amount.is_negative() => {
            Err(Refusal::Invalid(format!("{field} must not be below zero")))
        }
        Some(_) | None => Ok(()),
    }
}

/// An exact fit passes; an account with nothing left bears nothing, not even a free call.
fn bears(account: &Account, hold: NanoUsd) -> bool {
    account
        .available()
        .is_none_or(|left| left > NanoUsd::ZERO && left.saturating_sub(hold) >= NanoUsd::ZERO)
}

/// What would not fit into the account's sums is denied, whatever its limit.
fn fits(account: &Account, hold: NanoUsd) -> bool {
    let used = account.spent.checked_add(account.held);
    used.and_then(|used| used.checked_add(hold)).is_some()
}

/// What closing or part-settling a hold does to it.
#[derive(Clone, Copy)]
pub(crate) enum Settle {
    /// Charges a part; the rest stays held.
    Part(NanoUsd),
    /// Charges this much on top of what was charged, and frees the rest.
    Close(NanoUsd),
}

/// Moves a settlement along the hold's whole path; false where a sum would not fit, and nothing is moved.
pub(crate) fn settle(turn: &mut Turn<'_>, hold: &mut Hold, settle: Settle) -> Result<bool, Fault> {
    let (charge, freed) = match settle {
        Settle::Part(charge) => (charge, charge.min(hold.open)),
        Settle::Close(charge) => (charge, hold.open),
    };
    let mut moved = Vec::with_capacity(hold.accounts.len());
    for id in &hold.accounts {
        let mut account = turn.need::<Account>(id)?;
        // A late report may give back what time has charged, but not what a correction gave back already.
        let spent = account.spent.checked_add(charge);
        let Some(spent) = spent.filter(|spent| !spent.is_negative()) else {
            return Ok(false);
        };
        account.spent = spent;
        account.held = account.held.saturating_sub(freed);
        moved.push(account);
    }
    let Some(charged) = hold.charged.checked_add(charge) else {
        return Ok(false);
    };
    hold.charged = charged;
    hold.open = hold.open.saturating_sub(freed);
    moved.into_iter().for_each(|account| turn.save(account));
    Ok(true)
}

/// What the unsettled policy charges for a hold that nobody closed.
pub(crate) fn unsettled_charge(hold: &Hold) -> NanoUsd {
    match hold.unsettled {
        Unsettled::Charge => hold.open,
        Unsettled::Release => NanoUsd::ZERO,
    }
}

/// Opens an account with a guard's budget, where there is a budget and no account yet.
pub(crate) fn open(turn: &mut Turn<'_>, id: AccountId, budget: Option<NanoUsd>) -> Result<(), Fault> {
    if let Some(budget) = budget
        && turn.rows.account(&id)?.is_none()
    {
        turn.save(Record::new(id, Account::opened(Limit::Amount(budget))));
    }
    Ok(())
}

/// An operator's word about an account.
pub(crate) struct Order<'o> {
    pub by: &'o Principal,
    pub account: &'o AccountId,
    pub request: &'o Request,
    pub justification: &'o str,
    pub kind: Kind,
}

impl Order<'_> {
    /// The one way for an operator to change an account: in reach, once, recorded.
    pub fn carry_out(
        self,
        turn: &mut Turn<'_>,
        change: impl FnOnce(Option<Account>) -> Result<Account, Refusal>,
    ) -> Done {
        let organization = match self.account {
            AccountId::Session(session) => turn.session(session)?.organization.clone(),
            AccountId::Organization(of) | AccountId::Agent(of, _) | AccountId::Guard(of, _) => of.clone(),
        };
        turn.reaches(self.by, Some(&organization), || self.account.to_string())?;
        turn.once(Requester::identity(self.by), self.request, |turn| {
            let before = turn.rows.account(self.account)?;
            let after = change(before)?;
            let left = |account: Account| account.available().unwrap_or(NanoUsd::ZERO);
            let entry = Entry {
                operator_id: self.by.name.clone(),
                organization_id: organization.as_str().to_owned(),
                request_id: self.request.id.as_str().to_owned(),
                reason: self.justification.to_owned(),
                budget_before: before.map_or(NanoUsd::ZERO, left),
                budget_after: left(after),
                detail: Detail::Limited {
                    account: self.account.to_string(),
                    limit: after.limit,
                }
                .to_string(),
                ..turn.entry(self.kind)
            };
            let sequence = turn.record(entry);
            turn.save(Record::new(self.account.clone(), after));
            Ok(Reply::Account(after, turn.place(sequence)))
        })
    }
}
