//! Makes a node's public signing key known.

use audit::{Entry, KeyChange, KeyRing, Kind};

use crate::command::RegisterKey;
use crate::row::reply::{Refusal, Reply};
use crate::row::{Read as _, Record};
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, key: &RegisterKey) -> Done {
    let mut keys: KeyRing = turn.rows.keys()?.unwrap_or_default();
    if keys.iter().any(|known| known.public == key.public) {
        return Ok(Reply::Done(turn.place(0)));
    }
    let change = KeyChange::register(key.public, key.node.as_str());
    keys.change(&change, &turn.cluster.chain_id, turn.next_sequence())
        .map_err(|broken| Refusal::Invalid(broken.to_string()))?;
    let sequence = turn.record(Entry {
        operator_id: format!("node/{}", key.node),
        detail: change.to_string(),
        ..turn.entry(Kind::KeyRegistered)
    });
    turn.save(Record::new((), keys));
    Ok(Reply::Done(turn.place(sequence)))
}
