//! What is looked up for one call: the facts of every rule, by the guards above it and the approval it comes after.

use decision::facts::Mode;
use decision::limits::{timed_out, total_calls_reached};
use decision::policy::{Denied, Matched};
use decision::{
    ApprovalId, BudgetFacts, Decision, Digest, Facts, HumanDecision, NanoUsd, ProbabilisticDraw, Status,
    Timestamp, Transition, Verdict, decide,
};

use crate::command::{Params, PreExec};
use crate::guard_path::GuardPath;
use crate::row::{Approval, Call, Fault, Guard, Nonces, OPEN_APPROVALS_MAX, Record, Session, SessionStatus};
use crate::step::counters::{candidate, identical, window_exceeded};
use crate::step::money::Accounts;
use crate::stops::Stops;
use crate::turn::Turn;

/// What the rules found, a guard at a time; none where they are not those that are current.
pub(crate) fn rules_of<'c>(path: &GuardPath, call: &'c PreExec) -> Option<&'c [Matched]> {
    let guards = path.guards();
    if guards.iter().all(|(_, guard)| guard.rules.is_empty()) {
        return Some(&[]);
    }
    call.rules
        .as_ref()
        .filter(|facts| facts.policy_digest == path.digest() && facts.matched.len() == guards.len())
        .map(|facts| facts.matched.as_slice())
}

/// What the call is held at: what it names, else the dearest price of its tool, else the default; and never less
/// than a rule says.
pub(crate) fn price(path: &GuardPath, call: &PreExec, matched: &[Matched]) -> NanoUsd {
    let listed = || {
        let guards = path.guards().iter();
        guards
            .filter_map(|(_, guard)| guard.prices.of_tool(&call.tool))
            .max()
    };
    let named = call.estimate.or_else(listed);
    let least = matched.iter().filter_map(|found| found.cost).max();
    named
        .unwrap_or(path.effective().default_cost)
        .max(least.unwrap_or(NanoUsd::ZERO))
}

/// What rule 4 looks at: the approval that a call comes after, and the held call where this is it.
pub(crate) struct CallApproval {
    pub approval: Option<Record<Approval>>,
    pub transition: Option<Transition>,
    pub held: Option<Record<Call>>,
}

impl CallApproval {
    /// The approval of the held call, else the one that is named, else the one that the session waits for, else that
    /// of an earlier arrival of the same number.
    pub fn of(
        turn: &Turn<'_>,
        session: &Session,
        call: &PreExec,
        held: Option<Record<Call>>,
        earlier: Option<&Record<Call>>,
    ) -> Result<Self, Fault> {
        let paused = session.status == SessionStatus::Paused;
        let awaited = session.waiting.first().filter(|_| paused);
        let id = match &held {
            Some(held) => held.approval.clone(),
            None => (call.approval.clone())
                .or_else(|| awaited.map(|waiting| waiting.approval_id.clone()))
                .or_else(|| earlier?.approval.clone()),
        };
        let Some(id) = id else {
            return Ok(Self {
                approval: None,
                transition: None,
                held,
            });
        };
        let own = |found: &Record<Approval>| found.session == call.session;
        let approval = turn.find::<Approval>(&id)?.filter(own);
        let transition = match &approval {
            Some(approval) if approval.status.is_open() => None,
            Some(approval) => Some(approval.transition(turn.now())),
            // The approval that was named is none of this session's: it releases nothing.
            None => Some(Transition {
                decision: HumanDecision::Approve,
                original_nonce: None,
                original_digest: None,
                successor_nonce: None,
                successor_digest: None,
                terminal: None,
                resume_attempt: false,
            }),
        };
        Ok(Self {
            approval,
            transition,
            held,
        })
    }

    /// The digest that rule 4 compares: of another tool, or for more money, the same arguments are another call.
    fn digest(&self, call: &PreExec, hold: NanoUsd) -> Option<Digest> {
        match &self.approval {
            Some(approval) if !approval.is_about(&call.tool, hold) => None,
            Some(_) | None => call.digest,
        }
    }

