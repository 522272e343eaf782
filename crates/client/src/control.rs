//! What the cluster tells an agent without being asked: stops, and what became of its approvals.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Status, Streaming};
use wire::proto::shackle::v1 as sp;

use crate::client::Client;

/// The pause before a lost stream is opened again.
const AGAIN: Duration = Duration::from_millis(500);

impl Client {
    /// Follows what stops some sessions: what stands, then each change.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn watch_control(
        &self,
        sessions: &[String],
    ) -> Result<Streaming<sp::WatchControlResponse>, Status> {
        let request = sp::WatchControlRequest {
            session_ids: sessions.to_vec(),
        };
        self.pool().follow(&request, self.patience()).await
    }

    /// Waits until people have decided about a held call, or until it is over without them.
    ///
    /// # Errors
    /// There is no such approval; or nobody decided in this time: DEADLINE_EXCEEDED.
    pub async fn wait_approval(
        &self,
        session: &str,
        approval: &str,
        within: Duration,
    ) -> Result<sp::WaitApprovalResponse, Status> {
        let deadline = Instant::now() + within;
        let request = sp::WaitApprovalRequest {
            session_id: session.to_owned(),
            approval_id: approval.to_owned(),
        };
        let waiting = async {
            loop {
                match self.follow_approval(&request).await {
                    Ok(Some(decided)) => return Ok(decided),
                    Err(status) if !is_passing(&status) => return Err(status),
                    Ok(None) | Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
        };
        match tokio::time::timeout_at(deadline, waiting).await {
            Ok(decided) => decided,
            Err(_elapsed) => Err(Status::deadline_exceeded("nobody has decided yet")),
        }
    }

    /// Reads one stream to its end; none, where it ended before a decision.
    async fn follow_approval(
        &self,
        request: &sp::WaitApprovalRequest,
    ) -> Result<Option<sp::WaitApprovalResponse>, Status> {
        let mut stream = self.pool().follow(request, self.patience()).await?;
        while let Some(told) = stream.message().await? {
            match told.status() {
                sp::ApprovalStatus::Pending
                | sp::ApprovalStatus::Deferred
                | sp::ApprovalStatus::Escalated
                | sp::ApprovalStatus::Unspecified => {}
                _ => return Ok(Some(told)),
            }
        }
        Ok(None)
    }

    /// Uses a ticket up. Only `redeemed` means that the call may run.
    ///
    /// # Errors
    /// The status of the last attempt: the call must not run.
    pub async fn redeem(&self, authorization: &[u8], request_id: &str) -> Result<sp::RedeemResponse, Status> {
        let request = sp::RedeemRequest {
            authorization: authorization.to_vec(),
            request_id: request_id.to_owned(),
        };
        self.pool().call(&request, self.deadline_of_calls()).await
    }

    /// Asks whether a ticket could be redeemed now; changes nothing, and promises nothing.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn verify_authorization(
        &self,
        authorization: &[u8],
    ) -> Result<sp::VerifyAuthorizationResponse, Status> {
        let request = sp::VerifyAuthorizationRequest {
            authorization: authorization.to_vec(),
        };
        self.pool().call(&request, self.patience()).await
    }
}

/// An outage, or a node that stops: another may answer.
fn is_passing(status: &Status) -> bool {
    matches!(
        status.code(),
        tonic::Code::Unavailable
            | tonic::Code::Cancelled
            | tonic::Code::Unknown
            | tonic::Code::DeadlineExceeded
    )
}

/// Keeps the reason up to date for which a session has to stop what runs; none while it may go on.
pub(crate) async fn keep_watching(client: Arc<Client>, session: String, stop: watch::Sender<Option<String>>) {
    let sessions = [session];
    loop {
        if let Ok(mut stream) = client.watch_control(&sessions).await {
            while let Ok(Some(told)) = stream.message().await {
                match told.kind() {
                    sp::ControlKind::Halt | sp::ControlKind::Abort => {
                        stop.send_replace(Some(told.reason));
                    }
                    sp::ControlKind::Resume => {
                        stop.send_replace(None);
                    }
                    // What runs under a pause may end; the next call is asked for.
                    sp::ControlKind::Pause
                    | sp::ControlKind::Ready
                    | sp::ControlKind::Approval
                    | sp::ControlKind::Unspecified => {}
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}
