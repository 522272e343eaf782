//! `haltgate.admin.v1`: what operators ask and order, and what they are told.

use std::str::FromStr;

use decision::{DurationNs, NanoUsd, SessionId};
use machine::command::{
    Act, Correct, Engage, GrantBudget, Limit, Principal, PutGuard, Release, Request, SessionAct, SetBudget,
};
use machine::query::{AccountsWanted, SessionsWanted};
use machine::row::{Account, Halt, HaltMode};
use machine::{AccountId, Guard, GuardScope, InvalidScope, Scope};

use crate::guard::nanoseconds;
use crate::guard_config::{guard, guard_config};
use crate::invalid::{Invalid, bounded, id, known};
use crate::money;
use crate::page::{self, Page};
use crate::payload::{Payload, required_request};
use crate::proto::haltgate::admin::v1 as proto;
use crate::same::read_session_status;

/// Longest reason or justification, bytes: a sentence for whoever reads the audit chain.
pub const REASON_BYTES_MAX: usize = 1_024;
/// Longest ticket, bytes: a number or an address.
pub const TICKET_BYTES_MAX: usize = 256;

// --- the kill switch --------------------------------------------------------------------------------

/// Reads an order to halt a scope. A mode that is not said is the strongest: a stop must not fail for a word.
pub fn engage(message: &proto::HaltsEngageRequest, by: Principal) -> Result<Engage, Invalid> {
    let scope = scope("scope", &message.scope)?;
    let mode = match known("mode", message.mode)? {
        proto::HaltMode::Unspecified | proto::HaltMode::Halt => HaltMode::Halt,
        proto::HaltMode::Pause => HaltMode::Pause,
        proto::HaltMode::Drain => HaltMode::Drain,
    };
    if message.ttl_seconds > 0 && mode != HaltMode::Drain {
        return Err(Invalid::new("ttl_seconds", "only a drain may end by itself"));
    }
    bounded("reason", &message.reason, 1, REASON_BYTES_MAX)?;
    bounded("ticket", &message.ticket, 0, TICKET_BYTES_MAX)?;
    let request = required_request(&message.request_id, || {
        Payload::of("engage")
            .text(&scope.to_string())
            .text(&message.reason)
            .text(&message.ticket)
            .number(u64::from(i32::from(halt_mode(mode)).unsigned_abs()))
            .number(u64::from(message.ttl_seconds))
            .flag(message.two_person)
    })?;
    Ok(Engage {
        by,
        scope,
        reason: message.reason.clone(),
        ticket: message.ticket.clone(),
        request,
        mode,
        ttl: (message.ttl_seconds > 0).then(|| DurationNs::from_secs(u64::from(message.ttl_seconds))),
        two_person: message.two_person,
    })
}

/// Reads an order to let a scope go on.
pub fn release(message: &proto::HaltsReleaseRequest, by: Principal) -> Result<Release, Invalid> {
    let scope = scope("scope", &message.scope)?;
    bounded("justification", &message.justification, 1, REASON_BYTES_MAX)?;
    bounded("ticket", &message.ticket, 0, TICKET_BYTES_MAX)?;
    let request = required_request(&message.request_id, || {
        Payload::of("release")
            .text(&scope.to_string())
            .text(&message.justification)
            .text(&message.ticket)
    })?;
    Ok(Release {
        by,
        scope,
        justification: message.justification.clone(),
        request,
        ticket: message.ticket.clone(),
    })
}

/// Reads which part of the halts is wanted.
pub fn halts_page(message: &proto::HaltsListRequest) -> Result<Page<Scope>, Invalid> {
    page::parse(message.page_size, &message.page_token, |token| token.parse().ok())
}

/// Writes a halt.
pub fn halt(scope: &Scope, halt: &Halt) -> proto::Halt {
    proto::Halt {
        scope: scope.to_string(),
        mode: halt_mode(halt.mode).into(),
        reason: halt.reason.clone(),
        ticket: halt.ticket.clone(),
        engaged_by: halt.by.clone(),
        engaged_at_ns: nanoseconds(halt.at),
        // The first engagement's: `halt.epoch` is the newest change's.
        epoch: halt
            .history
            .iter()
            .filter(|change| change.engaged && change.at == halt.at)
            .map(|change| change.epoch)
            .min()
            .unwrap_or(halt.epoch),
        history: halt
            .history
            .iter()
            .map(|change| proto::HaltEvent {
                reason: change.reason.clone(),
                ticket: change.ticket.clone(),
                by: change.by.clone(),
                at_ns: nanoseconds(change.at),
                engaged: change.engaged,
                epoch: change.epoch,
            })
            .collect(),
        until_ns: halt.until.map_or(0, nanoseconds),
        two_person: halt.two_person,
        release_asked_by: halt
            .release_asked
            .as_ref()
            .map_or(String::new(), |asked| asked.by.clone()),
    }
}