    /// The approval that people gave and no call has used up: what stops its call now does not take it back.
    pub fn given(&self) -> Option<&ApprovalId> {
        let approval = self.approval.as_ref()?;
        let given = !approval.status.is_open() && !approval.status.is_over();
        given.then_some(&approval.id)
    }

    /// The approval that still waits for this very call.
    pub fn waits_for(&self, session: &Session, call: &PreExec) -> Option<&ApprovalId> {
        let id = &self.approval.as_ref()?.id;
        session
            .waiting
            .iter()
            .any(|waiting| waiting.approval_id == *id && waiting.call_number == call.call_number)
            .then_some(id)
    }
}

/// One call with all that was looked up for it.
pub(crate) struct CallFacts<'a> {
    pub call: &'a PreExec,
    pub session: &'a Record<Session>,
    pub path: &'a GuardPath,
    pub accounts: &'a Accounts,
    pub approval: &'a CallApproval,
    pub matched: &'a [Matched],
    pub stops: Stops,
    pub nonces: &'a Nonces,
    pub now: Timestamp,
    pub drawn: u32,
}

impl CallFacts<'_> {
    /// Where some guards only observe, those that enforce decide first; what they allow is looked at once more, and
    /// the answer names what would have stopped it.
    pub fn decide(&self) -> Decision {
        let all = self.path.effective();
        let Some(enforced) = self.path.enforced() else {
            return decide(&self.facts(all, Mode::Enforce, true));
        };
        let strict = decide(&self.facts(enforced, Mode::Enforce, self.path.enforces_own_account()));
        match strict.verdict {
            Verdict::Allow => decide(&self.facts(all, Mode::Observe, true)),
            Verdict::Deny | Verdict::Hitl => strict,
        }
    }

    fn facts(&self, guard: &Guard, mode: Mode, budget_enforced: bool) -> Facts<'_> {
        let (call, session, accounts) = (self.call, self.session, self.accounts);
        let enforcing = mode == Mode::Enforce && self.path.enforced().is_some();
        let breakers = &guard.breakers;
        let recent = session.recent.as_slice();
        let candidate = candidate(call);
        let last = session.last_call.as_ref();
        let identical = identical(session, call);
        let repeats = identical.map_or(0, |last| last.repeats);
        let asks = self.matched(enforcing).find_map(|found| found.asks.as_ref());
        let denied = first_denied(self.matched(enforcing));
        Facts {
            halt: self.stops.halt.clone(),
            pause: self.stops.pause.clone(),
            status: status(session, call.call_number, self.approval.transition.is_some()),
            malformed: call.params == Params::Malformed,
            circuit_tripped: session.trip.is_some(),
            nonce: Some(call.nonce),
            digest: self.approval.digest(call, accounts.hold),
            nonce_seen: self.nonces.has(call.nonce),
            transition: self.approval.transition.as_ref(),
            delegation_failed: self.delegation_failed(),
            allowed_tool: self.path.allows(&call.tool, enforcing),
            policy_denied: denied.map(|denied| denied.rule.as_str()),
            params_missing: self.params_missing(guard, enforcing),
            budget: self.budget(),
            budget_enforced,
            estimate: accounts.hold,
            ancestor_denied: accounts.denied_ancestor(),
            ancestor_observed: accounts.observed_ancestor(),
            organization_exceeded: accounts.organization_exceeded,
            timed_out: self.timed_out(guard),
            rate_exceeded: guard
                .rate
                .is_some_and(|rate| session.rate.is_full(self.now, rate)),
            window_exceeded: self.window_exceeded(guard),
            total_calls_reached: self.total_calls_reached(guard),
            max_repeat: guard.max_repeats_of(&call.tool),
            repeats: breakers.repeats(repeats, recent, &candidate),
            same_tool: last.is_some_and(|last| last.tool == call.tool),
            last_error_signal: identical.is_some_and(|last| last.failed),
            error_amplification: guard.error_amplification,
            name_repeat_exceeded: breakers.name_repeat_exceeded(recent, &candidate),
            retry_storm: breakers.retry_storm(recent, &candidate),
            loop_detected: breakers.loop_detected(recent, &candidate),
            hitl: guard.hitl_of(&call.tool),
            on_deny_rules: guard.on_deny_rules,
            opaque: call.params == Params::Opaque,
            policy_hitl: asks.map(|rule| rule.as_str()),
            draw: guard.probabilistic.map(|jitter| ProbabilisticDraw {
                drawn: self.drawn,
                jitter,
            }),
            mode,
        }
    }

    fn params_missing(&self, guard: &Guard, enforcing: bool) -> bool {
        let needed = || self.matched(enforcing).any(|found| found.params_needed);
        self.call.params == Params::HashOnly && (guard.require_params || needed())
    }

    fn budget(&self) -> Option<BudgetFacts> {
        let account = self.accounts.own()?;
        Some(BudgetFacts {
            initial: account.granted()?,
            available: account.available()?,
        })
    }

    fn timed_out(&self, guard: &Guard) -> bool {
        let first = self.session.first_call_at;
        guard
            .timeout
            .is_some_and(|limit| timed_out(first, self.now, limit))
    }

    fn window_exceeded(&self, guard: &Guard) -> bool {
        guard
            .window_of(&self.call.tool)
            .is_some_and(|window| window_exceeded(self.session, self.call, window, self.now))
    }

    fn total_calls_reached(&self, guard: &Guard) -> bool {
        let session = self.session;
        let calls = session.total_calls.saturating_sub(session.total_calls_base);
        guard
            .max_total_calls
            .is_some_and(|max| total_calls_reached(calls, max))
    }

    /// What the rules of the guards found, outermost first; of those that enforce where the others only observe.
    fn matched(&self, enforcing: bool) -> impl Iterator<Item = &Matched> {
        found_by(self.path, self.matched, enforcing)
    }

    /// P1: the guard that the session runs under is no longer for its agent.
    fn delegation_failed(&self) -> Option<&'static str> {
        let named = self.session.guard.as_ref()?;
        let (_, guard) = self.path.named().find(|(id, _)| *id == named)?;
        (!guard.is_for(&self.session.agent)).then_some("guard_not_permitted")
    }
}

