//! Takes signatures over the next unsealed range of the audit chain. The range's last hash is the chain's own, so a
//! seal over anything else does not verify.

use audit::Seal;

use crate::row::reply::{Refusal, Reply};
use crate::row::{Read as _, Record};
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, seal: &Seal) -> Done {
    let (sealed_to, head) = (turn.chain.sealed_to, turn.chain.head.sequence);
    if seal.from != sealed_to.saturating_add(1) || seal.to > head {
        return Err(Refusal::Conflict(format!(
            "a seal over {} to {} does not continue a chain sealed to {sealed_to} of {head}",
            seal.from, seal.to
        ))
        .into());
    }
    let keys = turn.rows.keys()?.unwrap_or_default();
    let invalid = |broken: audit::Error| Refusal::Invalid(broken.to_string());
    seal.check_shape().map_err(invalid)?;
    let key = keys.signing(&seal.key_id, seal.to).map_err(invalid)?;
    // What does not verify would make the chain fail for every auditor, for good.
    let entries = turn.entries(seal.from, seal.to)?;
    seal.verify(key, &entries).map_err(invalid)?;
    turn.chain.sealed_to = seal.to;
    turn.save(Record::new(seal.to, seal.clone()));
    Ok(Reply::Done(turn.place(0)))
}
