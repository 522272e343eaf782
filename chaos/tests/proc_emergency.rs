//! One node's own stop, and what agents are told of a halt without asking.

use std::time::Duration;

use chaos::cluster::{Cluster, haltgate};
use chaos::people::register;
use client::{Call, Done, Refused, nonce, request_id};
use serde_json::json;
use wire::proto::shackle::v1 as sp;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_panic_allows_nothing_also_after_a_restart_and_without_a_leader() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    let session = register(&cluster, 0, "agent", "bot-1", None).await;
    let ask = |cluster: &Cluster, node: usize, number: u64| {
        let client = cluster.client_of(node, "agent").within(Duration::from_secs(3));
        let request = sp::PreExecRequest {
            session_id: session.clone(),
            call_number: number,
            tool_name: "search".to_owned(),
            params_json: format!("{{\"page\":{number}}}").into_bytes(),
            nonce: nonce(),
            request_id: request_id(),
            ..sp::PreExecRequest::default()
        };
        async move { client.pre_exec(request).await }
    };
    let panic = |cluster: &Cluster, node: usize, args: &[&str]| {
        let output = haltgate()
            .args(["--output", "json", "panic", "--config"])
            .arg(cluster.config(node))
            .args(args)
            .output()
            .expect("haltgate runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
    };
    // Through every node something runs.
    for node in 0..3_usize {
        let number = u64::try_from(node).expect("a number") + 1;
        let answer = ask(&cluster, node, number).await.expect("a verdict");
        assert_eq!(answer.verdict(), sp::Verdict::Allow, "{answer:?}");
    }
    let follower = (cluster.leader() + 1) % 3;
    let told = panic(&cluster, follower, &[]);
    assert_eq!(
        (&told["stopped"], &told["confirmed_by_node"]),
        (&json!(true), &json!(true))
    );
    let refused = ask(&cluster, follower, 10).await.expect_err("no verdict");
    assert!(refused.message().contains("emergency stop"), "{refused:?}");
    let other = (follower + 1) % 3;
    let answer = ask(&cluster, other, 11).await.expect("a verdict");
    assert_eq!(
        answer.verdict(),
        sp::Verdict::Allow,
        "the others go on: {answer:?}"
    );

    cluster.kill(follower);
    cluster.start(follower);
    cluster.wait_for("the node to answer", || cluster.status(follower, false));
    assert!(
        ask(&cluster, follower, 12).await.is_err(),
        "kept over the restart"
    );
    let told = panic(&cluster, follower, &["--lift"]);
    assert_eq!(told["stopped"], false);
    let answer = ask(&cluster, follower, 13).await.expect("a verdict");
    assert_eq!(answer.verdict(), sp::Verdict::Allow, "{answer:?}");

    // By signal, with nobody else left.
    cluster.kill((follower + 1) % 3);
    cluster.kill((follower + 2) % 3);
    chaos::cluster::signal(cluster.pid(follower), "USR1");
    cluster.wait_for("the signal to be heard", || {
        (panic(&cluster, follower, &["--show"])["stopped"] == true).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_tool_is_dropped_when_its_organization_is_halted_and_that_is_reported() {
    let cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
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
    let (running, runs) = tokio::sync::oneshot::channel();
    let tool = |_params| async move {
        running.send(()).expect("somebody waits");
        std::future::pending::<Result<Done<()>, std::fmt::Error>>().await
    };
    let call = guarded.run(Call::new("crawl", json!({})), tool);
    let halt = async {
        runs.await.expect("it runs");
        tokio::task::block_in_place(|| {
            cluster.json("operator", &["kill", "engage", "org/acme", "--reason", "stray"])
        })
    };
    let (outcome, _engaged) = tokio::join!(call, halt);
    assert!(
        matches!(&outcome, Err(Refused::Aborted { reason }) if reason == "run_halted:organization"),
        "{outcome:?}"
    );
    let chain = cluster.even_chains().remove(0);
    let settled = chain
        .iter()
        .find(|entry| entry["kind"] == "settlement")
        .expect("it was reported");
    assert!(
        settled["detail"]
            .as_str()
            .expect("words")
            .contains("success false"),
        "{settled}"
    );
}
