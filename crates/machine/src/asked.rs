//! What is looked up for one call: the facts of every rule, by the guards above it and the approval it follows.

use decision::behaviour::Candidate;
use decision::facts::Mode;
use decision::limits::{timed_out, total_calls_reached};
use decision::policy::{Denied, Matched};
use decision::{
    ApprovalId, BudgetFacts, Decision, Facts, NanoUsd, ProbabilisticDraw, Status, Timestamp, Transition,
    Verdict, decide,
};

use crate::approval::{self, Approval, OPEN_APPROVALS_MAX};
use crate::budget::Path;
use crate::command::{Params, PreExec};
use crate::guard::{Guard, Window};
use crate::halt::Stops;
use crate::leash::Leash;
use crate::table::{Call, Fault, Read, Rows, Session, SessionStatus, WINDOW_TOOLS_MAX};

/// What the rules found, a guard at a time; none where they are not those that are current.
pub(crate) fn rules_of<'c>(leash: &Leash, call: &'c PreExec) -> Option<&'c [Matched]> {
    if leash.guards().iter().all(|(_, guard)| guard.rules.is_empty()) {
        return Some(&[]);
    }
    call.rules
        .as_ref()
        .filter(|facts| facts.policy_digest == leash.digest() && facts.matched.len() == leash.guards().len())
        .map(|facts| facts.matched.as_slice())
}

/// What the call is held at: what it names, else the dearest price of its tool, else the default; and never less
/// than a rule says.
pub(crate) fn price(leash: &Leash, call: &PreExec, matched: &[Matched]) -> NanoUsd {
    let listed = || {
        let prices = leash
            .guards()
            .iter()
            .filter_map(|(_, guard)| guard.prices.of_tool(&call.tool));
        prices.max()
    };
    let named = call.estimate.or_else(listed);
    let least = matched.iter().filter_map(|found| found.cost).max();
    named
        .unwrap_or(leash.effective().default_cost)
        .max(least.unwrap_or(NanoUsd::ZERO))
}

/// What rule 4 looks at: the approval that a call follows, and the held call where this is it.
pub(crate) struct Followed {
    pub approval: Option<(ApprovalId, Box<Approval>)>,
    pub transition: Option<Transition>,
    pub held: Option<Call>,
}

impl Followed {
    /// The approval of the held call, else the one that is named, else the one that the session waits for, else that
    /// of an earlier arrival of the same number.
    pub fn of<R: Rows>(
        rows: &R,
        now: Timestamp,
        session: &Session,
        call: &PreExec,
        held: Option<Call>,
    ) -> Result<Self, Fault> {
        let paused = session.status == SessionStatus::Paused;
        let awaited = session.waiting.first().filter(|_| paused);
        let id = match (&held, &call.approval) {
            (Some(held), _) => held.approval.clone(),
            (None, Some(named)) => Some(named.clone()),
            (None, None) => match awaited {
                Some(waiting) => Some(waiting.approval_id.clone()),
                None => rows
                    .call(&call.session, call.call_number)?
                    .and_then(|earlier| earlier.approval),
            },
        };
        let Some(id) = id else {
            return Ok(Self {
                approval: None,
                transition: None,
                held,
            });
        };
        let found = rows.approval(&id)?.filter(|found| found.session == call.session);
        let transition = match &found {
            Some(approval) if approval.status.is_open() => None,
            Some(approval) => Some(approval.transition(now)),
            None => Some(approval::unbound()),
        };
        Ok(Self {
            approval: found.map(|approval| (id, approval)),
            transition,
            held,
        })
    }

    /// The digest that rule 4 compares: of another tool, or for more money, the same arguments are another call.
    pub fn digest(&self, call: &PreExec, hold: NanoUsd) -> Option<decision::Digest> {
        match &self.approval {
            Some((_, approval)) if !approval.is_about(call, hold) => None,
            Some(_) | None => call.digest,
        }
    }

    /// The approval that people gave and no call has used up: what stops its call now does not take it back.
    pub fn given(&self) -> Option<&ApprovalId> {
        let (id, approval) = self.approval.as_ref()?;
        let given = !approval.status.is_open() && !approval.status.is_over();
        given.then_some(id)
    }

    /// The approval that still waits for this very call.
    pub fn waits_for(&self, session: &Session, call: &PreExec) -> Option<&ApprovalId> {
        let (id, _) = self.approval.as_ref()?;
        session
            .waiting
            .iter()
            .any(|waiting| waiting.approval_id == *id && waiting.call_number == call.call_number)
            .then_some(id)
    }
}

/// One call with all that was looked up for it.
pub(crate) struct Asked<'a> {
    pub call: &'a PreExec,
    pub session: &'a Session,
    pub leash: &'a Leash,
    pub path: &'a Path,
    pub followed: &'a Followed,
    pub matched: &'a [Matched],
    pub stops: Stops,
    pub nonce_seen: bool,
    pub now: Timestamp,
    pub drawn: u32,
}