fn halt_mode(mode: HaltMode) -> proto::HaltMode {
    match mode {
        HaltMode::Halt => proto::HaltMode::Halt,
        HaltMode::Pause => proto::HaltMode::Pause,
        HaltMode::Drain => proto::HaltMode::Drain,
    }
}

// --- accounts ---------------------------------------------------------------------------------------

/// Reads an order to set an account's limit. There is no 0: it is said as `suspended`.
pub fn set_budget(message: &proto::BudgetsSetRequest, by: Principal) -> Result<SetBudget, Invalid> {
    let account = account_id("scope", &message.scope)?;
    let limit = limit(message.limit)?;
    bounded("justification", &message.justification, 0, REASON_BYTES_MAX)?;
    let request = required_request(&message.request_id, || {
        let payload = Payload::of("set_budget")
            .text(&account.to_string())
            .text(&message.justification);
        match limit {
            Limit::Amount(amount) => payload.text("amount").amount(Some(amount)),
            Limit::Unlimited => payload.text("unlimited"),
            Limit::Suspended => payload.text("suspended"),
        }
    })?;
    Ok(SetBudget {
        by,
        account,
        limit,
        request,
        justification: message.justification.clone(),
    })
}

fn limit(said: Option<proto::budgets_set_request::Limit>) -> Result<Limit, Invalid> {
    use proto::budgets_set_request::Limit as Said;
    match said {
        Some(Said::AmountNanos(nanos)) => above_zero("amount_nanos", nanos).map(Limit::Amount),
        Some(Said::Unlimited(())) => Ok(Limit::Unlimited),
        Some(Said::Suspended(())) => Ok(Limit::Suspended),
        None => Err(Invalid::new(
            "limit",
            "must be one of amount_nanos, unlimited, suspended",
        )),
    }
}

/// Reads an order to add to an account's limit.
pub fn grant_budget(message: &proto::BudgetsGrantRequest, by: Principal) -> Result<GrantBudget, Invalid> {
    let account = account_id("scope", &message.scope)?;
    let amount = above_zero("amount_nanos", message.amount_nanos)?;
    bounded("justification", &message.justification, 0, REASON_BYTES_MAX)?;
    let request = required_request(&message.request_id, || {
        Payload::of("grant_budget")
            .text(&account.to_string())
            .amount(Some(amount))
            .text(&message.justification)
    })?;
    Ok(GrantBudget {
        by,
        account,
        amount,
        request,
        justification: message.justification.clone(),
    })
}

/// Reads an order to correct what an account was charged, by an entry of its own.
pub fn correct_budget(message: &proto::BudgetsCorrectRequest, by: Principal) -> Result<Correct, Invalid> {
    let account = account_id("scope", &message.scope)?;
    let size = money::exact("amount_nanos", message.amount_nanos.saturating_abs())
        .map_err(|_| Invalid::new("amount_nanos", "must be at most 9.2e9 USD, either way"))?;
    if size == NanoUsd::ZERO {
        return Err(Invalid::new("amount_nanos", "must not be 0"));
    }
    bounded("justification", &message.justification, 1, REASON_BYTES_MAX)?;
    let request = required_request(&message.request_id, || {
        Payload::of("correct_budget")
            .text(&account.to_string())
            .text(&message.amount_nanos.to_string())
            .text(&message.justification)
    })?;
    Ok(Correct {
        by,
        account,
        amount: NanoUsd::new(message.amount_nanos),
        request,
        justification: message.justification.clone(),
    })
}

/// Reads the name of an account.
pub fn account_id(field: &'static str, text: &str) -> Result<AccountId, Invalid> {
    parsed(field, text)
}

pub fn accounts_wanted(message: &proto::BudgetsListRequest) -> Result<AccountsWanted, Invalid> {
    let below = match message.scope.as_str() {
        "" => None,
        text => Some(account_id("scope", text)?),
    };
    let page = page::parse(message.page_size, &message.page_token, |token| token.parse().ok())?;
    Ok(AccountsWanted { below, page })
}

/// Writes an account.
pub fn account(id: &AccountId, account: &Account, open_holds: u64) -> proto::Account {
    use proto::account::Limit as Said;
    proto::Account {
        scope: id.to_string(),
        limit: Some(match account.limit {
            Limit::Amount(amount) => Said::AmountNanos(amount.nanos()),
            Limit::Unlimited => Said::Unlimited(()),
            Limit::Suspended => Said::Suspended(()),
        }),
        spent_nanos: account.spent.nanos(),
        held_nanos: account.held.nanos(),
        available_nanos: match account.limit {
            Limit::Amount(_) => account.available().map(NanoUsd::nanos),
            Limit::Unlimited | Limit::Suspended => None,
        },
        overdraft_nanos: account.overdraft().nanos(),
        open_holds,
    }
}

