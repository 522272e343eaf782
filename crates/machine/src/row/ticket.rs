//! A ticket: a single-use authorization that goes with an ALLOW.

use decision::{Digest, SessionId, Timestamp, ToolName};
use minicbor::{Decode, Encode};

/// What is kept of a ticket with its call.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Ticket {
    /// Unguessable.
    #[n(0)]
    pub id: String,
    #[n(1)]
    pub issued_at: Timestamp,
    #[n(2)]
    pub expires_at: Timestamp,
    /// Of the guards that allowed the call; a change of any of them voids it.
    #[n(3)]
    pub policy_digest: Digest,
    /// Who used it.
    #[n(4)]
    pub redeemed_by: Option<String>,
    /// The halt epoch it was issued in; a halt above it since then voids it for good.
    #[n(5)]
    pub halt_epoch: u64,
    /// The audit entry that it came with; a trip or a pause after that voids it for good.
    #[n(6)]
    pub sequence: u64,
}

/// A ticket and what it is for: what is signed and handed to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Authorization {
    #[n(0)]
    pub ticket: Ticket,
    #[n(1)]
    pub session: SessionId,
    #[n(2)]
    pub call_number: u64,
    #[n(3)]
    pub tool: ToolName,
    #[n(4)]
    pub digest: Option<Digest>,
}
