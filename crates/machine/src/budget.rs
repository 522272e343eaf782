//! Money: an account is granted, held, settled and released along the whole path at once, or not at all.
//! Available is granted − spent − held; nothing is derived twice.

use audit::Kind;
use decision::facts::Mode;
use decision::{GuardId, NanoUsd, SessionId};

use crate::apply::Turn;
use crate::command::{Correct, GrantBudget, Limit, PreExec, Principal, SetBudget};
use crate::guard::{BudgetScope, Guard, Unsettled};
use crate::leash::Leash;
use crate::replay;
use crate::reply::{Refusal, Reply};
use crate::scope::AccountId;
use crate::session;
use crate::table::{Account, DueWork, Fault, Hold, Key, Read, Row, Rows, Session};

/// The accounts a call draws on, innermost first, and which of them would not bear it.
pub(crate) struct Path {
    accounts: Vec<(AccountId, Account)>,
    /// The place in `accounts` of the one that the guard's budget scope names.
    own: Option<usize>,
    denied: Option<String>,
    observed: Option<String>,
    pub organization_exceeded: bool,
    /// What the call holds where it is allowed.
    pub hold: NanoUsd,
}

impl Path {
    pub fn of<R: Rows>(
        turn: &Turn<'_, '_, R>,
        call: &PreExec,
        session: &Session,
        leash: &Leash,
        hold: NanoUsd,
    ) -> Result<Self, Fault> {
        let own_id = own_account(leash.effective(), &call.session, session);
        let organization = AccountId::Organization(session.organization.clone());
        let mut path = Self {
            accounts: Vec::with_capacity(3),
            own: None,
            denied: None,
            observed: None,
            organization_exceeded: false,
            hold,
        };
        let of_guard = |(guard, by): (&GuardId, &Guard)| {
            let id = AccountId::Guard(session.organization.clone(), guard.clone());
            (id, guard.as_str().to_owned(), by.mode)
        };
        let whole = |id: AccountId| {
            // A guard that only observes does so with the account it has; an organization's is nobody's own.
            let observed = id == own_id && id != organization && !leash.enforces_own_account();
            let name = id.to_string();
            (id, name, if observed { Mode::Observe } else { Mode::Enforce })
        };
        let agent = AccountId::Agent(session.organization.clone(), session.agent.clone());
        let ids = std::iter::once(whole(AccountId::Session(call.session.clone())))
            .chain(leash.named().rev().map(of_guard))
            .chain([whole(agent), whole(organization.clone())]);
        for (id, name, mode) in ids {
            let is_organization = id == organization;
            let Some(account) = turn.rows.account(&id)? else {
                path.organization_exceeded |= is_organization && !turn.cluster.unfunded_organizations;
                continue;
            };
            let is_own = id == own_id;
            // R5 and R5b ask whether the session's own account bears it, and a person may lift them; an account that
            // others share answers for itself, whosever own it is.
            let asked_by_r5 = is_own && matches!(id, AccountId::Session(_));
            if !fits(&account, hold) || !(asked_by_r5 || bears(&account, hold)) {
                match mode {
                    _ if is_organization => path.organization_exceeded = true,
                    _ if account.limit == Limit::Suspended => path.stop(name, Mode::Enforce),
                    mode => path.stop(name, mode),
                }
            }
            if is_own {
                path.own = Some(path.accounts.len());
            }
            path.accounts.push((id, account));
        }
        // A trip in a session stops what runs below its guard, and not what runs beside it.
        let own_guard = session.guard.as_ref();
        for (guard, by) in leash.named().rev().filter(|(guard, _)| Some(*guard) != own_guard) {
            let of = AccountId::Guard(session.organization.clone(), guard.clone());
            if turn.rows.tally(&of)?.unwrap_or_default().tripped > 0 {
                path.stop(guard.as_str().to_owned(), by.mode);
            }
        }
        // A guard named by the caller that is not on the path is refused like one that is used up.
        if let Some(claimed) = call.parent_guard.as_ref().filter(|claimed| !leash.has(claimed)) {
            path.stop(claimed.clone(), Mode::Enforce);
        }
        Ok(path)
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
            .map(|(_, account)| account)
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
}

/// The account that the guard's budget scope names.
pub(crate) fn own_account(guard: &Guard, id: &SessionId, session: &Session) -> AccountId {
    match guard.budget_scope {
        BudgetScope::Session => AccountId::Session(id.clone()),
        BudgetScope::Agent => AccountId::Agent(session.organization.clone(), session.agent.clone()),
        BudgetScope::Organization => AccountId::Organization(session.organization.clone()),
    }
}

/// What is left in the account that the guard's budget scope names; none where it has no limit.
pub(crate) fn own_available<R: Rows>(
    turn: &Turn<'_, '_, R>,
    guard: &Guard,
    id: &SessionId,
    session: &Session,
) -> Result<Option<NanoUsd>, Fault> {
    let account = turn.rows.account(&own_account(guard, id, session))?;
    Ok(account.as_ref().and_then(Account::available))
}

/// An amount below zero would lift every limit it meets. The edge refuses it; so does this.
pub(crate) fn negative(field: &str) -> Reply {
    Reply::Refused(Refusal::Invalid(format!("{field} must not be below zero")))
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

/// Takes an allowed call's hold from every account on its path.
pub(crate) fn hold<R: Rows>(turn: &mut Turn<'_, '_, R>, path: &mut Path, call: &PreExec, guard: &Guard) {
    let amount = path.hold;
    for (id, account) in &mut path.accounts {
        account.held = account.held.saturating_add(amount);
        turn.rows.put(Key::Account(id.clone()), Row::Account(*account));
    }
    let expires_at = turn.now().plus(guard.hold_ttl);
    let hold = Hold {
        amount,
        open: amount,
        charged: NanoUsd::ZERO,
        accounts: path.accounts.iter().map(|(id, _)| id.clone()).collect(),
        expires_at,
        unsettled: guard.unsettled,
        at_least: guard.settle_at_least_hold,
    };
    turn.rows
        .put(Key::Hold(call.session.clone(), call.call_number), Row::Hold(hold));
    let work = DueWork::HoldExpiry(call.session.clone(), call.call_number);
    turn.rows.put(Key::Due(expires_at, work), Row::Mark);
}

/// What closing or part-settling a hold does to it.
pub(crate) enum Settle {
    /// Charges a part; the rest stays held.
    Part(NanoUsd),
    /// Charges this much on top of what was charged, and frees the rest.
    Close(NanoUsd),
}

/// An amount that no account could book.
pub(crate) struct Overflow;

/// Moves a settlement along the hold's whole path, or, where a sum would not fit, nowhere.
pub(crate) fn settle<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    hold: &mut Hold,
    settle: &Settle,
) -> Result<Result<(), Overflow>, Fault> {
    let (charge, freed) = match *settle {
        Settle::Part(charge) => (charge, charge.min(hold.open)),
        Settle::Close(charge) => (charge, hold.open),
    };
    let mut moved = Vec::with_capacity(hold.accounts.len());
    for id in &hold.accounts {
        let key = Key::Account(id.clone());
        let mut account = turn
            .rows
            .account(id)?
            .ok_or_else(|| Fault::Missing(key.clone()))?;
        // A late report may give back what time has charged, but not what a correction gave back already.
        let spent = account.spent.checked_add(charge);
        let Some(spent) = spent.filter(|spent| !spent.is_negative()) else {
            return Ok(Err(Overflow));
        };
        account.spent = spent;
        account.held = account.held.saturating_sub(freed);
        moved.push((key, account));
    }
    let Some(charged) = hold.charged.checked_add(charge) else {
        return Ok(Err(Overflow));
    };
    hold.charged = charged;
    hold.open = hold.open.saturating_sub(freed);
    for (key, account) in moved {
        turn.rows.put(key, Row::Account(account));
    }
    Ok(Ok(()))
}

/// What the unsettled policy charges for a hold that nobody closed.
pub(crate) fn unsettled_charge(hold: &Hold) -> NanoUsd {
    match hold.unsettled {
        Unsettled::Charge => hold.open,
        Unsettled::Release => NanoUsd::ZERO,
    }
}

/// Opens the account of the guard's budget scope, where the guard has a budget and it has no account yet.
pub(crate) fn open_own<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    guard: &Guard,
    id: &SessionId,
    session: &Session,
) -> Result<(), Fault> {
    let Some(budget) = guard.budget else { return Ok(()) };
    let account = own_account(guard, id, session);
    if turn.rows.account(&account)?.is_none() {
        turn.rows.put(
            Key::Account(account),
            Row::Account(Account::opened(Limit::Amount(budget))),
        );
    }
    Ok(())
}

