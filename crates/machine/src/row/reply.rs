//! What `apply` answers.

use decision::{ApprovalId, Digest, DurationNs, HaltMode, NanoUsd, Reason, SessionId, Timestamp, Verdict};
use minicbor::{Decode, Encode};

use crate::row::account::Account;
use crate::row::approval::{ApprovalStatus, Successor};
use crate::row::guard::Guard;
use crate::row::session::SessionStatus;
use crate::row::ticket::Authorization;

/// The answer to one command.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Reply {
    /// The command was applied; nothing more to say.
    #[n(0)]
    Done(#[n(0)] Place),
    #[n(1)]
    Registered(#[n(0)] Box<Registered>),
    #[n(2)]
    Verdict(#[n(0)] VerdictReply),
    #[n(3)]
    Settled(#[n(0)] Settled),
    #[n(4)]
    Account(#[n(0)] Account, #[n(1)] Place),
    #[n(5)]
    Guard(#[n(0)] Box<Guard>, #[n(1)] Place),
    /// The kill switch as it now stands: the epoch after which every node refuses, or no longer does.
    #[n(6)]
    Halt(#[n(0)] HaltReply),
    #[n(7)]
    Session(#[n(0)] SessionStatus, #[n(1)] Place),
    /// Due work: whether some is left for another command.
    #[n(8)]
    Due(#[n(0)] bool),
    /// Nothing was decided; the command changed nothing but, where said so, the audit chain.
    #[n(9)]
    Refused(#[n(0)] Refusal),
    #[n(10)]
    Approval(#[n(0)] ApprovalReply),
    /// Nothing was decided: rules newer than those that the facts came from are current as of this place.
    #[n(11)]
    Reevaluate(#[n(0)] Place),
    #[n(12)]
    Redeemed(#[n(0)] Redeemed),
    /// Nothing was decided: the batch was stamped with another version than the active one. It is to be proposed again
    /// under this one, by the node that proposed it.
    #[n(13)]
    OtherVersion(#[n(0)] u32),
}

impl Reply {
    /// The same answer given to a retry.
    pub(crate) fn again(self) -> Self {
        match self {
            Self::Settled(settled) => Self::Settled(Settled {
                replayed: true,
                ..settled
            }),
            other => other,
        }
    }
}

/// A ticket was used up, or what stood against it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Redeemed {
    #[n(0)]
    pub refused: Option<Reason>,
    #[n(1)]
    pub place: Place,
}

/// Where in the log and in the chain an answer was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Place {
    #[n(0)]
    pub log_index: u64,
    /// The audit entry's sequence; 0 where the command makes none.
    #[n(1)]
    pub sequence: u64,
    #[n(2)]
    pub halt_epoch: u64,
    #[n(3)]
    pub time: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Registered {
    #[n(0)]
    pub session: SessionId,
    #[n(1)]
    pub guard: Guard,
    #[n(2)]
    pub place: Place,
}

/// A verdict, recorded.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct VerdictReply {
    #[n(0)]
    pub session: SessionId,
    #[n(1)]
    pub call_number: u64,
    #[n(2)]
    pub verdict: Verdict,
    #[n(3)]
    pub reason: Reason,
    /// Reasons further down the order that also held; for operators, not for agents.
    #[n(4)]
    pub also: Vec<Reason>,
    /// What the session's account has left after this call's hold; none where it has no limit.
    #[n(5)]
    pub remaining: Option<NanoUsd>,
    /// Identical consecutive calls, this one included where it was allowed.
    #[n(6)]
    pub repeats: u32,
    #[n(7)]
    pub approval_id: Option<ApprovalId>,
    /// The scope that stopped it, as operators write it.
    #[n(8)]
    pub blocked_by: Option<String>,
    /// The answer was given before; nothing was written again.
    #[n(9)]
    pub replayed: bool,
    #[n(10)]
    pub place: Place,
    /// Limits that an allowed call brought near their end.
    #[n(11)]
    pub warnings: Vec<Warning>,
    /// The single-use authorization that goes with an ALLOW, where the guard hands out any.
    #[n(12)]
    pub authorization: Option<Box<Authorization>>,
    /// When the same call may fare better, of a full rate or window.
    #[n(13)]
    pub retry_after: Option<DurationNs>,
}

/// A limit that is used up beyond the guard's `warn_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Warning {
    #[n(0)]
    Budget,
    #[n(1)]
    TotalCalls,
    #[n(2)]
    Repeats,
    #[n(3)]
    Tokens,
    #[n(4)]
    Cost,
    #[n(5)]
    Timeout,
}

impl Warning {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::TotalCalls => "total_calls",
            Self::Repeats => "repeats",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::Timeout => "timeout",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Settled {
    /// What the account was charged in all for this call.
    #[n(0)]
    pub charged: NanoUsd,
    #[n(1)]
    pub remaining: Option<NanoUsd>,
    #[n(2)]
    pub replayed: bool,
    #[n(3)]
    pub place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct HaltReply {
    /// The reason that sticks: of the first engagement.
    #[n(0)]
    pub reason: String,
    #[n(1)]
    pub engaged: bool,
    #[n(2)]
    pub place: Place,
    #[n(3)]
    pub mode: HaltMode,
    /// Another person has to ask for the release, too.
    #[n(4)]
    pub needs_second: bool,
}

/// An approval as it now stands.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ApprovalReply {
    #[n(0)]
    pub id: ApprovalId,
    #[n(1)]
    pub status: ApprovalStatus,
    #[n(2)]
    pub info_digest: Digest,
    /// What may run in the original's place, without its parameters.
    #[n(3)]
    pub successor: Option<Successor>,
    #[n(4)]
    pub place: Place,
}

/// Why a command was not carried out. A refusal is data: every replica comes to the same one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Encode, Decode)]
pub enum Refusal {
    #[error("the cluster has not been initialised: run `haltgate init`")]
    #[n(0)]
    NotInitialized,
    #[error("the cluster is initialised already")]
    #[n(1)]
    AlreadyInitialized,
    #[error("no such session")]
    #[n(2)]
    SessionNotFound,
    /// The certificate does not own the session, agent or organization.
    #[error("this identity may not act on {0}")]
    #[n(3)]
    NotYours(#[n(0)] String),
    /// The same request id with another payload, or a call number that another request used.
    #[error("{0}")]
    #[n(4)]
    Conflict(#[n(0)] String),
    #[error("{0}")]
    #[n(5)]
    Invalid(#[n(0)] String),
    /// The named account, guard, halt or key does not exist.
    #[error("{0}")]
    #[n(6)]
    NotFound(#[n(0)] String),
    /// The session's status forbids it.
    #[error("{0}")]
    #[n(7)]
    Precondition(#[n(0)] String),
}
