//! What log time makes due. The command names nothing: every replica finds the same work.

use audit::Kind;
use decision::{RequestId, SessionId, Timestamp};

use crate::apply::Turn;
use crate::approval;
use crate::halt;
use crate::post_exec::{expire_hold, session_entry};
use crate::reply::Reply;
use crate::scope::{AccountId, Scope};
use crate::session::terminate;
use crate::table::{
    DueWork, Fault, Key, Read, Requester, Row, Rows, SESSION_IDLE, SESSION_TTL, Session, SessionStatus,
};
use crate::tally;

/// Works done and rows gone through by one command, about: what is left waits for the next, so that no
/// entry takes long to apply.
pub const DUE_MAX: usize = 256;

pub(crate) fn due<R: Rows>(turn: &mut Turn<'_, '_, R>) -> Result<Reply, Fault> {
    let first = Key::Due(Timestamp::ZERO, DueWork::first());
    let until = Key::Due(just_after(turn.now()), DueWork::first());
    let works = turn.rows.scan(&first, &until, DUE_MAX)?;
    let mut left = DUE_MAX;
    let mut more = works.len() == DUE_MAX;
    for (key, _) in works {
        if left == 0 {
            more = true;
            break;
        }
        let Key::Due(_, work) = &key else {
            return Err(Fault::WrongRow(key));
        };
        let work = work.clone();
        turn.rows.delete(key);
        let done = carry_out(turn, work, left)?;
        left = left.saturating_sub(done.max(1));
    }
    Ok(Reply::Due(more))
}

/// Does one work, or as much of it as `left` allows; gives how many rows it took.
fn carry_out<R: Rows>(turn: &mut Turn<'_, '_, R>, work: DueWork, left: usize) -> Result<usize, Fault> {
    match work {
        DueWork::HoldExpiry(id, number) => {
            expire_hold(turn, &id, number, "hold expired")?;
            Ok(1)
        }
        DueWork::SessionIdle(id) => idle(turn, id, left),
        DueWork::SessionEnd(id) => settle_ended(turn, &id, left),
        DueWork::SessionRemoval(id) => remove(turn, id, left),
        DueWork::ApprovalExpiry(id) => {
            approval::expire(turn, &id)?;
            Ok(1)
        }
        DueWork::DrainEnd(scope) => {
            halt::end_drain(turn, scope)?;
            Ok(1)
        }
        DueWork::ApprovalRemoval(id) => {
            approval::remove(turn, id)?;
            Ok(1)
        }
        DueWork::RequestExpiry(by, request) => {
            turn.rows.delete(Key::Request(by, request));
            Ok(1)
        }
    }
}

/// The next instant of log time: what is armed then is never done twice by one command.
fn just_after(now: Timestamp) -> Timestamp {
    now.plus(decision::DurationNs::from_nanos(1))
}

/// Says whether any work is due at this time: what the leader looks at before it proposes `Due`.
///
/// # Errors
/// The rows cannot be read.
pub fn is_due<R: Rows>(rows: &R, now: Timestamp) -> Result<bool, Fault> {
    let first = Key::Due(Timestamp::ZERO, DueWork::first());
    let until = Key::Due(just_after(now), DueWork::first());
    Ok(!rows.scan(&first, &until, 1)?.is_empty())
}

impl DueWork {
    /// The least of all works: where a scan of one instant begins.
    pub fn first() -> Self {
        Self::HoldExpiry(SessionId::below_all(), 0)
    }
}

/// Looks whether a session was heard from; arms the next look.
fn idle<R: Rows>(turn: &mut Turn<'_, '_, R>, id: SessionId, left: usize) -> Result<usize, Fault> {
    let Some(session) = turn.rows.session(&id)? else {
        return Ok(1);
    };
    let mut session: Session = *session;
    let now = turn.now();
    let stale_at = session.last_activity.plus(SESSION_IDLE);
    let end = session.last_activity.plus(SESSION_TTL);
    let again = match session.status {
        SessionStatus::Terminated => return Ok(1),
        SessionStatus::Stale | SessionStatus::Paused if now >= end => {
            let ended = terminate(turn, &id, session, "", "silent for too long", left)?;
            return Ok(ended.settled);
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
            turn.record(session_entry(turn, Kind::SessionStale, &id, &session));
            turn.rows
                .put(Key::Session(id.clone()), Row::Session(Box::new(session)));
            end
        }
    };
    let again = again.max(just_after(now));
    turn.rows
        .put(Key::Due(again, DueWork::SessionIdle(id)), Row::Mark);
    Ok(1)
}

/// Settles what an ended session holds, so many holds at a time; gives how many it did.
pub(crate) fn settle_ended<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    limit: usize,
) -> Result<usize, Fault> {
    if turn.rows.session(id)?.is_none() {
        return Ok(0);
    }
    let mut settled = 0_usize;
    let mut from = 0_u64;
    loop {
        // Holds that time has closed are among them, at most as many as the window has calls.
        let until = Key::Hold(id.clone(), u64::MAX);
        let page = turn.rows.scan(&Key::Hold(id.clone(), from), &until, DUE_MAX)?;
        let last = page.len() < DUE_MAX;
        for (key, _) in page {
            let Key::Hold(_, number) = key else {
                return Err(Fault::WrongRow(key));
            };
            if settled == limit {
                let work = DueWork::SessionEnd(id.clone());
                let next = just_after(turn.now());
                turn.rows.put(Key::Due(next, work), Row::Mark);
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
fn remove<R: Rows>(turn: &mut Turn<'_, '_, R>, id: SessionId, limit: usize) -> Result<usize, Fault> {
    let Some(session) = turn.rows.session(&id)? else {
        return Ok(1);
    };
    // After a long outage its holds may be open still: their money goes back to the accounts first.
    let settled = settle_ended(turn, &id, limit)?;
    let mut left = limit.saturating_sub(settled);
    let by = Requester::Session(id.clone());
    // What names another row goes before the row that it names.
    let ranges = [
        (
            Key::Request(by.clone(), RequestId::below_all()),
            Key::Request(by, RequestId::above_all()),
        ),
        (Key::Hold(id.clone(), 0), Key::Hold(id.clone(), u64::MAX)),
        (Key::Call(id.clone(), 0), Key::Call(id.clone(), u64::MAX)),
        (Key::Nonces(id.clone(), 0), Key::Nonces(id.clone(), u64::MAX)),
    ];
    for (from, until) in &ranges {
        if left == 0 {
            break;
        }
        for (key, _) in turn.rows.scan(from, until, left)? {
            turn.rows.delete(key);
            left = left.saturating_sub(1);
        }
    }
    if left == 0 {
        let next = just_after(turn.now());
        turn.rows
            .put(Key::Due(next, DueWork::SessionRemoval(id)), Row::Mark);
        return Ok(limit);
    }
    if session.trip.is_some() {
        tally::count(turn, &session, |tally| {
            tally.tripped = tally.tripped.saturating_sub(1);
        })?;
    }
    turn.rows.delete(Key::Account(AccountId::Session(id.clone())));
    // A halt of what is gone could never be released: its id comes to nobody again.
    halt::forget(turn, Scope::Session(id.clone()))?;
    turn.rows
        .delete(Key::SessionOf(session.organization, session.agent, id.clone()));
    turn.rows.delete(Key::Session(id));
    Ok(limit.saturating_sub(left))
}
