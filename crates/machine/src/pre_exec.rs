//! PreExec: facts are gathered, `decide` decides, and the verdict, the money it holds, the counters it
//! moves and its audit entry are one change.

use audit::{Entry, Kind};
use decision::behaviour::{Candidate, Outcome};
use decision::facts::Mode;
use decision::limits::{timed_out, total_calls_reached};
use decision::policy::{Denied, Matched};
use decision::{
    ApprovalId, BudgetFacts, Decision, DenyReason, Facts, NanoUsd, PerBillion, ProbabilisticDraw, Reason,
    RecentCall, Rule, SessionId, Status, Timestamp, Transition, Verdict, decide,
};

use crate::apply::Turn;
use crate::approval::{self, Approval, OPEN_APPROVALS_MAX};
use crate::budget::{self, Path};
use crate::command::{Params, PreExec};
use crate::event::Event;
use crate::guard::{Guard, TripPolicy, Window};
use crate::halt::{self, Stops};
use crate::leash::Leash;
use crate::replay::{self, Earlier};
use crate::reply::{Refusal, Reply, VerdictReply, Warning};
use crate::session;
use crate::table::{
    Account, CALL_JUMP_MAX, CALL_WINDOW, Call, Fault, Key, LastCall, Phase, Read, Row, Rows, Session,
    SessionStatus, WINDOW_TOOLS_MAX,
};
use crate::ticket;

pub(crate) fn pre_exec<R: Rows>(turn: &mut Turn<'_, '_, R>, call: &PreExec) -> Result<Reply, Fault> {
    let Some(session) = session::find(turn, &call.session)? else {
        return Ok(Reply::Refused(Refusal::SessionNotFound));
    };
    if !call.by.speaks_for(&session.organization, &session.agent) {
        return Ok(turn.refuse(&call.by, format!("session/{}", call.session)));
    }
    if call.estimate.is_some_and(NanoUsd::is_negative) {
        return Ok(budget::negative("estimated_cost"));
    }
    let held = match replay::earlier_call(turn, call)? {
        Earlier::Refused(refusal) => return Ok(Reply::Refused(refusal)),
        // The first arrival after a person's decision is decided like a new call.
        Earlier::Call(earlier) if is_decided(turn.rows, &earlier)? => Some(*earlier),
        Earlier::Call(earlier) => return replay::answer_again(turn, session, call, *earlier),
        Earlier::None => None,
    };
    if held.is_none()
        && let Err(refusal) = number_in_window(&session, call.call_number)
    {
        return Ok(Reply::Refused(refusal));
    }

    let leash = Leash::of(turn.rows, &session)?;
    let Some(matched) = rules_of(&leash, call) else {
        return Ok(Reply::Reevaluate(turn.place(0)));
    };
    let path = Path::of(turn, call, &session, &leash, price(&leash, call, matched))?;
    let followed = Followed::of(turn.rows, turn.now(), &session, call, held)?;
    let asked = Asked {
        call,
        session: &session,
        leash: &leash,
        path: &path,
        followed: &followed,
        matched,
        stops: halt::above_leash(turn.rows, &session, Some(&call.session), &leash)?,
        nonce_seen: nonce_seen(turn.rows, &call.session, call.nonce)?,
        now: turn.now(),
        drawn: dice(turn),
    };
    let decision = asked.decide();
    conclude(turn, session, call, &leash, path, followed, decision)
}

