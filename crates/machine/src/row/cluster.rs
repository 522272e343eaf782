//! What the whole cluster agrees on, and where its audit chain stands.

use audit::{ChainHead, Frontier};
use decision::Timestamp;
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
}

impl Chain {
    /// A chain without an entry.
    pub fn empty(chain_id: &str) -> Self {
        Self {
            head: ChainHead::empty(chain_id),
            frontier: Frontier::default(),
            sealed_to: 0,
        }
    }
}
