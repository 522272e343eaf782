//! The rules, in the order that is the specification: the first that matches answers (docs/SPEC.md 7).

use minicbor::{Decode, Encode};

use crate::facts::{Facts, HitlRule, HumanDecision, Mode, Status, Transition};
use crate::limits;
use crate::money::NanoUsd;
use crate::verdict::{Reason, Verdict};

/// Decides one call from its facts; pure and total, allocates only where a rule matches.
pub fn decide(facts: &Facts<'_>) -> Decision {
    let mut answer = Answer::new(facts);
    let resolved = resolve(facts);
    // A person's release outranks the session's own ceilings, and nothing above them.
    let released = matches!(resolved, Resolved::Released(_));
    let own = !released;

    // K1: the kill switch.
    if let Some(scope) = &facts.halt {
        answer.deny(Rule::K1, Reason::RunHalted(scope.clone()));
    }
    // K2: the session takes no calls.
    match facts.status {
        Status::Terminated => answer.deny(Rule::K2, Reason::SessionTerminated),
        Status::Stale => answer.deny(Rule::K2, Reason::SessionStale),
        Status::Active | Status::Paused { .. } => {}
    }
    // R1: the arguments cannot be canonicalized.
    if facts.malformed {
        answer.deny(Rule::R1, Reason::MalformedInput);
    }
    // R2: the circuit is open.
    if facts.circuit_tripped {
        answer.deny(Rule::R2, Reason::CircuitOpen);
    }
    // R3: the nonce was used.
    if facts.nonce_seen {
        let settled = facts
            .transition
            .is_some_and(|transition| transition.terminal.is_some());
        answer.deny(
            Rule::R3,
            if settled {
                Reason::DuplicateResumeNoEffect
            } else {
                Reason::DuplicateNonce
            },
        );
    }
    // R4: a person was asked.
    match &resolved {
        Resolved::Denied(reason) => answer.deny(Rule::R4, reason.clone()),
        Resolved::Asked(reason) => answer.ask(Rule::R4, reason.clone()),
        Resolved::Nothing | Resolved::Released(_) => {}
    }
    // P1: the delegation or ticket does not hold.
    if let Some(check) = facts.delegation_failed {
        answer.deny(Rule::P1, Reason::Delegation(check.to_owned()));
    }
    // P2: the tool is not on the list.
    if !facts.allowed_tool {
        answer.deny(Rule::P2, Reason::ToolNotAllowed);
    }
    // P3: the policy denies.
    if facts.params_missing {
        answer.deny(Rule::P3, Reason::ParamsRequired);
    }
    if let Some(rule_id) = facts.policy_denied {
        answer.deny(Rule::P3, Reason::Policy(rule_id.to_owned()));
    }
    if let Some(budget) = facts.budget
        && facts.budget_enforced
        && own
    {
        if budget.available <= NanoUsd::ZERO {
            // R5: nothing is left.
            answer.deny(Rule::R5, Reason::BudgetExhausted);
        } else if facts.estimate > budget.available {
            // R5b: less is left than the call is expected to cost; an exact fit passes.
            answer.deny(Rule::R5b, Reason::BudgetOverrun);
        }
    }
    // Q1: an account between session and organization.
    if let Some(account) = facts.ancestor_denied {
        answer.deny(Rule::Q1, Reason::ParentGuardDenied(account.to_owned()));
    }
    if let Some(account) = facts.ancestor_observed {
        answer.observe(Rule::Q1, Reason::ParentGuardDenied(account.to_owned()));
    }
    // Q2: the organization's account.
    if facts.organization_exceeded {
        answer.deny(Rule::Q2, Reason::OrganizationQuotaExceeded);
    }
    // Q3: wall clock since the first call.
    if own && facts.timed_out {
        answer.deny(Rule::Q3, Reason::Timeout);
    }
    // Q4: the sliding rate, then the tool's window.
    if own && facts.rate_exceeded {
        answer.deny(Rule::Q4Rate, Reason::RateExceeded);
    }
    if own && facts.window_exceeded {
        answer.deny(Rule::Q4Window, Reason::WindowExceeded);
    }
    // Q5: calls of the whole session.
    if own && facts.total_calls_reached {
        answer.deny(Rule::Q5, Reason::GlobalLimit);
    }
    // R6: identical calls in a row.
    if own && repeats_too_often(facts) {
        answer.deny(Rule::R6, Reason::MaxRepeatExceeded);
    }
    // Q6: the shape of the last calls.
    if own && facts.name_repeat_exceeded {
        answer.deny(Rule::Q6, Reason::NameRepeatExceeded);
    }
    if own && facts.retry_storm {
        answer.deny(Rule::Q6, Reason::RetryStorm);
    }
    if own && facts.loop_detected {
        answer.deny(Rule::Q6, Reason::LoopDetected);
    }
    // Every denial is behind us: now come the denials that a person may lift, then the questions.
    answer.ask_instead_of_denied();
    // R7: every call is asked for.
    if own && facts.hitl == HitlRule::Always {
        answer.ask(Rule::R7, Reason::HitlAllCalls);
    }
    // R8: the budget is below its threshold.
    if own && below_threshold(facts) {
        answer.ask(Rule::R8, Reason::BudgetThreshold);
    }
    // R9: the call depends on what cannot be inspected.
    if own && facts.opaque {
        answer.ask(Rule::R9, Reason::OpaqueContext);
    }
    // P3: the policy asks. A released call was asked for already.
    if own && let Some(rule_id) = facts.policy_hitl {
        answer.ask(Rule::P3, Reason::Policy(rule_id.to_owned()));
    }
    // K1: an engaged pause makes a question of every ALLOW, a released one too.
    if let Some(scope) = &facts.pause {
        answer.ask(Rule::K1, Reason::RunHalted(scope.clone()));
    }
    // X: the leader's draw, only where the answer would be ALLOW.
    if own && answer.first.is_none() && drawn(facts) {
        answer.deny(Rule::X, Reason::Probabilistic);
    }
    // R10: nothing stands against it.
    answer.close(resolved)
}