/// What the rules found, a guard at a time; none where they are not those that are current.
fn rules_of<'c>(leash: &Leash, call: &'c PreExec) -> Option<&'c [Matched]> {
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
fn price(leash: &Leash, call: &PreExec, matched: &[Matched]) -> NanoUsd {
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

/// Says whether the call waited for people, and they have decided.
fn is_decided<R: Rows>(rows: &R, earlier: &Call) -> Result<bool, Fault> {
    let (Phase::Waiting, Some(id)) = (earlier.phase, &earlier.approval) else {
        return Ok(false);
    };
    Ok(rows
        .approval(id)?
        .is_some_and(|approval| !approval.status.is_open()))
}

/// What rule 4 looks at: the approval that a call follows, and the held call where this is it.
struct Followed {
    approval: Option<(ApprovalId, Box<Approval>)>,
    transition: Option<Transition>,
    held: Option<Call>,
}

impl Followed {
    /// The approval of the held call, else the one that is named, else the one that the session waits for, else that
    /// of an earlier arrival of the same number.
    fn of<R: Rows>(
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

    /// The digest that rule 4 compares: of another tool the same arguments are another call.
    fn digest(&self, call: &PreExec) -> Option<decision::Digest> {
        match &self.approval {
            Some((_, approval)) if !approval.is_about(call) => None,
            Some(_) | None => call.digest,
        }
    }

    /// The approval that still waits for this very call.
    fn waits_for(&self, session: &Session, call: &PreExec) -> Option<&ApprovalId> {
        let (id, _) = self.approval.as_ref()?;
        session
            .waiting
            .iter()
            .any(|waiting| waiting.approval_id == *id && waiting.call_number == call.call_number)
            .then_some(id)
    }
}

/// Numbers are unique, not ordered; the window bounds what must be remembered of them.
fn number_in_window(session: &Session, number: u64) -> Result<(), Refusal> {
    let highest = session.highest_call;
    if number > highest.saturating_add(CALL_JUMP_MAX) {
        return Err(Refusal::Invalid(format!(
            "call_number {number} is more than {CALL_JUMP_MAX} beyond the highest so far, {highest}"
        )));
    }
    if behind_window(highest, number) {
        return Err(Refusal::Invalid(format!(
            "call_number {number} is more than {CALL_WINDOW} behind the highest so far, {highest}"
        )));
    }
    Ok(())
}

/// Says whether a call with this number is forgotten, or would be at once.
pub(crate) fn behind_window(highest: u64, number: u64) -> bool {
    number.saturating_add(CALL_WINDOW) < highest
}

/// One call with all that was looked up for it.
struct Asked<'a> {
    call: &'a PreExec,
    session: &'a Session,
    leash: &'a Leash,
    path: &'a Path,
    followed: &'a Followed,
    matched: &'a [Matched],
    stops: Stops,
    nonce_seen: bool,
    now: Timestamp,
    drawn: u32,
}

impl Asked<'_> {
    /// Where some guards only observe, those that enforce decide first; what they allow is looked at once more, and
    /// the answer names what would have stopped it.
    fn decide(&self) -> Decision {
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
            digest: self.followed.digest(call),
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

fn candidate(call: &PreExec) -> Candidate<'_> {
    Candidate {
        tool: &call.tool,
        digest: call.digest,
        numbers: &call.numbers,
    }
}

/// Of several guards' denials the first that trips, else the first.
fn denied_of<'m>(matched: impl Iterator<Item = &'m Matched>) -> Option<&'m Denied> {
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

pub(crate) fn nonce_seen<R: Rows>(rows: &R, session: &SessionId, nonce: u64) -> Result<bool, Fault> {
    let (block, word, bit) = nonce_place(nonce);
    let nonces = rows.nonces(session, block)?.unwrap_or_default();
    Ok(nonces.bits.get(word).is_some_and(|bits| bits & bit != 0))
}

/// Adds a nonce to the session's seen set.
pub(crate) fn see_nonce<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    session: &SessionId,
    nonce: u64,
) -> Result<(), Fault> {
    let (block, word, bit) = nonce_place(nonce);
    let mut nonces = turn.rows.nonces(session, block)?.unwrap_or_default();
    if let Some(bits) = nonces.bits.get_mut(word) {
        *bits |= bit;
    }
    turn.rows
        .put(Key::Nonces(session.clone(), block), Row::Nonces(nonces));
    Ok(())
}

