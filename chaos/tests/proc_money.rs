//! Amounts that are none are refused on every RPC that takes one, and nothing is written.

#![expect(
    clippy::expect_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use chaos::cluster::Cluster;
use client::{Registration, nonce, request_id};
use tonic::{Code, Status};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::budgets_client::BudgetsClient;
use wire::proto::haltgate::admin::v1::guards_client::GuardsClient;
use wire::proto::shackle::v1 as sp;
use wire::proto::shackle::v1::shackle_daemon_client::ShackleDaemonClient;

const NO_AMOUNTS: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9, 1e308, 1e-10];
const NO_NANOS: [i64; 3] = [-1, i64::MIN, i64::MIN + 1];

#[tokio::test(flavor = "multi_thread")]
async fn amounts_that_are_none_are_refused_everywhere_and_nothing_is_written() {
    let cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "5.00");
    let registration = Registration {
        organization: "acme".to_owned(),
        agent: "bot-1".to_owned(),
        ..Registration::default()
    };
    let session = cluster
        .client("agent")
        .register(&registration)
        .await
        .expect("a session")
        .session_id;
    let call = sp::PreExecRequest {
        session_id: session.clone(),
        call_number: 1,
        tool_name: "search".to_owned(),
        params_json: b"{}".to_vec(),
        nonce: 1,
        ..sp::PreExecRequest::default()
    };
    let allowed = cluster
        .client("agent")
        .pre_exec(call.clone())
        .await
        .expect("a verdict");
    assert_eq!(allowed.verdict(), sp::Verdict::Allow);
    let before = cluster.wait_quiet();

    for node in 0..3 {
        let agent = cluster.pool_of(node, "agent");
        let admin = cluster.pool_of(node, "admin");
        let fresh = || sp::PreExecRequest {
            call_number: 2,
            nonce: nonce(),
            request_id: request_id(),
            ..call.clone()
        };
        for usd in NO_AMOUNTS {
            let question = sp::PreExecRequest {
                estimated_cost_usd: usd,
                ..fresh()
            };
            refused(
                ShackleDaemonClient::new(agent.channel()).pre_exec(question).await,
                usd,
            );
            let report = sp::PostExecNotification {
                session_id: session.clone(),
                call_number: 1,
                actual_cost_usd: usd,
                success: true,
                ..sp::PostExecNotification::default()
            };
            refused(
                ShackleDaemonClient::new(agent.channel()).post_exec(report).await,
                usd,
            );
            for config in guards(usd) {
                let put = admin::GuardsPutRequest {
                    request_id: request_id(),
                    scope: "org/acme".to_owned(),
                    config: Some(config),
                    justification: "test".to_owned(),
                };
                refused(GuardsClient::new(admin.channel()).put(put).await, usd);
            }
        }
        for nanos in NO_NANOS {
            let question = sp::PreExecRequest {
                estimated_cost_nanos: Some(nanos),
                ..fresh()
            };
            refused(
                ShackleDaemonClient::new(agent.channel()).pre_exec(question).await,
                nanos,
            );
            let report = sp::PostExecNotification {
                session_id: session.clone(),
                call_number: 1,
                actual_cost_nanos: Some(nanos),
                success: true,
                ..sp::PostExecNotification::default()
            };
            refused(
                ShackleDaemonClient::new(agent.channel()).post_exec(report).await,
                nanos,
            );
        }
        // A limit of nothing is said in words: unlimited or suspended.
        for nanos in NO_NANOS.into_iter().chain([0]) {
            let set = admin::BudgetsSetRequest {
                request_id: request_id(),
                scope: "org/acme".to_owned(),
                limit: Some(admin::budgets_set_request::Limit::AmountNanos(nanos)),
                justification: "test".to_owned(),
            };
            refused(BudgetsClient::new(admin.channel()).set(set).await, nanos);
            let grant = admin::BudgetsGrantRequest {
                request_id: request_id(),
                scope: "org/acme".to_owned(),
                amount_nanos: nanos,
                justification: "test".to_owned(),
            };
            refused(BudgetsClient::new(admin.channel()).grant(grant).await, nanos);
        }
    }

    let after = cluster.wait_even();
    for field in ["state_hash", "head_hash", "head_sequence", "applied_index"] {
        assert_eq!(after[field], before[field], "{field}");
    }
}

/// Guards with the amount in every field that takes a double.
fn guards(usd: f64) -> [sp::GuardConfig; 4] {
    let config = sp::GuardConfig::default;
    [
        sp::GuardConfig {
            budget_usd: usd,
            ..config()
        },
        sp::GuardConfig {
            default_cost_usd: Some(usd),
            ..config()
        },
        sp::GuardConfig {
            probabilistic_deny: true,
            deny_jitter_ratio: bad_ratio(usd),
            ..config()
        },
        sp::GuardConfig {
            hitl_mode: sp::HitlMode::HitlOnBudgetThreshold.into(),
            hitl_budget_threshold: bad_ratio(usd),
            ..config()
        },
    ]
}

/// A ratio of 1e-10 is too fine for parts per billion and refused like the others.
fn bad_ratio(usd: f64) -> f64 {
    usd
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, amount: impl std::fmt::Debug) {
    let status = answer.expect_err(&format!("{amount:?} was taken"));
    assert_eq!(status.code(), Code::InvalidArgument, "{amount:?}: {status:?}");
    let detail = client::error_detail(&status).expect("a detail");
    assert_eq!(detail.code, "INVALID_REQUEST", "{amount:?}");
    assert!(
        !detail.field.is_empty() && !detail.message.is_empty(),
        "{amount:?}: {detail:?}"
    );
}
