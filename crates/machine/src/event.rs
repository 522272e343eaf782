//! What others may watch: pushed after the write that made it true.

use decision::{ApprovalId, HaltMode, Reason, SessionId, Verdict};

use crate::scope::Scope;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call was decided (not when an earlier answer was given again).
    Decided {
        verdict: Verdict,
        reason: Reason,
    },
    /// An earlier answer was given again.
    Replayed,
    /// A hold was settled by its agent.
    Settled,
    /// A hold was settled by time or by the session's end.
    HoldExpired,
    Tripped {
        session: SessionId,
    },
    Engaged {
        scope: Scope,
        mode: HaltMode,
        epoch: u64,
    },
    Released {
        scope: Scope,
        epoch: u64,
    },
    /// An approval was opened, shown, decided, or is over.
    Approval {
        session: SessionId,
        id: ApprovalId,
    },
    SessionOpened,
    SessionClosed {
        session: SessionId,
    },
}
