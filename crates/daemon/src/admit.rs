//! Who is let in: a request's certificate must name somebody whose role has the RPC, and reach what it is about.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cluster::{Node, Urgency};
use decision::SessionId;
use machine::Command;
use machine::command::{Principal, RefusedAtEdge};
use machine::row::Session;
use wire::rpc::Rpc;
use wire::{Code, Failure};

use crate::accept::Caller;
use crate::identity::Identity;
use crate::metrics::Metrics;
use crate::roles::{Target, permits, who_may};
use crate::tls::wall_seconds;

/// How long an entry about a refused identity may take to be recorded.
const RECORD: Duration = Duration::from_secs(2);
/// How long an identity that was refused is looked at more closely, and its next refusal kept out of the log.
const SUSPECT: Duration = Duration::from_secs(1);
/// Identities that are looked at more closely at once.
const SUSPECTS_MAX: usize = 4_096;

/// One request that was let in: who asks what, and until when an answer is of use. Only `Admission::admit` makes
/// one.
#[derive(Debug, Clone)]
pub struct Ask {
    pub identity: Identity,
    pub caller: Arc<Caller>,
    pub rpc: Rpc,
    pub arrived: Instant,
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
}

/// What letting in needs.
pub struct Admission {
    pub node: Node,
    pub metrics: Metrics,
    /// Identities that were refused a moment ago.
    pub suspects: Suspects,
}

impl Admission {
    /// Takes a request in. The certificate is looked at each time: a stream may outlive it.
    pub fn admit(&self, caller: Option<&Arc<Caller>>, rpc: Rpc, within: Duration) -> Result<Ask, Failure> {
        let (caller, identity) = named(caller).map_err(|why| {
            let refused = &self.metrics.refused_identities_total;
            refused.with_label_values(&["certificate"]).inc();
            Failure::new(Code::Unauthenticated, why)
        })?;
        let arrived = Instant::now();
        let ask = Ask {
            identity: identity.clone(),
            caller: Arc::clone(caller),
            rpc,
            arrived,
            deadline: arrived + within,
        };
        self.permit(&ask, Target::InState)?;
        Ok(ask)
    }

    /// Makes sure that the role reaches what the message is about.
    pub fn permit(&self, ask: &Ask, target: Target<'_>) -> Result<(), Failure> {
        if permits(&ask.identity, ask.rpc, target) {
            return Ok(());
        }
        let why = format!("{} may not do this: {}", ask.identity, who_may(ask.rpc));
        Err(self.refuse(ask, "role", why))
    }

    /// Refuses an identity, and has it recorded: once a second for each, or a flood would fill the log.
    pub fn refuse(&self, ask: &Ask, kind: &'static str, why: String) -> Failure {
        self.metrics
            .refused_identities_total
            .with_label_values(&[kind])
            .inc();
        if self.suspects.note(&ask.identity) {
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

    /// Makes sure that the caller speaks for a session that was read.
    pub fn speaks_for(&self, ask: &Ask, id: &SessionId, session: &Session) -> Result<(), Failure> {
        if ask.principal().speaks_for(&session.organization, &session.agent) {
            return Ok(());
        }
        Err(self.not_theirs(ask, id))
    }

    /// Refuses what is about a session that is not the caller's.
    pub fn not_theirs(&self, ask: &Ask, id: &SessionId) -> Failure {
        self.refuse(
            ask,
            "session",
            format!("this identity may not act on session/{id}"),
        )
    }
}

/// Whom a connection's certificate names, while it is valid; else why nobody.
fn named(caller: Option<&Arc<Caller>>) -> Result<(&Arc<Caller>, &Identity), String> {
    let caller = caller.ok_or("the connection shows no certificate")?;
    let identity = caller.identity.as_ref().map_err(ToString::to_string)?;
    if caller.not_after < wall_seconds() {
        return Err("the certificate of this connection has expired: connect again".to_owned());
    }
    Ok((caller, identity))
}

/// Identities that were refused a moment ago, and when.
#[derive(Debug, Default)]
pub struct Suspects(Mutex<HashMap<String, Instant>>);

impl Suspects {
    /// Notes a refused identity; says whether it is the first refusal for a while.
    pub fn note(&self, identity: &Identity) -> bool {
        let now = Instant::now();
        let mut suspects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

    pub fn know(&self, identity: &Identity) -> bool {
        let suspects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !suspects.is_empty()
            && suspects
                .get(&identity.to_string())
                .is_some_and(|since| since.elapsed() < SUSPECT)
    }
}
