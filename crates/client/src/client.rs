//! The five RPCs of SP/1.0, each with one deadline for all its attempts.

use std::collections::HashMap;
use std::time::Duration;

use tonic::Status;
use wire::proto::shackle::v1 as sp;

use crate::credentials::{Credentials, OpenError};
use crate::id::request_id;
use crate::pool::Pool;

/// How long a call waits for its verdict before it is denied here. Two elections do not fit: an agent is told
/// quickly, and asks again.
const DEADLINE: Duration = Duration::from_millis(250);

/// How much longer than a call everything else may take.
const PATIENT: u32 = 10;

/// An agent's connection to a cluster.
#[derive(Debug)]
pub struct Client {
    pool: Pool,
    deadline: Duration,
    /// The time of everything that no tool call waits for.
    patience: Duration,
}

/// Who registers; it must agree with the certificate.
#[derive(Debug, Clone, Default)]
pub struct Registration {
    pub organization: String,
    pub agent: String,
    /// A named guard to run under, which has to list this agent.
    pub guard: Option<String>,
    /// A session to take up again.
    pub resume: Option<String>,
    pub metadata: HashMap<String, String>,
}

impl Client {
    /// Prepares a client of the cluster whose nodes listen at these `host:port` addresses.
    ///
    /// # Errors
    /// A file cannot be read, or an address is none.
    pub fn open(endpoints: &[String], credentials: &Credentials) -> Result<Self, OpenError> {
        Ok(Self {
            pool: Pool::open(endpoints, credentials)?,
            deadline: DEADLINE,
            patience: DEADLINE * PATIENT,
        })
    }

    /// Sets the time that one call may take, all its attempts together. The default is 250 ms; registrations,
    /// reports and the like may take ten times that.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self {
            deadline,
            patience: deadline.saturating_mul(PATIENT),
            ..self
        }
    }

    /// Sets one time for whatever is asked.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Self {
            deadline: time,
            patience: time,
            ..self
        }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn deadline_of_calls(&self) -> Duration {
        self.deadline
    }

    /// Opens or resumes a session. Opening is not urgent: it may take ten times a call's deadline.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn register(&self, registration: &Registration) -> Result<sp::RegisterResponse, Status> {
        let request = sp::RegisterRequest {
            agent_id: registration.agent.clone(),
            organization_id: registration.organization.clone(),
            session_id: registration.resume.clone().unwrap_or_default(),
            metadata: registration.metadata.clone(),
            framework: "haltgate-client".to_owned(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime: "rust".to_owned(),
            protocol_version: "1.0.0".to_owned(),
            request_id: request_id(),
            guard_id: registration.guard.clone().unwrap_or_default(),
        };
        self.pool.call(&request, self.patience).await
    }

    /// Asks whether a call may run. The request id makes every attempt the same question.
    ///
    /// # Errors
    /// The status of the last attempt: not a verdict, and never a permission.
    pub async fn pre_exec(&self, mut request: sp::PreExecRequest) -> Result<sp::PreExecResponse, Status> {
        if request.request_id.is_empty() {
            request.request_id = request_id();
        }
        self.pool.call(&request, self.deadline).await
    }

    /// Reports what a call cost; repeated reports settle once.
    ///
    /// # Errors
    /// The status of the last attempt: the hold then expires by itself, and is charged.
    pub async fn post_exec(&self, report: &sp::PostExecNotification) -> Result<(), Status> {
        self.pool.call(report, self.patience).await
    }

    /// Says that the agent is alive; answers whether it is halted.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn heartbeat(&self, heartbeat: &sp::Heartbeat) -> Result<sp::HeartbeatAck, Status> {
        self.pool.call(heartbeat, self.patience).await
    }

    /// Reads a session's state.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn session_state(&self, session: &str) -> Result<sp::SessionState, Status> {
        let request = sp::GetSessionStateRequest {
            session_id: session.to_owned(),
            allow_stale: false,
        };
        self.pool.call(&request, self.patience).await
    }

    /// Ends a session: what it holds is settled by its guard's policy.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn end_session(&self, session: &str) -> Result<sp::EndSessionResponse, Status> {
        let request = sp::EndSessionRequest {
            session_id: session.to_owned(),
            request_id: request_id(),
        };
        self.pool.call(&request, self.patience).await
    }
}
