//! Reads that people act on: the leader confirms that it still leads and says what time it is, then the read waits
//! until this node has applied what was committed by then. No lease decides anything.

use std::time::Duration;

use decision::Timestamp;
use openraft::ReadPolicy;
use store::{Member, StateView};
use tokio::time::Instant;
use wire::proto::haltgate::peer::v1 as peer;

use crate::connect::Lane;
use crate::error::{Lost, Unavailable};
use crate::node::Node;
use crate::raft::Leader;

/// What a read must see: everything up to this log index, at this log time.
pub(crate) struct ReadPoint {
    pub index: u64,
    /// What the leader would stamp on a command now. On an idle cluster the last entry's stamp is long ago.
    pub now: Timestamp,
}

impl Node {
    /// Reads from a view that contains everything answered before the call, at the leader's time.
    ///
    /// # Errors
    /// No leader confirmed itself, or this node did not catch up, within `within`.
    pub async fn read<T>(
        &self,
        within: Duration,
        read: impl FnOnce(&StateView<'_>) -> T,
    ) -> Result<T, Unavailable> {
        self.in_service()?;
        let deadline = Instant::now() + within;
        let reading = async {
            let point = loop {
                let asked = match self.leader() {
                    Leader::Here => self.read_point_here().await,
                    Leader::HereAlone => return Err(Unavailable::NoQuorum),
                    Leader::There(raft_id, member) => self.read_point_there(raft_id, &member, within).await,
                    Leader::Unknown => Err(Unavailable::NoLeader),
                };
                match asked {
                    Ok(point) => break point,
                    Err(unavailable) if self.is_leaderless() => return Err(unavailable),
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            let mut progress = self.reader().progress();
            let _applied = progress
                .wait_for(|progress| progress.applied_index >= point.index)
                .await
                .map_err(|_closed| Unavailable::Stopped("the state machine ended".to_owned()))?;
            self.reader()
                .at_time(point.now, read)
                .map_err(|error| Unavailable::Storage(error.to_string()))
        };
        tokio::time::timeout_at(deadline, reading)
            .await
            .unwrap_or(Err(Unavailable::Deadline))
    }

    /// Confirms with a quorum that this node leads, and gives the index that its answers reach to.
    pub(crate) async fn read_point_here(&self) -> Result<ReadPoint, Unavailable> {
        let (read, _applied) = self
            .raft()
            .get_read_log_id(ReadPolicy::ReadIndex)
            .await
            .map_err(|_not_leader| Unavailable::NoLeader)?;
        Ok(ReadPoint {
            index: read.index(),
            now: self.log_time().ok_or(Unavailable::NoClock)?,
        })
    }

    /// Asks the leader for an index that covers every answer given before, and for its time.
    async fn read_point_there(
        &self,
        raft_id: u64,
        leader: &Member,
        within: Duration,
    ) -> Result<ReadPoint, Unavailable> {
        let request = peer::ReadIndexRequest {
            sender: Some(self.whoami().sender(raft_id)),
        };
        let mut client = self.peers().client(leader, Lane::Calls);
        match tokio::time::timeout(within, client.read_index(request)).await {
            Ok(Ok(answer)) => {
                self.leader_found();
                let peer::ReadIndexResponse {
                    index,
                    now_ns,
                    unavailable,
                } = answer.into_inner();
                if unavailable != 0 {
                    return Err(match Lost::from_wire(unavailable) {
                        Lost::NotLeader | Lost::Moved => Unavailable::NoLeader,
                        Lost::Unavailable(unavailable) => unavailable,
                    });
                }
                Ok(ReadPoint {
                    index,
                    now: Timestamp::from_nanos(now_ns),
                })
            }
            Ok(Err(_status)) => {
                self.leader_lost();
                Err(Unavailable::NoLeader)
            }
            Err(_elapsed) => {
                self.peers().give_up(leader, Lane::Calls);
                Err(Unavailable::Deadline)
            }
        }
    }
}
