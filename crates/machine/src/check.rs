//! Invariants over all rows: what must hold between any two commands.

use std::collections::BTreeMap;

use decision::{AgentId, NanoUsd, OrganizationId, SessionId, Timestamp};

use crate::scope::AccountId;
use crate::table::{Account, DueWork, Fault, Key, Phase, Row, Rows, Session, SessionStatus};

/// Reads all rows that the invariants are about, and gives what is broken.
///
/// # Errors
/// The rows cannot be read.
pub fn broken_in<R: Rows>(rows: &R) -> Result<Vec<String>, Fault> {
    let (first, last) = (SessionId::below_all(), SessionId::above_all());
    let tables = [
        (
            Key::Account(AccountId::Organization(OrganizationId::below_all())),
            Key::Account(AccountId::Session(last.clone())),
        ),
        (Key::Session(first.clone()), Key::Session(last.clone())),
        (
            Key::SessionOf(OrganizationId::below_all(), AgentId::below_all(), first.clone()),
            Key::SessionOf(OrganizationId::above_all(), AgentId::above_all(), last.clone()),
        ),
        (Key::Call(first.clone(), 0), Key::Call(last.clone(), 0)),
        (Key::Hold(first.clone(), 0), Key::Hold(last.clone(), 0)),
        (
            Key::Due(Timestamp::ZERO, DueWork::first()),
            Key::Due(Timestamp::MAX, DueWork::first()),
        ),
    ];
    let mut all = BTreeMap::new();
    for (from, until) in &tables {
        all.extend(rows.scan(from, until, usize::MAX)?);
    }
    Ok(broken(&all))
}

/// Gives every broken invariant in words; none when all hold.
pub fn broken(rows: &BTreeMap<Key, Row>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut held: BTreeMap<AccountId, NanoUsd> = BTreeMap::new();
    let mut accounts: BTreeMap<&AccountId, &Account> = BTreeMap::new();
    let mut sessions: BTreeMap<&SessionId, &Session> = BTreeMap::new();
    for (key, row) in rows {
        match (key, row) {
            (Key::Account(id), Row::Account(account)) => {
                accounts.insert(id, account);
            }
            (Key::Session(id), Row::Session(session)) => {
                sessions.insert(id, session);
            }
            (Key::Hold(id, number), Row::Hold(hold)) => {
                for account in &hold.accounts {
                    let sum = held.entry(account.clone()).or_default();
                    *sum = sum.saturating_add(hold.open);
                }
                let open = matches!(
                    rows.get(&Key::Call(id.clone(), *number)),
                    Some(Row::Call(call)) if call.phase == Phase::Held
                );
                let due = Key::Due(hold.expires_at, DueWork::HoldExpiry(id.clone(), *number));
                if open != rows.contains_key(&due) {
                    broken.push(format!(
                        "hold {id}/{number}: open is {open}, but its expiry is not armed alike"
                    ));
                }
                if !open && hold.open != NanoUsd::ZERO {
                    broken.push(format!(
                        "hold {id}/{number}: {} still held of a closed call",
                        hold.open
                    ));
                }
            }
            (Key::Call(id, number), Row::Call(call)) => {
                if call.phase == Phase::Held && !rows.contains_key(&Key::Hold(id.clone(), *number)) {
                    broken.push(format!("call {id}/{number} is held without a hold"));
                }
                if call.answer.call_number != *number {
                    broken.push(format!(
                        "call {id}/{number} answers for {}",
                        call.answer.call_number
                    ));
                }
            }
            _ => {}
        }
    }
    for (id, account) in accounts {
        let sum = held.remove(id).unwrap_or_default();
        if sum != account.held {
            broken.push(format!(
                "account {id}: held {} but its holds sum to {sum}",
                account.held
            ));
        }
        if account.held.is_negative() || account.spent.is_negative() {
            broken.push(format!(
                "account {id}: below zero, spent {} held {}",
                account.spent, account.held
            ));
        }
    }
    for (id, sum) in held.into_iter().filter(|(_, sum)| *sum != NanoUsd::ZERO) {
        broken.push(format!("account {id} does not exist, but {sum} is held of it"));
    }
    for (id, session) in sessions {
        if session.waiting.is_some() && !matches!(session.status, SessionStatus::Paused) {
            broken.push(format!(
                "session {id}: a call waits, but the session is not paused"
            ));
        }
        let index = Key::SessionOf(session.organization.clone(), session.agent.clone(), id.clone());
        if !rows.contains_key(&index) {
            broken.push(format!("session {id} is not in its agent's index"));
        }
    }
    broken
}
