//! Asking another node how it stands.

use std::time::Duration;

use store::Member;
use tokio::time::Instant;
use wire::proto::haltgate::peer::v1 as peer;

use crate::connect::Lane;
use crate::error::MemberError;
use crate::node::Node;

/// How long one peer may take to say who it is.
pub(crate) const HELLO: Duration = Duration::from_secs(2);
/// The pause before peers are asked again.
pub(crate) const AGAIN: Duration = Duration::from_millis(200);

impl Node {
    pub(crate) async fn hello(
        &self,
        member: &Member,
        found: bool,
    ) -> Result<peer::HelloResponse, tonic::Status> {
        self.hello_by(Lane::Urgent, member, found).await
    }

    async fn hello_by(
        &self,
        lane: Lane,
        member: &Member,
        found: bool,
    ) -> Result<peer::HelloResponse, tonic::Status> {
        let progress = self.progress();
        let request = peer::HelloRequest {
            sender: Some(self.whoami().sender(0)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            found,
            applied_index: progress.applied_index,
        };
        self.peers()
            .client(member, lane)
            .hello(request)
            .await
            .map(tonic::Response::into_inner)
    }

    /// Asks a peer how it stands, beside Raft's heartbeats: no operator's command loses its connection by it.
    pub(crate) async fn ask(
        &self,
        member: &Member,
        within: Duration,
    ) -> Result<peer::HelloResponse, tonic::Status> {
        match tokio::time::timeout(within, self.hello_by(Lane::Raft, member, false)).await {
            Ok(answer) => answer,
            Err(_elapsed) => {
                self.peers().give_up(member, Lane::Raft);
                Err(tonic::Status::deadline_exceeded("no answer"))
            }
        }
    }

    pub(crate) async fn hello_until(
        &self,
        member: &Member,
        found: bool,
        deadline: Instant,
    ) -> Result<peer::HelloResponse, MemberError> {
        loop {
            let why = match tokio::time::timeout(HELLO, self.hello(member, found)).await {
                Ok(Ok(hello)) => return Ok(hello),
                Ok(Err(status)) => status.message().to_owned(),
                Err(_elapsed) => {
                    self.peers().give_up(member, Lane::Urgent);
                    "no answer".to_owned()
                }
            };
            if Instant::now() + AGAIN > deadline {
                return Err(MemberError::Unreachable {
                    member: member.clone(),
                    why,
                });
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}
