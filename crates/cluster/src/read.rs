//! Reads that people act on: the leader confirms that it still leads, then the read waits until this node
//! has applied what was committed by then. No lease decides anything.

use std::time::Duration;

use openraft::ReadPolicy;
use store::StateView;
use tokio::time::Instant;

use crate::error::Unavailable;
use crate::node::Node;
use crate::propose::Leader;

impl Node {
    /// Reads from a view that contains everything answered before the call.
    ///
    /// # Errors
    /// No leader confirmed itself, or this node did not catch up, within `within`.
    pub async fn read<T>(
        &self,
        within: Duration,
        read: impl FnOnce(&StateView<'_>) -> T,
    ) -> Result<T, Unavailable> {
        let deadline = Instant::now() + within;
        let reading = async {
            let index = loop {
                let asked = match self.leader() {
                    Leader::Here => self.read_index_here().await,
                    Leader::HereAlone => return Err(Unavailable::NoQuorum),
                    Leader::There(raft_id, member) => self.read_index_there(raft_id, &member, within).await,
                    Leader::Unknown => Err(Unavailable::NoLeader),
                };
                match asked {
                    Ok(index) => break index,
                    Err(unavailable) if self.is_leaderless() => return Err(unavailable),
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            let mut progress = self.reader().progress();
            let _applied = progress
                .wait_for(|progress| progress.applied_index >= index)
                .await
                .map_err(|_closed| Unavailable::Stopped("the state machine ended".to_owned()))?;
            self.reader()
                .at(read)
                .map_err(|error| Unavailable::Storage(error.to_string()))
        };
        tokio::time::timeout_at(deadline, reading)
            .await
            .unwrap_or(Err(Unavailable::Deadline))
    }

    /// Confirms with a quorum that this node leads, and gives the index that its answers reach to.
    pub(crate) async fn read_index_here(&self) -> Result<u64, Unavailable> {
        let (read, _applied) = self
            .raft()
            .get_read_log_id(ReadPolicy::ReadIndex)
            .await
            .map_err(|_not_leader| Unavailable::NoLeader)?;
        Ok(read.index())
    }
}
