//! Drills: the same question put to every node, each having it decided as it does its own clients' calls.

use std::time::Duration;

use decision::OrganizationId;
use machine::{Command, Reply};
use store::Member;
use wire::proto::haltgate::peer::v1 as peer;
use wire::proto::haltgate::peer::v1::probe_response::Outcome;

use crate::connect::Lane;
use crate::node::Node;
use crate::proposer::Urgency;

/// The organization of drills. No certificate is of it.
pub const PROBE_ORGANIZATION: &str = "haltgate.probe";

/// What one node answered.
#[derive(Debug)]
pub struct NodeProbe {
    pub raft_id: u64,
    pub member: Member,
    /// Its reply, or in words why there is none.
    pub outcome: Result<Reply, String>,
    /// What it had applied of the kill switch then.
    pub halt_epoch: u64,
}

impl Node {
    /// Has one member decide a call of the reserved organization.
    pub async fn probe(
        &self,
        raft_id: u64,
        member: Member,
        command: &Command,
        within: Duration,
    ) -> NodeProbe {
        let (outcome, halt_epoch) = if raft_id == self.raft_id() {
            self.probe_here(command.clone(), within).await
        } else {
            self.probe_there(raft_id, &member, command, within).await
        };
        NodeProbe {
            raft_id,
            member,
            outcome,
            halt_epoch,
        }
    }

    /// Decides it here, and says what this node has applied once the answer is there.
    pub(crate) async fn probe_here(
        &self,
        command: Command,
        within: Duration,
    ) -> (Result<Reply, String>, u64) {
        let reply = self.propose(command, Urgency::Urgent, within).await;
        (
            reply.map_err(|unavailable| unavailable.to_string()),
            self.progress().halt_epoch,
        )
    }

    async fn probe_there(
        &self,
        raft_id: u64,
        member: &Member,
        command: &Command,
        within: Duration,
    ) -> (Result<Reply, String>, u64) {
        let request = peer::ProbeRequest {
            sender: Some(self.whoami().sender(raft_id)),
            command: machine::row::bytes(command).into(),
            deadline_ms: u32::try_from(within.as_millis()).unwrap_or(u32::MAX),
        };
        let mut client = self.peers().client(member, Lane::Urgent);
        let answer = match tokio::time::timeout(within, client.probe(request)).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => return (Err(status.message().to_owned()), 0),
            Err(_elapsed) => {
                self.peers().give_up(member, Lane::Urgent);
                return (Err("does not answer".to_owned()), 0);
            }
        };
        let outcome = match answer.outcome {
            Some(Outcome::Reply(reply)) => minicbor::decode(&reply).map_err(|error| error.to_string()),
            Some(Outcome::Error(error)) => Err(error),
            None => Err("answered nothing".to_owned()),
        };
        (outcome, answer.halt_epoch)
    }
}

/// Says whether a command is a drill's question: nothing else comes by this way.
pub(crate) fn is_probe(command: &Command) -> bool {
    let of_drills = |organization: &OrganizationId| organization.as_str() == PROBE_ORGANIZATION;
    matches!(command, Command::PreExec(call) if call.by.organization.as_ref().is_some_and(of_drills))
}
