//! Tickets: of all who try, on whatever node, one may run the call; a halt voids what is left.

use std::time::Duration;

use chaos::cluster::Cluster;
use chaos::people::{put_guard, register};
use client::{nonce, request_id, ticket_origin};
use wire::proto::haltgate::audit::v1 as audit;
use wire::proto::shackle::v1 as sp;

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_has_one_winner_on_any_node_and_through_failover() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    let config = sp::GuardConfig {
        ticket_ttl_seconds: 120,
        ..sp::GuardConfig::default()
    };
    put_guard(&cluster, "org/acme", config).await;
    let session = register(&cluster, 0, "agent", "bot-1", None).await;
    let client =
        |cluster: &Cluster, node: usize| cluster.client_of(node, "agent").within(Duration::from_secs(10));
    let call = |number: u64| sp::PreExecRequest {
        session_id: session.clone(),
        call_number: number,
        tool_name: "pay".to_owned(),
        params_json: format!("{{\"n\":{number}}}").into_bytes(),
        estimated_cost_nanos: Some(1_000),
        nonce: nonce(),
        request_id: request_id(),
        ..sp::PreExecRequest::default()
    };
    let mut tickets = Vec::new();
    for number in 1..=4 {
        let allowed = client(&cluster, 0)
            .pre_exec(call(number))
            .await
            .expect("a verdict");
        assert_eq!(allowed.verdict(), sp::Verdict::Allow, "{allowed:?}");
        assert!(!allowed.authorization.is_empty());
        tickets.push(allowed.authorization);
    }
    // Read offline it says where it comes from, and nothing more.
    cluster.wait_quiet();
    let listed = cluster
        .pool_of(0, "cluster_auditor")
        .call(&audit::AuditListKeysRequest {}, Duration::from_secs(10))
        .await
        .expect("keys");
    let public: Vec<[u8; 32]> = listed
        .keys
        .iter()
        .map(|key| key.public_key.as_slice().try_into().expect("32 bytes"))
        .collect();
    let ticket = ticket_origin(&tickets[0], &public).expect("signed by a node");
    assert_eq!(
        (ticket.session.as_str(), ticket.call_number),
        (session.as_str(), 1)
    );
    assert!(ticket_origin(&tickets[0], &[[1; 32]]).is_err());

    let verified = client(&cluster, 1)
        .verify_authorization(&tickets[0])
        .await
        .expect("an answer");
    assert!(verified.redeemable, "{verified:?}");
    let tries = (0..9).map(|place| {
        let (client, ticket) = (client(&cluster, place % 3), tickets[0].clone());
        async move { client.redeem(&ticket, &request_id()).await.expect("an answer") }
    });
    let answers = futures::future::join_all(tries).await;
    let won: Vec<_> = answers.iter().filter(|answer| answer.redeemed).collect();
    assert_eq!(won.len(), 1, "{answers:?}");
    for lost in answers.iter().filter(|answer| !answer.redeemed) {
        assert_eq!(lost.reason, "delegation:ticket_redeemed");
    }
    let verified = client(&cluster, 2)
        .verify_authorization(&tickets[0])
        .await
        .expect("an answer");
    assert_eq!(
        (verified.redeemable, verified.reason.as_str()),
        (false, "delegation:ticket_redeemed")
    );

    // The leader dies: the same request finds out, another is too late.
    let leader = cluster.leader();
    let asked = request_id();
    let first = client(&cluster, (leader + 1) % 3)
        .redeem(&tickets[1], &asked)
        .await
        .expect("an answer");
    assert!(first.redeemed);
    cluster.kill(leader);
    cluster.leader();
    let other = (leader + 2) % 3;
    let again = client(&cluster, other)
        .redeem(&tickets[1], &asked)
        .await
        .expect("an answer");
    assert!(again.redeemed, "{again:?}");
    let late = client(&cluster, other)
        .redeem(&tickets[1], &request_id())
        .await
        .expect("an answer");
    assert_eq!(late.reason, "delegation:ticket_redeemed");
    cluster.start(leader);

    // A halt voids what is left, also once it is released.
    cluster.json_of(
        other,
        "operator",
        &["kill", "engage", "org/acme", "--reason", "test"],
    );
    let halted = client(&cluster, other)
        .redeem(&tickets[2], &request_id())
        .await
        .expect("an answer");
    assert_eq!(halted.reason, "run_halted:organization");
    cluster.json_of(
        other,
        "admin",
        &["kill", "release", "org/acme", "--justification", "test"],
    );
    let void = client(&cluster, other)
        .redeem(&tickets[2], &request_id())
        .await
        .expect("an answer");
    assert_eq!(void.reason, "delegation:ticket_void");
    // One bit of it changed is no ticket.
    let mut forged = tickets[3].clone();
    forged[30] ^= 1;
    assert!(
        client(&cluster, other)
            .redeem(&forged, &request_id())
            .await
            .is_err()
    );
}
