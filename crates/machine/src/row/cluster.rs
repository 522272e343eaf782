//! What the whole cluster agrees on, and where its audit chain stands.

use audit::{ChainHead, Frontier};
use decision::{Digest, Timestamp};
use minicbor::{Decode, Encode};

/// What the whole cluster agrees on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Cluster {
    #[n(0)]
    pub chain_id: String,
    /// The newest log time.
    #[n(1)]
    pub now: Timestamp,
    /// Counts engagements and releases.
    #[n(2)]
    pub halt_epoch: u64,
    #[n(3)]
    pub unfunded_organizations: bool,
    #[n(4)]
    pub fixtures: bool,
    /// The version of the rules that is active: the founder's, until another is activated.
    #[n(5)]
    pub version: u32,
}

/// Where the audit chain stands.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Chain {
    #[n(0)]
    pub head: ChainHead,
    /// The Merkle tree over the entries.
    #[n(1)]
    pub frontier: Frontier,
    /// Entries up to this sequence carry signatures.
    #[n(2)]
    pub sealed_to: u64,
    /// Of all changes of rows that were ever made, in the order of batches and keys: two nodes that applied the same
    /// log have the same one. A hash over changes instead of over rows finds the same difference, and needs no row
    /// as it was before: one call costs one more encoding of the eight rows it changed (2 kB) and one SHA-256 over
    /// them, a batch of 100 calls two a call.
    #[n(3)]
    pub state: Digest,
}

impl Chain {
    /// One value for all that nodes compare at a place of the log: the chain's head, and the changes of the state.
    pub fn fingerprint(&self) -> [u8; 32] {
        let both = [self.head.hash, *self.state.as_bytes()].concat();
        *Digest::of(&both).as_bytes()
    }

    /// A chain without an entry.
    pub fn empty(chain_id: &str) -> Self {
        Self {
            head: ChainHead::empty(chain_id),
            frontier: Frontier::default(),
            sealed_to: 0,
            state: Digest::of(&[]),
        }
    }
}
