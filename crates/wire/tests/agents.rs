//! `shackle.v1`: what is taken from agents and what they are shown, one row an edge.

use std::collections::HashMap;

use decision::{AgentId, Digest, HaltScope, NanoUsd, OrganizationId, Reason, SessionId, Timestamp, Verdict};
use machine::command::{AgentPattern, Params, Principal};
use machine::reply::{Place, VerdictReply};
use wire::proto::shackle::v1 as proto;
use wire::{Code, guard, guard_config};

/// Doubles that no cost and no budget may be.
const NO_MONEY: [f64; 8] = [
    f64::NAN,
    -f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    -1e-9,
    1e308,
    1e-10,
    9.3e9,
];

fn bot() -> Principal {
    Principal {
        name: "org/acme/agent/bot-1".to_owned(),
        organization: OrganizationId::parse("acme").ok(),
        agents: AgentId::parse("bot-1")
            .map(AgentPattern::Exact)
            .into_iter()
            .collect(),
    }
}

fn call() -> proto::PreExecRequest {
    proto::PreExecRequest {
        session_id: "ses_1".to_owned(),
        call_number: 1,
        tool_name: "read_file".to_owned(),
        params_json: b"{\"path\":\"/tmp/a\"}".to_vec(),
        nonce: 1,
        request_id: "r1".to_owned(),
        ..Default::default()
    }
}

fn report() -> proto::PostExecNotification {
    proto::PostExecNotification {
        session_id: "ses_1".to_owned(),
        call_number: 1,
        success: true,
        ..Default::default()
    }
}

fn registration() -> proto::RegisterRequest {
    proto::RegisterRequest {
        agent_id: "bot-1".to_owned(),
        ..Default::default()
    }
}

fn many(pairs: usize) -> HashMap<String, String> {
    (0..pairs)
        .map(|number| (number.to_string(), String::new()))
        .collect()
}

fn one(key: usize, value: usize) -> HashMap<String, String> {
    HashMap::from([("k".repeat(key), "v".repeat(value))])
}

type Change<T> = fn(&mut T);

#[test]
fn a_malformed_question_is_invalid_and_says_where() {
    let rows: [(&str, Change<proto::PreExecRequest>); 26] = [
        ("session_id", |call| call.session_id = String::new()),
        ("session_id", |call| call.session_id = "s".repeat(65)),
        ("session_id", |call| call.session_id = "ses/1".to_owned()),
        ("call_number", |call| call.call_number = 0),
        ("tool_name", |call| call.tool_name = String::new()),
        ("tool_name", |call| call.tool_name = "t".repeat(129)),
        ("tool_name", |call| call.tool_name = "a\nb".to_owned()),
        ("nonce", |call| call.nonce = 0),
        ("tool_params_hash", |call| call.tool_params_hash = vec![1; 31]),
        ("tool_params_hash", |call| call.tool_params_hash = vec![1; 33]),
        ("tool_params_hash", |call| call.tool_params_hash = vec![1; 64]),
        ("tool_params_hash", |call| call.params_json.clear()),
        ("params_json", |call| call.params_json = vec![b' '; 64 * 1024 + 1]),
        ("tags", |call| call.tags = many(33)),
        ("tags", |call| call.tags = one(65, 0)),
        ("tags", |call| call.tags = one(0, 0)),
        ("tags", |call| call.tags = one(1, 257)),
        ("estimated_cost_usd", |call| call.estimated_cost_usd = f64::NAN),
        ("estimated_cost_nanos", |call| {
            call.estimated_cost_nanos = Some(-1)
        }),
        ("estimated_cost_nanos", |call| {
            call.estimated_cost_nanos = Some(i64::MAX)
        }),
        ("estimated_cost_nanos", |call| {
            call.estimated_cost_usd = 0.1;
            call.estimated_cost_nanos = Some(1);
        }),
        ("request_id", |call| call.request_id = "r".repeat(65)),
        ("request_id", |call| call.request_id = "a b".to_owned()),
        ("request_id", |call| call.request_id = "ä".to_owned()),
        ("approval_id", |call| call.approval_id = "a/b".to_owned()),
        ("parent_guard_id", |call| call.parent_guard_id = "g".repeat(257)),
    ];
    for (field, change) in rows {
        let mut message = call();
        change(&mut message);
        let invalid = guard::pre_exec(&message, bot()).unwrap_err();
        assert_eq!(invalid.field, field, "{invalid}");
    }
}

