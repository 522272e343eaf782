//! A call that was decided, and what its number is still good for.

use decision::{ApprovalId, Digest, NanoUsd, RequestId, ToolName};
use minicbor::{Decode, Encode};

use crate::row::reply::VerdictReply;
use crate::row::ticket::Ticket;

/// Calls further behind the highest number than this are forgotten, and their numbers refused.
pub const CALL_WINDOW: u64 = 4_096;
/// A call number may not jump further ahead than this.
pub const CALL_JUMP_MAX: u64 = 1_000_000;
/// Partial settlements of one call: they rest in its row, which each of them writes again.
pub const PARTIALS_MAX: usize = 256;

/// What is remembered of a call that was decided.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Call {
    #[n(0)]
    pub request: Option<RequestId>,
    #[n(1)]
    pub nonce: u64,
    #[n(2)]
    pub phase: Phase,
    /// The answer as it was given; given again to a retry.
    #[n(3)]
    pub answer: VerdictReply,
    #[n(4)]
    pub tool: ToolName,
    #[n(5)]
    pub digest: Option<Digest>,
    /// The requests of its settlements; forgotten with it. At most `PARTIALS_MAX` partial ones.
    #[n(6)]
    pub reports: Vec<RequestId>,
    /// What people were asked about it.
    #[n(7)]
    pub approval: Option<ApprovalId>,
    #[n(8)]
    pub ticket: Option<Ticket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Phase {
    #[n(0)]
    Denied,
    /// Waits for a human.
    #[n(1)]
    Waiting,
    /// Waited, and never runs: rejected, expired, cancelled, or another ran in its place.
    #[n(2)]
    Cancelled,
    /// Allowed; its hold is open.
    #[n(3)]
    Held,
    /// Closed by its agent: charged so much in all, on this last report (none: cost unknown).
    #[n(4)]
    Settled {
        #[n(0)]
        charged: NanoUsd,
        #[n(1)]
        reported: Option<NanoUsd>,
    },
    /// Closed by time or by the session's end, which charged so much on top of what partial reports
    /// had; one late report may put its own amount in the place of that.
    #[n(5)]
    Expired(#[n(0)] NanoUsd),
}
