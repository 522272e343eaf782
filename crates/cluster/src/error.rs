//! Why a command or a read got no answer. None of these is a verdict, and none changed anything for sure.

use store::{Member, StoreError};
use wire::proto::haltgate::peer::v1 as peer;

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
    /// It would not fit into a log entry.
    #[error("the command is too large: {bytes} bytes of at most {most}")]
    TooLarge { bytes: usize, most: usize },
    /// The command may or may not have been carried out: ask again with the same request id.
    #[error("the deadline passed before an answer")]
    Deadline,
    /// Leadership moved before the answer. As `Deadline`.
    #[error("leadership moved before an answer: the call may have been decided")]
    Lost,
    #[error("storage refused: {0}")]
    Storage(String),
    /// This node must not answer, whatever the cluster does.
    #[error("{0}")]
    OutOfService(#[from] OutOfService),
    #[error("this node is stopping: {0}")]
    Stopped(String),
}

/// Why a node that runs answers nothing: what it holds is not what its cluster holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutOfService {
    /// The volume of another cluster was mounted, or the configuration names another cluster's nodes.
    #[error("this data directory is of cluster {own}, the members that answer are of cluster {theirs}")]
    OtherCluster { own: String, theirs: String },
    #[error(
        "this data directory was removed from its cluster: add the node again with an empty directory, or end it"
    )]
    Removed,
    /// Equal entries gave another state than a majority has.
    #[error(
        "the state diverged from the other nodes' at log entry {index}: keep this directory for analysis and join again with an empty one"
    )]
    Diverged { index: u64 },
    /// The nodes that answer disagree, and none of the states is a majority's.
    #[error("the nodes' states differ at log entry {index} and no majority has one of them: nobody serves")]
    NoMajority { index: u64 },
}

impl OutOfService {
    /// One word for readiness, metrics and peers.
    pub fn word(&self) -> &'static str {
        match self {
            Self::OtherCluster { .. } => "other_cluster",
            Self::Removed => "removed",
            Self::Diverged { .. } | Self::NoMajority { .. } => "diverged",
        }
    }
}

impl Unavailable {
    /// One word for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoLeader => "no_leader",
            Self::NoQuorum => "no_quorum",
            Self::NoClock => "no_clock",
            Self::Overloaded => "overloaded",
            Self::TooLarge { .. } => "too_large",
            Self::Deadline => "deadline",
            Self::Lost => "lost",
            Self::Storage(_) => "storage",
            Self::OutOfService(why) => why.word(),
            Self::Stopped(_) => "stopped",
        }
    }
}

/// Why the leader's queue gave no reply.
#[derive(Debug)]
pub(crate) enum Lost {
    /// This node does not lead; nothing was proposed.
    NotLeader,
    /// It led when the command came, and no longer: it may have been carried out all the same.
    Moved,
    Unavailable(Unavailable),
}

impl Lost {
    /// As it is told between nodes.
    pub fn to_wire(&self) -> peer::Unavailable {
        match self {
            Self::NotLeader => peer::Unavailable::NotLeader,
            Self::Moved => peer::Unavailable::Moved,
            Self::Unavailable(why) => match why {
                Unavailable::NoLeader => peer::Unavailable::NotLeader,
                Unavailable::NoQuorum => peer::Unavailable::NoQuorum,
                Unavailable::NoClock => peer::Unavailable::NoClock,
                Unavailable::Overloaded => peer::Unavailable::Overloaded,
                Unavailable::TooLarge { .. } => peer::Unavailable::TooLarge,
                Unavailable::Deadline => peer::Unavailable::Deadline,
                Unavailable::Lost => peer::Unavailable::Moved,
                Unavailable::Storage(_) => peer::Unavailable::Storage,
                Unavailable::OutOfService(_) | Unavailable::Stopped(_) => peer::Unavailable::Stopped,
            },
        }
    }

    /// What another node says; a word of a newer version may have been carried out for all that is known here.
    pub fn from_wire(word: i32) -> Self {
        let unavailable = match peer::Unavailable::try_from(word) {
            Ok(peer::Unavailable::NotLeader) => return Self::NotLeader,
            Ok(peer::Unavailable::NoQuorum) => Unavailable::NoQuorum,
            Ok(peer::Unavailable::NoClock) => Unavailable::NoClock,
            Ok(peer::Unavailable::Overloaded) => Unavailable::Overloaded,
            Ok(peer::Unavailable::TooLarge) => Unavailable::TooLarge { bytes: 0, most: 0 },
            Ok(peer::Unavailable::Deadline) => Unavailable::Deadline,
            Ok(peer::Unavailable::Storage) => Unavailable::Storage("at the leader".to_owned()),
            Ok(peer::Unavailable::Moved | peer::Unavailable::Stopped | peer::Unavailable::Unspecified)
            | Err(_) => return Self::Moved,
        };
        Self::Unavailable(unavailable)
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

#[cfg(test)]
mod tests {
    use super::{Lost, OutOfService, Unavailable};

    /// What may have been carried out is never told as something that was not.
    #[test]
    fn what_a_node_says_is_heard_as_no_less_than_it_was() {
        let told = |lost: Lost| Lost::from_wire(lost.to_wire().into());
        let rows = [
            (Unavailable::NoQuorum, "no_quorum"),
            (Unavailable::NoClock, "no_clock"),
            (Unavailable::Overloaded, "overloaded"),
            (Unavailable::TooLarge { bytes: 2, most: 1 }, "too_large"),
            (Unavailable::Deadline, "deadline"),
            (Unavailable::Storage("full".to_owned()), "storage"),
        ];
        for (unavailable, word) in rows {
            match told(Lost::Unavailable(unavailable)) {
                Lost::Unavailable(heard) => assert_eq!(heard.word(), word),
                other => panic!("{word} was heard as {other:?}"),
            }
        }
        assert!(matches!(told(Lost::NotLeader), Lost::NotLeader));
        assert!(matches!(
            told(Lost::Unavailable(Unavailable::NoLeader)),
            Lost::NotLeader
        ));
        let maybe = [
            Lost::Moved,
            Lost::Unavailable(Unavailable::Lost),
            Lost::Unavailable(Unavailable::Stopped(String::new())),
            Lost::Unavailable(Unavailable::OutOfService(OutOfService::Removed)),
        ];
        for lost in maybe {
            assert!(matches!(told(lost), Lost::Moved));
        }
        assert!(
            matches!(Lost::from_wire(99), Lost::Moved),
            "a newer version's word"
        );
    }
}
