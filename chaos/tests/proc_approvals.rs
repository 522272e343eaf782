//! Approvals over three nodes: one ALLOW an approval, whoever asks wherever, through restarts of all of them.

#![expect(
    clippy::expect_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::time::Duration;

use chaos::cluster::Cluster;
use chaos::people::{put_guard, register};
use client::{Call, Client, Done, Refused, nonce, request_id};
use serde_json::json;
use wire::proto::shackle::v1 as sp;

/// A cluster whose agents are asked for at every call.
fn asking(guard: sp::GuardConfig) -> (Cluster, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    runtime.block_on(put_guard(&cluster, "org/acme", guard));
    (cluster, runtime)
}

fn always() -> sp::GuardConfig {
    sp::GuardConfig {
        hitl_mode: sp::HitlMode::HitlAlways.into(),
        ..sp::GuardConfig::default()
    }
}

fn call(session: &str, number: u64, nonce: u64, params: &str) -> sp::PreExecRequest {
    sp::PreExecRequest {
        session_id: session.to_owned(),
        call_number: number,
        tool_name: "pay".to_owned(),
        params_json: params.as_bytes().to_vec(),
        estimated_cost_nanos: Some(1_000_000),
        nonce,
        request_id: request_id(),
        ..sp::PreExecRequest::default()
    }
}

async fn ask(client: &Client, request: &sp::PreExecRequest) -> sp::PreExecResponse {
    client.pre_exec(request.clone()).await.expect("a verdict")
}

fn patient(cluster: &Cluster, node: usize) -> Client {
    cluster.client_of(node, "agent").within(Duration::from_secs(10))
}

#[test]
fn one_approval_asked_for_at_three_nodes_at_once_releases_once() {
    let (cluster, runtime) = asking(always());
    runtime.block_on(async {
        let session = register(&cluster, 0, "agent", "bot-1", None).await;
        for round in 0..5_u64 {
            let nonce = nonce();
            let params = format!("{{\"round\":{round}}}");
            let held = ask(
                &patient(&cluster, 0),
                &call(&session, round * 10 + 1, nonce, &params),
            )
            .await;
            assert_eq!(held.verdict(), sp::Verdict::Hitl, "{held:?}");
            let approval = held.approval_id.clone();

            // Seen and decided on the command line, by a person of another node.
            let shown = cluster.json_of(1, "approver", &["approvals", "show", &approval]);
            assert_eq!(shown["params"], params, "{shown}");
            let decided = cluster.json_of(1, "approver", &["approvals", "approve", &approval]);
            assert_eq!(decided["status"], "approved", "{decided}");

            // Another call is not what was approved.
            let other = ask(
                &patient(&cluster, 2),
                &call(&session, round * 10 + 2, nonce, "{\"a\":2}"),
            )
            .await;
            assert_eq!(other.reason, "hitl_transition:digest_mismatch", "{other:?}");

            let clients: Vec<_> = (0..3).map(|node| patient(&cluster, node)).collect();
            let asking = clients.iter().zip(3..).map(|(client, place)| {
                let request = call(&session, round * 10 + place, nonce, &params);
                async move { ask(client, &request).await }
            });
            let answers = futures::future::join_all(asking).await;
            let allowed: Vec<_> = answers
                .iter()
                .filter(|answer| answer.verdict() == sp::Verdict::Allow)
                .collect();
            assert_eq!(allowed.len(), 1, "{answers:?}");
            assert_eq!(allowed[0].reason, "hitl_transition:approve");
            assert!(
                answers
                    .iter()
                    .all(|answer| matches!(answer.verdict(), sp::Verdict::Allow | sp::Verdict::Deny))
            );
            // An approval that is used up stays so.
            let listed = cluster.json_of(2, "approver", &["approvals", "list"]);
            assert_eq!(listed.as_array().map(Vec::len), Some(0), "{listed}");
        }
    });
}

