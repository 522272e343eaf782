//! Nonces that a session has seen, a bit each.

use decision::SessionId;

use crate::apply::Turn;
use crate::table::{Fault, Key, Read, Row, Rows};

pub(crate) fn nonce_seen<R: Rows>(rows: &R, session: &SessionId, nonce: u64) -> Result<bool, Fault> {
    let (block, word, bit) = nonce_place(nonce);
    let nonces = rows.nonces(session, block)?.unwrap_or_default();
    Ok(nonces.bits.get(word).is_some_and(|bits| bits & bit != 0))
}

/// Adds a nonce to the session's seen set.
pub(crate) fn see_nonce<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    session: &SessionId,
    nonce: u64,
) -> Result<(), Fault> {
    let (block, word, bit) = nonce_place(nonce);
    let mut nonces = turn.rows.nonces(session, block)?.unwrap_or_default();
    if let Some(bits) = nonces.bits.get_mut(word) {
        *bits |= bit;
    }
    turn.rows
        .put(Key::Nonces(session.clone(), block), Row::Nonces(nonces));
    Ok(())
}

pub(crate) fn nonce_place(nonce: u64) -> (u64, usize, u64) {
    let word = usize::try_from((nonce >> 6) & 3).unwrap_or(0);
    (nonce >> 8, word, 1 << (nonce & 63))
}