fn above_zero(field: &'static str, nanos: i64) -> Result<NanoUsd, Invalid> {
    match money::exact(field, nanos)? {
        NanoUsd::ZERO => Err(Invalid::new(
            field,
            "must be above 0: say unlimited or suspended instead",
        )),
        amount => Ok(amount),
    }
}

// --- guards -----------------------------------------------------------------------------------------

/// Reads an order to replace a guard.
pub fn put_guard(message: &proto::GuardsPutRequest, by: Principal) -> Result<PutGuard, Invalid> {
    let scope = guard_scope("scope", &message.scope)?;
    let config = message
        .config
        .as_ref()
        .ok_or_else(|| Invalid::new("config", "is needed"))?;
    let guard = guard(config).map_err(|invalid| invalid.within("config"))?;
    bounded("justification", &message.justification, 0, REASON_BYTES_MAX)?;
    let request = required_request(&message.request_id, || {
        Payload::of("put_guard")
            .text(&scope.to_string())
            .bytes(guard.digest().as_bytes())
            .text(&message.justification)
    })?;
    Ok(PutGuard {
        by,
        scope,
        guard,
        request,
        justification: message.justification.clone(),
    })
}

/// Reads the name of a guard.
pub fn guard_scope(field: &'static str, text: &str) -> Result<GuardScope, Invalid> {
    parsed(field, text)
}

/// Reads which part of the guards is wanted.
pub fn guards_page(message: &proto::GuardsListRequest) -> Result<Page<GuardScope>, Invalid> {
    page::parse(message.page_size, &message.page_token, |token| token.parse().ok())
}

/// Writes a guard as it is stored.
pub fn stored_guard(scope: &GuardScope, guard: &Guard) -> proto::Guard {
    proto::Guard {
        scope: scope.to_string(),
        config: Some(guard_config(guard)),
        updated_by: String::new(),
        updated_at_ns: 0,
    }
}

// --- sessions ---------------------------------------------------------------------------------------

pub fn sessions_wanted(message: &proto::SessionsListRequest) -> Result<SessionsWanted, Invalid> {
    let of = match message.scope.as_str() {
        "" => None,
        text => match scope("scope", text)? {
            of @ (Scope::Organization(_) | Scope::Agent(..)) => Some(of),
            Scope::Global | Scope::Session(_) | Scope::Guard(..) => {
                return Err(Invalid::new(
                    "scope",
                    "must be org/ORG, org/ORG/agent/AGENT, or empty",
                ));
            }
        },
    };
    let statuses = message
        .statuses
        .iter()
        .map(|status| read_session_status("statuses", *status))
        .collect::<Result<_, _>>()?;
    let page = page::parse(message.page_size, &message.page_token, |token| token.parse().ok())?;
    Ok(SessionsWanted {
        of,
        statuses,
        tripped: message.tripped,
        page,
    })
}

/// An order about one session, as each of the four messages carries it.
#[derive(Debug, Clone, Copy)]
pub struct SessionOrder<'a> {
    pub act: Act,
    pub request_id: &'a str,
    pub session_id: &'a str,
    pub justification: &'a str,
}

/// Reads an order about one session. Closing a circuit needs a justification.
pub fn session_act(order: SessionOrder<'_>, by: Principal) -> Result<SessionAct, Invalid> {
    let session = id("session_id", SessionId::parse(order.session_id))?;
    let (word, justified) = match order.act {
        Act::ResetCircuit => ("reset_circuit", 1),
        Act::Pause => ("pause", 0),
        Act::Resume => ("resume", 0),
        Act::Terminate => ("terminate", 0),
    };
    bounded("justification", order.justification, justified, REASON_BYTES_MAX)?;
    let request = required_request(order.request_id, || {
        Payload::of(word).text(session.as_str()).text(order.justification)
    })?;
    Ok(SessionAct {
        by,
        session,
        act: order.act,
        justification: order.justification.to_owned(),
        request,
    })
}

// --- the cluster ------------------------------------------------------------------------------------

/// Reads the retry key of a change of membership. Raft itself keeps such a change from being made twice.
pub fn cluster_request(rpc: &str, request_id: &str, what: &str) -> Result<Request, Invalid> {
    required_request(request_id, || Payload::of(rpc).text(what))
}

/// Reads the reason of a change that cannot be taken back.
pub fn justification(text: &str) -> Result<(), Invalid> {
    bounded("justification", text, 1, REASON_BYTES_MAX)
}

fn scope(field: &'static str, text: &str) -> Result<Scope, Invalid> {
    parsed(field, text)
}

fn parsed<T: FromStr<Err = InvalidScope>>(field: &'static str, text: &str) -> Result<T, Invalid> {
    text.parse()
        .map_err(|error: InvalidScope| Invalid::new(field, error.to_string()))
}
