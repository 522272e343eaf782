//! A tool call that runs only when it may.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use decision::NanoUsd;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wire::proto::shackle::v1 as sp;

use crate::client::{Client, Registration};
use crate::control::keep_watching;
use crate::id::{nonce, request_id};

/// The reason of a denial that no cluster gave: none could be asked.
pub const UNAVAILABLE: &str = "daemon_unavailable";

/// A heartbeat that often keeps a session from going stale while its agent thinks (SP/1.0 §4.5).
const HEARTBEAT: Duration = Duration::from_secs(30);

/// A session whose calls ask first. As long as it lives it sends heartbeats, and follows what stops it.
#[derive(Debug)]
pub struct Guarded {
    client: Arc<Client>,
    session: String,
    calls: AtomicU64,
    beating: JoinHandle<()>,
    watching: JoinHandle<()>,
    /// Why what runs has to stop.
    stop: watch::Receiver<Option<String>>,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.beating.abort();
        self.watching.abort();
    }
}

async fn beat(client: Arc<Client>, session: String) {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        let heartbeat = sp::Heartbeat {
            session_id: session.clone(),
            ..sp::Heartbeat::default()
        };
        // One that is lost is followed by the next: three in a row make a session stale.
        let _lost = client.heartbeat(&heartbeat).await;
    }
}

/// One tool call, as it is asked for.
#[derive(Debug, Clone)]
pub struct Call {
    tool: String,
    params: Value,
    estimate: Option<NanoUsd>,
    patience: Option<Duration>,
}

impl Call {
    /// Names a tool and its parameters, a JSON object.
    pub fn new(tool: impl Into<String>, params: Value) -> Self {
        Self {
            tool: tool.into(),
            params,
            estimate: None,
            patience: None,
        }
    }

    /// Waits so long for people where they are asked, and goes on as they decide.
    #[must_use]
    pub fn wait_for_people(self, within: Duration) -> Self {
        Self {
            patience: Some(within),
            ..self
        }
    }

    /// Says what the call is expected to cost; without it the guard's default prices it.
    #[must_use]
    pub fn estimated(self, cost: NanoUsd) -> Self {
        Self {
            estimate: Some(cost),
            ..self
        }
    }
}

/// Why a call did not run, or that it ran and failed by itself.
#[derive(Debug, thiserror::Error)]
pub enum Refused<E> {
    /// Denied by the cluster, or here because none answered (`daemon_unavailable`).
    #[error("denied: {reason}")]
    Denied { reason: String },
    /// A person decides: ask again with the same call later.
    #[error("waits for a person: {reason}")]
    Hitl { reason: String, approval_id: String },
    /// It was allowed and ran, and was stopped and reported as failed.
    #[error("aborted: {reason}")]
    Aborted { reason: String },
    /// It was allowed and ran; this is its own error.
    #[error(transparent)]
    Tool(E),
}

impl<E> Refused<E> {
    /// The normative reason, where the call did not run, or not to its end.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Denied { reason } | Self::Hitl { reason, .. } | Self::Aborted { reason } => Some(reason),
            Self::Tool(_) => None,
        }
    }
}

/// What a tool gives back when it has run: its value, and what it cost where that is known.
#[derive(Debug, Clone)]
pub struct Done<T> {
    value: T,
    cost: Option<NanoUsd>,
}

impl<T> Done<T> {
    /// A value whose cost is not known: the call is charged at its estimate.
    pub fn new(value: T) -> Self {
        Self { value, cost: None }
    }

    /// Says what the call cost.
    #[must_use]
    pub fn cost(self, cost: NanoUsd) -> Self {
        Self {
            cost: Some(cost),
            ..self
        }
    }
}

impl Client {
    /// Opens a session whose calls are guarded.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn guarded(self, registration: &Registration) -> Result<Guarded, tonic::Status> {
        let session = self.register(registration).await?;
        Ok(Guarded::new(self, session.session_id))
    }
}

impl Guarded {
    pub(crate) fn new(client: Client, session: String) -> Self {
        let client = Arc::new(client);
        let beating = tokio::spawn(beat(Arc::clone(&client), session.clone()));
        let (told, stop) = watch::channel(None);
        let watching = tokio::spawn(keep_watching(Arc::clone(&client), session.clone(), told));
        Self {
            client,
            session,
            calls: AtomicU64::new(0),
            beating,
            watching,
            stop,
        }
    }

