//! Why a command or a read got no answer. None of these is a verdict, and none changed anything for sure.

use store::{Member, StoreError};

/// What the caller can do: try again, here or at the leader, within its deadline; or give up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("no leader is known: the cluster has no quorum, or is electing one")]
    NoLeader,
    #[error("the leader does not reach a quorum of its members")]
    NoQuorum,
    /// The leader does not know yet what time it is.
    #[error("the clocks of a majority of the voters are not known to the leader yet")]
    NoClock,
    #[error("the queue of calls is full")]
    Overloaded,
    /// The command may or may not have been carried out: ask again with the same request id.
    #[error("the deadline passed before an answer")]
    Deadline,
    #[error("storage refused: {0}")]
    Storage(String),
    #[error("this node is stopping: {0}")]
    Stopped(String),
}

impl Unavailable {
    /// One word for metrics and for peers.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoLeader => "no_leader",
            Self::NoQuorum => "no_quorum",
            Self::NoClock => "no_clock",
            Self::Overloaded => "overloaded",
            Self::Deadline => "deadline",
            Self::Storage(_) => "storage",
            Self::Stopped(_) => "stopped",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The configuration does not fit together, or not to the data.
    #[error("{0}")]
    Options(String),
    #[error("Raft did not start: {0}")]
    Raft(String),
}

/// Why a change of membership, or the cluster's first one, was not made.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    #[error("{} already belongs to cluster {cluster}: a new one cannot take it", .member.name)]
    Taken { member: Member, cluster: String },
    #[error("{} at {} does not answer: {why}", .member.name, .member.peer)]
    Unreachable { member: Member, why: String },
    #[error("{0} is not a member of this cluster")]
    Unknown(String),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(transparent)]
    Store(#[from] StoreError),
}