/// R6: the limit of identical calls is reached, after error amplification.
fn repeats_too_often(facts: &Facts<'_>) -> bool {
    facts.max_repeat.is_some_and(|max| {
        let amplified = facts.error_amplification && facts.last_error_signal;
        facts.same_tool && facts.repeats >= limits::repeat_limit(max, amplified)
    })
}

/// R8: available / initial is at or below the threshold.
fn below_threshold(facts: &Facts<'_>) -> bool {
    match (facts.hitl, facts.budget) {
        (HitlRule::OnThreshold(ratio), Some(budget)) => budget.available.ratio_at_most(budget.initial, ratio),
        _ => false,
    }
}

/// X: the draw falls under the odds.
fn drawn(facts: &Facts<'_>) -> bool {
    match (facts.draw, facts.budget) {
        (Some(draw), Some(budget)) => limits::probabilistic_denial(budget.available, budget.initial, draw),
        _ => false,
    }
}

/// Says what rule 4 makes of a call.
enum Resolved {
    Nothing,
    Denied(Reason),
    Asked(Reason),
    Released(Reason),
}

/// R4: finds what a person's decision means for this call; undecided, the held call waits.
fn resolve(facts: &Facts<'_>) -> Resolved {
    match (facts.status, facts.transition) {
        (Status::Paused { decided: true, .. }, Some(transition)) => resolve_transition(transition, facts),
        (Status::Paused { held: true, .. }, _) => Resolved::Asked(Reason::HitlPending),
        (Status::Paused { held: false, .. }, _) => Resolved::Denied(Reason::SessionPaused),
        (_, Some(transition)) => resolve_transition(transition, facts),
        (_, None) => Resolved::Nothing,
    }
}

