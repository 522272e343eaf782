//! Records a change of membership that Raft has made.

use audit::{Entry, Kind};

use crate::command::Members;
use crate::row::reply::Reply;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, members: &Members) -> Done {
    let sequence = turn.record(Entry {
        operator_id: members.by.name.clone(),
        detail: members.change.clone(),
        ..turn.entry(Kind::MembershipChanged)
    });
    Ok(Reply::Done(turn.place(sequence)))
}
