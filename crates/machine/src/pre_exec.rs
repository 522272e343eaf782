//! PreExec: facts are gathered, `decide` decides, and the verdict, the money it holds, the counters it
//! moves and its audit entry are one change.

use audit::{Entry, Kind};
use decision::facts::Mode;
use decision::policy::Denied;
use decision::{Decision, DenyReason, NanoUsd, Reason, Rule, Verdict};

use crate::apply::Turn;
use crate::approval;
use crate::asked::{Asked, Followed, denied_of, price, rules_of};
use crate::budget::{self, Path};
use crate::command::PreExec;
use crate::counted::{count, retry_after, warnings};
use crate::event::Event;
use crate::guard::{Guard, TripPolicy};
use crate::halt;
use crate::leash::Leash;
use crate::nonce::{nonce_seen, see_nonce};
use crate::replay::{self, Earlier};
use crate::reply::{Refusal, Reply, VerdictReply};
use crate::session;
use crate::table::{CALL_JUMP_MAX, CALL_WINDOW, Call, Fault, Key, Phase, Read, Row, Rows, Session};
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

/// Says whether the call waited for people, and they have decided.
fn is_decided<R: Rows>(rows: &R, earlier: &Call) -> Result<bool, Fault> {
    let (Phase::Waiting, Some(id)) = (earlier.phase, &earlier.approval) else {
        return Ok(false);
    };
    Ok(rows
        .approval(id)?
        .is_some_and(|approval| !approval.status.is_open()))
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
            if trips(enforced, leash, call, &decision) {
                session::trip(turn, &call.session, &mut session, decision.reason.clone(), number)?;
            } else if enforced.breakers.denials_exceeded(session.denials) {
                let reason = Reason::ConsecutiveDenials;
                session::trip(turn, &call.session, &mut session, reason, number)?;
            }
            Phase::Denied
        }
        Verdict::Hitl => {
            // A call that waits already goes on waiting for the same decision.
            approval_id = match followed.waits_for(&session, call).or(followed.given()) {
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
    let retry_after = retry_after(guard, &session, call, &decision.reason, now);
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
        retry_after,
        authorization: ticket
            .clone()
            .map(|ticket| Box::new(ticket::authorization(ticket, call))),
        approval_id: approval_id.clone(),
        replayed: false,
        place: turn.place(sequence),
    };
    // A held call that still waits keeps what was recorded of it; what was approved waits for what stopped it.
    let waits_on = match decision.verdict {
        Verdict::Allow => false,
        Verdict::Deny => followed.held.is_some(),
        Verdict::Hitl => followed.held.is_some() || followed.given().is_some(),
    };
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

fn trips(enforced: &Guard, leash: &Leash, call: &PreExec, decision: &Decision) -> bool {
    match enforced.trip_policy {
        // A policy rule says it itself, of a guard that enforces.
        TripPolicy::Behaviour if decision.rule == Rule::P3 => {
            let matched = call.rules.iter().flat_map(|facts| &facts.matched);
            let matched = leash.guards().iter().zip(matched);
            let matched = matched
                .filter(|((_, guard), _)| guard.mode == Mode::Enforce)
                .map(|(_, found)| found);
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