pub(crate) fn nonce_place(nonce: u64) -> (u64, usize, u64) {
    let word = usize::try_from((nonce >> 6) & 3).unwrap_or(0);
    (nonce >> 8, word, 1 << (nonce & 63))
}

fn window_exceeded(session: &Session, call: &PreExec, window: Window, now: Timestamp) -> bool {
    match session.windows.get(&call.tool) {
        Some(counted) => counted.at(now, window.duration).is_full(window.max_calls),
        None => window.max_calls == 0 || open_windows(session, window, now) >= WINDOW_TOOLS_MAX,
    }
}

fn open_windows(session: &Session, window: Window, now: Timestamp) -> usize {
    session
        .windows
        .values()
        .filter(|counted| now.since(counted.start) < window.duration)
        .count()
}

fn dice<R: Rows>(turn: &mut Turn<'_, '_, R>) -> u32 {
    let [a, b, c, d, ..] = *turn.random().as_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Makes the decision true: rows, money, entry, answer.
fn conclude<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    mut session: Session,
    call: &PreExec,
    leash: &Leash,
    mut path: Path,
    followed: Followed,
    decision: Decision,
) -> Result<Reply, Fault> {
    let now = turn.now();
    let guard = leash.effective();
    let (mut approval_id, mut ticket) = (None, None);
    let before = path.own_available();
    session::heard_from(&mut session, now);
    let phase = match decision.verdict {
        Verdict::Allow => {
            budget::hold(turn, &mut path, call, guard);
            see_nonce(turn, &call.session, call.nonce)?;
            count(&mut session, call, guard, now);
            if let (true, Some((id, _))) = (decision.released, &followed.approval) {
                approval::consume(turn, &mut session, call, id)?;
                approval_id = Some(id.clone());
            }
            ticket = ticket::issue(turn, leash);
            Phase::Held
        }
        Verdict::Deny => {
            let enforced = leash.enforced().unwrap_or(guard);
            session.denials = session.denials.saturating_add(1);
            let number = call.call_number;
            if trips(enforced, call, &decision) {
                session::trip(turn, &call.session, &mut session, decision.reason.clone(), number)?;
            } else if enforced.breakers.denials_exceeded(session.denials) {
                let reason = Reason::ConsecutiveDenials;
                session::trip(turn, &call.session, &mut session, reason, number)?;
            }
            Phase::Denied
        }
        Verdict::Hitl => {
            // A call that waits already goes on waiting for the same decision.
            approval_id = match followed.waits_for(&session, call) {
                Some(id) => Some(id.clone()),
                None => approval::open(turn, &mut session, call, leash, path.hold, &decision.reason),
            };
            Phase::Waiting
        }
    };
    let repeats = session.last_call.as_ref().map_or(0, |last| {
        if last.tool == call.tool && last.digest == call.digest {
            last.repeats
        } else {
            0
        }
    });
    let after = path.own_available();
    let entry = Entry {
        budget_before: before.unwrap_or(NanoUsd::ZERO),
        budget_after: after.unwrap_or(NanoUsd::ZERO),
        policy_digest: leash.digest().as_bytes().to_vec(),
        approval_id: approval_id
            .as_ref()
            .map(|id| id.as_str().to_owned())
            .unwrap_or_default(),
        ..verdict_entry(turn, &session, call, &decision)
    };
    let sequence = turn.record(entry);
    turn.events.push(Event::Decided {
        verdict: decision.verdict,
        reason: decision.reason.clone(),
    });
    let answer = VerdictReply {
        session: call.session.clone(),
        call_number: call.call_number,
        verdict: decision.verdict,
        blocked_by: blocked_by(&decision.reason, &session, call),
        reason: decision.reason,
        also: decision.also,
        remaining: after,
        repeats,
        warnings: match decision.verdict {
            Verdict::Allow => warnings(guard, &session, path.own(), repeats, now),
            Verdict::Deny | Verdict::Hitl => Vec::new(),
        },
        authorization: ticket
            .clone()
            .map(|ticket| Box::new(ticket::authorization(ticket, call))),
        approval_id: approval_id.clone(),
        replayed: false,
        place: turn.place(sequence),
    };
    // A held call that still waits keeps what was recorded of it.
    let waits_on = followed.held.is_some() && decision.verdict != Verdict::Allow;
    if !waits_on {
        let row = Call {
            request: call.request.as_ref().map(|request| request.id.clone()),
            nonce: call.nonce,
            phase,
            answer: answer.clone(),
            tool: call.tool.clone(),
            digest: call.digest,
            reports: Vec::new(),
            approval: approval_id,
            ticket,
        };
        replay::remember_call(turn, &mut session, call, followed.held, row)?;
    }
    turn.rows.put(
        Key::Session(call.session.clone()),
        Row::Session(Box::new(session)),
    );
    Ok(Reply::Verdict(answer))
}

