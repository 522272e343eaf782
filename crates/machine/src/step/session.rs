//! Sessions: opened, silent, ended, removed.

use audit::{Entry, Kind};
use decision::{RequestId, SessionId};

use crate::event::Event;
use crate::row::{
    Account, DueWork, Fault, Key, Record, Requester, SESSION_IDLE, SESSION_KEPT, SESSION_TTL, Session,
    SessionStatus,
};
use crate::scope::{AccountId, Scope};
use crate::step::counters::tally;
use crate::step::settlement::expire_hold;
use crate::step::{approval, halts};
use crate::turn::Turn;

/// Works done and rows gone through by one command, about: what is left waits for the next, so that no
/// entry takes long to apply.
pub(crate) const DUE_MAX: usize = 256;
// INVARIANT: what a work arms anew is of a later instant, so that no command does it twice.

/// Arms the look whether the session is silent.
pub(crate) fn arm_idle(turn: &mut Turn<'_>, id: &SessionId) {
    let at = turn.now().plus(SESSION_IDLE);
    turn.arm(at, DueWork::SessionIdle(id.clone()));
}

/// A stale session is heard from again.
pub(crate) fn wake(turn: &mut Turn<'_>, session: &mut Record<Session>) {
    session.status = SessionStatus::Active;
    // One timer a session: that of its end gives way to that of its silence.
    let end = session.last_activity.plus(SESSION_TTL);
    turn.disarm(end, DueWork::SessionIdle(session.id.clone()));
    arm_idle(turn, &session.id);
}

/// Writes a new session, its index, and counts it.
pub(crate) fn insert(turn: &mut Turn<'_>, session: Record<Session>) -> Result<(), Fault> {
    tally(turn, &session, |tally| tally.open = tally.open.saturating_add(1))?;
    turn.mark(index(&session));
    turn.save(session);
    Ok(())
}

fn index(session: &Record<Session>) -> Key {
    Key::SessionOf(
        session.organization.clone(),
        session.agent.clone(),
        session.id.clone(),
    )
}

/// A session's end: its entry, and how many holds were settled with it.
pub(crate) struct Ended {
    pub sequence: u64,
    pub settled: usize,
}

/// Ends a session: what waits is cancelled, what is held is settled (so many at once), the rows stay for an
/// hour.
pub(crate) fn terminate(
    turn: &mut Turn<'_>,
    mut session: Record<Session>,
    by: &str,
    why: &str,
    limit: usize,
) -> Result<Ended, Fault> {
    approval::cancel_all(turn, &mut session)?;
    session.status = SessionStatus::Terminated;
    session.ended_at = Some(turn.now());
    tally(turn, &session, |tally| tally.open = tally.open.saturating_sub(1))?;
    let sequence = turn.record(Entry {
        operator_id: by.to_owned(),
        reason: why.to_owned(),
        ..turn.entry_of(Kind::SessionEnded, &session)
    });
    let id = session.id.clone();
    turn.save(session);
    turn.arm(turn.now().plus(SESSION_KEPT), DueWork::SessionRemoval(id.clone()));
    let settled = settle_ended(turn, &id, limit)?;
    turn.tell(Event::SessionClosed { session: id });
    Ok(Ended { sequence, settled })
}