    pub fn session(&self) -> &str {
        &self.session
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Asks, runs the tool on ALLOW and only then, and reports how it ended. A halt drops the tool where it waits next,
    /// and reports that.
    ///
    /// The tool gets its parameters back; it says in `Done` what it cost.
    ///
    /// # Errors
    /// The call was not allowed, and did not run; or it ran and failed.
    pub async fn run<T, E, F, Fut>(&self, call: Call, tool: F) -> Result<T, Refused<E>>
    where
        E: Error,
        F: FnOnce(Value) -> Fut,
        Fut: Future<Output = Result<Done<T>, E>>,
    {
        let patience = call.patience;
        let question = Question {
            request: sp::PreExecRequest {
                session_id: self.session.clone(),
                call_number: self.next_number(0),
                tool_name: call.tool,
                params_json: call.params.to_string().into_bytes(),
                estimated_cost_nanos: call.estimate.map(NanoUsd::nanos),
                nonce: nonce(),
                request_id: request_id(),
                ..sp::PreExecRequest::default()
            },
            params: call.params,
        };
        let Question { request, params } = self.permitted(question, patience).await?;
        let number = request.call_number;
        let mut stop = self.stop.clone();
        let outcome = tokio::select! {
            outcome = tool(params) => outcome.map_err(Refused::Tool),
            reason = stopped(&mut stop) => Err(Refused::Aborted { reason }),
        };
        let (cost, error) = match &outcome {
            Ok(done) => (done.cost, String::new()),
            Err(error) => (None, error.to_string()),
        };
        let report = sp::PostExecNotification {
            session_id: self.session.clone(),
            call_number: number,
            success: outcome.is_ok(),
            error_message: error,
            actual_cost_nanos: cost.map(NanoUsd::nanos),
            cost_known: Some(cost.is_some()),
            request_id: request_id(),
            ..sp::PostExecNotification::default()
        };
        // A report that is lost leaves the hold, which is charged when it expires.
        let _lost = self.client.post_exec(&report).await;
        outcome.map(|done| done.value)
    }

    /// The next free number, beyond what people suggested.
    fn next_number(&self, at_least: u64) -> u64 {
        let next = |last: u64| Some(last.saturating_add(1).max(at_least));
        let last = self
            .calls
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        next(last.unwrap_or(u64::MAX)).unwrap_or(u64::MAX)
    }

    /// Asks until the call may run, and gives the call that may: people may have put another in its place.
    async fn permitted<E>(
        &self,
        mut question: Question,
        patience: Option<Duration>,
    ) -> Result<Question, Refused<E>> {
        loop {
            let answer = match self.client.pre_exec(question.request.clone()).await {
                Ok(answer) => answer,
                Err(status) => {
                    return Err(Refused::Denied {
                        reason: local_reason(&status),
                    });
                }
            };
            match (answer.verdict(), patience) {
                (sp::Verdict::Allow, _) => return Ok(question),
                (sp::Verdict::Hitl, Some(within)) => {
                    question = self.decided(question, &answer, within).await?;
                }
                (sp::Verdict::Hitl, None) => {
                    return Err(Refused::Hitl {
                        reason: answer.reason,
                        approval_id: answer.approval_id,
                    });
                }
                // No verdict is not a permission.
                (sp::Verdict::Deny | sp::Verdict::Unspecified, _) => {
                    return Err(Refused::Denied {
                        reason: answer.reason,
                    });
                }
            }
        }
    }

    /// Waits for people, and gives what has to be asked then: the same call, or the one they put in its place.
    async fn decided<E>(
        &self,
        question: Question,
        held: &sp::PreExecResponse,
        within: Duration,
    ) -> Result<Question, Refused<E>> {
        let approval = held.approval_id.as_str();
        let Ok(decided) = self.client.wait_approval(&self.session, approval, within).await else {
            return Err(Refused::Hitl {
                reason: held.reason.clone(),
                approval_id: approval.to_owned(),
            });
        };
        let request = sp::PreExecRequest {
            approval_id: approval.to_owned(),
            ..question.request
        };
        match decided.successor {
            Some(successor) if decided.status == i32::from(sp::ApprovalStatus::Modified) => {
                let params = serde_json::from_slice(&successor.params_json).map_err(|_| Refused::Denied {
                    reason: UNAVAILABLE.to_owned(),
                })?;
                let request = sp::PreExecRequest {
                    call_number: self.next_number(successor.call_number),
                    params_json: successor.params_json,
                    nonce: successor.nonce,
                    request_id: request_id(),
                    ..request
                };
                Ok(Question { request, params })
            }
            // The answer to the same request says what became of it.
            Some(_) | None => Ok(Question { request, ..question }),
        }
    }
}

/// A question and the parameters that its tool gets.
struct Question {
    request: sp::PreExecRequest,
    params: Value,
}

/// Ends when the session has to stop what runs; never, where nobody can say so any more.
async fn stopped(stop: &mut watch::Receiver<Option<String>>) -> String {
    match stop.wait_for(Option::is_some).await {
        Ok(reason) => reason.clone().unwrap_or_default(),
        Err(_) => std::future::pending().await,
    }
}

/// The reason that stands for an error: what the daemon refused as wrong stays visible, an outage is one word.
fn local_reason(status: &tonic::Status) -> String {
    match crate::pool::error_detail(status) {
        Some(error) if error.code != "DAEMON_UNAVAILABLE" => error.code.to_lowercase(),
        Some(_) | None => UNAVAILABLE.to_owned(),
    }
}
