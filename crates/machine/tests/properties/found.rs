//! What steps name, looked up in the rows: approvals, holds, stops; and the commands about them.

use audit::{Seal, Signer};
use decision::json::Value;
use decision::policy::{Asked, evaluate};
use decision::{AgentId, ApprovalId, Digest, NanoUsd, OrganizationId, SessionId};
use machine::command::{Decide, FixtureSession, Params, PreExec, RuleFacts, Ruling, Successor};
use machine::row::Approval;
use machine::row::{Key, Read as _, Row};
use machine::{AccountId, Command, GuardPath, Scope};

use super::cast::Rows;
use super::names::{arguments, digest, operators, person};
use super::step::{Said, Step};

/// What the rules of the guards above the session find, where any has rules.
pub fn facts(rows: &Rows, call: &PreExec, digest: u8, stale: bool) -> Option<RuleFacts> {
    let session = rows.session(&call.session).unwrap()?;
    let leash = GuardPath::of(rows, &session).unwrap();
    let text = arguments(digest);
    let value = Value::parse(&text, 8).unwrap();
    let asked = Asked {
        tool: &call.tool,
        tags: &session.metadata,
        params: (call.params != Params::HashOnly).then_some(&value),
    };
    let guards = leash.guards();
    let matched: Vec<_> = guards
        .iter()
        .map(|(_, guard)| evaluate(&guard.rules, &asked))
        .collect();
    Some(RuleFacts {
        policy_digest: if stale { Digest::of(b"old") } else { leash.digest() },
        matched,
    })
    .filter(|_| guards.iter().any(|(_, guard)| !guard.rules.is_empty()))
}

/// The newest approvals that are not over come first.
pub fn approval_at(rows: &Rows, place: usize) -> Option<(ApprovalId, Approval)> {
    let range = Key::Approval(ApprovalId::below_all())..Key::Approval(ApprovalId::above_all());
    let mut all: Vec<_> = rows
        .range(range)
        .filter_map(|(key, row)| match (key, row) {
            (Key::Approval(id), Row::Approval(approval)) => Some((id.clone(), Approval::clone(approval))),
            _ => None,
        })
        .collect();
    all.sort_by_key(|(_, approval)| (approval.status.is_over(), std::cmp::Reverse(approval.opened_at)));
    all.into_iter().nth(place)
}

/// The number of a call with a hold, newest first.
pub fn hold_at(rows: &Rows, session: &SessionId, place: usize) -> Option<u64> {
    let range = Key::Hold(session.clone(), 0)..Key::Hold(session.clone(), u64::MAX);
    let mut numbers = rows.range(range).rev().filter_map(|(key, _)| match key {
        Key::Hold(_, number) => Some(*number),
        _ => None,
    });
    numbers.nth(place)
}

/// A scope that stands stopped.
pub fn stopped(rows: &Rows, place: usize) -> Option<Scope> {
    let stands = |(key, row): (&Key, &Row)| match (key, row) {
        (Key::Halt(scope), Row::Halt(halt)) if halt.engaged => Some(scope.clone()),
        _ => None,
    };
    let all: Vec<_> = rows.iter().filter_map(stands).collect();
    all.get(place.checked_rem(all.len())?).cloned()
}

pub fn used(rows: &Rows, account: &AccountId) -> NanoUsd {
    let account = rows.account(account).unwrap();
    account.map_or(NanoUsd::ZERO, |account| {
        account.spent.saturating_add(account.held)
    })
}

/// What a person does about a held call.
pub fn person_about(rows: &Rows, step: &Step) -> Option<Command> {
    Some(match step {
        Step::Decide {
            by,
            approval,
            ruling,
            stale,
            request,
        } => {
            let (id, approval) = approval_at(rows, *approval)?;
            let ruling = match *ruling {
                Said::Approve => Ruling::Approve,
                Said::Reject => Ruling::Reject,
                Said::Defer => Ruling::Defer,
                Said::Escalate => Ruling::Escalate,
                Said::Modify(number, nonce) => Ruling::Modify(Successor {
                    call_number: 0,
                    nonce,
                    digest: digest(number),
                    request: None,
                }),
            };
            let said = format!("{id} {ruling:?} {stale}");
            Command::Decide(Decide {
                by: person(*by),
                approval: id,
                ruling,
                info_digest: if *stale {
                    Digest::of(b"old")
                } else {
                    approval.info_digest
                },
                note: String::new(),
                request: operators(*request, &said),
            })
        }
        _ => return None,
    })
}

/// A seal in shape; what it signs, the machine does not look at.
pub fn seal(rows: &Rows, entries: u64, wrong: bool) -> Option<Seal> {
    let chain = rows.chain().unwrap()?;
    let from = chain.sealed_to + 1;
    let to = (chain.sealed_to + entries).min(chain.head.sequence);
    let count = usize::try_from(to.checked_sub(chain.sealed_to)?).unwrap();
    Some(Seal {
        from: if wrong { from + 1 } else { from },
        to,
        key_id: Signer::from_seed(&[0; 32]).key_id().to_owned(),
        signatures: vec![[7; 64]; count],
        chain_signature: [7; 64],
    })
}

pub fn fixture(rows: &Rows, number: u8) -> Option<FixtureSession> {
    let sequence = rows.chain().unwrap()?.head.sequence;
    Some(FixtureSession {
        session: SessionId::parse(&format!("ses_fixed-{sequence}")).unwrap(),
        organization: OrganizationId::parse("acme").unwrap(),
        agent: AgentId::parse("bot-2").unwrap(),
        granted: NanoUsd::new(90),
        spent: NanoUsd::new(i64::from(number)),
        tripped: number == 1,
        nonces: vec![3, 300],
    })
}
