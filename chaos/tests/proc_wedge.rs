//! What one agent, or one tenant's operator, sends at its largest and all at once: the cluster goes on deciding, and
//! the kill switch answers within a second.

#![expect(
    clippy::expect_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::time::{Duration, Instant};

use chaos::cluster::{Cluster, signal};
use chaos::people::register;
use client::{Client, nonce, request_id};
use tokio::task::JoinSet;
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::guards_client::GuardsClient;
use wire::proto::haltgate::admin::v1::halts_client::HaltsClient;
use wire::proto::shackle::v1 as sp;

/// Held calls of one agent, each with parameters as large as a call may bring.
const HELD: usize = 400;
const PAD: usize = 60_000;
/// Guards of one organization, each nearly as large as a message.
const GUARDS: usize = 40;
const RULES: usize = 54;
const CHOICES: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_calls_and_guards_at_once_stop_nobody() {
    let cluster = Cluster::form(
        3,
        "[limits]\nregisters_per_second_per_address = 0\ncalls_per_second_per_session = 0\n",
    );
    cluster.fund("org/acme", "1000000.00");
    let client = cluster.client("agent").deadline(Duration::from_secs(20));
    let mut sessions = Vec::new();
    for _ in 0..HELD {
        sessions.push(register(&cluster, 0, "agent", "bot-1", None).await);
    }
    let usual = register(&cluster, 1, "agent", "bot-1", None).await;

    let mut flood = JoinSet::new();
    for session in sessions {
        let client = cluster.client("agent").deadline(Duration::from_secs(20));
        flood.spawn(async move { drop(client.pre_exec(opaque(&session)).await) });
    }
    let mut operator = GuardsClient::new(cluster.pool_of(0, "operator").channel());
    for number in 0..GUARDS {
        let mut operator = operator.clone();
        flood.spawn(async move { drop(operator.put(large_guard(number)).await) });
    }
    // Its followers stand still for a moment meanwhile: what waits piles up behind them.
    let leader = cluster.leader();
    let followers: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    followers
        .iter()
        .for_each(|node| signal(cluster.pid(*node), "STOP"));
    tokio::time::sleep(Duration::from_millis(800)).await;
    followers
        .iter()
        .for_each(|node| signal(cluster.pid(*node), "CONT"));

    let mut slowest = Duration::ZERO;
    let mut round = 0;
    while !flood.is_empty() || round < 3 {
        slowest = slowest.max(engage(&cluster, round).await);
        round += 1;
        while flood.try_join_next().is_some() {}
    }
    println!("{round} engagements, the slowest {slowest:?}");
    assert!(slowest < Duration::from_secs(1), "kill engage took {slowest:?}");

    // Calls go on, and every node applies.
    let asked = Instant::now();
    let answer = plain(&client, &usual, 1).await;
    assert_eq!(answer.verdict(), sp::Verdict::Allow, "{answer:?}");
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    cluster.wait_even();
    for node in 0..3 {
        let status = cluster.status(node, false).expect("a status");
        assert_eq!(status["ready"], true, "{status}");
    }
    // Still there: a large guard alone is taken, one that no entry could carry is told so.
    operator
        .put(large_guard(GUARDS))
        .await
        .expect("a guard of 0.85 MB");
}

fn opaque(session: &str) -> sp::PreExecRequest {
    sp::PreExecRequest {
        session_id: session.to_owned(),
        call_number: 1,
        tool_name: "pay".to_owned(),
        params_json: format!("{{\"context\":\"opaque\",\"pad\":\"{}\"}}", "x".repeat(PAD)).into_bytes(),
        estimated_cost_nanos: Some(1),
        nonce: nonce(),
        request_id: request_id(),
        ..sp::PreExecRequest::default()
    }
}

fn large_guard(number: usize) -> admin::GuardsPutRequest {
    let rule = |rule: usize| sp::Rule {
        id: format!("r-{rule}"),
        when: vec![sp::Predicate {
            path: vec!["to".to_owned()],
            op: sp::PredicateOp::OneOf.into(),
            values: (0..CHOICES).map(|choice| format!("\"{choice:0>240}\"")).collect(),
        }],
        effect: sp::RuleEffect::Ask.into(),
        ..sp::Rule::default()
    };
    admin::GuardsPutRequest {
        request_id: request_id(),
        scope: format!("org/acme/guard/large-{number}"),
        config: Some(sp::GuardConfig {
            rules: (0..RULES).map(rule).collect(),
            ..sp::GuardConfig::default()
        }),
        justification: "large".to_owned(),
    }
}

async fn plain(client: &Client, session: &str, number: u64) -> sp::PreExecResponse {
    let request = sp::PreExecRequest {
        session_id: session.to_owned(),
        call_number: number,
        tool_name: "search".to_owned(),
        params_json: b"{}".to_vec(),
        estimated_cost_nanos: Some(1),
        nonce: nonce(),
        request_id: request_id(),
        ..sp::PreExecRequest::default()
    };
    client.pre_exec(request).await.expect("a verdict")
}

/// Engages one halt, and says how long its answer took.
async fn engage(cluster: &Cluster, round: usize) -> Duration {
    let mut halts = HaltsClient::new(cluster.pool_of(round % 3, "operator").channel());
    // The connection is open before the clock starts.
    halts
        .list(admin::HaltsListRequest::default())
        .await
        .expect("a list");
    let request = admin::HaltsEngageRequest {
        request_id: request_id(),
        scope: format!("org/acme/agent/other-{round}"),
        mode: admin::HaltMode::Halt.into(),
        reason: "test".to_owned(),
        ticket: String::new(),
        ttl_seconds: 0,
        two_person: false,
    };
    let asked = Instant::now();
    let engaged = halts.engage(request).await.expect("engaged").into_inner();
    assert!(engaged.halt_epoch > 0);
    asked.elapsed()
}
