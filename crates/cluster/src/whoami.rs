//! Who this node is, as it introduces itself, and whom it takes for a leader on a member's word.

use store::{Member, Owner};
use tokio::time::Instant;
use wire::proto::haltgate::peer::v1 as peer;

/// Who this node is, as it introduces itself with every message.
#[derive(Clone)]
pub(crate) struct Whoami {
    pub raft_id: u64,
    pub member: Member,
    pub owner: Owner,
}

impl Whoami {
    pub fn new(owner: &Owner, member: &Member) -> Self {
        Self {
            raft_id: owner.identity().raft_id,
            member: member.clone(),
            owner: owner.clone(),
        }
    }

    pub fn sender(&self, to_raft_id: u64) -> peer::Sender {
        peer::Sender {
            cluster_id: self.owner.identity().cluster_id,
            raft_id: self.raft_id,
            node: self.member.name.clone(),
            to_raft_id,
        }
    }
}

/// The unknown leader that a member has vouched for last, and until when that holds.
#[derive(Debug, Default)]
pub(crate) struct Vouched(pub tokio::sync::Mutex<Option<((u64, String), Instant)>>);
