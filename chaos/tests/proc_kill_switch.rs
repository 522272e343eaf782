//! After the answer of `kill engage` nothing of its scope is allowed: not during failover, not after restart,
//! not in a new session, not on a node that came back from nothing.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::time::{Duration, Instant};

use chaos::checks;
use chaos::cluster::Cluster;
use chaos::load::{Asked, Load, Pace};
use client::Registration;
use wire::proto::shackle::v1 as sp;

/// Some 200 calls a second.
fn pace() -> Pace {
    Pace {
        agents: 8,
        pause: Duration::from_millis(40),
        cost_nanos: 1_000,
        repeat: true,
        settle: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_allowed_after_the_kill_switch_answered() {
    let mut cluster = Cluster::form(3, "[raft]\nsnapshot_every = 500\nlog_kept = 200\n");
    cluster.fund("org/acme", "1000.00");
    let load = Load::start(&cluster, pace());
    cluster.wait_for("some verdicts", || {
        (cluster.status(0, false)?["head_sequence"].as_u64()? > 300).then_some(())
    });

    let engaged = cluster.json("operator", &["kill", "engage", "org/acme", "--reason", "test"]);
    let from = Instant::now();
    assert_eq!(engaged["confirmed_by_all"], true, "{engaged}");

    // The leader dies in between, and every node starts again once.
    let leader = cluster.leader();
    cluster.kill(leader);
    cluster.leader();
    cluster.start(leader);
    still_refused(&cluster).await;
    for node in 0..3 {
        cluster.kill(node);
        cluster.start(node);
        cluster.leader();
    }
    still_refused(&cluster).await;

    // A node that lost everything comes back by snapshot.
    let wiped = (cluster.leader() + 1) % 3;
    cluster.wipe(wiped);
    cluster.start(wiped);
    cluster.wait_for("the wiped node votes again", || votes(&cluster, wiped));
    still_refused(&cluster).await;

    // It was asked all the while, and is still: a hundred refusals more.
    let head = || cluster.status(wiped, false)?["head_sequence"].as_u64();
    let before = cluster.wait_for("a head", head);
    cluster.wait_for("more refusals", || (head()? > before + 150).then_some(()));

    let asked = load.stop().await;
    let late = allowed_after(&asked, from);
    assert!(
        late.is_empty(),
        "{} calls were allowed after the answer, such as {:?}",
        late.len(),
        late.first()
    );
    let refused = asked
        .iter()
        .flat_map(|call| &call.answers)
        .filter(|answered| answered.invoked > from && answered.answer.reason == "run_halted:organization");
    assert!(refused.count() > 100, "the load went on");

    cluster.wait_even();
    let chain = cluster.chain(wiped);
    checks::answers_stand(&asked, &chain);
    let engaged_at = chain
        .iter()
        .position(|entry| entry["kind"] == "halt_engaged")
        .expect("the engagement");
    assert_eq!(checks::verdicts(&chain[engaged_at..], "ALLOW").count(), 0);

    // Released, it runs again.
    cluster.json(
        "admin",
        &["kill", "release", "org/acme", "--justification", "test over"],
    );
    let answer = one_call(&cluster, wiped).await;
    assert_eq!(answer.verdict(), sp::Verdict::Allow, "{answer:?}");
}

/// A new session on every node is told the same.
async fn still_refused(cluster: &Cluster) {
    for node in 0..3 {
        let answer = one_call(cluster, node).await;
        assert_eq!(answer.reason, "run_halted:organization", "node {}", node + 1);
        assert_eq!(answer.blocked_by_scope, "org/acme");
    }
}

async fn one_call(cluster: &Cluster, node: usize) -> sp::PreExecResponse {
    let client = cluster.client_of(node, "agent").deadline(Duration::from_secs(10));
    let registration = Registration {
        organization: "acme".to_owned(),
        agent: "bot-1".to_owned(),
        ..Registration::default()
    };
    let session = client
        .register(&registration)
        .await
        .expect("a session")
        .session_id;
    let request = sp::PreExecRequest {
        session_id: session,
        call_number: 1,
        tool_name: "search".to_owned(),
        params_json: b"{}".to_vec(),
        estimated_cost_nanos: Some(1),
        nonce: client::nonce(),
        ..sp::PreExecRequest::default()
    };
    client.pre_exec(request).await.expect("a verdict")
}

fn votes(cluster: &Cluster, node: usize) -> Option<()> {
    let status = cluster.status(node, false)?;
    let own = &status["raft_id"];
    let members = status["members"].as_array()?;
    let voter = members
        .iter()
        .any(|member| &member["raft_id"] == own && member["voter"] == true);
    (voter && members.len() == 3).then_some(())
}

fn allowed_after(asked: &[Asked], from: Instant) -> Vec<&sp::PreExecResponse> {
    asked
        .iter()
        .flat_map(|call| &call.answers)
        .filter(|answered| answered.invoked > from && answered.answer.verdict() == sp::Verdict::Allow)
        .map(|answered| &answered.answer)
        .collect()
}
