//! What every request passes: certificate, role, deadline; and how every failure leaves.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use audit::Signer;
use cluster::{MemberError, Node, Unavailable, Urgency};
use decision::SessionId;
use machine::command::{Principal, RefusedAtEdge};
use machine::row::Read as _;
use machine::{Command, Refusal, Reply};
use tokio::sync::watch;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};
use wire::{Code, Failure, Leader};

use crate::accept::Caller;
use crate::config::Config;
use crate::emergency::Emergency;
use crate::identity::Identity;
use crate::limit::Limit;
use crate::metrics::Metrics;
use crate::roles::{Rpc, Target, permits, who_may};
use crate::tls::wall_seconds;

/// How long an entry about a refused identity may take to be recorded.
const RECORD: Duration = Duration::from_secs(2);
/// How long an identity that was refused is looked at more closely, and its next refusal kept out of the log.
const SUSPECT: Duration = Duration::from_secs(1);
/// Identities that are looked at more closely at once.
const SUSPECTS_MAX: usize = 4_096;

/// The door of one node; all services stand behind it.
pub struct Door {
    pub node: Node,
    pub config: Config,
    pub metrics: Metrics,
    /// Becomes true when the node stops taking work: streams that would never end do so then.
    pub draining: watch::Receiver<bool>,
    /// PreExec of one identity in one session.
    pub calls: Limit<(String, SessionId)>,
    /// Register from one address.
    pub registers: Limit<std::net::IpAddr>,
    /// This node's key: for tickets and checkpoints.
    pub signer: Signer,
    /// Stops this node, whatever the cluster says.
    pub emergency: Arc<Emergency>,
    suspects: Mutex<HashMap<String, Instant>>,
    /// A call was sent back for its rules: from now on they are looked at before it is proposed.
    rules_used: AtomicBool,
}

/// Who asks, and until when an answer is of use.
#[derive(Debug, Clone)]
pub struct Ask {
    pub identity: Identity,
    pub caller: Arc<Caller>,
    pub rpc: Rpc,
    deadline: Instant,
}

impl Ask {
    /// The time that is left.
    pub fn within(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub fn principal(&self) -> Principal {
        self.identity.principal()
    }

    /// The same caller's next question in one stream, with a deadline of its own.
    pub fn again(&self, rpc: Rpc, within: Duration) -> Self {
        Self {
            rpc,
            deadline: Instant::now() + within,
            ..self.clone()
        }
    }
}

impl Door {
    pub fn new(
        node: Node,
        config: Config,
        metrics: Metrics,
        draining: watch::Receiver<bool>,
        signer: Signer,
    ) -> Self {
        Self {
            node,
            calls: Limit::new(config.limits.calls_per_second_per_session),
            registers: Limit::new(config.limits.registers_per_second_per_address),
            metrics,
            draining,
            signer,
            emergency: Arc::new(Emergency::open(&config.node.data_dir)),
            config,
            suspects: Mutex::default(),
            rules_used: AtomicBool::new(false),
        }
    }

    /// Says whether any guard is known to have rules. Where none has, nobody pays for looking.
    pub fn rules_are_used(&self) -> bool {
        self.rules_used.load(Ordering::Relaxed)
    }

    /// Notes that a guard has rules.
    pub fn use_rules(&self) {
        self.rules_used.store(true, Ordering::Relaxed);
    }

    /// Takes a request in: its certificate must name someone whose role has this RPC.
    pub fn admit<T>(&self, request: &Request<T>, rpc: Rpc) -> Result<Ask, Status> {
        let ask = self
            .identify(request, rpc)
            .map_err(|failure| self.status(failure))?;
        self.permit(&ask, Target::InState)?;
        Ok(ask)
    }

    /// Makes sure that the role reaches what the message is about.
    pub fn permit(&self, ask: &Ask, target: Target<'_>) -> Result<(), Status> {
        if permits(&ask.identity, ask.rpc, target) {
            return Ok(());
        }
        let why = format!("{} may not do this: {}", ask.identity, who_may(ask.rpc));
        Err(self.status(self.refuse(ask, "role", why)))
    }