#[test]
fn a_pending_approval_outlives_every_node_and_an_expired_one_never_releases() {
    let (mut cluster, runtime) = asking(sp::GuardConfig {
        approval_ttl_seconds: 120,
        ..always()
    });
    let _in_it = runtime.enter();
    let session = runtime.block_on(register(&cluster, 0, "agent", "bot-1", None));
    let pending = call(&session, 1, nonce(), "{}");
    let held = runtime.block_on(ask(&patient(&cluster, 0), &pending));
    assert_eq!(held.verdict(), sp::Verdict::Hitl);
    for node in 0..3 {
        cluster.kill(node);
    }
    for node in 0..3 {
        cluster.start(node);
    }
    cluster.leader();
    cluster.json("approver", &["approvals", "approve", &held.approval_id]);
    runtime.block_on(async {
        let first = ask(&patient(&cluster, 1), &pending).await;
        assert_eq!(
            (first.verdict(), first.replayed),
            (sp::Verdict::Allow, false),
            "{first:?}"
        );
        let again = ask(&patient(&cluster, 2), &pending).await;
        assert_eq!(
            (again.verdict(), again.replayed),
            (sp::Verdict::Allow, true),
            "{again:?}"
        );
        let other = sp::PreExecRequest {
            request_id: request_id(),
            call_number: 2,
            ..pending.clone()
        };
        let refused = ask(&patient(&cluster, 0), &other).await;
        assert_eq!(refused.verdict(), sp::Verdict::Deny, "{refused:?}");

        put_guard(
            &cluster,
            "org/acme",
            sp::GuardConfig {
                approval_ttl_seconds: 1,
                ..always()
            },
        )
        .await;
        let late = call(&session, 3, nonce(), "{}");
        let held = ask(&patient(&cluster, 0), &late).await;
        assert_eq!(held.verdict(), sp::Verdict::Hitl, "{held:?}");
        cluster.wait_for("its expiry", || {
            let shown = cluster.json("approver", &["approvals", "show", &held.approval_id]);
            (shown["status"] == "expired").then_some(())
        });
        let decided = cluster.cli("approver", &["approvals", "approve", &held.approval_id]);
        assert!(!decided.status.success());
        let refused = ask(&patient(&cluster, 1), &late).await;
        assert_eq!(refused.reason, "hitl_transition:terminal_no_effect");
    });
    let chain = cluster.even_chains().remove(0);
    assert_eq!(
        chain
            .iter()
            .filter(|entry| entry["kind"] == "approval_expired")
            .count(),
        1
    );
}

#[test]
fn an_agent_waits_for_people_and_does_what_they_put_in_its_place() {
    let (cluster, runtime) = asking(always());
    let people = std::thread::scope(|threads| {
        let people = threads.spawn(|| {
            // The first is approved, the second put right, the third refused.
            for (place, act) in ["approve", "modify", "reject"].into_iter().enumerate() {
                let id = cluster.wait_for("an open approval", || {
                    let open = cluster.json_of(place, "approver", &["approvals", "list"]);
                    let open = open.as_array()?.iter().find(|row| row["status"] == "pending")?;
                    Some(open["approval"].as_str()?.to_owned())
                });
                let mut args = vec!["approvals", act, id.as_str()];
                if act == "modify" {
                    args.extend(["--params", "{\"amount\":1}"]);
                }
                cluster.json_of(place, "approver", &args);
            }
        });
        runtime.block_on(async {
            let registration = client::Registration {
                organization: "acme".to_owned(),
                agent: "bot-1".to_owned(),
                ..client::Registration::default()
            };
            let guarded = cluster
                .client("agent")
                .within(Duration::from_secs(5))
                .guarded(&registration)
                .await
                .expect("a session");
            let ran = |asked: serde_json::Value| async move { Ok::<_, std::fmt::Error>(Done::new(asked)) };
            let pay = |amount: u64| {
                Call::new("pay", json!({"amount": amount})).wait_for_people(Duration::from_secs(30))
            };
            assert_eq!(
                guarded.run(pay(10), ran).await.expect("approved"),
                json!({"amount": 10})
            );
            assert_eq!(
                guarded.run(pay(1_000), ran).await.expect("put right"),
                json!({"amount": 1})
            );
            let refused = guarded.run(pay(5), ran).await;
            assert!(
                matches!(&refused, Err(Refused::Denied { reason }) if reason == "hitl_transition:reject"),
                "{refused:?}"
            );
        });
        people.join()
    });
    people.expect("people decide");
}
