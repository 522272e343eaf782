//! The retry table: a request that comes again gets its answer again, and is charged once. It is
//! replicated like everything else, so it survives failover and restart.

use audit::Entry;
use decision::{
    Facts, HumanDecision, NanoUsd, Rule, SessionId, Status, Terminal, Transition, Verdict, decide,
};

use crate::apply::Turn;
use crate::approval::ApprovalStatus;
use crate::asked;
use crate::budget;
use crate::command::{Params, PreExec, Principal, Request};
use crate::event::Event;
use crate::halt;
use crate::leash::Leash;
use crate::pre_exec::{self, blocked_by, verdict_entry};
use crate::reply::{Refusal, Reply, VerdictReply};
use crate::table::{
    Answer, CALL_WINDOW, Call, DueWork, Fault, Key, Phase, REQUEST_KEPT, Read, Recorded, Requester, Row,
    Rows, Session, SessionStatus,
};

/// What the retry table knows of a call that comes in.
pub(crate) enum Earlier {
    None,
    Call(Box<Call>),
    Refused(Refusal),
}

/// Looks a call up by its request id, or by its number where it has none.
pub(crate) fn earlier_call<R: Rows>(turn: &Turn<'_, '_, R>, call: &PreExec) -> Result<Earlier, Fault> {
    if let Some(request) = &call.request {
        let by = Requester::Session(call.session.clone());
        if let Some(recorded) = turn.rows.recorded(&by, &request.id)? {
            let Answer::Call(number) = recorded.answer else {
                return Ok(Earlier::Refused(used_for_another(request)));
            };
            if recorded.payload != request.payload {
                return Ok(Earlier::Refused(used_for_another(request)));
            }
            let key = Key::Call(call.session.clone(), number);
            let call = turn
                .rows
                .call(&call.session, number)?
                .ok_or(Fault::Missing(key))?;
            return Ok(Earlier::Call(call));
        }
    }
    let Some(earlier) = turn.rows.call(&call.session, call.call_number)? else {
        return Ok(Earlier::None);
    };
    // INVARIANT: a call that came with a request id, and spent no nonce, is only ever reached by that id. A
    // plain call under its number would put its own answer in the place of what the retry must be told.
    let same = earlier.request.is_none() && earlier.tool == call.tool && earlier.digest == call.digest;
    let taken = || {
        let number = call.call_number;
        Earlier::Refused(Refusal::Conflict(format!(
            "call_number {number} was used by another request of this session"
        )))
    };
    // Frameworks send a call that people were asked about again as a new request: it is the same call still.
    let asked = match earlier.phase {
        Phase::Waiting | Phase::Cancelled => earlier.approval.is_some(),
        // A final answer is kept for whoever has retry service; rule 3 tells the others.
        Phase::Denied => earlier.approval.is_some() && earlier.request.is_some(),
        Phase::Held | Phase::Settled { .. } | Phase::Expired(_) => false,
    };
    if asked && earlier.nonce == call.nonce && earlier.tool == call.tool && earlier.digest == call.digest {
        return Ok(Earlier::Call(earlier));
    }
    if call.request.is_some() || earlier.nonce != call.nonce {
        return Ok(taken());
    }
    Ok(match earlier.phase {
        // No retry service without a request id; only a call that waits for a human is known again.
        Phase::Cancelled if same => Earlier::Call(earlier),
        Phase::Denied if same => Earlier::None,
        Phase::Waiting | Phase::Denied => taken(),
        // Its nonce is spent: rule 3 says so.
        Phase::Cancelled | Phase::Held | Phase::Settled { .. } | Phase::Expired(_) => Earlier::None,
    })
}

fn used_for_another(request: &Request) -> Refusal {
    Refusal::Conflict(format!("request_id {} was used with another payload", request.id))
}