    fn identify<T>(&self, request: &Request<T>, rpc: Rpc) -> Result<Ask, Failure> {
        let unauthenticated = |why: String| {
            self.metrics
                .refused_identities_total
                .with_label_values(&["certificate"])
                .inc();
            Failure::new(Code::Unauthenticated, why)
        };
        let caller = request
            .extensions()
            .get::<Arc<Caller>>()
            .ok_or_else(|| unauthenticated("the connection shows no certificate".to_owned()))?;
        let identity = caller
            .identity
            .as_ref()
            .map_err(|nobody| unauthenticated(nobody.to_string()))?;
        if caller.not_after < wall_seconds() {
            return Err(unauthenticated(
                "the certificate of this connection has expired: connect again".to_owned(),
            ));
        }
        let limits = &self.config.limits;
        let within = deadline(request.metadata(), limits.deadline_ms, limits.deadline_max_ms);
        Ok(Ask {
            identity: identity.clone(),
            caller: Arc::clone(caller),
            rpc,
            deadline: Instant::now() + within,
        })
    }

    /// Refuses an identity, and has it recorded: once a second for each, or a flood would fill the log.
    pub fn refuse(&self, ask: &Ask, kind: &'static str, why: String) -> Failure {
        self.metrics
            .refused_identities_total
            .with_label_values(&[kind])
            .inc();
        if self.suspect(&ask.identity) {
            let refused = RefusedAtEdge {
                by: ask.principal(),
                rpc: ask.rpc.path().to_owned(),
                why: why.clone(),
            };
            let node = self.node.clone();
            tokio::spawn(async move {
                let recorded = node
                    .propose(Command::Refused(refused), Urgency::Call, RECORD)
                    .await;
                if let Err(error) = recorded {
                    tracing::warn!(%error, "a refused identity could not be recorded");
                }
            });
        }
        Failure::new(Code::PermissionDenied, why)
    }

    /// Notes a refused identity; says whether it is the first refusal for a while.
    fn suspect(&self, identity: &Identity) -> bool {
        let now = Instant::now();
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        if suspects.len() >= SUSPECTS_MAX {
            suspects.retain(|_, since| now.saturating_duration_since(*since) < SUSPECT);
        }
        let name = identity.to_string();
        let known = suspects
            .get(&name)
            .is_some_and(|since| now.saturating_duration_since(*since) < SUSPECT);
        if !known && suspects.len() < SUSPECTS_MAX {
            suspects.insert(name, now);
            return true;
        }
        false
    }

    fn is_suspect(&self, identity: &Identity) -> bool {
        let suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        !suspects.is_empty()
            && suspects
                .get(&identity.to_string())
                .is_some_and(|since| since.elapsed() < SUSPECT)
    }

    /// Turns an agent away from a session of another before it costs the log an entry, where this node knows
    /// the session and the agent was refused just now. Everyone else is compared by the state machine.
    pub fn own_session(&self, ask: &Ask, id: &SessionId) -> Result<(), Failure> {
        if !self.is_suspect(&ask.identity) {
            return Ok(());
        }
        let session = self.local(|view| view.session(id))?;
        match session {
            Some(session) if !ask.principal().speaks_for(&session.organization, &session.agent) => Err(self
                .refuse(
                    ask,
                    "session",
                    format!("this identity may not act on session/{id}"),
                )),
            Some(_) | None => Ok(()),
        }
    }

    /// Has a command decided and recorded.
    pub async fn propose(&self, ask: &Ask, command: Command, urgency: Urgency) -> Result<Reply, Failure> {
        match self.node.propose(command, urgency, ask.within()).await {
            Ok(Reply::Refused(refusal)) => {
                if let Refusal::NotYours(_) = refusal {
                    // The machine has recorded this one.
                    self.metrics
                        .refused_identities_total
                        .with_label_values(&["session"])
                        .inc();
                    self.suspect(&ask.identity);
                }
                Err(refusal.into())
            }
            Ok(reply) => Ok(reply),
            Err(unavailable) => Err(self.unavailable(&unavailable)),
        }
    }

    /// Reads what was answered by anyone before this call.
    pub async fn read<T>(
        &self,
        ask: &Ask,
        read: impl FnOnce(&store::StateView<'_>) -> Result<T, machine::row::Fault>,
    ) -> Result<T, Failure> {
        match self.node.read(ask.within(), read).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(fault)) => Err(storage(&fault)),
            Err(unavailable) => Err(self.unavailable(&unavailable)),
        }
    }

