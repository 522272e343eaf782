//! What all services of a node stand on: proposing, reading, and how every failure leaves.

use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use audit::Signer;
use cluster::{MemberError, Node, Unavailable};
use decision::SessionId;
use machine::row::{Fault, Read as _};
use machine::{Refusal, Reply};
use store::StateView;
use tokio::sync::watch;
use tonic::Status;
use wire::rpc::Rpc;
use wire::{Code, Failure, Leader};

use crate::accept::Caller;
use crate::admit::{Admission, Ask, Suspects};
use crate::config::Config;
use crate::emergency::Emergency;
use crate::limit::Limit;
use crate::metrics::Metrics;
use crate::order::{Order, answer_to};
use crate::roles::urgency;

/// One node as its services see it: the cluster behind it, its settings, limits, keys and metrics.
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
    /// Who is let in, and who was refused.
    pub admission: Admission,
    /// What stands between this node and its next decision; `status` keeps it current.
    obstacles: Mutex<Vec<String>>,
    /// A call was sent back for its rules: from now on they are looked at before it is proposed.
    rules_used: AtomicBool,
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
            admission: Admission {
                node: node.clone(),
                metrics: metrics.clone(),
                suspects: Suspects::default(),
            },
            node,
            calls: Limit::new(config.limits.calls_per_second_per_session),
            registers: Limit::new(config.limits.registers_per_second_per_address),
            metrics,
            draining,
            signer,
            emergency: Arc::new(Emergency::open(&config.node.data_dir)),
            obstacles: Mutex::new(vec!["starting".to_owned()]),
            config,
            rules_used: AtomicBool::new(false),
        }
    }

    /// Why the node is not ready, one line each; nothing where it is.
    pub fn obstacles(&self) -> Vec<String> {
        self.lock_obstacles().clone()
    }

    /// Replaces them; says whether they are others than before.
    pub fn set_obstacles(&self, obstacles: &[String]) -> bool {
        let mut current = self.lock_obstacles();
        let changed = *current != obstacles;
        obstacles.clone_into(&mut current);
        changed
    }

    fn lock_obstacles(&self) -> MutexGuard<'_, Vec<String>> {
        self.obstacles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request in.
    pub fn admit(&self, caller: Option<&Arc<Caller>>, rpc: Rpc, within: Duration) -> Result<Ask, Failure> {
        let ask = self.admission.admit(caller, rpc, within)?;
        // What this node holds is not what its cluster holds: it may say so, and nothing else.
        if !matches!(rpc, Rpc::ClusterStatus | Rpc::ClusterMembers) {
            let in_service = self.node.in_service();
            in_service.map_err(|why| self.unavailable(&why.into()))?;
        }
        Ok(ask)
    }

    /// Turns an agent away from a session of another before it costs the log an entry, where this node knows
    /// the session and the agent was refused just now. Everyone else is compared by the state machine.
    pub fn own_session(&self, ask: &Ask, id: &SessionId) -> Result<(), Failure> {
        if !self.admission.suspects.know(&ask.identity) {
            return Ok(());
        }
        match self.local(|view| view.session(id))? {
            Some(session) => self.admission.speaks_for(ask, id, &session),
            None => Ok(()),
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

    /// Has an order decided and recorded, where the caller's role reaches what it is about.
    pub async fn propose<O: Order>(&self, ask: &Ask, order: O) -> Result<O::Answer, Failure> {
        self.admission.permit(ask, order.target())?;
        let proposed = self.node.propose(order.command(), urgency(ask.rpc), ask.within());
        let reply = proposed.await.map_err(|why| self.unavailable(&why))?;
        if let Reply::Refused(Refusal::NotYours(_)) = reply {
            // The machine has recorded this one.
            self.metrics
                .refused_identities_total
                .with_label_values(&["session"])
                .inc();
            self.admission.suspects.note(&ask.identity);
        }
        answer_to::<O>(Some(reply))
    }

    /// Reads what was answered by anyone before this call.
    pub async fn read<T>(
        &self,
        ask: &Ask,
        read: impl FnOnce(&StateView<'_>) -> Result<T, Fault>,
    ) -> Result<T, Failure> {
        let read = self.node.read(ask.within(), read).await;
        read.map_err(|why| self.unavailable(&why))?
            .map_err(|fault| storage(&fault))
    }

    /// The same, and the log index that it was read at.
    pub async fn read_at<T>(
        &self,
        ask: &Ask,
        read: impl FnOnce(&StateView<'_>, u64) -> Result<T, Fault>,
    ) -> Result<(T, u64), Failure> {
        self.read(ask, |view| {
            let index = log_index(view);
            Ok((read(view, index)?, index))
        })
        .await
    }

    /// Reads what this node has applied.
    pub fn local<T>(&self, read: impl FnOnce(&StateView<'_>) -> Result<T, Fault>) -> Result<T, Failure> {
        let read = self.node.reader().at(read);
        read.map_err(|error| storage(&error))?
            .map_err(|fault| storage(&fault))
    }

    /// Takes a token of a limit, or refuses until there is one.
    pub fn take<K: Hash + Eq>(&self, name: &'static str, limit: &Limit<K>, key: K) -> Result<(), Failure> {
        let Err(wait) = limit.take(key, Instant::now()) else {
            return Ok(());
        };
        self.metrics.rate_limited_total.with_label_values(&[name]).inc();
        let wait_ms = u64::try_from(wait.as_millis())
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        let why = format!("too often: the limit of {name} is reached");
        Err(Failure::new(Code::RateLimited, why).retry_after_ms(wait_ms))
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
            Unavailable::Deadline
            | Unavailable::Lost
            | Unavailable::TooLarge { .. }
            | Unavailable::Storage(_)
            | Unavailable::OutOfService(_)
            | Unavailable::Stopped(_) => 0,
        };
        let code = match unavailable {
            Unavailable::TooLarge { .. } => Code::MessageTooLarge,
            _ => Code::DaemonUnavailable,
        };
        Failure::new(code, unavailable.to_string()).retry_after_ms(retry_after_ms)
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

/// The log index that a view shows the state of.
pub fn log_index(view: &StateView<'_>) -> u64 {
    view.applied().map_or(0, |id| id.index)
}

fn storage(error: &impl std::fmt::Display) -> Failure {
    Failure::new(Code::DaemonUnavailable, format!("storage refused: {error}"))
}
