//! Invariants over all rows: what must hold between any two commands.

mod tree;

use std::collections::BTreeMap;

use decision::{AgentId, ApprovalId, GuardId, NanoUsd, OrganizationId, RequestId, SessionId, Timestamp};

use crate::row::{
    Account, Answer, Approval, Call, DueWork, Fault, Hold, Key, Nonces, OPEN_APPROVALS_MAX, Phase, Recorded,
    Requester, Row, Rows, SESSION_KEPT, Session, SessionStatus, Tally,
};
use crate::scope::{AccountId, GuardScope, Scope};

/// Reads all rows that the invariants are about, and gives what is broken.
///
/// # Errors
/// The rows cannot be read.
pub fn broken_in<R: Rows>(rows: &R) -> Result<Vec<String>, Fault> {
    let (first, last) = (SessionId::below_all(), SessionId::above_all());
    let least = OrganizationId::below_all;
    let of_guard = || AccountId::Guard(OrganizationId::above_all(), GuardId::above_all());
    let tables = [
        (Key::Cluster, Key::Chain),
        (
            Key::Guard(GuardScope::Default),
            Key::Guard(GuardScope::Named(
                OrganizationId::above_all(),
                GuardId::above_all(),
            )),
        ),
        (
            Key::Halt(Scope::Global),
            Key::Halt(Scope::Guard(OrganizationId::above_all(), GuardId::above_all())),
        ),
        (
            Key::Account(AccountId::Organization(least())),
            Key::Account(of_guard()),
        ),
        (
            Key::Tally(AccountId::Organization(least())),
            Key::Tally(of_guard()),
        ),
        (Key::Session(first.clone()), Key::Session(last.clone())),
        (
            Key::SessionOf(OrganizationId::below_all(), AgentId::below_all(), first.clone()),
            Key::SessionOf(OrganizationId::above_all(), AgentId::above_all(), last.clone()),
        ),
        (Key::Call(first.clone(), 0), Key::Call(last.clone(), 0)),
        (Key::Hold(first.clone(), 0), Key::Hold(last.clone(), 0)),
        (Key::Nonces(first.clone(), 0), Key::Nonces(last.clone(), 0)),
        (
            Key::Request(Requester::Session(first), RequestId::below_all()),
            Key::Request(Requester::Session(last), RequestId::above_all()),
        ),
        (
            Key::Approval(ApprovalId::below_all()),
            Key::Approval(ApprovalId::above_all()),
        ),
        (
            Key::ApprovalOf(OrganizationId::below_all(), ApprovalId::below_all()),
            Key::ApprovalOf(OrganizationId::above_all(), ApprovalId::above_all()),
        ),
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
    let mut check = Check {
        rows,
        held: BTreeMap::new(),
        tallies: BTreeMap::new(),
        broken: Vec::new(),
    };
    for (key, row) in rows {
        match (key, row) {
            (Key::Session(id), Row::Session(session)) => check.session(id, session),
            (Key::Call(id, number), Row::Call(call)) => check.call(id, *number, call),
            (Key::Hold(id, number), Row::Hold(hold)) => check.hold(id, *number, hold),
            (Key::Request(Requester::Session(id), request), Row::Recorded(recorded)) => {
                check.request(id, request, recorded);
            }
            (Key::Approval(id), Row::Approval(approval)) => check.approval(id, approval),
            (Key::Due(at, DueWork::HoldExpiry(id, number)), Row::Mark) => check.timer(*at, id, *number),
            (Key::Due(at, DueWork::ApprovalExpiry(id)), Row::Mark) => check.approval_timer(*at, id),
            (Key::Due(at, DueWork::DrainEnd(scope)), Row::Mark) => check.drain_timer(*at, scope),
            (Key::ApprovalOf(of, id), Row::Mark) => check.approval_index(of, id),
            (Key::Guard(scope), Row::Guard(guard)) => check.guard(scope, guard),
            (Key::Halt(scope), Row::Halt(halt)) => check.halt(scope, halt),
            (Key::Account(AccountId::Session(id)) | Key::Nonces(id, _) | Key::SessionOf(_, _, id), _) => {
                check.of_a_session(key, id);
            }
            _ => {}
        }
    }
    check.accounts();
    check.tallies();
    check.broken
}

struct Check<'a> {
    rows: &'a BTreeMap<Key, Row>,
    /// What the open holds say of each account.
    held: BTreeMap<AccountId, NanoUsd>,
    /// What the sessions say of each tally.
    tallies: BTreeMap<AccountId, Tally>,
    broken: Vec<String>,
}