/// The counters an allowed call moves.
fn count(session: &mut Session, call: &PreExec, guard: &Guard, now: Timestamp) {
    session.total_calls = session.total_calls.saturating_add(1);
    session.first_call_at = session.first_call_at.or(Some(now));
    let counted = match session.last_call.as_ref() {
        Some(last) if last.tool == call.tool && last.digest == call.digest => last.repeats,
        Some(_) | None => 0,
    };
    let repeats = guard
        .breakers
        .repeats(counted, &session.recent, &candidate(call))
        .saturating_add(1);
    session.last_call = Some(LastCall {
        call_number: call.call_number,
        tool: call.tool.clone(),
        digest: call.digest,
        repeats,
        failed: false,
    });
    session.denials = 0;
    if let Some(window) = guard.window_of(&call.tool) {
        if session.windows.len() >= WINDOW_TOOLS_MAX {
            session.windows.retain(|tool, counted| {
                guard
                    .window_of(tool)
                    .is_some_and(|window| now.since(counted.start) < window.duration)
            });
        }
        let counted = session.windows.entry(call.tool.clone()).or_default();
        *counted = counted.at(now, window.duration).counted();
    }
    if let Some(rate) = guard.rate {
        session.rate.count(now, rate);
    }
    remember_recent(session, call, guard.breakers.recent_needed());
}

/// Keeps as many of the last calls as the breakers look at.
fn remember_recent(session: &mut Session, call: &PreExec, needed: usize) {
    session.recent.push(RecentCall {
        tool: call.tool.clone(),
        digest: call.digest,
        outcome: Outcome::Pending,
        result: None,
        numbers: call.numbers.clone(),
    });
    session.recent_numbers.push(call.call_number);
    let over = session.recent.len().saturating_sub(needed);
    session.recent.drain(..over);
    session.recent_numbers.drain(..over);
}

/// The limits that are used up beyond the guard's `warn_at`.
fn warnings(
    guard: &Guard,
    session: &Session,
    account: Option<&Account>,
    repeats: u32,
    now: Timestamp,
) -> Vec<Warning> {
    let Some(warn_at) = guard.warn_at else {
        return Vec::new();
    };
    let near = |used: u128, limit: u128| {
        let parts = |amount: u128, ratio: PerBillion| amount.saturating_mul(u128::from(ratio.parts()));
        parts(used, PerBillion::ONE) >= parts(limit, warn_at)
    };
    let nanos = |amount: NanoUsd| u128::try_from(amount.nanos()).unwrap_or(0);
    let calls = session.total_calls.saturating_sub(session.total_calls_base);
    let used = |account: &Account| nanos(account.spent.saturating_add(account.held));
    let budget = account.and_then(|account| Some((used(account), nanos(account.granted()?))));
    let span = session
        .first_call_at
        .map(|first| u128::from(now.since(first).nanos()));
    let rows = [
        (Warning::Budget, budget),
        (
            Warning::TotalCalls,
            guard
                .max_total_calls
                .map(|max| (u128::from(calls), u128::from(max))),
        ),
        (
            Warning::Repeats,
            guard
                .max_repeat_calls
                .map(|max| (u128::from(repeats), u128::from(max))),
        ),
        (
            Warning::Tokens,
            guard
                .max_tokens
                .map(|max| (u128::from(session.tokens), u128::from(max))),
        ),
        (
            Warning::Cost,
            guard.max_cost.map(|max| (nanos(session.cost), nanos(max))),
        ),
        (
            Warning::Timeout,
            guard
                .timeout
                .and_then(|limit| Some((span?, u128::from(limit.nanos())))),
        ),
    ];
    rows.into_iter()
        .filter(|(_, row)| row.is_some_and(|(used, limit)| near(used, limit)))
        .map(|(warning, _)| warning)
        .collect()
}

