//! What a node knows of itself and its cluster, in plain values.

use store::Member;

/// Where a node stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    pub raft_id: u64,
    /// None until the node belongs to a cluster.
    pub cluster_id: Option<String>,
    pub role: Role,
    pub term: u64,
    /// The Raft id and addresses of the leader, where one is heard from.
    pub leader: Option<(u64, Member)>,
    pub members: Vec<MemberStatus>,
    /// A change of the voters is under way: both the old set and the new one are needed for every decision.
    pub changing: bool,
    pub last_log: u64,
    pub committed: u64,
    pub applied: u64,
    pub snapshot: u64,
    pub purged: u64,
    /// Why Raft has ended; nothing may go on answering once this is set.
    pub stopped: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// Not a member yet, or no longer.
    #[default]
    Learner,
    Follower,
    Candidate,
    Leader,
    Stopped,
}

impl Role {
    pub fn word(self) -> &'static str {
        match self {
            Self::Learner => "learner",
            Self::Follower => "follower",
            Self::Candidate => "candidate",
            Self::Leader => "leader",
            Self::Stopped => "stopped",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    pub raft_id: u64,
    pub member: Member,
    pub voter: bool,
    /// The highest log index known to be on it; the leader alone knows, 0 elsewhere.
    pub matched: u64,
}

/// The halt epoch that one node has applied; none where it did not answer in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHaltEpoch {
    pub raft_id: u64,
    pub member: Member,
    pub applied: Option<u64>,
}

impl Status {
    pub fn leads(&self) -> bool {
        self.role == Role::Leader
    }

    pub fn is_voter(&self) -> bool {
        self.members
            .iter()
            .any(|member| member.raft_id == self.raft_id && member.voter)
    }

    pub fn member(&self, raft_id: u64) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.raft_id == raft_id)
            .map(|found| &found.member)
    }
}