/// Answers a call that was decided before: with what was said then, unless that no longer holds.
pub(crate) fn answer_again<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    session: Session,
    call: &PreExec,
    earlier: Call,
) -> Result<Reply, Fault> {
    let settled_status = match session.status {
        SessionStatus::Terminated => Status::Terminated,
        SessionStatus::Stale => Status::Stale,
        SessionStatus::Active | SessionStatus::Paused => Status::Active,
    };
    let leash = Leash::of(turn.rows, &session)?;
    let stops = halt::above_leash(turn.rows, &session, Some(&call.session), &leash)?;
    let facts = Facts {
        halt: stops.halt.clone(),
        circuit_tripped: session.trip.is_some(),
        nonce: Some(call.nonce),
        digest: call.digest,
        ..Facts::core()
    };
    let asked = match &earlier.approval {
        Some(id) => turn.rows.approval(id)?,
        None => None,
    };
    let put_off = asked
        .as_ref()
        .filter(|asked| matches!(asked.status, ApprovalStatus::Deferred | ApprovalStatus::Escalated))
        .map(|asked| asked.transition(turn.now()));
    // An approval that is forgotten was over.
    let over = asked.map_or(
        Transition {
            decision: HumanDecision::Approve,
            original_nonce: Some(earlier.nonce),
            original_digest: call.digest,
            successor_nonce: None,
            successor_digest: None,
            terminal: Some(Terminal::Cancelled),
            resume_attempt: false,
        },
        |asked| asked.transition(turn.now()),
    );
    let facts = match earlier.phase {
        Phase::Denied => return Ok(repeat(turn, earlier.answer)),
        // An ALLOW is not given again under a pause: it would be a question now.
        Phase::Held => Facts {
            halt: stops.any_call().cloned(),
            status: settled_status,
            ..facts
        },
        Phase::Settled { .. } | Phase::Expired(_) => Facts {
            status: settled_status,
            nonce_seen: true,
            ..facts
        },
        Phase::Waiting => Facts {
            status: asked::status(&session, call.call_number, put_off.is_some()),
            malformed: call.params == Params::Malformed,
            transition: put_off.as_ref(),
            ..facts
        },
        Phase::Cancelled => Facts {
            status: settled_status,
            transition: Some(&over),
            ..facts
        },
    };
    let decision = decide(&facts);
    match (earlier.phase, decision.verdict) {
        (Phase::Held, Verdict::Allow) => return Ok(repeat(turn, earlier.answer)),
        (Phase::Waiting, Verdict::Hitl) => {
            let answer = VerdictReply {
                reason: decision.reason,
                also: Vec::new(),
                ..earlier.answer
            };
            return Ok(repeat(turn, answer));
        }
        // Whatever else: a denial, with an entry of its own. It trips nothing and moves no counter.
        _ => {}
    }
    let available = budget::own_available(turn, leash.effective(), &call.session, &session)?;
    let entry = Entry {
        budget_before: available.unwrap_or(NanoUsd::ZERO),
        budget_after: available.unwrap_or(NanoUsd::ZERO),
        policy_digest: leash.digest().as_bytes().to_vec(),
        ..verdict_entry(turn, &session, call, &decision)
    };
    let sequence = turn.record(entry);
    turn.events.push(Event::Decided {
        verdict: decision.verdict,
        reason: decision.reason.clone(),
    });
    let answer = VerdictReply {
        verdict: decision.verdict,
        blocked_by: blocked_by(&decision.reason, &session, call),
        reason: decision.reason,
        also: decision.also,
        remaining: available,
        approval_id: None,
        authorization: None,
        retry_after: None,
        warnings: Vec::new(),
        replayed: false,
        place: turn.place(sequence),
        ..earlier.answer
    };
    // What rule 4 says of a cancelled call is final; a halt above it is not.
    if earlier.phase == Phase::Cancelled && decision.rule == Rule::R4 {
        let number = answer.call_number;
        let row = Call {
            phase: Phase::Denied,
            answer: answer.clone(),
            ..earlier
        };
        turn.rows
            .put(Key::Call(call.session.clone(), number), Row::Call(Box::new(row)));
    }
    Ok(Reply::Verdict(answer))
}

fn repeat<R: Rows>(turn: &mut Turn<'_, '_, R>, answer: VerdictReply) -> Reply {
    turn.events.push(Event::Replayed);
    Reply::Verdict(VerdictReply {
        replayed: true,
        ..answer
    })
}