impl Asked<'_> {
    /// Where some guards only observe, those that enforce decide first; what they allow is looked at once more, and
    /// the answer names what would have stopped it.
    pub fn decide(&self) -> Decision {
        match self.leash.enforced() {
            None => decide(&self.facts(self.leash.effective(), Mode::Enforce, true)),
            Some(enforced) => {
                let strict = decide(&self.facts(enforced, Mode::Enforce, self.leash.enforces_own_account()));
                match strict.verdict {
                    Verdict::Allow => decide(&self.facts(self.leash.effective(), Mode::Observe, true)),
                    Verdict::Deny | Verdict::Hitl => strict,
                }
            }
        }
    }

    fn facts(&self, guard: &Guard, mode: Mode, budget_enforced: bool) -> Facts<'_> {
        let Self {
            call,
            session,
            path,
            now,
            ..
        } = *self;
        let enforcing = mode == Mode::Enforce && self.leash.enforced().is_some();
        let last = session.last_call.as_ref();
        let same_tool = last.is_some_and(|last| last.tool == call.tool);
        let same_call = last.filter(|last| last.tool == call.tool && last.digest == call.digest);
        let candidate = candidate(call);
        let recent = session.recent.as_slice();
        let counted = same_call.map_or(0, |last| last.repeats);
        let params_missing = call.params == Params::HashOnly
            && (guard.require_params || self.matched(enforcing).any(|found| found.params_needed));
        Facts {
            halt: self.stops.halt.clone(),
            pause: self.stops.pause.clone(),
            status: status(session, call.call_number, self.followed.transition.is_some()),
            malformed: call.params == Params::Malformed,
            circuit_tripped: session.trip.is_some(),
            nonce: Some(call.nonce),
            digest: self.followed.digest(call, path.hold),
            nonce_seen: self.nonce_seen,
            transition: self.followed.transition.as_ref(),
            delegation_failed: self.delegation_failed(),
            allowed_tool: self.leash.allows(&call.tool, enforcing),
            policy_denied: self.denied(enforcing).map(|denied| denied.rule.as_str()),
            params_missing,
            budget: path.own().and_then(|account| {
                Some(BudgetFacts {
                    initial: account.granted()?,
                    available: account.available()?,
                })
            }),
            budget_enforced,
            estimate: path.hold,
            ancestor_denied: path.denied_ancestor(),
            ancestor_observed: path.observed_ancestor(),
            organization_exceeded: path.organization_exceeded,
            timed_out: guard
                .timeout
                .is_some_and(|limit| timed_out(session.first_call_at, now, limit)),
            rate_exceeded: guard.rate.is_some_and(|rate| session.rate.is_full(now, rate)),
            window_exceeded: guard
                .window_of(&call.tool)
                .is_some_and(|window| window_exceeded(session, call, window, now)),
            total_calls_reached: guard.max_total_calls.is_some_and(|max| {
                total_calls_reached(session.total_calls.saturating_sub(session.total_calls_base), max)
            }),
            max_repeat: guard.max_repeats_of(&call.tool),
            repeats: guard.breakers.repeats(counted, recent, &candidate),
            same_tool,
            last_error_signal: same_call.is_some_and(|last| last.failed),
            error_amplification: guard.error_amplification,
            name_repeat_exceeded: guard.breakers.name_repeat_exceeded(recent, &candidate),
            retry_storm: guard.breakers.retry_storm(recent, &candidate),
            loop_detected: guard.breakers.loop_detected(recent, &candidate),
            hitl: guard.hitl_of(&call.tool),
            on_deny_rules: guard.on_deny_rules,
            opaque: call.params == Params::Opaque,
            policy_hitl: self
                .matched(enforcing)
                .find_map(|found| found.asks.as_ref())
                .map(|rule| rule.as_str()),
            draw: guard.probabilistic.map(|jitter| ProbabilisticDraw {
                drawn: self.drawn,
                jitter,
            }),
            mode,
        }
    }

    /// What the rules of the guards found, outermost first; of those that enforce where the others only observe.
    fn matched(&self, enforcing: bool) -> impl Iterator<Item = &Matched> {
        self.leash
            .guards()
            .iter()
            .zip(self.matched)
            .filter(move |((_, guard), _)| !enforcing || guard.mode == Mode::Enforce)
            .map(|(_, found)| found)
    }

    /// P1: the guard that the session runs under is no longer for its agent.
    fn delegation_failed(&self) -> Option<&'static str> {
        let named = self.session.guard.as_ref()?;
        let (_, guard) = self.leash.named().find(|(id, _)| *id == named)?;
        let permitted = guard
            .agents
            .iter()
            .any(|agent| agent.matches(&self.session.agent));
        (!permitted).then_some("guard_not_permitted")
    }

    /// P3: the first denial that trips, else the first.
    fn denied(&self, enforcing: bool) -> Option<&Denied> {
        denied_of(self.matched(enforcing))
    }
}

pub(crate) fn candidate(call: &PreExec) -> Candidate<'_> {
    Candidate {
        tool: &call.tool,
        digest: call.digest,
        numbers: &call.numbers,
    }
}

/// Of several guards' denials the first that trips, else the first.
pub(crate) fn denied_of<'m>(matched: impl Iterator<Item = &'m Matched>) -> Option<&'m Denied> {
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

pub(crate) fn window_exceeded(session: &Session, call: &PreExec, window: Window, now: Timestamp) -> bool {
    match session.windows.get(&call.tool) {
        Some(counted) => counted.at(now, window.duration).is_full(window.max_calls),
        None => window.max_calls == 0 || open_windows(session, window, now) >= WINDOW_TOOLS_MAX,
    }
}

pub(crate) fn open_windows(session: &Session, window: Window, now: Timestamp) -> usize {
    session
        .windows
        .values()
        .filter(|counted| now.since(counted.start) < window.duration)
        .count()
}