fn trips(guard: &Guard, call: &PreExec, decision: &Decision) -> bool {
    match guard.trip_policy {
        // A policy rule says it itself.
        TripPolicy::Behaviour if decision.rule == Rule::P3 => {
            let matched = call.rules.iter().flat_map(|facts| &facts.matched);
            let said = |denied: &Denied| decision.reason == Reason::Policy(denied.rule.as_str().to_owned());
            denied_of(matched).is_some_and(|denied| denied.trips && said(denied))
        }
        TripPolicy::Behaviour => decision.rule.trips_by_default(),
        // A latch cannot latch again, a stopped session needs none, and chance is no misbehaviour.
        TripPolicy::Seed => !matches!(decision.rule, Rule::K1 | Rule::K2 | Rule::R2 | Rule::X),
        TripPolicy::Never => false,
    }
}

/// The audit entry of a verdict, its money still blank.
pub(crate) fn verdict_entry<R: Rows>(
    turn: &Turn<'_, '_, R>,
    session: &Session,
    call: &PreExec,
    decision: &Decision,
) -> Entry {
    let mut all_reasons = vec![decision.reason.word().into_owned()];
    all_reasons.extend(decision.also.iter().map(|reason| reason.word().into_owned()));
    Entry {
        session_id: call.session.as_str().to_owned(),
        agent_id: session.agent.as_str().to_owned(),
        organization_id: session.organization.as_str().to_owned(),
        call_number: call.call_number,
        tool_name: call.tool.as_str().to_owned(),
        tool_params_hash: call
            .digest
            .map(|digest| digest.as_bytes().to_vec())
            .unwrap_or_default(),
        verdict: Some(decision.verdict),
        deny_reason: match decision.verdict {
            Verdict::Deny => decision.reason.deny_reason(),
            Verdict::Allow | Verdict::Hitl => DenyReason::Unspecified,
        },
        reason: decision.reason.word().into_owned(),
        all_reasons,
        nonce: Some(call.nonce),
        request_id: call
            .request
            .as_ref()
            .map(|request| request.id.as_str().to_owned())
            .unwrap_or_default(),
        ..turn.entry(Kind::Verdict)
    }
}

/// The scope that stopped the call, written as operators write it.
pub(crate) fn blocked_by(reason: &Reason, session: &Session, call: &PreExec) -> Option<String> {
    let organization = &session.organization;
    match reason {
        Reason::RunHalted(scope) => Some(halt::written(scope, session, &call.session)),
        Reason::OrganizationQuotaExceeded => Some(format!("org/{organization}")),
        // Guards go by their id, accounts by their scope.
        Reason::ParentGuardDenied(name) if name.contains('/') => Some(name.clone()),
        Reason::ParentGuardDenied(name) => Some(format!("org/{organization}/guard/{name}")),
        _ => None,
    }
}

pub(crate) fn mint<R: Rows>(turn: &mut Turn<'_, '_, R>, prefix: &str) -> String {
    let mut id = prefix.to_owned();
    for byte in turn.random().as_bytes().iter().take(16) {
        id.push_str(&format!("{byte:02x}"));
    }
    id
}
