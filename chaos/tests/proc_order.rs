//! Every rule answers over gRPC, whichever of three nodes is asked, with the reason that clients depend on.

#![expect(
    clippy::expect_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::time::Duration;

use chaos::cluster::Cluster;
use chaos::people::{put_guard, register};
use client::{nonce, request_id};
use wire::proto::shackle::v1 as sp;

/// A reason, the guard that gives it, and calls (tool, parameters) of which the last gets it.
type Row = (&'static str, sp::GuardConfig, Vec<(&'static str, &'static str)>);

fn tools(names: &[&str]) -> Option<sp::ToolList> {
    Some(sp::ToolList {
        tools: names.iter().map(|name| (*name).to_owned()).collect(),
    })
}

fn rule(id: &str, effect: sp::RuleEffect) -> Vec<sp::Rule> {
    vec![sp::Rule {
        id: id.to_owned(),
        tools: vec!["pay".to_owned()],
        when: vec![sp::Predicate {
            path: vec!["amount".to_owned()],
            op: sp::PredicateOp::More.into(),
            values: vec!["100".to_owned()],
        }],
        effect: effect.into(),
        ..sp::Rule::default()
    }]
}

fn rows() -> Vec<Row> {
    let guard = sp::GuardConfig::default;
    let breakers = |breakers| sp::GuardConfig {
        breakers: Some(breakers),
        ..guard()
    };
    let (a, b) = (("read", "{\"p\":\"a\"}"), ("read", "{\"p\":\"b\"}"));
    vec![
        ("within_thresholds", guard(), vec![a]),
        ("policy_violation:malformed_input", guard(), vec![("read", "[1]")]),
        (
            "circuit_open",
            sp::GuardConfig {
                allowed_tools: tools(&["read"]),
                ..guard()
            },
            vec![("delete", "{}"), a],
        ),
        (
            "escalation:tool_not_allowed",
            sp::GuardConfig {
                allowed_tools: tools(&[]),
                ..guard()
            },
            vec![a],
        ),
        (
            "policy:big",
            sp::GuardConfig {
                rules: rule("big", sp::RuleEffect::Deny),
                ..guard()
            },
            vec![("pay", "{\"amount\":100}"), ("pay", "{\"amount\":100.5}")],
        ),
        (
            "policy:error",
            sp::GuardConfig {
                rules: rule("big", sp::RuleEffect::Deny),
                ..guard()
            },
            vec![("pay", "{\"amount\":\"101\"}")],
        ),
        (
            "policy_violation:params_required",
            sp::GuardConfig {
                require_params: true,
                ..guard()
            },
            vec![("read", "")],
        ),
        (
            "parent_guard_denied:g7",
            sp::GuardConfig {
                budget_usd: 0.015,
                ..guard()
            },
            vec![a, b],
        ),
        (
            "rate_exceeded",
            sp::GuardConfig {
                rate_max_calls: 1,
                rate_window_seconds: 600,
                ..guard()
            },
            vec![a, b],
        ),
        (
            "window_exceeded",
            sp::GuardConfig {
                window_max_calls: 1,
                window_duration_s: 600,
                ..guard()
            },
            vec![a, b],
        ),
        (
            "global_limit",
            sp::GuardConfig {
                max_total_calls: 1,
                ..guard()
            },
            vec![a, b],
        ),
        (
            "max_repeat_exceeded",
            sp::GuardConfig {
                max_repeat_calls: 1,
                ..guard()
            },
            vec![a, a],
        ),
        (
            "name_repeat_exceeded",
            breakers(sp::Breakers {
                name_streak: 1,
                ..sp::Breakers::default()
            }),
            vec![a, b],
        ),
        (
            "retry_storm",
            breakers(sp::Breakers {
                storm_calls: 2,
                storm_window: 2,
                storm_ignores_progress: true,
                ..sp::Breakers::default()
            }),
            vec![a, b],
        ),
        (
            "loop_detected",
            breakers(sp::Breakers {
                cycle_longest: 2,
                cycle_rounds: 1,
                ..sp::Breakers::default()
            }),
            vec![a, b, a],
        ),
        (
            "hitl_all_calls",
            sp::GuardConfig {
                hitl_mode: sp::HitlMode::HitlAlways.into(),
                ..guard()
            },
            vec![a],
        ),
        (
            "session_paused",
            sp::GuardConfig {
                hitl_mode: sp::HitlMode::HitlAlways.into(),
                ..guard()
            },
            vec![a, b],
        ),
        (
            "fail_closed:opaque_context",
            guard(),
            vec![("read", "{\"ctx\":\"opaque\"}")],
        ),
        (
            "policy:ask",
            sp::GuardConfig {
                rules: rule("ask", sp::RuleEffect::Ask),
                ..guard()
            },
            vec![("pay", "{\"amount\":101}")],
        ),
        (
            "observe:escalation:tool_not_allowed",
            sp::GuardConfig {
                allowed_tools: tools(&[]),
                mode: sp::GuardMode::Observe.into(),
                ..guard()
            },
            vec![a],
        ),
    ]
}

fn call(session: &str, number: u64, tool: &str, params: &str) -> sp::PreExecRequest {
    sp::PreExecRequest {
        session_id: session.to_owned(),
        call_number: number,
        tool_name: tool.to_owned(),
        params_json: params.as_bytes().to_vec(),
        tool_params_hash: if params.is_empty() {
            vec![7; 32]
        } else {
            Vec::new()
        },
        estimated_cost_nanos: Some(10_000_000),
        nonce: nonce(),
        request_id: request_id(),
        ..sp::PreExecRequest::default()
    }
}

async fn ask(cluster: &Cluster, node: usize, request: sp::PreExecRequest) -> sp::PreExecResponse {
    let client = cluster
        .client_of(node % 3, "agent")
        .within(Duration::from_secs(10));
    client.pre_exec(request).await.expect("a verdict")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rule_answers_with_its_reason_on_three_nodes() {
    let cluster = Cluster::form(3, "[limits]\nregisters_per_second_per_address = 0\n");
    cluster.fund("org/acme", "1000.00");
    // The agent's own guard limits nothing, so that each row's own guard decides.
    put_guard(
        &cluster,
        "org/acme",
        sp::GuardConfig {
            breakers: Some(sp::Breakers::default()),
            ..sp::GuardConfig::default()
        },
    )
    .await;
    for (place, (reason, guard, calls)) in rows().into_iter().enumerate() {
        let name = format!("g{place}");
        let guard = sp::GuardConfig {
            agents: vec!["bot-1".to_owned()],
            breakers: Some(guard.breakers.unwrap_or_default()),
            ..guard
        };
        put_guard(&cluster, &format!("org/acme/guard/{name}"), guard).await;
        let session = register(&cluster, place % 3, "agent", "bot-1", Some(&name)).await;
        let mut answer = sp::PreExecResponse::default();
        for (node, ((tool, params), number)) in calls.iter().zip(1..).enumerate() {
            answer = ask(&cluster, place + node, call(&session, number, tool, params)).await;
        }
        assert_eq!(answer.reason, reason, "row {place}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_more_than_a_guard_answers_on_three_nodes_too() {
    let cluster = Cluster::form(3, "");
    // Q2: nobody gave it money yet.
    let session = register(&cluster, 0, "agent", "bot-1", None).await;
    let answer = ask(&cluster, 1, call(&session, 1, "read", "{}")).await;
    assert_eq!(answer.reason, "organization_quota_exceeded");
    cluster.fund("org/acme", "1000.00");

    // R3, K1, K2.
    let first = call(&session, 2, "read", "{}");
    let spent = first.nonce;
    assert_eq!(ask(&cluster, 0, first).await.verdict(), sp::Verdict::Allow);
    let again = sp::PreExecRequest {
        nonce: spent,
        ..call(&session, 3, "read", "{\"other\":1}")
    };
    assert_eq!(
        ask(&cluster, 1, again).await.reason,
        "policy_violation:duplicate_nonce"
    );
    let scope = format!("session/{session}");
    cluster.json("operator", &["kill", "engage", &scope, "--reason", "test"]);
    let answer = ask(&cluster, 2, call(&session, 4, "read", "{}")).await;
    assert_eq!(answer.reason, "run_halted:session");
    cluster.json(
        "operator",
        &["session", "terminate", &session, "--justification", "test"],
    );
    cluster.json("admin", &["kill", "release", &scope, "--justification", "test"]);
    let answer = ask(&cluster, 0, call(&session, 5, "read", "{}")).await;
    assert_eq!(answer.reason, "session_terminated");

    // R5, R5b, R8: the session's own account; Q3: a second after its first call.
    let guard = |timeout_seconds, hitl_mode: sp::HitlMode| sp::GuardConfig {
        budget_usd: 0.02,
        timeout_seconds,
        hitl_mode: hitl_mode.into(),
        hitl_budget_threshold: 0.5,
        ..sp::GuardConfig::default()
    };
    put_guard(&cluster, "org/acme", guard(0, sp::HitlMode::HitlNever)).await;
    let session = register(&cluster, 1, "agent", "bot-1", None).await;
    let dear = sp::PreExecRequest {
        estimated_cost_nanos: Some(30_000_000),
        ..call(&session, 1, "read", "{}")
    };
    assert_eq!(ask(&cluster, 0, dear).await.reason, "budget_overrun");
    for number in 2..4 {
        let page = format!("{{\"page\":{number}}}");
        let answer = ask(&cluster, 1, call(&session, number, "read", &page)).await;
        assert_eq!(answer.verdict(), sp::Verdict::Allow, "{answer:?}");
    }
    let answer = ask(&cluster, 2, call(&session, 4, "read", "{}")).await;
    assert_eq!(answer.reason, "budget_exhausted");

    put_guard(
        &cluster,
        "org/acme",
        guard(0, sp::HitlMode::HitlOnBudgetThreshold),
    )
    .await;
    let session = register(&cluster, 2, "agent", "bot-1", None).await;
    let answer = ask(&cluster, 0, call(&session, 1, "read", "{}")).await;
    assert_eq!(answer.verdict(), sp::Verdict::Allow, "{answer:?}");
    let held = call(&session, 2, "read", "{\"page\":2}");
    assert_eq!(ask(&cluster, 1, held.clone()).await.reason, "budget_threshold");
    assert_eq!(ask(&cluster, 2, held).await.reason, "hitl_pending");

    put_guard(&cluster, "org/acme", guard(1, sp::HitlMode::HitlNever)).await;
    let session = register(&cluster, 0, "agent", "bot-1", None).await;
    let answer = ask(&cluster, 1, call(&session, 1, "read", "{}")).await;
    assert_eq!(answer.verdict(), sp::Verdict::Allow, "{answer:?}");
    let started = std::time::Instant::now();
    for number in 2.. {
        assert!(started.elapsed() < Duration::from_secs(20), "it never ran out");
        let page = format!("{{\"page\":{number}}}");
        let free = sp::PreExecRequest {
            estimated_cost_nanos: Some(0),
            ..call(&session, number, "read", &page)
        };
        let answer = ask(&cluster, 2, free).await;
        if answer.reason == "timeout" {
            break;
        }
        assert_eq!(answer.verdict(), sp::Verdict::Allow, "{answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
