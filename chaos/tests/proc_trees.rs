//! A tree of 1 + 4 + 16 sub-agents: they share what the root has, to the last cent, and the root's halt stops them all.

use std::time::Duration;

use chaos::cluster::Cluster;
use chaos::people::{put_guard, register};
use client::{nonce, request_id};
use wire::proto::shackle::v1 as sp;

const CENT: i64 = 10_000_000;

fn guard(parent: &str) -> sp::GuardConfig {
    sp::GuardConfig {
        parent_guard_id: parent.to_owned(),
        agents: vec!["bot-*".to_owned()],
        budget_usd: if parent.is_empty() { 1.0 } else { 0.0 },
        ..sp::GuardConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_one_agents_share_one_dollar_and_one_halt() {
    let cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    let mut names = vec!["root".to_owned()];
    put_guard(&cluster, "org/acme/guard/root", guard("")).await;
    for child in 0..4 {
        let name = format!("g{child}");
        put_guard(&cluster, &format!("org/acme/guard/{name}"), guard("root")).await;
        for grandchild in 0..4 {
            let leaf = format!("g{child}-{grandchild}");
            put_guard(&cluster, &format!("org/acme/guard/{leaf}"), guard(&name)).await;
            names.push(leaf);
        }
        names.push(name);
    }
    assert_eq!(names.len(), 21);
    let mut sessions = Vec::new();
    for (place, name) in names.iter().enumerate() {
        // Ten registrations a second may come from one address: through all three nodes in turn.
        sessions.push(register(&cluster, place % 3, "agent", "bot-1", Some(name)).await);
    }

    // Each draws cents until it is told that there are none, all at once and through every node.
    let drawing = sessions.iter().enumerate().map(|(place, session)| {
        let cluster = &cluster;
        async move {
            let client = cluster
                .client_of(place % 3, "agent")
                .within(Duration::from_secs(20));
            let mut drawn = 0_i64;
            for number in 1.. {
                let answer = client
                    .pre_exec(question(session, number))
                    .await
                    .expect("a verdict");
                match answer.verdict() {
                    sp::Verdict::Allow => drawn += CENT,
                    _ => {
                        assert_eq!(answer.reason, "parent_guard_denied:root");
                        assert_eq!(answer.blocked_by_scope, "org/acme/guard/root");
                        break;
                    }
                }
            }
            drawn
        }
    });
    let drawn: i64 = futures::future::join_all(drawing).await.into_iter().sum();
    assert_eq!(drawn, 100 * CENT, "exactly one dollar");
    let account = cluster.json("operator", &["budget", "show", "org/acme/guard/root"]);
    assert_eq!(account["available"], "0.00", "{account}");

    // With more money all go on, until the root is halted: then none does, on no node.
    cluster.json("operator", &["budget", "set", "org/acme/guard/root", "100.00"]);
    let one = |place: usize, node: usize, number: u64| {
        let client = cluster.client_of(node, "agent").within(Duration::from_secs(10));
        let request = question(&sessions[place], number);
        async move { client.pre_exec(request).await.expect("a verdict") }
    };
    for (place, name) in names.iter().enumerate() {
        let answer = one(place, place % 3, 1_000).await;
        assert_eq!(answer.verdict(), sp::Verdict::Allow, "{name}: {answer:?}");
    }
    let engaged = cluster.json(
        "operator",
        &["kill", "engage", "org/acme/guard/root", "--reason", "stray"],
    );
    assert_eq!(engaged["confirmed_by_all"], true, "{engaged}");
    for (place, name) in names.iter().enumerate() {
        for (node, number) in (0..3).zip(2_000..) {
            let answer = one(place, node, number).await;
            assert_eq!(answer.reason, "run_halted:guard:root", "{name}");
        }
    }
    let listed = cluster.json("operator", &["kill", "list"]);
    assert_eq!(listed[0]["state"], "stopped", "{listed}");
}

fn question(session: &str, number: u64) -> sp::PreExecRequest {
    sp::PreExecRequest {
        session_id: session.to_owned(),
        call_number: number,
        tool_name: "search".to_owned(),
        params_json: format!("{{\"page\":{number}}}").into_bytes(),
        estimated_cost_nanos: Some(CENT),
        nonce: nonce(),
        request_id: request_id(),
        ..sp::PreExecRequest::default()
    }
}