/// Remembers a call's answer, and forgets what has fallen behind the window.
pub(crate) fn remember_call<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    session: &mut Session,
    call: &PreExec,
    held: Option<Call>,
    row: Call,
) -> Result<(), Fault> {
    let id = &call.session;
    // A plain client's repeated number must not hide the call that ran under it.
    let taken = held.is_none()
        && turn
            .rows
            .call(id, call.call_number)?
            .is_some_and(|earlier| earlier.phase != Phase::Denied);
    // What released it is the newest request; an older one of the same call is forgotten.
    if let Some(older) = held.and_then(|held| held.request) {
        let by = Requester::Session(id.clone());
        turn.rows.delete(Key::Request(by, older));
    }
    if !taken {
        turn.rows
            .put(Key::Call(id.clone(), call.call_number), Row::Call(Box::new(row)));
        if let Some(request) = &call.request {
            let recorded = Recorded {
                payload: request.payload,
                answer: Answer::Call(call.call_number),
            };
            let by = Requester::Session(id.clone());
            turn.rows
                .put(Key::Request(by, request.id.clone()), Row::Request(recorded));
        }
    }
    if call.call_number > session.highest_call {
        let oldest = session.highest_call.saturating_sub(CALL_WINDOW);
        let kept = call.call_number.saturating_sub(CALL_WINDOW);
        session.highest_call = call.call_number;
        forget_calls(turn, id, oldest, kept)?;
    }
    Ok(())
}

/// Forgets the calls from one number to below another: those that the window has just left. What is there
/// is read, not every number there could be: numbers may jump.
fn forget_calls<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    from: u64,
    below: u64,
) -> Result<(), Fault> {
    if from >= below {
        return Ok(());
    }
    let passed = turn.rows.scan(
        &Key::Call(id.clone(), from),
        &Key::Call(id.clone(), below),
        usize::MAX,
    )?;
    for (key, row) in passed {
        let (Key::Call(_, number), Row::Call(call)) = (&key, row) else {
            return Err(Fault::WrongRow(key));
        };
        forget_call(turn, id, *number, *call);
    }
    Ok(())
}

/// Drops a call's row and its requests, unless it is open: then its end drops it.
pub(crate) fn forget_call<R: Rows>(turn: &mut Turn<'_, '_, R>, id: &SessionId, number: u64, call: Call) {
    if matches!(call.phase, Phase::Held | Phase::Waiting) {
        return;
    }
    for request in call.request.into_iter().chain(call.reports) {
        let by = Requester::Session(id.clone());
        turn.rows.delete(Key::Request(by, request));
    }
    turn.rows.delete(Key::Hold(id.clone(), number));
    turn.rows.delete(Key::Call(id.clone(), number));
}

/// Writes a call's last phase, or forgets the call where its number has fallen behind the window.
pub(crate) fn close_call<R: Rows>(turn: &mut Turn<'_, '_, R>, id: &SessionId, session: &Session, call: Call) {
    let number = call.answer.call_number;
    if pre_exec::behind_window(session.highest_call, number) {
        forget_call(turn, id, number, call);
    } else {
        let row = Row::Call(Box::new(call));
        turn.rows.put(Key::Call(id.clone(), number), row);
    }
}

/// Gives the recorded answer to an earlier write of this identity, or the conflict with it.
pub(crate) fn recall<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    by: &Requester,
    request: &Request,
) -> Result<Option<Reply>, Fault> {
    let Some(recorded) = turn.rows.recorded(by, &request.id)? else {
        return Ok(None);
    };
    if recorded.payload != request.payload {
        return Ok(Some(Reply::Refused(used_for_another(request))));
    }
    match recorded.answer {
        Answer::Reply(reply) => {
            turn.events.push(Event::Replayed);
            Ok(Some(*reply))
        }
        Answer::Call(_) => Ok(Some(Reply::Refused(used_for_another(request)))),
    }
}

/// Remembers a write's answer; an identity's for a day, a session's as long as the call it is about.
pub(crate) fn remember<R: Rows>(turn: &mut Turn<'_, '_, R>, by: Requester, request: &Request, reply: &Reply) {
    let recorded = Recorded {
        payload: request.payload,
        answer: Answer::Reply(Box::new(reply.clone())),
    };
    if let Requester::Identity(_) = by {
        let work = DueWork::RequestExpiry(by.clone(), request.id.clone());
        turn.rows
            .put(Key::Due(turn.now().plus(REQUEST_KEPT), work), Row::Mark);
    }
    turn.rows
        .put(Key::Request(by, request.id.clone()), Row::Request(recorded));
}

/// The retry scope of an identity's writes.
pub(crate) fn identity(by: &Principal) -> Requester {
    Requester::Identity(by.name.clone())
}
