//! Many clients on three nodes at once draw on one budget: exactly what fits is allowed.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::sync::Arc;

use chaos::cluster::Cluster;
use client::{Client, Registration, nonce, request_id};
use tokio::sync::Barrier;
use wire::proto::shackle::v1 as sp;

const CLIENTS: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn exactly_what_fits_an_organization_budget_is_allowed() {
    let cluster = Cluster::form(3, "[limits]\nregisters_per_second_per_address = 0\n");
    for (cost_nanos, fits) in [(100_000_000, 10), (250_000_000, 4), (300_000_000, 3)] {
        cluster.fund("org/acme", "unlimited");
        let clients = open(&cluster).await;
        let spent = cluster.json("admin", &["budget", "show", "org/acme"])["spent_nanos"]
            .as_i64()
            .unwrap();
        let held = cluster.json("admin", &["budget", "show", "org/acme"])["held_nanos"]
            .as_i64()
            .unwrap();
        let limit = decision::NanoUsd::new(spent + held + 1_000_000_000).to_string();
        cluster.fund("org/acme", &limit);
        let barrier = Arc::new(Barrier::new(CLIENTS));
        let calls = clients.into_iter().map(|(client, session)| {
            let barrier = barrier.clone();
            tokio::spawn(async move {
                let request = sp::PreExecRequest {
                    session_id: session,
                    call_number: 1,
                    tool_name: "buy".to_owned(),
                    params_json: b"{}".to_vec(),
                    estimated_cost_nanos: Some(cost_nanos),
                    nonce: nonce(),
                    request_id: request_id(),
                    ..sp::PreExecRequest::default()
                };
                barrier.wait().await;
                client.pre_exec(request).await.expect("a verdict")
            })
        });
        let mut allowed = 0;
        for call in calls.collect::<Vec<_>>() {
            let answer = call.await.unwrap();
            match answer.verdict() {
                sp::Verdict::Allow => allowed += 1,
                _ => assert_eq!(answer.reason, "organization_quota_exceeded"),
            }
        }
        assert_eq!(allowed, fits, "calls of {cost_nanos} nano-dollars of 1.00");
    }
}

/// Sessions at all three nodes, each client beginning at another.
async fn open(cluster: &Cluster) -> Vec<(Client, String)> {
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut endpoints = cluster.endpoints();
        endpoints.rotate_left(number % 3);
        let client = Client::open(&endpoints, &cluster.credentials("agent"))
            .unwrap()
            .deadline(std::time::Duration::from_secs(5));
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
        clients.push((client, session));
    }
    clients
}
