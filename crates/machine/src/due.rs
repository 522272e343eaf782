//! What log time makes due. The command names nothing: every replica finds the same work.

use audit::Kind;
use decision::{RequestId, SessionId, Timestamp};

use crate::apply::Turn;
use crate::post_exec::{expire_hold, session_entry};
use crate::reply::Reply;
use crate::session::terminate;
use crate::table::{
    DueWork, Fault, Key, Read, Requester, Row, Rows, SESSION_IDLE, SESSION_TTL, Session, SessionStatus,
};

/// Works done by one command: what is left waits for the next, so that no entry takes long to apply.
pub const DUE_MAX: usize = 256;

pub(crate) fn due<R: Rows>(turn: &mut Turn<'_, '_, R>) -> Result<Reply, Fault> {
    let first = Key::Due(Timestamp::ZERO, DueWork::first());
    let until = Key::Due(
        turn.now().plus(decision::DurationNs::from_nanos(1)),
        DueWork::first(),
    );
    let works = turn.rows.scan(&first, &until, DUE_MAX)?;
    let more = works.len() == DUE_MAX;
    for (key, _) in works {
        let Key::Due(at, work) = &key else {
            return Err(Fault::WrongRow(key));
        };
        let work = work.clone();
        turn.rows.delete(Key::Due(*at, work.clone()));
        match work {
            DueWork::HoldExpiry(id, number) => {
                if let Some(session) = turn.rows.session(&id)? {
                    expire_hold(turn, &id, &session, number, "hold expired")?;
                }
            }
            DueWork::SessionIdle(id) => idle(turn, id)?,
            DueWork::SessionEnd(id) => settle_ended(turn, &id)?,
            DueWork::SessionRemoval(id) => remove(turn, id)?,
            DueWork::RequestExpiry(by, request) => turn.rows.delete(Key::Request(by, request)),
        }
    }
    Ok(Reply::Due(more))
}

/// Says whether any work is due at this time: what the leader looks at before it proposes `Due`.
///
/// # Errors
/// The rows cannot be read.
pub fn is_due<R: Rows>(rows: &R, now: Timestamp) -> Result<bool, Fault> {
    let first = Key::Due(Timestamp::ZERO, DueWork::first());
    let until = Key::Due(now.plus(decision::DurationNs::from_nanos(1)), DueWork::first());
    Ok(!rows.scan(&first, &until, 1)?.is_empty())
}

impl DueWork {
    /// The least of all works: where a scan of one instant begins.
    pub fn first() -> Self {
        Self::HoldExpiry(SessionId::below_all(), 0)
    }
}

/// Looks whether a session was heard from; arms the next look.
fn idle<R: Rows>(turn: &mut Turn<'_, '_, R>, id: SessionId) -> Result<(), Fault> {
    let Some(session) = turn.rows.session(&id)? else {
        return Ok(());
    };
    let mut session: Session = *session;
    let now = turn.now();
    let again = match session.status {
        SessionStatus::Terminated => return Ok(()),
        SessionStatus::Stale => {
            let end = session.last_activity.plus(SESSION_TTL);
            if now >= end {
                terminate(turn, &id, session, "", "stale for too long")?;
                return Ok(());
            }
            end
        }
        // An open approval keeps a session from going stale.
        SessionStatus::Active | SessionStatus::Paused if session.waiting.is_some() => now.plus(SESSION_IDLE),
        SessionStatus::Active | SessionStatus::Paused => {
            let stale_at = session.last_activity.plus(SESSION_IDLE);
            if now < stale_at {
                stale_at
            } else {
                session.status = SessionStatus::Stale;
                let entry = session_entry(turn, Kind::SessionStale, &id, &session);
                turn.record(entry);
                let end = session.last_activity.plus(SESSION_TTL);
                turn.rows
                    .put(Key::Session(id.clone()), Row::Session(Box::new(session)));
                end
            }
        }
    };
    // Never in the past of the command itself, or one command would look for ever.
    let again = again.max(now.plus(decision::DurationNs::from_nanos(1)));
    turn.rows
        .put(Key::Due(again, DueWork::SessionIdle(id)), Row::Mark);
    Ok(())
}

/// Settles what an ended session holds, a bounded number at a time.
pub(crate) fn settle_ended<R: Rows>(turn: &mut Turn<'_, '_, R>, id: &SessionId) -> Result<(), Fault> {
    let Some(session) = turn.rows.session(id)? else {
        return Ok(());
    };
    let holds = turn.rows.scan(
        &Key::Hold(id.clone(), 0),
        &Key::Hold(id.clone(), u64::MAX),
        DUE_MAX,
    )?;
    let mut open = 0_usize;
    for (key, row) in &holds {
        let (Key::Hold(_, number), Row::Hold(hold)) = (key, row) else {
            return Err(Fault::WrongRow(key.clone()));
        };
        if hold.expires_at > Timestamp::ZERO {
            open = open.saturating_add(1);
        }
        expire_hold(turn, id, &session, *number, "session ended")?;
    }
    if open == DUE_MAX {
        let next = turn.now().plus(decision::DurationNs::from_nanos(1));
        turn.rows
            .put(Key::Due(next, DueWork::SessionEnd(id.clone())), Row::Mark);
    }
    Ok(())
}

/// Removes an ended session's rows, a bounded number at a time, its own row last.
fn remove<R: Rows>(turn: &mut Turn<'_, '_, R>, id: SessionId) -> Result<(), Fault> {
    let Some(session) = turn.rows.session(&id)? else {
        return Ok(());
    };
    let by = Requester::Session(id.clone());
    let ranges = [
        (Key::Hold(id.clone(), 0), Key::Hold(id.clone(), u64::MAX)),
        (Key::Call(id.clone(), 0), Key::Call(id.clone(), u64::MAX)),
        (Key::Nonces(id.clone(), 0), Key::Nonces(id.clone(), u64::MAX)),
        (
            Key::Request(by.clone(), RequestId::below_all()),
            Key::Request(by, RequestId::above_all()),
        ),
    ];
    let mut left = DUE_MAX;
    for (from, until) in &ranges {
        for (key, _) in turn.rows.scan(from, until, left)? {
            turn.rows.delete(key);
            left = left.saturating_sub(1);
        }
    }
    if left == 0 {
        let next = turn.now().plus(decision::DurationNs::from_nanos(1));
        turn.rows
            .put(Key::Due(next, DueWork::SessionRemoval(id)), Row::Mark);
        return Ok(());
    }
    turn.rows
        .delete(Key::Account(crate::scope::AccountId::Session(id.clone())));
    turn.rows
        .delete(Key::SessionOf(session.organization, session.agent, id.clone()));
    turn.rows.delete(Key::Session(id));
    Ok(())
}