/// What the rules of the guards on a path found: of all, or of those that enforce.
pub(crate) fn found_by<'m>(
    path: &'m GuardPath,
    matched: &'m [Matched],
    enforcing: bool,
) -> impl Iterator<Item = &'m Matched> {
    path.guards()
        .iter()
        .zip(matched)
        .filter(move |((_, guard), _)| !enforcing || guard.mode == Mode::Enforce)
        .map(|(_, found)| found)
}

/// P3: of several guards' denials the first that trips, else the first.
pub(crate) fn first_denied<'m>(matched: impl Iterator<Item = &'m Matched>) -> Option<&'m Denied> {
    let mut first = None;
    for denied in matched.filter_map(|found| found.denied.as_ref()) {
        if denied.trips {
            return Some(denied);
        }
        first = first.or(Some(denied));
    }
    first
}

/// Where the session stands, as far as this call is concerned.
pub(crate) fn status(session: &Session, call_number: u64, decided: bool) -> Status {
    let held = session
        .waiting
        .iter()
        .any(|waiting| waiting.call_number == call_number);
    match session.status {
        // One call waits while the others go on, until too many do.
        SessionStatus::Active if held => Status::Paused { held, decided },
        SessionStatus::Active if !decided && session.waiting.len() >= OPEN_APPROVALS_MAX => {
            Status::Paused { held, decided }
        }
        SessionStatus::Active => Status::Active,
        // What an operator paused, no approval releases.
        SessionStatus::Paused => Status::Paused {
            held,
            decided: decided && !session.paused_by_operator,
        },
        SessionStatus::Terminated => Status::Terminated,
        SessionStatus::Stale => Status::Stale,
    }
}
