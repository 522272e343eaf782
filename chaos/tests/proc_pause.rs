//! Leaders that stop for a while and come back with what they believed: openraft's known faults (design of the
//! alpha line: issues 2116, 1761, 1749) under the conditions in which they were seen.

#![expect(
    clippy::expect_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::time::Duration;

use chaos::checks;
use chaos::cluster::{Cluster, signal};
use chaos::load::{Load, Pace};
use client::{Client, Registration};
use wire::proto::shackle::v1 as sp;

/// Purges right behind what is applied, at the full rate of two cores, with followers that lag: a queued apply must
/// not meet a log that was purged past it (2116), nor a former leader its pending writes (1761).
#[tokio::test(flavor = "multi_thread")]
async fn purges_at_full_rate_and_paused_leaders_leave_every_node_alive() {
    let cluster = Cluster::form(
        3,
        "[raft]\nsnapshot_every = 200\nlog_kept = 100\n[limits]\nregisters_per_second_per_address = 0\n",
    );
    cluster.fund("org/acme", "1000.00");
    let pace = Pace {
        agents: 48,
        pause: Duration::ZERO,
        cost_nanos: 1,
        repeat: true,
        settle: true,
    };
    let load = Load::start(&cluster, pace);
    for round in 0..8 {
        let leader = cluster.leader();
        let paused = if round % 2 == 0 { leader } else { (leader + 1) % 3 };
        let asked = (paused + 1) % 3;
        let head = || cluster.status(asked, false)?["head_sequence"].as_u64();
        signal(cluster.pid(paused), "STOP");
        let before = cluster.wait_for("a head", head);
        cluster.wait_for("a thousand entries without it", || {
            (head()? > before + 1_000).then_some(())
        });
        signal(cluster.pid(paused), "CONT");
        cluster.wait_for("it catches up", || {
            (cluster.status(paused, false)?["head_sequence"].as_u64()? > before + 1_000).then_some(())
        });
    }
    let asked = load.stop().await;
    for node in 0..3 {
        assert!(!cluster.ended(node), "{}", cluster.log_tail(node));
    }
    let status = cluster.wait_even();
    assert!(
        status["purged_index"].as_u64() > Some(200),
        "the log was purged: {status}"
    );
    let chains = cluster.even_chains();
    checks::one_chain(&chains);
    assert!(checks::answers_stand(&asked, &chains[0]) > 2_000);
    checks::retries_agree(&asked);
    checks::no_nonce_twice(&chains[0]);
}

/// A leader that was stopped while the others elected another and engaged the kill switch still believes that it
/// leads. It must not allow on what it believed.
#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_leader_that_wakes_up_allows_nothing_that_was_stopped() {
    let cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    for round in 0..3 {
        let deposed = cluster.leader();
        let client = cluster
            .client_of(deposed, "agent")
            .deadline(Duration::from_secs(10));
        let session = register(&client).await;
        assert_eq!(ask(&client, &session, 1).await.verdict(), sp::Verdict::Allow);
        let requests: Vec<_> = (2..20)
            .map(|number| (client.pre_exec(call(&session, number)), number))
            .collect();

        signal(cluster.pid(deposed), "STOP");
        let others: Vec<usize> = (0..3).filter(|node| *node != deposed).collect();
        cluster.wait_for("another leader", || {
            others.iter().find(|node| {
                cluster
                    .status(**node, false)
                    .is_some_and(|status| status["role"] == "leader")
            })
        });
        let engaged = cluster.cli_of(
            others[0],
            "admin",
            &[
                "kill",
                "engage",
                "org/acme",
                "--reason",
                "test",
                "--output",
                "json",
                "--timeout",
                "10s",
            ],
        );
        assert!(
            engaged.status.success(),
            "{}",
            String::from_utf8_lossy(&engaged.stderr)
        );
        // Asked while it sleeps and as it wakes: whatever it answers is no ALLOW.
        let asking = futures::future::join_all(requests.into_iter().map(|(request, _)| request));
        let (answers, ()) = tokio::join!(asking, async { signal(cluster.pid(deposed), "CONT") });
        for answer in answers.into_iter().flatten() {
            assert_ne!(answer.verdict(), sp::Verdict::Allow, "round {round}: {answer:?}");
        }
        assert_eq!(ask(&client, &session, 30).await.reason, "run_halted:organization");
        cluster.json(
            "admin",
            &["kill", "release", "org/acme", "--justification", "test over"],
        );
    }
    cluster.wait_even();
}

/// Reads that people act on are read-index reads: none is stale while leadership moves (1749).
#[tokio::test(flavor = "multi_thread")]
async fn no_read_is_stale_while_leadership_moves() {
    let cluster = Cluster::form(3, "");
    for round in 1..=12_u32 {
        let leader = cluster.leader();
        let limit = format!("{round}.00");
        cluster.fund("org/acme", &limit);
        std::thread::scope(|scope| {
            scope.spawn(|| cluster.cli_of(leader, "admin", &["drain", "--timeout", "5s"]));
            for node in 0..3 {
                let shown = cluster.cli_of(
                    node,
                    "admin",
                    &[
                        "budget",
                        "show",
                        "org/acme",
                        "--output",
                        "json",
                        "--timeout",
                        "15s",
                    ],
                );
                assert!(
                    shown.status.success(),
                    "{}",
                    String::from_utf8_lossy(&shown.stderr)
                );
                let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
                assert_eq!(
                    shown["limit"],
                    limit.as_str(),
                    "node {} in round {round}",
                    node + 1
                );
            }
        });
    }
}

async fn register(client: &Client) -> String {
    let registration = Registration {
        organization: "acme".to_owned(),
        agent: "bot-1".to_owned(),
        ..Registration::default()
    };
    client
        .register(&registration)
        .await
        .expect("a session")
        .session_id
}

async fn ask(client: &Client, session: &str, number: u64) -> sp::PreExecResponse {
    client.pre_exec(call(session, number)).await.expect("a verdict")
}

fn call(session: &str, number: u64) -> sp::PreExecRequest {
    sp::PreExecRequest {
        session_id: session.to_owned(),
        call_number: number,
        tool_name: "search".to_owned(),
        params_json: format!("{{\"n\":{number}}}").into_bytes(),
        estimated_cost_nanos: Some(1),
        nonce: client::nonce(),
        ..sp::PreExecRequest::default()
    }
}
