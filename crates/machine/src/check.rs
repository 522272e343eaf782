//! Invariants over all rows: what must hold between any two commands.

use std::collections::BTreeMap;

use decision::NanoUsd;

use crate::scope::AccountId;
use crate::table::{Account, DueWork, Key, Phase, Row, Session, SessionStatus};

/// Gives every broken invariant in words; none when all hold.
pub fn broken(rows: &BTreeMap<Key, Row>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut held: BTreeMap<AccountId, NanoUsd> = BTreeMap::new();
    let mut accounts: BTreeMap<&AccountId, &Account> = BTreeMap::new();
    let mut sessions: BTreeMap<&decision::SessionId, &Session> = BTreeMap::new();
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
