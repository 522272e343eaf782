//! When snapshots are built: one node at a time, when enough was applied, and again later where the disk was full.

use std::time::Duration;

use tokio::time::Instant;
use wire::proto::haltgate::peer::v1 as peer;

use crate::error::Unavailable;
use crate::node::Node;
use crate::standing::Building;

/// How often a node looks whether a snapshot is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pause after one that failed: what filled the disk does not go away in a second.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// How long another node may take to say whether it builds.
const ASK: Duration = Duration::from_millis(500);

impl Node {
    /// Builds a snapshot of what is applied; the log behind it is purged up to its margin.
    ///
    /// # Errors
    /// The disk is full or fails, one is being built, or Raft has ended.
    pub async fn snapshot(&self) -> Result<(), Unavailable> {
        let built = self.snapshots().build().await;
        built.map_err(|error| Unavailable::Storage(error.to_string()))?;
        self.raft()
            .trigger()
            .snapshot()
            .await
            .map_err(|fatal| Unavailable::Stopped(fatal.to_string()))
    }

    fn is_snapshot_due(&self) -> bool {
        let status = self.status();
        status.applied.saturating_sub(status.snapshot) >= self.options().snapshot_every
            // The file was damaged and is gone: who needs it must not wait for the next one.
            || (status.purged > 0 && self.snapshots().current().is_none())
    }

    /// Takes the turn to build, where no other node has it. Whoever wants it says so before it asks; of two that want
    /// it the lower id goes first, and of two that took it at the same moment neither does.
    async fn takes_turn(&self) -> bool {
        self.standing().builds(Building::Wanted);
        let first = |raft_id, hello: &peer::HelloResponse| {
            hello.builds_snapshot || hello.wants_snapshot && raft_id < self.raft_id()
        };
        if self.any_other(first).await {
            return false;
        }
        self.standing().builds(Building::UnderWay);
        !self.any_other(|_, hello| hello.builds_snapshot).await
    }

    /// Whether this is true of any node that answers.
    async fn any_other(&self, is: impl Fn(u64, &peer::HelloResponse) -> bool) -> bool {
        let others = self.status().members;
        let asking = others
            .iter()
            .filter(|known| known.raft_id != self.raft_id())
            .map(async |known| (known.raft_id, self.ask(&known.member, ASK).await));
        let answers = futures::future::join_all(asking).await;
        answers
            .iter()
            .any(|(raft_id, answer)| answer.as_ref().is_ok_and(|hello| is(*raft_id, hello)))
    }
}

/// Builds a snapshot whenever one is due.
pub(crate) async fn keep(node: Node) {
    let mut failed: Option<Instant> = None;
    while node.runs() {
        tokio::time::sleep(LOOK_EVERY).await;
        let rests = failed.is_some_and(|at| at.elapsed() < AFTER_FAILURE);
        if rests || !node.is_snapshot_due() || !node.takes_turn().await {
            node.standing().builds(Building::No);
            continue;
        }
        failed = match node.snapshot().await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(%error, "no snapshot could be built; the log stays as it is until one can");
                node.standing().snapshot_failed();
                Some(Instant::now())
            }
        };
        node.standing().builds(Building::No);
    }
}
