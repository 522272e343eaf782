//! The sessions of authorize-v1, opened through the front door as agents and operators would.

use std::sync::Arc;

use client::{Client, Registration, nonce, request_id};
use tokio::task::JoinSet;
use wire::guard_config::shipped;
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::shackle::v1 as sp;

use crate::command::running::{PATIENCE, Running};
use crate::failed::Failed;
use crate::remote::Remote;

pub const HEALTHY: u64 = 10_000;
pub const OTHERS: u64 = 100;
/// Call numbers that setting up may have used.
pub const PREPARED: u64 = 10;

const ORGANIZATION: &str = "org-0001";
const NANOS: i64 = 1_000_000_000;
/// Of the organization, dollars.
const ALL: i64 = 1_000_000_000;
/// Of a session, dollars.
const EACH: f64 = 1_000_000.0;
/// Sessions that are set up side by side.
const AT_ONCE: u64 = 64;

/// Which state a session is in before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    Healthy,
    Exhausted,
    Tripped,
    Replay,
}

/// The sessions' ids, by their numbers.
#[derive(Debug)]
pub struct Sessions(pub [Vec<String>; 4]);

impl Sessions {
    pub fn id(&self, pool: Pool, number: u64) -> String {
        let [healthy, exhausted, tripped, replay] = &self.0;
        let ids = match pool {
            Pool::Healthy => healthy,
            Pool::Exhausted => exhausted,
            Pool::Tripped => tripped,
            Pool::Replay => replay,
        };
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        ids.get(number).cloned().unwrap_or_default()
    }
}

/// Opens all pools.
pub async fn open(cluster: &Running) -> Result<Arc<Sessions>, Failed> {
    let admin = cluster.remote("admin")?;
    limit(&admin, &format!("org/{ORGANIZATION}"), ALL).await?;
    let put = admin::GuardsPutRequest {
        request_id: request_id(),
        scope: format!("org/{ORGANIZATION}"),
        config: Some(sp::GuardConfig {
            budget_usd: EACH,
            ..shipped()
        }),
        justification: String::new(),
    };
    admin.call(put).await?;
    let mut pools: [Vec<String>; 4] = Default::default();
    for (pool, ids) in [Pool::Healthy, Pool::Exhausted, Pool::Tripped, Pool::Replay]
        .into_iter()
        .zip(&mut pools)
    {
        *ids = open_pool(cluster, pool).await?;
    }
    cluster.all_even().await?;
    Ok(Arc::new(Sessions(pools)))
}

async fn open_pool(cluster: &Running, pool: Pool) -> Result<Vec<String>, Failed> {
    let count = if pool == Pool::Healthy { HEALTHY } else { OTHERS };
    let mut opening = JoinSet::new();
    for first in 0..AT_ONCE {
        let (admin, endpoints) = (cluster.remote("admin")?, cluster.layout.endpoints());
        let client = Client::open(&endpoints, &cluster.layout.credentials("sidecar")?)?.within(PATIENCE);
        opening.spawn(async move {
            let mut opened = Vec::new();
            let mut number = first;
            while number < count {
                opened.push((number, open_one(&client, &admin, pool, number).await?));
                number = number.saturating_add(AT_ONCE);
            }
            Ok::<_, Failed>(opened)
        });
    }
    let mut all = Vec::new();
    while let Some(opened) = opening.join_next().await {
        all.extend(opened.map_err(|error| Failed::refused(error.to_string()))??);
    }
    all.sort_unstable();
    Ok(all.into_iter().map(|(_, id)| id).collect())
}

/// Opens one session and brings it into its pool's state.
async fn open_one(client: &Client, admin: &Remote, pool: Pool, number: u64) -> Result<String, Failed> {
    let registration = Registration {
        organization: ORGANIZATION.to_owned(),
        agent: format!("agt-{:06}", number / 10),
        ..Registration::default()
    };
    let session = client.register(&registration).await?.session_id;
    let call = |number: u64, usd: f64, nonce: u64| sp::PreExecRequest {
        session_id: session.clone(),
        call_number: number,
        tool_name: "prepare".to_owned(),
        params_json: b"{}".to_vec(),
        estimated_cost_usd: usd,
        nonce,
        ..sp::PreExecRequest::default()
    };
    match pool {
        Pool::Healthy => {}
        Pool::Exhausted => {
            limit(admin, &format!("session/{session}"), 1).await?;
            client.pre_exec(call(1, 1.0, nonce())).await?;
            let report = sp::PostExecNotification {
                session_id: session.clone(),
                call_number: 1,
                success: true,
                actual_cost_nanos: Some(NANOS),
                request_id: request_id(),
                ..sp::PostExecNotification::default()
            };
            client.post_exec(&report).await?;
        }
        // The fourth of the same call is a loop.
        Pool::Tripped => {
            for number in 1..=4 {
                client.pre_exec(call(number, 0.001, nonce())).await?;
            }
        }
        Pool::Replay => {
            client.pre_exec(call(1, 0.001, 1)).await?;
        }
    }
    Ok(session)
}

async fn limit(admin: &Remote, scope: &str, dollars: i64) -> Result<(), Failed> {
    let nanos = dollars.saturating_mul(NANOS);
    let set = admin::BudgetsSetRequest {
        request_id: request_id(),
        scope: scope.to_owned(),
        limit: Some(admin::budgets_set_request::Limit::AmountNanos(nanos)),
        justification: String::new(),
    };
    admin.call(set).await.map(drop)
}
