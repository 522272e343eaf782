//! A command that came to a follower goes to the leader, in one hop, with the identity that this node
//! verified and what is left of the caller's deadline.

use std::time::Duration;

use machine::{Command, Reply};
use store::Member;
use tokio::time::Instant;
use wire::proto::haltgate::peer::v1 as peer;

use crate::connect::Lane;
use crate::error::Unavailable;
use crate::node::Node;
use crate::propose::{Lost, Urgency};

impl Node {
    pub(crate) async fn forward(
        &self,
        raft_id: u64,
        leader: &Member,
        command: &Command,
        urgency: Urgency,
        deadline: Instant,
    ) -> Result<Reply, Lost> {
        let left = deadline.saturating_duration_since(Instant::now());
        let request = peer::ForwardRequest {
            sender: Some(self.whoami().sender(raft_id)),
            command: machine::row::bytes(command).into(),
            deadline_ms: u32::try_from(left.as_millis()).unwrap_or(u32::MAX),
            urgent: urgency == Urgency::Urgent,
        };
        let lane = lane_of(urgency);
        let mut client = self.peers().client(leader, lane);
        let answer = match tokio::time::timeout_at(deadline, client.forward(request)).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(_status)) => {
                self.leader_lost();
                return Err(Lost::Unavailable(Unavailable::NoLeader));
            }
            Err(_elapsed) => {
                self.peers().give_up(leader, lane);
                self.leader_lost();
                return Err(Lost::Unavailable(Unavailable::Deadline));
            }
        };
        self.leader_found();
        match answer.outcome {
            Some(peer::forward_response::Outcome::Reply(reply)) => {
                minicbor::decode(&reply).map_err(|error| {
                    Lost::Unavailable(Unavailable::Storage(format!(
                        "the leader's reply is unreadable: {error}"
                    )))
                })
            }
            Some(peer::forward_response::Outcome::Error(error)) => Err(match error.code.as_str() {
                "no_quorum" => Lost::Unavailable(Unavailable::NoQuorum),
                "no_clock" => Lost::Unavailable(Unavailable::NoClock),
                "overloaded" => Lost::Unavailable(Unavailable::Overloaded),
                "deadline" => Lost::Unavailable(Unavailable::Deadline),
                _ => Lost::NotLeader,
            }),
            None => Err(Lost::NotLeader),
        }
    }

    /// Asks the leader for an index that covers every answer given before.
    pub(crate) async fn read_index_there(
        &self,
        raft_id: u64,
        leader: &Member,
        within: Duration,
    ) -> Result<u64, Unavailable> {
        let request = peer::ReadIndexRequest {
            sender: Some(self.whoami().sender(raft_id)),
        };
        let mut client = self.peers().client(leader, Lane::Calls);
        match tokio::time::timeout(within, client.read_index(request)).await {
            Ok(Ok(answer)) => {
                self.leader_found();
                Ok(answer.into_inner().index)
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

fn lane_of(urgency: Urgency) -> Lane {
    match urgency {
        Urgency::Call => Lane::Calls,
        Urgency::Urgent => Lane::Urgent,
    }
}
