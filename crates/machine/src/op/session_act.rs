//! An operator's act on one session.

use audit::{Entry, Kind};
use decision::limits::RateWindow;
use decision::{NanoUsd, Outcomes, Reason};

use crate::command::{Act, SessionAct};
use crate::row::reply::{Refusal, Reply};
use crate::row::{Fault, Record, Requester, Session, SessionStatus};
use crate::step::approval::cancel_all;
use crate::step::counters::tally;
use crate::step::session::{DUE_MAX, terminate};
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, act: &SessionAct) -> Done {
    let session = turn.session_in_reach(&act.by, &act.session)?;
    turn.once(Requester::identity(&act.by), &act.request, |turn| {
        may(act.act, &session)?;
        carry_out(turn, act, session)
    })
}

fn may(act: Act, session: &Session) -> Result<(), Refusal> {
    let against = match (act, session.status) {
        (Act::Pause | Act::Resume | Act::Terminate, SessionStatus::Terminated) => "the session has ended",
        (Act::ResetCircuit, _) if session.trip.is_none() => "the circuit is not tripped",
        (Act::Pause, SessionStatus::Stale) => "a stale session denies every call already",
        (Act::Resume, SessionStatus::Active | SessionStatus::Stale) => "the session is not paused",
        _ => return Ok(()),
    };
    Err(Refusal::Precondition(against.to_owned()))
}

fn carry_out(turn: &mut Turn<'_>, act: &SessionAct, mut session: Record<Session>) -> Done {
    let kind = match act.act {
        Act::Terminate => {
            let ended = terminate(turn, session, &act.by.name, &act.justification, DUE_MAX)?;
            return Ok(Reply::Session(
                SessionStatus::Terminated,
                turn.place(ended.sequence),
            ));
        }
        Act::ResetCircuit => {
            reset_circuit(turn, &mut session)?;
            Kind::CircuitReset
        }
        Act::Pause => {
            session.status = SessionStatus::Paused;
            session.paused_by_operator = true;
            session.tickets_void_to = turn.next_sequence();
            Kind::SessionPaused
        }
        Act::Resume => {
            session.paused_by_operator = false;
            cancel_all(turn, &mut session)?;
            session.status = SessionStatus::Active;
            // Resuming counts as hearing from it: it does not go stale in the same breath.
            session.last_activity = turn.now();
            Kind::SessionUnpaused
        }
    };
    let sequence = turn.record(Entry {
        operator_id: act.by.name.clone(),
        reason: act.justification.clone(),
        request_id: act.request.id.as_str().to_owned(),
        ..turn.entry_of(kind, &session)
    });
    let reply = Reply::Session(session.status, turn.place(sequence));
    turn.save(session);
    Ok(reply)
}

/// Unlatches the circuit and clears the counter that tripped it, so that it does not trip again at once. The
/// others keep their count: a reset is not a new session.
fn reset_circuit(turn: &mut Turn<'_>, session: &mut Session) -> Result<(), Fault> {
    let Some(trip) = session.trip.take() else {
        return Ok(());
    };
    match trip.reason {
        Reason::GlobalLimit => session.total_calls_base = session.total_calls,
        Reason::Timeout => session.first_call_at = None,
        Reason::WindowExceeded => session.windows.clear(),
        Reason::RateExceeded => session.rate = RateWindow::default(),
        Reason::ErrorRateExceeded => session.outcomes = Outcomes::default(),
        Reason::ConsecutiveDenials => session.denials = 0,
        Reason::TokenCeiling => session.tokens = 0,
        Reason::CostCeiling => session.cost = NanoUsd::ZERO,
        Reason::NameRepeatExceeded | Reason::RetryStorm | Reason::LoopDetected => {
            session.recent.clear();
            session.recent_numbers.clear();
        }
        Reason::MaxRepeatExceeded => {
            if let Some(last) = session.last_call.as_mut() {
                last.repeats = 0;
                last.failed = false;
            }
        }
        // Nothing is counted towards the others: an operator removes their cause.
        _ => {}
    }
    tally(turn, session, |tally| {
        tally.tripped = tally.tripped.saturating_sub(1);
    })
}