    /// Reads what this node has applied.
    pub fn local<T>(
        &self,
        read: impl FnOnce(&store::StateView<'_>) -> Result<T, machine::row::Fault>,
    ) -> Result<T, Failure> {
        match self.node.reader().at(read) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(fault)) => Err(storage(&fault)),
            Err(error) => Err(storage(&error)),
        }
    }

    /// Waits until this node has applied a log entry; gives up quietly at the deadline.
    pub async fn applied_here(&self, ask: &Ask, log_index: u64) -> bool {
        let mut progress = self.node.reader().progress();
        let applied = progress.wait_for(|progress| progress.applied_index >= log_index);
        matches!(tokio::time::timeout(ask.within(), applied).await, Ok(Ok(_)))
    }

    /// What the cluster could not do. None of it is a verdict.
    pub fn unavailable(&self, unavailable: &Unavailable) -> Failure {
        self.metrics
            .unavailable_total
            .with_label_values(&[unavailable.word()])
            .inc();
        let retry_after_ms = match unavailable {
            Unavailable::Overloaded | Unavailable::NoClock => 50,
            Unavailable::NoLeader | Unavailable::NoQuorum => self.config.timing.election_min_ms,
            Unavailable::Deadline | Unavailable::Storage(_) | Unavailable::Stopped(_) => 0,
        };
        Failure::new(Code::DaemonUnavailable, unavailable.to_string()).retry_after_ms(retry_after_ms)
    }

    /// Why a change of membership was not made.
    pub fn member_failure(&self, error: &MemberError) -> Failure {
        let code = match error {
            MemberError::Taken { .. } | MemberError::Refused(_) => Code::FailedPrecondition,
            MemberError::Unreachable { .. } => Code::DaemonUnavailable,
            MemberError::Unknown(_) => Code::NotFound,
            MemberError::Unavailable(unavailable) => return self.unavailable(unavailable),
            MemberError::Store(_) => Code::DaemonUnavailable,
        };
        Failure::new(code, error.to_string())
    }

    /// The status of a failure: with its detail, and where the leader is.
    pub fn status(&self, failure: Failure) -> Status {
        failure.led_by(self.leader()).to_status()
    }

    fn leader(&self) -> Option<Leader> {
        let status = self.node.status();
        let (_, member) = status.leader?;
        Some(Leader {
            node_id: node_id(&member),
            grpc_addr: member.client,
            term: status.term,
        })
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door")
            .field("node", &self.config.node.id)
            .finish_non_exhaustive()
    }
}

/// A configured node id: members are named by it.
pub fn node_id(member: &store::Member) -> u64 {
    member.name.parse().unwrap_or(0)
}

fn storage(error: &impl std::fmt::Display) -> Failure {
    Failure::new(Code::DaemonUnavailable, format!("storage refused: {error}"))
}

/// The client's deadline where it names one, a little earlier so that the answer still arrives; else the server's.
fn deadline(metadata: &MetadataMap, default_ms: u64, most_ms: u64) -> Duration {
    let most = Duration::from_millis(most_ms);
    let named = metadata
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok())
        .and_then(timeout);
    match named {
        Some(named) => {
            let margin = (named / 10).min(Duration::from_millis(10));
            named.saturating_sub(margin).min(most)
        }
        None => Duration::from_millis(default_ms),
    }
}

/// Reads gRPC's `grpc-timeout`: at most eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = text.strip_suffix(unit)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(amount.saturating_mul(3_600))),
        'M' => Some(Duration::from_secs(amount.saturating_mul(60))),
        'S' => Some(Duration::from_secs(amount)),
        'm' => Some(Duration::from_millis(amount)),
        'u' => Some(Duration::from_micros(amount)),
        'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::deadline;
    use std::time::Duration;
    use tonic::metadata::MetadataMap;

    #[test]
    fn a_deadline_is_the_clients_capped_or_the_servers() {
        let rows = [
            (None, Duration::from_secs(2)),
            (Some("1S"), Duration::from_millis(990)),
            (Some("250m"), Duration::from_millis(240)),
            (Some("50m"), Duration::from_millis(45)),
            (Some("100u"), Duration::from_micros(90)),
            (Some("0S"), Duration::ZERO),
            (Some("99999999H"), Duration::from_secs(60)),
            (Some("999999999S"), Duration::from_secs(2)),
            (Some("S"), Duration::from_secs(2)),
            (Some("+1S"), Duration::from_secs(2)),
            (Some("1s"), Duration::from_secs(2)),
            (Some(""), Duration::from_secs(2)),
        ];
        for (named, expected) in rows {
            let mut metadata = MetadataMap::new();
            if let Some(named) = named {
                metadata.insert("grpc-timeout", named.parse().unwrap());
            }
            assert_eq!(deadline(&metadata, 2_000, 60_000), expected, "{named:?}");
        }
    }
}