/// R4: the ten answers of a transition, in order.
fn resolve_transition(transition: &Transition, facts: &Facts<'_>) -> Resolved {
    let terminal = transition.terminal.is_some();
    if transition.decision == HumanDecision::Unknown {
        return Resolved::Denied(Reason::UnknownDecision);
    }
    if terminal && transition.resume_attempt {
        return Resolved::Denied(Reason::DuplicateResumeNoEffect);
    }
    let (nonce, digest, release) = match transition.decision {
        HumanDecision::Unknown => return Resolved::Denied(Reason::UnknownDecision),
        HumanDecision::Reject => return Resolved::Denied(Reason::Rejected),
        HumanDecision::Defer | HumanDecision::Escalate => {
            return Resolved::Asked(Reason::DeferredOrEscalated);
        }
        HumanDecision::Modify => {
            if facts.nonce.is_some() && facts.nonce == transition.original_nonce {
                return Resolved::Denied(Reason::SupersededOriginal);
            }
            (
                transition.successor_nonce,
                transition.successor_digest,
                Reason::ModifiedSuccessor,
            )
        }
        HumanDecision::Approve => {
            if terminal {
                return Resolved::Denied(Reason::TerminalNoEffect);
            }
            (
                transition.original_nonce,
                transition.original_digest,
                Reason::Approved,
            )
        }
    };
    if nonce.is_none() && digest.is_none() {
        return Resolved::Denied(Reason::UnboundAuthorization);
    }
    if nonce.is_some() && nonce != facts.nonce {
        return Resolved::Denied(Reason::NonceMismatch);
    }
    if digest.is_some() && digest != facts.digest {
        return Resolved::Denied(Reason::DigestMismatch);
    }
    Resolved::Released(release)
}

/// Holds the answer to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    pub reason: Reason,
    /// The rule that answered; on an ALLOW `observe:…`, the one that would have.
    pub rule: Rule,
    /// The reasons of the rules that matched after the first, in order.
    pub also: Vec<Reason>,
    /// A person's approval released the call: the approval is consumed with this ALLOW.
    pub released: bool,
}

impl Decision {
    /// Turns any answer into the DENY of a dry run, on which nothing can execute (docs/SPEC.md 9).
    pub fn into_dry_run(self) -> Decision {
        Decision {
            verdict: Verdict::Deny,
            reason: Reason::DryRun(Box::new(self.reason)),
            released: false,
            ..self
        }
    }
}

/// Names the rule that answered (docs/SPEC.md 7).
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cbor(index_only)]
pub enum Rule {
    #[n(0)]
    K1,
    #[n(1)]
    K2,
    #[n(2)]
    R1,
    #[n(3)]
    R2,
    #[n(4)]
    R3,
    #[n(5)]
    R4,
    #[n(6)]
    P1,
    #[n(7)]
    P2,
    #[n(8)]
    P3,
    #[n(9)]
    R5,
    #[n(10)]
    R5b,
    #[n(11)]
    Q1,
    #[n(12)]
    Q2,
    #[n(13)]
    Q3,
    /// The sliding rate.
    #[n(14)]
    Q4Rate,
    /// The tool's window.
    #[n(15)]
    Q4Window,
    #[n(16)]
    Q5,
    #[n(17)]
    R6,
    #[n(18)]
    Q6,
    #[n(19)]
    R7,
    #[n(20)]
    R8,
    #[n(21)]
    R9,
    #[n(22)]
    X,
    #[n(23)]
    R10,
}

impl Rule {
    /// Tells whether a denial by this rule trips the session's circuit where the guard says
    /// `behaviour`; for P3 the matched policy rule says it instead.
    pub const fn trips_by_default(self) -> bool {
        match self {
            Rule::P1 | Rule::P2 | Rule::R5 | Rule::Q3 | Rule::Q4Rate | Rule::Q5 | Rule::R6 | Rule::Q6 => true,
            Rule::K1 | Rule::K2 | Rule::R1 | Rule::R2 | Rule::R3 | Rule::R4 => false,
            Rule::P3 | Rule::R5b | Rule::Q1 | Rule::Q2 | Rule::Q4Window => false,
            Rule::R7 | Rule::R8 | Rule::R9 | Rule::X | Rule::R10 => false,
        }
    }

    /// Tells whether a guard that only observes lets this rule pass.
    pub const fn is_observable(self) -> bool {
        match self {
            Rule::P2 | Rule::P3 | Rule::R5 | Rule::R5b | Rule::R6 | Rule::R7 | Rule::R8 | Rule::R9 => true,
            Rule::Q3 | Rule::Q4Rate | Rule::Q4Window | Rule::Q5 | Rule::Q6 | Rule::X => true,
            Rule::K1 | Rule::K2 | Rule::R1 | Rule::R2 | Rule::R3 | Rule::R4 => false,
            Rule::P1 | Rule::Q1 | Rule::Q2 | Rule::R10 => false,
        }
    }

