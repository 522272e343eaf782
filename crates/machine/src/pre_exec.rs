//! PreExec: facts are gathered, `decide` decides, and the verdict, the money it holds, the counters it
//! moves and its audit entry are one change.

use audit::{Entry, Kind};
use decision::limits::{timed_out, total_calls_reached};
use decision::{
    ApprovalId, BudgetFacts, Decision, DenyReason, Facts, NanoUsd, ProbabilisticDraw, Reason, Rule,
    SessionId, Status, Timestamp, Transition, Verdict, decide,
};

use crate::apply::Turn;
use crate::approval::{self, Approval, OPEN_APPROVALS_MAX};
use crate::budget::{self, Path};
use crate::command::{Params, PreExec};
use crate::event::Event;
use crate::guard::{Guard, TripPolicy, Window};
use crate::guard_put;
use crate::halt;
use crate::replay::{self, Earlier};
use crate::reply::{Refusal, Reply, VerdictReply};
use crate::session;
use crate::table::{
    CALL_JUMP_MAX, CALL_WINDOW, Call, Fault, Key, LastCall, Phase, Read, Row, Rows, Session, SessionStatus,
    Trip, WINDOW_TOOLS_MAX,
};

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

    let guard = guard_put::effective(turn.rows, &session.organization, &session.agent)?;
    let hold = call.estimate.unwrap_or(guard.default_cost);
    let path = Path::of(turn, call, &session, &guard, hold)?;
    let followed = Followed::of(turn.rows, turn.now(), &session, call, held)?;
    let facts = gather(turn, call, &session, &guard, &path, &followed)?;
    let decision = decide(&facts);
    drop(facts);
    conclude(turn, session, call, &guard, path, followed, decision)
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

fn gather<'a, R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    call: &'a PreExec,
    session: &Session,
    guard: &Guard,
    path: &'a Path,
    followed: &'a Followed,
) -> Result<Facts<'a>, Fault> {
    let now = turn.now();
    let last = session.last_call.as_ref();
    let same_tool = last.is_some_and(|last| last.tool == call.tool);
    let same_call = last.filter(|last| last.tool == call.tool && last.digest == call.digest);
    Ok(Facts {
        halt: halt::above(turn.rows, session, &call.session)?,
        status: status(session, call.call_number, followed.transition.is_some()),
        malformed: call.params == Params::Malformed,
        circuit_tripped: session.trip.is_some(),
        nonce: Some(call.nonce),
        digest: followed.digest(call),
        nonce_seen: nonce_seen(turn.rows, &call.session, call.nonce)?,
        transition: followed.transition.as_ref(),
        params_missing: guard.require_params && call.params == Params::HashOnly,
        budget: path.own().and_then(|account| {
            Some(BudgetFacts {
                initial: account.granted()?,
                available: account.available()?,
            })
        }),
        estimate: path.hold,
        ancestor_denied: path.denied_ancestor(),
        organization_exceeded: path.organization_exceeded,
        timed_out: guard
            .timeout
            .is_some_and(|limit| timed_out(session.first_call_at, now, limit)),
        window_exceeded: window_exceeded(session, call, guard, now),
        total_calls_reached: guard.max_total_calls.is_some_and(|max| {
            total_calls_reached(session.total_calls.saturating_sub(session.total_calls_base), max)
        }),
        max_repeat: guard.max_repeat_calls,
        repeats: same_call.map_or(0, |last| last.repeats),
        same_tool,
        last_error_signal: same_call.is_some_and(|last| last.failed),
        error_amplification: guard.error_amplification,
        hitl: guard.hitl,
        opaque: call.params == Params::Opaque,
        draw: guard.probabilistic.map(|jitter| ProbabilisticDraw {
            drawn: dice(turn),
            jitter,
        }),
        ..Facts::core()
    })
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

fn window_exceeded(session: &Session, call: &PreExec, guard: &Guard, now: Timestamp) -> bool {
    let Some(window) = guard.window else { return false };
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
    guard: &Guard,
    mut path: Path,
    followed: Followed,
    decision: Decision,
) -> Result<Reply, Fault> {
    let now = turn.now();
    let mut approval_id = None;
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
            Phase::Held
        }
        Verdict::Deny => {
            if trips(guard, &decision) && session.trip.is_none() {
                session.trip = Some(Trip {
                    reason: decision.reason.clone(),
                    at: now,
                    call_number: call.call_number,
                });
                turn.events.push(Event::Tripped {
                    session: call.session.clone(),
                });
            }
            Phase::Denied
        }
        Verdict::Hitl => {
            // A call that waits already goes on waiting for the same decision.
            approval_id = match followed.waits_for(&session, call) {
                Some(id) => Some(id.clone()),
                None => approval::open(turn, &mut session, call, guard, path.hold, &decision.reason),
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
        policy_digest: guard.digest().as_bytes().to_vec(),
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
            partials: Vec::new(),
            approval: approval_id,
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
    let repeats = match session.last_call.as_ref() {
        Some(last) if last.tool == call.tool && last.digest == call.digest => last.repeats.saturating_add(1),
        Some(_) | None => 1,
    };
    session.last_call = Some(LastCall {
        call_number: call.call_number,
        tool: call.tool.clone(),
        digest: call.digest,
        repeats,
        failed: false,
    });
    if let Some(window) = guard.window {
        if session.windows.len() >= WINDOW_TOOLS_MAX {
            session
                .windows
                .retain(|_, counted| now.since(counted.start) < window.duration);
        }
        let counted = session.windows.entry(call.tool.clone()).or_default();
        *counted = counted.at(now, window.duration).counted();
    }
}

fn trips(guard: &Guard, decision: &Decision) -> bool {
    match guard.trip_policy {
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
        Reason::ParentGuardDenied(name) => Some(name.clone()),
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