#[test]
fn a_well_formed_question_is_read_once() {
    let rows: [(&str, Change<proto::PreExecRequest>); 7] = [
        ("as it stands", |_| {}),
        ("no request id", |call| call.request_id = String::new()),
        ("digest only", |call| {
            call.params_json.clear();
            call.tool_params_hash = vec![1; 32];
        }),
        ("most tags", |call| call.tags = many(32)),
        ("largest tag", |call| call.tags = one(64, 256)),
        ("any nonce", |call| call.nonce = u64::MAX),
        ("an approval", |call| call.approval_id = "apr_1".to_owned()),
    ];
    for (name, change) in rows {
        let mut message = call();
        change(&mut message);
        assert!(guard::pre_exec(&message, bot()).is_ok(), "{name}");
    }
}

#[test]
fn a_cost_is_the_exact_field_then_the_rounded_one_then_none() {
    let rows = [
        (0.0, None, None),
        (-0.0, None, None),
        (0.0, Some(0), Some(0)),
        (0.3, None, Some(300_000_000)),
        (0.3, Some(300_000_000), Some(300_000_000)),
        (0.0, Some(1), Some(1)),
    ];
    for (usd, nanos, expected) in rows {
        let message = proto::PreExecRequest {
            estimated_cost_usd: usd,
            estimated_cost_nanos: nanos,
            ..call()
        };
        let question = guard::pre_exec(&message, bot()).unwrap();
        assert_eq!(
            question.call.estimate,
            expected.map(NanoUsd::new),
            "{usd} {nanos:?}"
        );
    }
}

#[test]
fn no_cost_and_no_budget_is_read_from_what_is_no_money() {
    for usd in NO_MONEY {
        let asked = proto::PreExecRequest {
            estimated_cost_usd: usd,
            ..call()
        };
        assert_eq!(
            guard::pre_exec(&asked, bot()).unwrap_err().field,
            "estimated_cost_usd",
            "{usd:e}"
        );

        let reported = proto::PostExecNotification {
            actual_cost_usd: usd,
            ..report()
        };
        assert_eq!(
            guard::post_exec(&reported, bot()).unwrap_err().field,
            "actual_cost_usd",
            "{usd:e}"
        );
        let disowned = proto::PostExecNotification {
            cost_known: Some(false),
            ..reported
        };
        assert_eq!(
            guard::post_exec(&disowned, bot()).unwrap_err().field,
            "actual_cost_usd",
            "{usd:e}"
        );

        let pulse = proto::Heartbeat {
            session_id: "s".into(),
            local_budget_remaining: usd,
            ..Default::default()
        };
        assert_eq!(
            guard::heartbeat(&pulse).unwrap_err().field,
            "local_budget_remaining",
            "{usd:e}"
        );

        let budget = proto::GuardConfig {
            budget_usd: usd,
            ..Default::default()
        };
        assert_eq!(
            guard_config::guard(&budget).unwrap_err().field,
            "budget_usd",
            "{usd:e}"
        );
        let price = proto::GuardConfig {
            default_cost_usd: Some(usd),
            ..Default::default()
        };
        assert_eq!(
            guard_config::guard(&price).unwrap_err().field,
            "default_cost_usd",
            "{usd:e}"
        );
        let ratio = proto::GuardConfig {
            deny_jitter_ratio: usd,
            ..Default::default()
        };
        assert_eq!(
            guard_config::guard(&ratio).unwrap_err().field,
            "deny_jitter_ratio",
            "{usd:e}"
        );
        let ratio = proto::GuardConfig {
            hitl_budget_threshold: usd,
            ..Default::default()
        };
        assert_eq!(
            guard_config::guard(&ratio).unwrap_err().field,
            "hitl_budget_threshold",
            "{usd:e}"
        );
    }
}