    /// Tells whether `on_deny_rules` may name this rule; never K, R1–R4, P1, Q2 or X.
    pub const fn may_ask_instead(self) -> bool {
        match self {
            Rule::X => false,
            Rule::Q1 => true,
            other => other.is_observable(),
        }
    }
}

/// Holds a set of rules in one word.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cbor(transparent)]
pub struct RuleSet(#[n(0)] u32);

impl RuleSet {
    pub const EMPTY: RuleSet = RuleSet(0);

    pub const fn with(self, rule: Rule) -> RuleSet {
        RuleSet(self.0 | bit(rule))
    }

    /// The rules that are in both.
    #[must_use]
    pub const fn and(self, other: RuleSet) -> RuleSet {
        RuleSet(self.0 & other.0)
    }

    pub const fn contains(self, rule: Rule) -> bool {
        self.0 & bit(rule) != 0
    }
}

#[expect(clippy::as_conversions, reason = "a rule's number is below 32")]
const fn bit(rule: Rule) -> u32 {
    1 << rule as u32
}

/// Collects the rules that match, first one first.
struct Answer {
    mode: Mode,
    /// The rules whose denial becomes a question.
    ask_instead: RuleSet,
    first: Option<(Verdict, Rule, Reason)>,
    also: Vec<Reason>,
    /// Denials that a person may lift, held back until every other denial was looked for: a question
    /// never hides a denial that nobody may lift.
    liftable: Vec<(Rule, Reason)>,
    /// What a guard that only observes would have stopped.
    observed: Vec<(Rule, Reason)>,
}

impl Answer {
    fn new(facts: &Facts<'_>) -> Self {
        let ask_instead = match facts.hitl {
            HitlRule::OnDeny => facts.on_deny_rules.with(Rule::R5b),
            HitlRule::Never | HitlRule::OnThreshold(_) | HitlRule::Always => RuleSet::EMPTY,
        };
        Answer {
            mode: facts.mode,
            ask_instead,
            first: None,
            also: Vec::new(),
            liftable: Vec::new(),
            observed: Vec::new(),
        }
    }

    fn deny(&mut self, rule: Rule, reason: Reason) {
        if self.mode == Mode::Observe && rule.is_observable() {
            self.observe(rule, reason);
        } else if rule.may_ask_instead() && self.ask_instead.contains(rule) {
            self.liftable.push((rule, reason));
        } else {
            self.answer(Verdict::Deny, rule, reason);
        }
    }

    fn ask(&mut self, rule: Rule, reason: Reason) {
        if self.mode == Mode::Observe && rule.is_observable() {
            self.observe(rule, reason);
        } else {
            self.answer(Verdict::Hitl, rule, reason);
        }
    }

    fn observe(&mut self, rule: Rule, reason: Reason) {
        self.observed.push((rule, Reason::Observed(Box::new(reason))));
    }

    fn ask_instead_of_denied(&mut self) {
        for (rule, reason) in std::mem::take(&mut self.liftable) {
            self.answer(Verdict::Hitl, rule, reason);
        }
    }

    fn answer(&mut self, verdict: Verdict, rule: Rule, reason: Reason) {
        match self.first {
            None => self.first = Some((verdict, rule, reason)),
            Some(_) => self.also.push(reason),
        }
    }

    /// Gives the first match, else the release, else what was observed, else R10.
    fn close(mut self, resolved: Resolved) -> Decision {
        let stopped = self.first.is_some();
        if let (false, Resolved::Released(reason)) = (stopped, resolved) {
            self.first = Some((Verdict::Allow, Rule::R4, reason));
        }
        let released = !stopped && self.first.is_some();
        for (rule, reason) in std::mem::take(&mut self.observed) {
            self.answer(Verdict::Allow, rule, reason);
        }
        let (verdict, rule, reason) =
            self.first
                .unwrap_or((Verdict::Allow, Rule::R10, Reason::WithinThresholds));
        Decision {
            verdict,
            reason,
            rule,
            also: self.also,
            released,
        }
    }
}
