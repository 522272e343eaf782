//! Nonces that a session has seen, a bit each.

use minicbor::{Decode, Encode};

/// 256 nonces, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Nonces {
    #[n(0)]
    pub bits: [u64; 4],
}

impl Nonces {
    /// The block of 256 that a nonce is in.
    pub const fn block(nonce: u64) -> u64 {
        nonce >> 8
    }

    pub fn has(&self, nonce: u64) -> bool {
        let (word, bit) = place(nonce);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }

    pub fn add(&mut self, nonce: u64) {
        let (word, bit) = place(nonce);
        if let Some(bits) = self.bits.get_mut(word) {
            *bits |= bit;
        }
    }
}

fn place(nonce: u64) -> (usize, u64) {
    (usize::try_from((nonce >> 6) & 3).unwrap_or(0), 1 << (nonce & 63))
}