pub(crate) fn set<R: Rows>(turn: &mut Turn<'_, '_, R>, set: &SetBudget) -> Result<Reply, Fault> {
    change(
        turn,
        &set.by,
        &set.account,
        &set.request,
        &set.justification,
        Kind::BudgetSet,
        |account| {
            if matches!(set.limit, Limit::Amount(amount) if amount <= NanoUsd::ZERO) {
                return Err(Refusal::Invalid(
                    "a limit is above zero, or unlimited, or suspended".to_owned(),
                ));
            }
            let account = account.copied().unwrap_or(Account::opened(set.limit));
            Ok(Account {
                limit: set.limit,
                ..account
            })
        },
    )
}

pub(crate) fn grant<R: Rows>(turn: &mut Turn<'_, '_, R>, grant: &GrantBudget) -> Result<Reply, Fault> {
    change(
        turn,
        &grant.by,
        &grant.account,
        &grant.request,
        &grant.justification,
        Kind::BudgetGranted,
        |account| {
            if grant.amount <= NanoUsd::ZERO {
                return Err(Refusal::Invalid("a grant is above zero".to_owned()));
            }
            let Some(account) = account else {
                return Err(Refusal::NotFound(format!(
                    "{} has no account: set its budget first",
                    grant.account
                )));
            };
            match account.limit {
                Limit::Amount(amount) => match amount.checked_add(grant.amount) {
                    Some(sum) => Ok(Account {
                        limit: Limit::Amount(sum),
                        ..*account
                    }),
                    None => Err(Refusal::Invalid(
                        "the grants of this account would not fit".to_owned(),
                    )),
                },
                Limit::Suspended | Limit::Unlimited => Err(Refusal::Precondition(format!(
                    "{} is suspended or unlimited: set its budget to an amount first",
                    grant.account
                ))),
            }
        },
    )
}