#[test]
fn parameters_become_facts() {
    let digest = |text: &[u8]| Digest::of(text);
    let canonical = digest(b"{\"a\":1}");
    let rows = [
        (&b"{\"a\":1}"[..], None, Params::Clear, Some(canonical)),
        (b" { \"a\" : 1 } ", None, Params::Clear, Some(canonical)),
        (b"{\"a\":1}", Some(canonical), Params::Clear, Some(canonical)),
        (b"{\"a\":1}", Some(digest(b"{}")), Params::Malformed, None),
        (
            b"{\"context\":\"unknown\"}",
            None,
            Params::Opaque,
            Some(digest(b"{\"context\":\"unknown\"}")),
        ),
        (b"[]", None, Params::Malformed, None),
        (b"null", Some(canonical), Params::Malformed, None),
        (b"{\"a\":1,\"a\":2}", None, Params::Malformed, None),
        (b"{\"a\":NaN}", None, Params::Malformed, None),
        (b"\xff", None, Params::Malformed, None),
        (b"", Some(canonical), Params::HashOnly, Some(canonical)),
    ];
    for (params_json, given, params, digest) in rows {
        let message = proto::PreExecRequest {
            params_json: params_json.to_vec(),
            tool_params_hash: given.map(|digest| digest.as_bytes().to_vec()).unwrap_or_default(),
            ..call()
        };
        let question = guard::pre_exec(&message, bot()).unwrap();
        assert_eq!(
            (question.call.params, question.call.digest),
            (params, digest),
            "{params_json:?}"
        );
    }
}

#[test]
fn a_retry_is_the_same_payload_whatever_its_approval_and_nothing_else() {
    let payload = |change: Change<proto::PreExecRequest>| {
        let mut message = call();
        change(&mut message);
        guard::pre_exec(&message, bot())
            .unwrap()
            .call
            .request
            .unwrap()
            .payload
    };
    let first = payload(|_| {});
    let same: [Change<proto::PreExecRequest>; 3] = [
        |call| call.approval_id = "apr_1".to_owned(),
        |call| call.request_id = "r2".to_owned(),
        |call| call.params_json = b"{ \"path\" : \"/tmp/a\" }".to_vec(),
    ];
    for change in same {
        assert_eq!(payload(change), first);
    }
    let other: [Change<proto::PreExecRequest>; 11] = [
        |call| call.call_number = 2,
        |call| call.nonce = 2,
        |call| call.tool_name = "write_file".to_owned(),
        |call| call.params_json = b"{}".to_vec(),
        |call| call.params_json = b"[]".to_vec(),
        |call| call.params_json = b"[1]".to_vec(),
        |call| call.estimated_cost_nanos = Some(0),
        |call| call.estimated_cost_usd = 0.1,
        |call| call.dry_run = true,
        |call| call.estimated_tokens = 1,
        |call| call.tags = one(1, 1),
    ];
    let mut seen = vec![first];
    for change in other {
        let payload = payload(change);
        assert!(!seen.contains(&payload));
        seen.push(payload);
    }
}

#[test]
fn a_report_says_a_cost_or_that_it_is_unknown() {
    // (usd, nanos, cost_known, tokens) → actual
    let rows = [
        (0.0, None, None, 0, None),
        // The state machine prices the tokens.
        (0.0, None, None, 5, None),
        (0.5, None, None, 0, Some(500_000_000)),
        (0.0, Some(0), None, 0, Some(0)),
        (0.0, Some(9), None, 5, Some(9)),
        (0.0, None, Some(true), 0, Some(0)),
        (0.5, None, Some(true), 0, Some(500_000_000)),
        (0.0, None, Some(false), 5, None),
        (0.5, Some(500_000_000), Some(false), 0, None),
    ];
    for (usd, nanos, cost_known, tokens_in, expected) in rows {
        let message = proto::PostExecNotification {
            actual_cost_usd: usd,
            actual_cost_nanos: nanos,
            cost_known,
            tokens_in,
            ..report()
        };
        let read = guard::post_exec(&message, bot()).unwrap();
        assert_eq!(
            read.actual,
            expected.map(NanoUsd::new),
            "{usd} {nanos:?} {cost_known:?} {tokens_in}"
        );
        assert_eq!(read.model.is_some(), cost_known.is_none());
    }
}

