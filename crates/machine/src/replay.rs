//! The retry table: a request that comes again gets its answer again, and is charged once. It is
//! replicated like everything else, so it survives failover and restart.

use decision::{Facts, HumanDecision, Status, Terminal, Transition, Verdict, decide};

use crate::apply::Turn;
use crate::command::{Params, PreExec, Principal, Request};
use crate::event::Event;
use crate::halt;
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
    let same_plain_call = call.request.is_none() && earlier.nonce == call.nonce;
    if !same_plain_call {
        return Ok(Earlier::Refused(Refusal::Conflict(format!(
            "call_number {} was used by another request of this session",
            call.call_number
        ))));
    }
    Ok(match earlier.phase {
        // No retry service without a request id; only a call that waits for a human is known again.
        Phase::Waiting | Phase::Cancelled if earlier.digest == call.digest && earlier.tool == call.tool => {
            Earlier::Call(earlier)
        }
        Phase::Waiting
        | Phase::Cancelled
        | Phase::Denied
        | Phase::Held
        | Phase::Settled { .. }
        | Phase::Expired(_) => Earlier::None,
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
    let facts = Facts {
        halt: halt::above(turn.rows, &session, &call.session)?,
        circuit_tripped: session.trip.is_some(),
        nonce: Some(call.nonce),
        digest: call.digest,
        ..Facts::core()
    };
    let cancelled = Transition {
        decision: HumanDecision::Approve,
        original_nonce: Some(earlier.nonce),
        original_digest: call.digest,
        successor_nonce: None,
        successor_digest: None,
        terminal: Some(Terminal::Cancelled),
        resume_attempt: false,
    };
    let facts = match earlier.phase {
        Phase::Denied => return Ok(repeat(turn, earlier.answer)),
        Phase::Held => Facts {
            status: settled_status,
            ..facts
        },
        Phase::Settled { .. } | Phase::Expired(_) => Facts {
            status: settled_status,
            nonce_seen: true,
            ..facts
        },
        Phase::Waiting => Facts {
            status: pre_exec::status(&session, call.call_number),
            malformed: call.params == Params::Malformed,
            ..facts
        },
        Phase::Cancelled => Facts {
            status: settled_status,
            transition: Some(&cancelled),
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
    let sequence = turn.record(verdict_entry(turn, &session, call, &decision));
    turn.events.push(Event::Decided {
        verdict: decision.verdict,
        reason: decision.reason.clone(),
    });
    let answer = VerdictReply {
        verdict: decision.verdict,
        blocked_by: blocked_by(&decision.reason, &session, call),
        reason: decision.reason,
        also: decision.also,
        approval_id: None,
        replayed: false,
        place: turn.place(sequence),
        ..earlier.answer
    };
    if earlier.phase == Phase::Cancelled {
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
    row: Call,
) -> Result<(), Fault> {
    let id = &call.session;
    // A plain client's repeated number must not hide the call that ran under it.
    let taken = turn
        .rows
        .call(id, call.call_number)?
        .is_some_and(|earlier| earlier.phase != Phase::Denied);
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
        let oldest = session.highest_call.saturating_sub(CALL_WINDOW.saturating_sub(1));
        let end = call
            .call_number
            .saturating_sub(CALL_WINDOW.saturating_sub(1))
            .min(session.highest_call.saturating_add(1));
        for number in oldest..end {
            forget_call(turn, id, number)?;
        }
        session.highest_call = call.call_number;
    }
    Ok(())
}

/// Drops a call's row and its request, unless its money is still open: then its expiry drops it.
pub(crate) fn forget_call<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &decision::SessionId,
    number: u64,
) -> Result<(), Fault> {
    let Some(call) = turn.rows.call(id, number)? else {
        return Ok(());
    };
    if matches!(call.phase, Phase::Held | Phase::Waiting) {
        return Ok(());
    }
    if let Some(request) = call.request {
        turn.rows
            .delete(Key::Request(Requester::Session(id.clone()), request));
    }
    turn.rows.delete(Key::Hold(id.clone(), number));
    turn.rows.delete(Key::Call(id.clone(), number));
    Ok(())
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
            Ok(Some(reply))
        }
        Answer::Call(_) => Ok(Some(Reply::Refused(used_for_another(request)))),
    }
}

/// Remembers a write's answer; an identity's for a day, a session's as long as the session.
pub(crate) fn remember<R: Rows>(turn: &mut Turn<'_, '_, R>, by: Requester, request: &Request, reply: &Reply) {
    let recorded = Recorded {
        payload: request.payload,
        answer: Answer::Reply(reply.clone()),
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