impl Check<'_> {
    fn fail(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(what());
        }
    }

    fn find_session(&self, id: &SessionId) -> Option<&Session> {
        match self.rows.get(&Key::Session(id.clone())) {
            Some(Row::Session(session)) => Some(session),
            _ => None,
        }
    }

    fn find_approval(&self, id: &ApprovalId) -> Option<&Approval> {
        match self.rows.get(&Key::Approval(id.clone())) {
            Some(Row::Approval(approval)) => Some(approval),
            _ => None,
        }
    }

    fn find_call(&self, id: &SessionId, number: u64) -> Option<&Call> {
        match self.rows.get(&Key::Call(id.clone(), number)) {
            Some(Row::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// Its rows are being removed, some of them gone already.
    fn is_going(&self, id: &SessionId) -> bool {
        let Some(Row::Cluster(cluster)) = self.rows.get(&Key::Cluster) else {
            return false;
        };
        self.find_session(id)
            .and_then(|session| session.ended_at)
            .is_some_and(|ended| cluster.now >= ended.plus(SESSION_KEPT))
    }

    fn of_a_session(&mut self, key: &Key, id: &SessionId) {
        let there = self.find_session(id).is_some();
        self.fail(there, || format!("{key:?} is of a session that is not there"));
    }

    fn session(&mut self, id: &SessionId, session: &Session) {
        self.count(session);
        let waiting = session.waiting.len();
        self.fail(waiting <= OPEN_APPROVALS_MAX, || {
            format!("session {id}: {waiting} calls wait")
        });
        let goes_on = matches!(session.status, SessionStatus::Paused | SessionStatus::Active);
        self.fail(goes_on || session.waiting.is_empty(), || {
            format!(
                "session {id}: a call waits in a session that is {:?}",
                session.status
            )
        });
        for waiting in &session.waiting {
            let number = waiting.call_number;
            let waits = self
                .find_call(id, number)
                .is_some_and(|call| call.phase == Phase::Waiting);
            self.fail(waits, || {
                format!("session {id}: call {number} should wait, and does not")
            });
            let asked = self.find_approval(&waiting.approval_id).is_some_and(|approval| {
                !approval.status.is_over() && approval.session == *id && approval.call_number == number
            });
            self.fail(asked, || {
                format!("session {id}: call {number} waits for an approval that is not open for it")
            });
        }
        let ended = session.status == SessionStatus::Terminated;
        self.fail(ended == session.ended_at.is_some(), || {
            format!("session {id}: its status and its time of end disagree")
        });
        let index = Key::SessionOf(session.organization.clone(), session.agent.clone(), id.clone());
        let indexed = self.rows.contains_key(&index);
        self.fail(indexed, || format!("session {id} is not in its agent's index"));
    }

    fn call(&mut self, id: &SessionId, number: u64, call: &Call) {
        let answered = call.answer.call_number;
        self.fail(answered == number, || {
            format!("call {id}/{number} answers for {answered}")
        });
        let Some(session) = self.find_session(id) else {
            return self.fail(false, || format!("call {id}/{number} is of no session"));
        };
        let waits = session
            .waiting
            .iter()
            .any(|waiting| waiting.call_number == number);
        let (beyond, going) = (number > session.highest_call, self.is_going(id));
        self.fail(waits == (call.phase == Phase::Waiting), || {
            format!("call {id}/{number}: it and its session disagree whether it waits")
        });
        self.fail(!beyond, || format!("call {id}/{number} is beyond the highest"));
        let needs_hold = match call.phase {
            Phase::Held => true,
            Phase::Expired(_) => !going,
            Phase::Denied | Phase::Waiting | Phase::Cancelled | Phase::Settled { .. } => false,
        };
        let has_hold = self.rows.contains_key(&Key::Hold(id.clone(), number));
        self.fail(has_hold || !needs_hold, || {
            format!("call {id}/{number} is {:?} without a hold", call.phase)
        });
        let ran = matches!(
            call.phase,
            Phase::Held | Phase::Settled { .. } | Phase::Expired(_)
        );
        self.fail(ran || call.ticket.is_none(), || {
            format!(
                "call {id}/{number} is {:?} and has a ticket that lets it run",
                call.phase
            )
        });
        let spends = !matches!(call.phase, Phase::Denied | Phase::Waiting);
        let nonces = self.rows.get(&Key::Nonces(id.clone(), Nonces::block(call.nonce)));
        let seen = matches!(nonces, Some(Row::Nonces(nonces)) if nonces.has(call.nonce));
        self.fail(seen || !spends || going, || {
            format!("call {id}/{number}: its nonce {} is not spent", call.nonce)
        });
    }

    /// What is not over waits in its session and has a timer.
    fn approval(&mut self, id: &ApprovalId, approval: &Approval) {
        let waits = self
            .find_session(&approval.session)
            .is_some_and(|session| session.waiting.iter().any(|waiting| waiting.approval_id == *id));
        let over = approval.status.is_over();
        self.fail(waits != over, || {
            format!(
                "approval {id} is {:?}, and its session waits for it: {waits}",
                approval.status
            )
        });
        let due = Key::Due(approval.expires_at, DueWork::ApprovalExpiry(id.clone()));
        let armed = self.rows.contains_key(&due);
        self.fail(armed != over, || {
            format!("approval {id}: its expiry is armed: {armed}")
        });
        let index = Key::ApprovalOf(approval.organization.clone(), id.clone());
        let indexed = self.rows.contains_key(&index);
        self.fail(indexed, || {
            format!("approval {id} is not in its organization's index")
        });
    }

    fn hold(&mut self, id: &SessionId, number: u64, hold: &Hold) {
        self.path(id, number, hold);
        for account in &hold.accounts {
            let sum = self.held.entry(account.clone()).or_default();
            *sum = sum.saturating_add(hold.open);
        }
        let phase = self.find_call(id, number).map(|call| call.phase);
        let open = phase == Some(Phase::Held);
        self.fail(open || matches!(phase, Some(Phase::Expired(_))), || {
            format!("hold {id}/{number} is of a call that is {phase:?}")
        });
        let due = Key::Due(hold.expires_at, DueWork::HoldExpiry(id.clone(), number));
        let armed = self.rows.contains_key(&due) || hold.expires_at == Timestamp::MAX;
        self.fail(open == armed, || {
            format!("hold {id}/{number}: open is {open}, but its expiry is not armed alike")
        });
        self.fail(open || hold.open == NanoUsd::ZERO, || {
            format!("hold {id}/{number}: {} still held of a closed call", hold.open)
        });
        let below_zero = [hold.amount, hold.open, hold.charged]
            .iter()
            .any(|amount| amount.is_negative());
        self.fail(!below_zero, || format!("hold {id}/{number} is below zero"));
    }

    fn timer(&mut self, at: Timestamp, id: &SessionId, number: u64) {
        let armed_for = match self.rows.get(&Key::Hold(id.clone(), number)) {
            Some(Row::Hold(hold)) => Some(hold.expires_at),
            _ => None,
        };
        self.fail(armed_for == Some(at), || {
            format!("an expiry is armed at {at} for {id}/{number}, which expires at {armed_for:?}")
        });
    }

    /// What a retry would be answered with is there, and is its own.
    fn request(&mut self, id: &SessionId, request: &RequestId, recorded: &Recorded) {
        let Answer::Call(number) = recorded.answer else {
            return self.of_a_session(&Key::Session(id.clone()), id);
        };
        let own = self
            .find_call(id, number)
            .is_some_and(|call| call.request.as_ref() == Some(request));
        self.fail(own, || {
            format!("request {id}/{request} is answered by call {number}, which is not its own")
        });
    }

    fn accounts(&mut self) {
        for (key, row) in self.rows {
            let (Key::Account(id), Row::Account(account)) = (key, row) else {
                continue;
            };
            let sum = self.held.remove(id).unwrap_or_default();
            let Account { spent, held, .. } = *account;
            self.fail(sum == held, || {
                format!("account {id}: held {held} but its holds sum to {sum}")
            });
            self.fail(!held.is_negative() && !spent.is_negative(), || {
                format!("account {id}: below zero, spent {spent} held {held}")
            });
        }
        for (id, sum) in std::mem::take(&mut self.held) {
            self.fail(sum == NanoUsd::ZERO, || {
                format!("account {id} does not exist, but {sum} is held of it")
            });
        }
    }
}