/// Looks whether a session was heard from; arms the next look. Gives how many rows that took.
pub(crate) fn idle(turn: &mut Turn<'_>, id: SessionId, left: usize) -> Result<usize, Fault> {
    let Some(mut session) = turn.find::<Session>(&id)? else {
        return Ok(1);
    };
    let now = turn.now();
    let stale_at = session.last_activity.plus(SESSION_IDLE);
    let end = session.last_activity.plus(SESSION_TTL);
    let again = match session.status {
        SessionStatus::Terminated => return Ok(1),
        SessionStatus::Stale | SessionStatus::Paused if now >= end => {
            return Ok(terminate(turn, session, "", "silent for too long", left)?.settled);
        }
        SessionStatus::Stale => end,
        // A pause keeps a session from going stale: a registration would lift it, and the agent could
        // make its own way out by keeping quiet.
        SessionStatus::Paused => now.plus(SESSION_IDLE),
        // Neither does a call that waits for people.
        SessionStatus::Active if !session.waiting.is_empty() => now.plus(SESSION_IDLE),
        SessionStatus::Active if now < stale_at => stale_at,
        SessionStatus::Active => {
            session.status = SessionStatus::Stale;
            turn.record(turn.entry_of(Kind::SessionStale, &session));
            turn.save(session);
            end
        }
    };
    turn.arm(again.max(now.just_after()), DueWork::SessionIdle(id));
    Ok(1)
}

/// Settles what an ended session holds, so many holds at a time; gives how many it did.
pub(crate) fn settle_ended(turn: &mut Turn<'_>, id: &SessionId, limit: usize) -> Result<usize, Fault> {
    if turn.find::<Session>(id)?.is_none() {
        return Ok(0);
    }
    let mut settled = 0_usize;
    let mut from = 0_u64;
    loop {
        // Holds that time has closed are among them, at most as many as the window has calls.
        let until = Key::Hold(id.clone(), u64::MAX);
        let page = turn.scan(&Key::Hold(id.clone(), from), &until, DUE_MAX)?;
        let last = page.len() < DUE_MAX;
        for (key, _) in page {
            let Key::Hold(_, number) = key else {
                return Err(Fault::WrongRow(key));
            };
            if settled == limit {
                turn.arm(turn.now().just_after(), DueWork::SessionEnd(id.clone()));
                return Ok(settled);
            }
            if expire_hold(turn, id, number, "session ended")? {
                settled = settled.saturating_add(1);
            }
            from = number.saturating_add(1);
        }
        if last {
            return Ok(settled);
        }
    }
}

/// Removes an ended session's rows, so many at a time, its own row last; gives how many it did.
pub(crate) fn remove(turn: &mut Turn<'_>, id: SessionId, limit: usize) -> Result<usize, Fault> {
    let Some(session) = turn.find::<Session>(&id)? else {
        return Ok(1);
    };
    // After a long outage its holds may be open still: their money goes back to the accounts first.
    let settled = settle_ended(turn, &id, limit)?;
    let mut left = limit.saturating_sub(settled);
    for (from, until) in &ranges(&id) {
        if left == 0 {
            break;
        }
        for (key, _) in turn.scan(from, until, left)? {
            turn.unmark(key);
            left = left.saturating_sub(1);
        }
    }
    if left == 0 {
        turn.arm(turn.now().just_after(), DueWork::SessionRemoval(id));
        return Ok(limit);
    }
    if session.trip.is_some() {
        tally(turn, &session, |tally| {
            tally.tripped = tally.tripped.saturating_sub(1);
        })?;
    }
    turn.remove::<Account>(&AccountId::Session(id.clone()));
    // A halt of what is gone could never be released: its id comes to nobody again.
    halts::forget(turn, &Scope::Session(id.clone()))?;
    turn.unmark(index(&session));
    turn.remove::<Session>(&id);
    Ok(limit.saturating_sub(left))
}

/// A session's rows; what names another row goes before the row that it names.
fn ranges(id: &SessionId) -> [(Key, Key); 4] {
    let by = Requester::Session(id.clone());
    [
        (
            Key::Request(by.clone(), RequestId::below_all()),
            Key::Request(by, RequestId::above_all()),
        ),
        (Key::Hold(id.clone(), 0), Key::Hold(id.clone(), u64::MAX)),
        (Key::Call(id.clone(), 0), Key::Call(id.clone(), u64::MAX)),
        (Key::Nonces(id.clone(), 0), Key::Nonces(id.clone(), u64::MAX)),
    ]
}
