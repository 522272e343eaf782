//! From a command to its reply, wherever the leader is: into this node's queue where it leads, else one hop to the
//! leader's, with the identity that this node verified and what is left of the caller's deadline.

use std::time::Duration;

use machine::{Command, Reply};
use store::Member;
use tokio::time::Instant;
use wire::proto::haltgate::peer::v1 as peer;

use crate::connect::Lane;
use crate::error::{Lost, Unavailable};
use crate::node::{Leading, Node};
use crate::proposer::Urgency;
use crate::raft::Leader;

/// How long to wait before asking for the leader again, when nothing tells of a change.
const RETRY: Duration = Duration::from_millis(20);

impl Node {
    /// Has a command decided and recorded, wherever the leader is, and gives its reply.
    ///
    /// A command whose answer was lost on the way is sent again where that is harmless: the retry table knows it.
    ///
    /// # Errors
    /// No reply within `within`: the command may or may not have been carried out.
    pub async fn propose(
        &self,
        command: Command,
        urgency: Urgency,
        within: Duration,
    ) -> Result<Reply, Unavailable> {
        let deadline = Instant::now() + within;
        self.in_service()?;
        self.queues().measure(&command)?;
        let mut changed = self.changed();
        loop {
            let lost = match self.try_once(&command, urgency, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(lost) => lost,
            };
            let unavailable = match lost {
                Lost::NotLeader if self.is_leaderless() => return Err(Unavailable::NoLeader),
                Lost::NotLeader => Unavailable::NoLeader,
                Lost::Moved if may_be_repeated(&command) => Unavailable::Lost,
                Lost::Moved => return Err(Unavailable::Lost),
                Lost::Unavailable(Unavailable::NoClock) => Unavailable::NoClock,
                Lost::Unavailable(unavailable) => return Err(unavailable),
            };
            if let Some(why) = self.ended() {
                return Err(Unavailable::Stopped(why));
            }
            let again = (Instant::now() + RETRY).min(deadline);
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep_until(again) => {}
            }
            if Instant::now() >= deadline {
                return Err(unavailable);
            }
        }
    }

    async fn try_once(&self, command: &Command, urgency: Urgency, deadline: Instant) -> Result<Reply, Lost> {
        match self.leader() {
            Leader::Here => {
                let replying = self.propose_here(command.clone(), urgency);
                tokio::time::timeout_at(deadline, replying)
                    .await
                    .unwrap_or(Err(Lost::Unavailable(Unavailable::Deadline)))
            }
            Leader::HereAlone => Err(Lost::Unavailable(Unavailable::NoQuorum)),
            Leader::There(raft_id, member) => {
                self.forward(raft_id, &member, command, urgency, deadline).await
            }
            Leader::Unknown => Err(Lost::NotLeader),
        }
    }

    /// As `propose_for`, of this node's own callers and chores.
    pub(crate) async fn propose_here(&self, command: Command, urgency: Urgency) -> Result<Reply, Lost> {
        self.propose_for(self.member().name.clone(), command, urgency)
            .await
    }

    /// Waits for a place in this node's own log; only the leader has one. Once the leader knows that it reaches no
    /// quorum, nothing waits there any longer. The node named here vouches for whoever the command says it is from.
    pub(crate) async fn propose_for(
        &self,
        vouched_by: String,
        command: Command,
        urgency: Urgency,
    ) -> Result<Reply, Lost> {
        match self.leader() {
            Leader::Here => {}
            Leader::HereAlone => return Err(Lost::Unavailable(Unavailable::NoQuorum)),
            Leader::There(..) | Leader::Unknown => return Err(Lost::NotLeader),
        }
        let reply = self.queues().put(vouched_by, command, urgency)?;
        tokio::select! {
            reply = reply => reply,
            leading = self.stops_leading() => Err(match leading {
                Leading::Alone => Lost::Unavailable(Unavailable::NoQuorum),
                Leading::Yes | Leading::No => Lost::Moved,
            }),
        }
    }

    async fn forward(
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
        let lane = match urgency {
            Urgency::Call => Lane::Calls,
            Urgency::Urgent => Lane::Urgent,
        };
        let mut client = self.peers().client(leader, lane);
        let answer = match tokio::time::timeout_at(deadline, client.forward(request)).await {
            Ok(Ok(answer)) => answer.into_inner(),
            // Refused, or the connection broke: before or after the leader took it, nobody can say.
            Ok(Err(_status)) => {
                self.leader_lost();
                return Err(Lost::Moved);
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
            Some(peer::forward_response::Outcome::Unavailable(word)) => Err(Lost::from_wire(word)),
            Some(peer::forward_response::Outcome::Error(_)) | None => Err(Lost::Moved),
        }
    }
}

/// Whether a command may be carried out a second time after its answer was lost. A plain call may not: its own first
/// run has spent the nonce, and the second would be told that it is a repetition, beside a hold that nobody settles.
fn may_be_repeated(command: &Command) -> bool {
    match command {
        Command::PreExec(call) => call.request.is_some(),
        _ => true,
    }
}
