//! Sessions that one node heard from since it last said so.

use crate::command::Seen;
use crate::row::Session;
use crate::row::reply::Reply;
use crate::step::counters::heard_from;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, seen: &Seen) -> Done {
    for id in &seen.sessions {
        let Some(mut session) = turn.find::<Session>(id)? else {
            continue;
        };
        let before = session.last_activity;
        heard_from(&mut session, turn.now());
        if session.last_activity != before {
            turn.save(session);
        }
    }
    Ok(Reply::Done(turn.place(0)))
}
