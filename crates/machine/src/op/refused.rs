//! Records a call that the edge refused for its identity.

use crate::command::RefusedAtEdge;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, refused: &RefusedAtEdge) -> Done {
    Err(turn.not_yours(&refused.by, format!("{}: {}", refused.rpc, refused.why)))
}