#[test]
fn a_malformed_report_is_invalid_and_says_where() {
    let rows: [(&str, Change<proto::PostExecNotification>); 10] = [
        ("session_id", |report| report.session_id = String::new()),
        ("call_number", |report| report.call_number = 0),
        ("actual_cost_nanos", |report| report.actual_cost_nanos = Some(-1)),
        ("actual_cost_nanos", |report| {
            report.actual_cost_usd = 0.1;
            report.actual_cost_nanos = Some(0);
        }),
        ("error_message", |report| report.error_message = "e".repeat(4_097)),
        ("model_used", |report| report.model_used = "m".repeat(257)),
        ("duration_ms", |report| report.duration_ms = -1),
        ("result_hash", |report| report.result_hash = vec![0; 31]),
        ("request_id", |report| report.request_id = "a b".to_owned()),
        ("request_id", |report| report.partial = true),
    ];
    for (field, change) in rows {
        let mut message = report();
        change(&mut message);
        let invalid = guard::post_exec(&message, bot()).unwrap_err();
        assert_eq!(invalid.field, field, "{invalid}");
    }
    let partial = proto::PostExecNotification {
        partial: true,
        request_id: "r".into(),
        ..report()
    };
    assert!(guard::post_exec(&partial, bot()).unwrap().partial);
    let failed = proto::PostExecNotification {
        error_message: "HTTP 503 from upstream".into(),
        ..report()
    };
    assert!(guard::post_exec(&failed, bot()).unwrap().error_signal);
}

#[test]
fn a_registration_is_of_the_certificates_organization_unless_it_says_another() {
    let (register, version) = guard::register(&registration(), bot()).unwrap();
    assert_eq!(register.organization.as_str(), "acme");
    assert_eq!(version.to_string(), "1.0.0");
    let other = proto::RegisterRequest {
        organization_id: "globex".to_owned(),
        ..registration()
    };
    let (register, _) = guard::register(&other, bot()).unwrap();
    assert_eq!(register.organization.as_str(), "globex");
    assert!(!register.by.speaks_for(&register.organization, &register.agent));
}

#[test]
fn a_malformed_registration_is_invalid_and_says_where() {
    let rows: [(&str, Change<proto::RegisterRequest>); 11] = [
        ("agent_id", |register| register.agent_id = String::new()),
        ("agent_id", |register| register.agent_id = ".bot".to_owned()),
        ("agent_id", |register| register.agent_id = "bot/1".to_owned()),
        ("organization_id", |register| {
            register.organization_id = "a b".to_owned()
        }),
        ("session_id", |register| register.session_id = "a b".to_owned()),
        ("framework", |register| register.framework = "f".repeat(257)),
        ("metadata", |register| register.metadata = many(33)),
        ("metadata", |register| register.metadata = one(65, 1)),
        ("metadata", |register| register.metadata = one(1, 257)),
        ("guard_id", |register| register.guard_id = "a/b".to_owned()),
        ("protocol_version", |register| {
            register.protocol_version = "one".to_owned()
        }),
    ];
    for (field, change) in rows {
        let mut message = registration();
        change(&mut message);
        let failure = guard::register(&message, bot()).unwrap_err();
        assert_eq!(
            (failure.code, failure.field.as_str()),
            (Code::InvalidRequest, field),
            "{failure}"
        );
    }
    let future = proto::RegisterRequest {
        protocol_version: "2.0.0".to_owned(),
        ..registration()
    };
    assert_eq!(
        guard::register(&future, bot()).unwrap_err().code,
        Code::ProtocolVersionMismatch
    );
}

fn answer(verdict: Verdict, reason: Reason) -> VerdictReply {
    VerdictReply {
        session: SessionId::below_all(),
        call_number: 4,
        verdict,
        reason,
        also: vec![Reason::OrganizationQuotaExceeded],
        remaining: Some(NanoUsd::new(1_500_000_000)),
        repeats: 2,
        approval_id: None,
        blocked_by: None,
        warnings: Vec::new(),
        authorization: None,
        retry_after: None,
        replayed: false,
        place: Place {
            log_index: 8,
            sequence: 9,
            halt_epoch: 3,
            time: Timestamp::from_nanos(5),
        },
    }
}