/// A compensating entry: what was booked stays in the chain, and this beside it.
pub(crate) fn correct<R: Rows>(turn: &mut Turn<'_, '_, R>, correct: &Correct) -> Result<Reply, Fault> {
    change(
        turn,
        &correct.by,
        &correct.account,
        &correct.request,
        &correct.justification,
        Kind::Correction,
        |account| {
            let Some(account) = account else {
                return Err(Refusal::NotFound(format!("{} has no account", correct.account)));
            };
            let spent = account.spent.checked_add(correct.amount);
            match spent.filter(|spent| !spent.is_negative()) {
                Some(spent) if correct.amount != NanoUsd::ZERO => Ok(Account { spent, ..*account }),
                Some(_) => Err(Refusal::Invalid("a correction is not zero".to_owned())),
                None => Err(Refusal::Invalid(format!(
                    "{} would be left with less than nothing spent, or with more than fits",
                    correct.account
                ))),
            }
        },
    )
}

/// One way for an operator to change an account: in reach, once, recorded.
fn change<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    by: &Principal,
    id: &AccountId,
    request: &crate::command::Request,
    justification: &str,
    kind: Kind,
    change: impl FnOnce(Option<&Account>) -> Result<Account, Refusal>,
) -> Result<Reply, Fault> {
    let organization = match id {
        AccountId::Organization(organization)
        | AccountId::Agent(organization, _)
        | AccountId::Guard(organization, _) => organization.clone(),
        AccountId::Session(session) => match session::find(turn, session)? {
            Some(session) => session.organization,
            None => return Ok(Reply::Refused(Refusal::SessionNotFound)),
        },
    };
    if !by.reaches(&organization) {
        return Ok(turn.refuse(by, id.to_string()));
    }
    let requester = replay::identity(by);
    if let Some(earlier) = replay::recall(turn, &requester, request)? {
        return Ok(earlier);
    }
    let before = turn.rows.account(id)?;
    let after = match change(before.as_ref()) {
        Ok(account) => account,
        Err(refusal) => return Ok(Reply::Refused(refusal)),
    };
    let mut entry = turn.entry(kind);
    entry.operator_id.clone_from(&by.name);
    entry.organization_id = organization.as_str().to_owned();
    entry.request_id = request.id.as_str().to_owned();
    justification.clone_into(&mut entry.reason);
    entry.budget_before = before
        .and_then(|account| account.available())
        .unwrap_or(NanoUsd::ZERO);
    entry.budget_after = after.available().unwrap_or(NanoUsd::ZERO);
    entry.detail = match after.limit {
        Limit::Amount(amount) => format!("{id} {amount}"),
        Limit::Unlimited => format!("{id} unlimited"),
        Limit::Suspended => format!("{id} suspended"),
    };
    let sequence = turn.record(entry);
    turn.rows.put(Key::Account(id.clone()), Row::Account(after));
    let reply = Reply::Account(after, turn.place(sequence));
    replay::remember(turn, requester, request, &reply);
    Ok(reply)
}
