//! What log time has made due. The command names nothing: every replica finds the same work.

use decision::Timestamp;

use crate::row::reply::Reply;
use crate::row::{DueWork, Fault, Key, Recorded};
use crate::step::session::{DUE_MAX, idle, remove, settle_ended};
use crate::step::{approval, halts, settlement};
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>) -> Done {
    let first = Key::Due(Timestamp::ZERO, DueWork::first());
    let until = Key::Due(turn.now().just_after(), DueWork::first());
    let works = turn.scan(&first, &until, DUE_MAX)?;
    let mut left = DUE_MAX;
    let mut more = works.len() == DUE_MAX;
    for (key, _) in works {
        if left == 0 {
            more = true;
            break;
        }
        let Key::Due(_, work) = &key else {
            return Err(Fault::WrongRow(key).into());
        };
        let work = work.clone();
        turn.unmark(key);
        let done = carry_out(turn, work, left)?;
        left = left.saturating_sub(done.max(1));
    }
    Ok(Reply::Due(more))
}

/// Does one work, or as much of it as `left` allows; gives how many rows it took.
fn carry_out(turn: &mut Turn<'_>, work: DueWork, left: usize) -> Result<usize, Fault> {
    match work {
        DueWork::SessionIdle(id) => return idle(turn, id, left),
        DueWork::SessionEnd(id) => return settle_ended(turn, &id, left),
        DueWork::SessionRemoval(id) => return remove(turn, id, left),
        DueWork::HoldExpiry(id, number) => {
            settlement::expire_hold(turn, &id, number, "hold expired")?;
        }
        DueWork::ApprovalExpiry(id) => approval::expire(turn, &id)?,
        DueWork::ApprovalRemoval(id) => approval::forget(turn, id)?,
        DueWork::DrainEnd(scope) => halts::end_drain(turn, &scope)?,
        DueWork::RequestExpiry(by, request) => turn.remove::<Recorded>(&(by, request)),
    }
    Ok(1)
}