#[test]
fn an_agent_sees_one_reason_and_never_that_it_was_denied_by_chance() {
    let rows = [
        (
            Verdict::Allow,
            Reason::WithinThresholds,
            "within_thresholds",
            proto::DenyReason::Unspecified,
        ),
        (
            Verdict::Hitl,
            Reason::BudgetOverrun,
            "budget_overrun",
            proto::DenyReason::Unspecified,
        ),
        (
            Verdict::Deny,
            Reason::BudgetOverrun,
            "budget_overrun",
            proto::DenyReason::BudgetOverrun,
        ),
        (
            Verdict::Deny,
            Reason::BudgetExhausted,
            "budget_exhausted",
            proto::DenyReason::BudgetExhausted,
        ),
        (
            Verdict::Deny,
            Reason::Probabilistic,
            "budget_exhausted",
            proto::DenyReason::BudgetExhausted,
        ),
        (
            Verdict::Deny,
            Reason::RunHalted(HaltScope::Organization),
            "run_halted:organization",
            proto::DenyReason::RunHalted,
        ),
        (
            Verdict::Deny,
            Reason::DryRun(Box::new(Reason::WithinThresholds)),
            "dry_run:within_thresholds",
            proto::DenyReason::PolicyViolation,
        ),
        (
            Verdict::Deny,
            Reason::DryRun(Box::new(Reason::Probabilistic)),
            "dry_run:budget_exhausted",
            proto::DenyReason::BudgetExhausted,
        ),
    ];
    for (verdict, reason, word, deny_reason) in rows {
        let response = guard::pre_exec_response(&answer(verdict, reason));
        assert_eq!(response.reason, word);
        assert_eq!(response.all_reasons, [word]);
        assert_eq!(response.deny_reason(), deny_reason, "{word}");
        assert!(!response.probabilistic_deny);
        let text = format!("{response:?}");
        assert!(
            !text.contains("chance") && !text.contains("probabilistic\""),
            "{text}"
        );
    }
    let by_chance = guard::pre_exec_response(&answer(Verdict::Deny, Reason::Probabilistic));
    let spent = VerdictReply {
        remaining: Some(NanoUsd::ZERO),
        ..answer(Verdict::Deny, Reason::BudgetExhausted)
    };
    assert_eq!(by_chance, guard::pre_exec_response(&spent));
}

#[test]
fn a_verdict_carries_its_place_and_its_figure_in_both_units() {
    let response = guard::pre_exec_response(&answer(Verdict::Allow, Reason::WithinThresholds));
    assert_eq!(
        (response.log_index, response.audit_sequence, response.halt_epoch),
        (8, 9, 3)
    );
    assert_eq!(
        (response.budget_remaining_usd, response.budget_remaining_nanos),
        (1.5, Some(1_500_000_000))
    );
    assert_eq!(
        (
            response.repeat_count,
            response.daemon_time_ns,
            response.call_number
        ),
        (2, 5, 4)
    );
    let unlimited = VerdictReply {
        remaining: None,
        ..answer(Verdict::Allow, Reason::WithinThresholds)
    };
    let response = guard::pre_exec_response(&unlimited);
    assert_eq!(
        (response.budget_remaining_usd, response.budget_remaining_nanos),
        (0.0, None)
    );
}

#[test]
fn drift_is_more_than_a_nano() {
    let rows = [
        (Some(10), 10, false),
        (Some(10), 11, false),
        (Some(10), 12, true),
        (Some(-5), 0, true),
        (None, 7, false),
    ];
    for (available, reckoned, drift) in rows {
        let pulse = guard::Pulse {
            session: SessionId::below_all(),
            reckoned: NanoUsd::new(reckoned),
        };
        let ack = guard::heartbeat_ack(&pulse, available.map(NanoUsd::new), None, Timestamp::ZERO);
        assert_eq!(ack.drift_detected, drift, "{available:?} {reckoned}");
        assert!(!ack.halted);
    }
}
