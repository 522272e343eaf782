//! Ends a session at its own agent's wish.

use crate::command::EndSession;
use crate::feature::Feature;
use crate::row::SessionStatus;
use crate::row::reply::Reply;
use crate::step::session::{DUE_MAX, terminate};
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, end: &EndSession) -> Done {
    let session = turn.session_of_agent(&end.by, &end.session)?;
    let sequence = match session.status {
        // Ending twice is one end.
        SessionStatus::Terminated => 0,
        SessionStatus::Active | SessionStatus::Paused | SessionStatus::Stale => {
            let why = if Feature::MadeUp.is_in(turn.version()) {
                "ended by its agent, in a version that is made up"
            } else {
                "ended by its agent"
            };
            terminate(turn, session, &end.by.name, why, DUE_MAX)?.sequence
        }
    };
    Ok(Reply::Session(SessionStatus::Terminated, turn.place(sequence)))
}
