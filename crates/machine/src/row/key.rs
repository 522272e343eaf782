//! What names a row.

use decision::{AgentId, ApprovalId, OrganizationId, RequestId, SessionId, Timestamp};
use minicbor::{Decode, Encode};

use crate::principal::Principal;
use crate::scope::{AccountId, GuardScope, Scope};

/// Names one row. The order of the variants and of their parts is the order of the bytes on disk
/// (`store::keys`), so that a scan gives the same rows from a map and from RocksDB. Its encoding here is hashed with
/// the changes of the state, and rests nowhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Encode)]
pub enum Key {
    #[n(0)]
    Cluster,
    #[n(1)]
    Chain,
    #[n(2)]
    Guard(#[n(0)] GuardScope),
    #[n(3)]
    Halt(#[n(0)] Scope),
    #[n(4)]
    Account(#[n(0)] AccountId),
    #[n(5)]
    Session(#[n(0)] SessionId),
    #[n(6)]
    SessionOf(#[n(0)] OrganizationId, #[n(1)] AgentId, #[n(2)] SessionId),
    #[n(7)]
    Call(#[n(0)] SessionId, #[n(1)] u64),
    #[n(8)]
    Hold(#[n(0)] SessionId, #[n(1)] u64),
    /// A block of 256 nonces: `nonce >> 8`.
    #[n(9)]
    Nonces(#[n(0)] SessionId, #[n(1)] u64),
    #[n(10)]
    Request(#[n(0)] Requester, #[n(1)] RequestId),
    #[n(11)]
    Due(#[n(0)] Timestamp, #[n(1)] DueWork),
    #[n(12)]
    Keys,
    /// Signatures over the entries up to this sequence.
    #[n(13)]
    Seal(#[n(0)] u64),
    #[n(14)]
    Approval(#[n(0)] ApprovalId),
    #[n(15)]
    ApprovalOf(#[n(0)] OrganizationId, #[n(1)] ApprovalId),
    /// Sessions of an organization, an agent, or directly under a guard.
    #[n(16)]
    Tally(#[n(0)] AccountId),
}

/// Whose request ids are told apart: tenants cannot collide.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Requester {
    #[n(0)]
    Session(#[n(0)] SessionId),
    #[n(1)]
    Identity(#[n(0)] String),
}

/// What log time makes due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum DueWork {
    #[n(0)]
    HoldExpiry(#[n(0)] SessionId, #[n(1)] u64),
    /// Looks whether the session was heard from; re-arms itself when it was.
    #[n(1)]
    SessionIdle(#[n(0)] SessionId),
    /// Settles what an ended session still holds.
    #[n(2)]
    SessionEnd(#[n(0)] SessionId),
    /// Removes an ended session's rows.
    #[n(3)]
    SessionRemoval(#[n(0)] SessionId),
    #[n(4)]
    RequestExpiry(#[n(0)] Requester, #[n(1)] RequestId),
    #[n(5)]
    ApprovalExpiry(#[n(0)] ApprovalId),
    /// Forgets an approval that is over.
    #[n(6)]
    ApprovalRemoval(#[n(0)] ApprovalId),
    /// A drain is over by itself.
    #[n(7)]
    DrainEnd(#[n(0)] Scope),
}

impl Requester {
    /// The retry scope of an identity's writes.
    pub fn identity(by: &Principal) -> Self {
        Self::Identity(by.name.clone())
    }
}

impl DueWork {
    /// The least of all works: where a scan of one instant begins.
    pub fn first() -> Self {
        Self::HoldExpiry(SessionId::below_all(), 0)
    }
}
