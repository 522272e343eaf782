//! Rules on three processes: what one node puts, another decides by, though it may not have it yet.

use std::time::Duration;

use chaos::cluster::Cluster;
use client::{Registration, nonce};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::shackle::v1 as sp;

const ROUNDS: u64 = 60;
/// This machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_decided_by_rules_that_were_replaced_before_it_was_asked() {
    let cluster = Cluster::form(3, "[limits]\ncalls_per_second_per_session = 0\n");
    cluster.fund("org/acme", "1000.00");
    let registration = Registration {
        organization: "acme".to_owned(),
        agent: "bot-1".to_owned(),
        ..Registration::default()
    };
    let first = cluster.client_of(0, "agent");
    let session = first.register(&registration).await.expect("a session").session_id;
    let agents: Vec<_> = (0..3)
        .map(|node| cluster.client_of(node, "agent").within(PATIENCE))
        .collect();
    let operators: Vec<_> = (0..3).map(|node| cluster.pool_of(node, "admin")).collect();

    for round in 1..=ROUNDS {
        let putting = usize::try_from(round % 3).expect("a node");
        // Each round is a rule of its own: a call that an older one decided would say so.
        let put = admin::GuardsPutRequest {
            request_id: format!("put-{round}"),
            scope: "org/acme".to_owned(),
            config: Some(denying(round)),
            justification: "test".to_owned(),
        };
        operators[putting].call(&put, PATIENCE).await.expect("a put");
        for (offset, asked) in [(1, round * 2 - 1), (2, round * 2)] {
            let call = sp::PreExecRequest {
                session_id: session.clone(),
                call_number: asked,
                tool_name: "search".to_owned(),
                params_json: format!("{{\"amount\":{asked}}}").into_bytes(),
                nonce: nonce(),
                ..sp::PreExecRequest::default()
            };
            let asking = (putting + offset) % 3;
            let answer = agents[asking].pre_exec(call).await.expect("a verdict");
            assert_eq!(
                answer.reason,
                format!("policy:round-{round}"),
                "put by node {}, asked by node {}",
                putting + 1,
                asking + 1
            );
        }
    }
    cluster.wait_even();
}

/// A guard whose one rule looks at an argument and is called after the round.
fn denying(round: u64) -> sp::GuardConfig {
    sp::GuardConfig {
        rules: vec![sp::Rule {
            id: format!("round-{round}"),
            when: vec![sp::Predicate {
                path: vec!["amount".to_owned()],
                op: sp::PredicateOp::More.into(),
                values: vec!["0".to_owned()],
            }],
            ..sp::Rule::default()
        }],
        ..wire::guard_config::shipped()
    }
}
