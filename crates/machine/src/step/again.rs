//! A call that was decided before gets what was said then, unless that no longer holds.

use decision::{Facts, HumanDecision, Rule, Status, Terminal, Transition, Verdict, decide};

use crate::command::{Params, PreExec};
use crate::event::Event;
use crate::guard_path::GuardPath;
use crate::row::reply::{Reply, VerdictReply};
use crate::row::{Approval, ApprovalStatus, Call, Fault, Phase, Record, Session, SessionStatus};
use crate::step::facts::status;
use crate::step::money::own_available;
use crate::step::verdict::{self, Recorded, blocked_by};
use crate::stops::Stops;
use crate::turn::{Done, Turn};

/// Answers a call that was decided before. Whatever no longer holds becomes a denial with an entry of its own, which
/// trips nothing and moves no counter.
pub(crate) fn answer_again(
    turn: &mut Turn<'_>,
    session: &Record<Session>,
    call: &PreExec,
    mut earlier: Record<Call>,
) -> Done {
    if earlier.phase == Phase::Denied {
        return Ok(repeat(turn, earlier.row.answer));
    }
    let path = GuardPath::of(&*turn.rows, session)?;
    let people = People::of(turn, call, &earlier)?;
    let stops = Stops::on(&*turn.rows, session, Some(&session.id), &path)?;
    let decision = decide(&facts(session, call, &earlier, &people, &stops));
    match (earlier.phase, decision.verdict) {
        (Phase::Held, Verdict::Allow) => return Ok(repeat(turn, earlier.row.answer)),
        (Phase::Waiting, Verdict::Hitl) => {
            let answer = VerdictReply {
                reason: decision.reason,
                also: Vec::new(),
                ..earlier.row.answer
            };
            return Ok(repeat(turn, answer));
        }
        _ => {}
    }
    let available = own_available(turn, path.effective(), session)?;
    let with = Recorded {
        path: &path,
        before: available,
        after: available,
        approval: None,
    };
    let sequence = verdict::record(turn, session, call, &decision, &with);
    // What rule 4 says of a cancelled call is final; a halt above it is not.
    let is_final = earlier.phase == Phase::Cancelled && decision.rule == Rule::R4;
    let answer = VerdictReply {
        verdict: decision.verdict,
        blocked_by: blocked_by(&decision.reason, session),
        reason: decision.reason,
        also: decision.also,
        remaining: available,
        approval_id: None,
        authorization: None,
        retry_after: None,
        warnings: Vec::new(),
        replayed: false,
        place: turn.place(sequence),
        ..earlier.answer.clone()
    };
    if is_final {
        earlier.phase = Phase::Denied;
        earlier.answer = answer.clone();
        turn.save(earlier);
    }
    Ok(Reply::Verdict(answer))
}

/// What people have said of the call so far.
struct People {
    /// They put it off, or handed it up.
    put_off: Option<Transition>,
    /// What rule 4 looks at where the call never runs.
    over: Transition,
}

impl People {
    fn of(turn: &Turn<'_>, call: &PreExec, earlier: &Call) -> Result<Self, Fault> {
        let approval = match &earlier.approval {
            Some(id) => turn.find::<Approval>(id)?,
            None => None,
        };
        let transition = approval.as_ref().map(|approval| approval.transition(turn.now()));
        let is_put_off = |approval: &Record<Approval>| {
            matches!(
                approval.status,
                ApprovalStatus::Deferred | ApprovalStatus::Escalated
            )
        };
        // An approval that is forgotten was over.
        let forgotten = Transition {
            decision: HumanDecision::Approve,
            original_nonce: Some(earlier.nonce),
            original_digest: call.digest,
            successor_nonce: None,
            successor_digest: None,
            terminal: Some(Terminal::Cancelled),
            resume_attempt: false,
        };
        Ok(Self {
            put_off: transition.filter(|_| approval.as_ref().is_some_and(is_put_off)),
            over: transition.unwrap_or(forgotten),
        })
    }
}

fn facts<'f>(
    session: &Session,
    call: &PreExec,
    earlier: &Call,
    people: &'f People,
    stops: &Stops,
) -> Facts<'f> {
    let facts = Facts {
        halt: stops.halt.clone(),
        circuit_tripped: session.trip.is_some(),
        nonce: Some(call.nonce),
        digest: call.digest,
        status: match session.status {
            SessionStatus::Terminated => Status::Terminated,
            SessionStatus::Stale => Status::Stale,
            SessionStatus::Active | SessionStatus::Paused => Status::Active,
        },
        ..Facts::core()
    };
    match earlier.phase {
        // An ALLOW is not given again under a pause: it would be a question now.
        Phase::Held => Facts {
            halt: stops.any_call().cloned(),
            ..facts
        },
        Phase::Denied | Phase::Settled { .. } | Phase::Expired(_) => Facts {
            nonce_seen: true,
            ..facts
        },
        Phase::Waiting => Facts {
            status: status(session, call.call_number, people.put_off.is_some()),
            malformed: call.params == Params::Malformed,
            transition: people.put_off.as_ref(),
            ..facts
        },
        Phase::Cancelled => Facts {
            transition: Some(&people.over),
            ..facts
        },
    }
}

fn repeat(turn: &mut Turn<'_>, answer: VerdictReply) -> Reply {
    turn.tell(Event::Replayed);
    Reply::Verdict(VerdictReply {
        replayed: true,
        ..answer
    })
}
