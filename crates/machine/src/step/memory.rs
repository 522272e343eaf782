//! What a session's calls leave behind: their answers for retries, their nonces, the window of their numbers.

use decision::SessionId;

use crate::command::PreExec;
use crate::row::reply::Refusal;
use crate::row::{
    Answer, CALL_JUMP_MAX, CALL_WINDOW, Call, Fault, Hold, Key, Nonces, Phase, Record, Recorded, Requester,
    Row, Session, Table as _,
};
use crate::turn::{Done, Turn, used_for_another};

/// What is known of a call that comes in.
pub(crate) enum Arrival {
    /// It came before.
    Again(Record<Call>),
    /// It is new; another call may have its number.
    New(Option<Record<Call>>),
}

/// Looks a call up by its request id, or by its number where it has none.
pub(crate) fn arrival(turn: &Turn<'_>, call: &PreExec) -> Done<Arrival> {
    if let Some(request) = &call.request {
        let id = (Requester::Session(call.session.clone()), request.id.clone());
        if let Some(recorded) = turn.find::<Recorded>(&id)? {
            let Answer::Call(number) = recorded.row.answer_to(request)? else {
                return Err(used_for_another(request).into());
            };
            return Ok(Arrival::Again(turn.need(&(call.session.clone(), number))?));
        }
    }
    let Some(earlier) = turn.find::<Call>(&(call.session.clone(), call.call_number))? else {
        return Ok(Arrival::New(None));
    };
    let alike = earlier.tool == call.tool && earlier.digest == call.digest;
    // Frameworks send a call that people were asked about again as a new request: it is the same call still.
    let put_to_people = match earlier.phase {
        Phase::Waiting | Phase::Cancelled => earlier.approval.is_some(),
        // A final answer is kept for whoever has retry service; rule 3 tells the others.
        Phase::Denied => earlier.approval.is_some() && earlier.request.is_some(),
        Phase::Held | Phase::Settled { .. } | Phase::Expired(_) => false,
    };
    if put_to_people && earlier.nonce == call.nonce && alike {
        return Ok(Arrival::Again(earlier));
    }
    let taken = Refusal::Conflict(format!(
        "call_number {} was used by another request of this session",
        call.call_number
    ));
    if call.request.is_some() || earlier.nonce != call.nonce {
        return Err(taken.into());
    }
    // INVARIANT: a call that came with a request id, and spent no nonce, is only ever reached by that id. A
    // plain call under its number would put its own answer in the place of what the retry must be told.
    let same = earlier.request.is_none() && alike;
    match earlier.phase {
        // No retry service without a request id; only a call that waits for a human is known again.
        Phase::Cancelled if same => Ok(Arrival::Again(earlier)),
        Phase::Denied if same => Ok(Arrival::New(Some(earlier))),
        Phase::Waiting | Phase::Denied => Err(taken.into()),
        // Its nonce is spent: rule 3 says so.
        Phase::Cancelled | Phase::Held | Phase::Settled { .. } | Phase::Expired(_) => {
            Ok(Arrival::New(Some(earlier)))
        }
    }
}

/// Numbers are unique, not ordered; the window bounds what must be remembered of them.
pub(crate) fn number_in_window(session: &Session, number: u64) -> Result<(), Refusal> {
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
fn behind_window(highest: u64, number: u64) -> bool {
    number.saturating_add(CALL_WINDOW) < highest
}

/// Remembers a call and its answer.
pub(crate) fn remember(turn: &mut Turn<'_>, call: &PreExec, row: Call) {
    if let Some(request) = &call.request {
        let id = (Requester::Session(call.session.clone()), request.id.clone());
        turn.remember(id, request, Answer::Call(call.call_number));
    }
    turn.save(Record::new((call.session.clone(), call.call_number), row));
}

/// Notes that a number was used; forgets the calls that the window has left behind.
pub(crate) fn move_window(
    turn: &mut Turn<'_>,
    session: &mut Record<Session>,
    number: u64,
) -> Result<(), Fault> {
    if number <= session.highest_call {
        return Ok(());
    }
    let oldest = session.highest_call.saturating_sub(CALL_WINDOW);
    let kept = number.saturating_sub(CALL_WINDOW);
    session.highest_call = number;
    if oldest >= kept {
        return Ok(());
    }
    // What is there is read, not every number there could be: numbers may jump.
    let id = &session.id;
    let (from, below) = (Key::Call(id.clone(), oldest), Key::Call(id.clone(), kept));
    for (key, row) in turn.scan(&from, &below, usize::MAX)? {
        let (Key::Call(_, number), Row::Call(_)) = (&key, &row) else {
            return Err(Fault::WrongRow(key));
        };
        if let Some(call) = Call::from_row(row) {
            forget_call(turn, Record::new((id.clone(), *number), call));
        }
    }
    Ok(())
}

/// Drops a call's row and its requests, unless it is open: then its end drops it.
fn forget_call(turn: &mut Turn<'_>, call: Record<Call>) {
    if matches!(call.phase, Phase::Held | Phase::Waiting) {
        return;
    }
    let Record { id, row } = call;
    for request in row.request.into_iter().chain(row.reports) {
        forget_request(turn, &id.0, request);
    }
    turn.remove::<Hold>(&id);
    turn.remove::<Call>(&id);
}

pub(crate) fn forget_request(turn: &mut Turn<'_>, session: &SessionId, request: decision::RequestId) {
    turn.remove::<Recorded>(&(Requester::Session(session.clone()), request));
}

/// Writes a call's last phase, or forgets the call where its number has fallen behind the window.
pub(crate) fn close_call(turn: &mut Turn<'_>, session: &Session, call: Record<Call>) {
    if behind_window(session.highest_call, call.id.1) {
        forget_call(turn, call);
    } else {
        turn.save(call);
    }
}

/// The block of the session's seen nonces that a nonce is in.
pub(crate) fn nonces(turn: &Turn<'_>, session: &SessionId, nonce: u64) -> Result<Record<Nonces>, Fault> {
    turn.find_or_default(&(session.clone(), Nonces::block(nonce)))
}

pub(crate) fn nonce_seen(turn: &Turn<'_>, session: &SessionId, nonce: u64) -> Result<bool, Fault> {
    Ok(nonces(turn, session, nonce)?.has(nonce))
}

/// Adds a nonce to the session's seen set.
pub(crate) fn see_nonce(turn: &mut Turn<'_>, session: &SessionId, nonce: u64) -> Result<(), Fault> {
    let mut nonces = nonces(turn, session, nonce)?;
    nonces.add(nonce);
    turn.save(nonces);
    Ok(())
}
