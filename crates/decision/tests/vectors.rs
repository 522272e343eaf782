//! The 29 published vectors of SP/1.0 and SP/1.0.1 with their 58 digests.
//!
//! The vectors are © 2026 Dante Bullock: the SP/1.0 fixtures under CC BY 4.0, the SP/1.0.1 file under
//! Apache-2.0; `sp1_vectors.txt` says what was changed in them.

use conformance::Check;
use decision::verdict::Verdict::{self, Allow, Deny, Hitl};

/// Name, verdict, reason: what each vector is about.
const VECTORS: [(&str, Verdict, &str); 29] = [
    ("allow_within_thresholds", Allow, "within_thresholds"),
    ("deny_budget_exhausted", Deny, "budget_exhausted"),
    ("deny_max_repeat", Deny, "max_repeat_exceeded"),
    ("deny_circuit_open", Deny, "circuit_open"),
    ("deny_duplicate_nonce", Deny, "policy_violation:duplicate_nonce"),
    ("hitl_threshold", Hitl, "budget_threshold"),
    ("hitl_always", Hitl, "hitl_all_calls"),
    (
        "malformed_non_canonical_input",
        Deny,
        "policy_violation:malformed_input",
    ),
    ("untestable_opaque_context", Hitl, "fail_closed:opaque_context"),
    ("hitl_transition_approve", Allow, "hitl_transition:approve"),
    ("hitl_transition_reject", Deny, "hitl_transition:reject"),
    (
        "hitl_transition_modify",
        Allow,
        "hitl_transition:modify_successor",
    ),
    (
        "hitl_transition_defer_escalate",
        Hitl,
        "hitl_transition:defer_escalate",
    ),
    (
        "hitl_transition_duplicate_resume",
        Deny,
        "policy_violation:duplicate_resume_no_effect",
    ),
    ("concurrent_budget_overrun", Deny, "budget_overrun"),
    (
        "transition_digest_mismatch",
        Deny,
        "hitl_transition:digest_mismatch",
    ),
    (
        "transition_nonce_mismatch",
        Deny,
        "hitl_transition:nonce_mismatch",
    ),
    (
        "transition_unbound_authorization",
        Deny,
        "hitl_transition:unbound_authorization",
    ),
    (
        "transition_superseded_original",
        Deny,
        "hitl_transition:superseded_original",
    ),
    (
        "transition_terminal_no_effect",
        Deny,
        "hitl_transition:terminal_no_effect",
    ),
    (
        "transition_unknown_decision",
        Deny,
        "hitl_transition:unknown_decision",
    ),
    ("malformed_nan_value", Deny, "policy_violation:malformed_input"),
    (
        "malformed_non_object_params",
        Deny,
        "policy_violation:malformed_input",
    ),
    (
        "opaque_context_context_opaque",
        Hitl,
        "fail_closed:opaque_context",
    ),
    ("opaque_context_ctx_unknown", Hitl, "fail_closed:opaque_context"),
    (
        "opaque_context_raw_context_unevaluable",
        Hitl,
        "fail_closed:opaque_context",
    ),
    (
        "opaque_context_blob_untestable",
        Hitl,
        "fail_closed:opaque_context",
    ),
    ("opaque_context_nested", Hitl, "fail_closed:opaque_context"),
    (
        "evaluable_context_is_not_opaque_guard",
        Allow,
        "within_thresholds",
    ),
];

#[test]
fn every_published_vector_gets_its_verdict_reason_and_both_digests() {
    let lines = include_str!("sp1_vectors.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let outcomes: Vec<_> = lines
        .flat_map(|line| conformance::run_file(line.as_bytes()).expect("JSON"))
        .collect();
    assert_eq!(outcomes.len(), VECTORS.len());
    for (outcome, (name, verdict, reason)) in outcomes.iter().zip(VECTORS) {
        assert_eq!(outcome.name, name);
        assert_eq!(outcome.decision.verdict, verdict, "{name}");
        assert_eq!(outcome.decision.reason.word(), reason, "{name}");
        assert_eq!(outcome.canonical_hash, Check::Equal, "{name}");
        assert_eq!(outcome.vector_hash, Check::Equal, "{name}");
        assert!(outcome.passed(), "{name}");
    }
}

#[test]
fn wrong_expectation_does_not_pass() {
    let rows = [
        (r#"{"call":{"params":{}},"expected_verdict":"DENY"}"#, false),
        (r#"{"call":{"params":{}},"expected_verdict":"ALLOW"}"#, true),
        (
            r#"{"call":{"params":{}},"expected_verdict":"ALLOW","expected_reason":"other"}"#,
            false,
        ),
        (
            r#"{"call":{"params":{}},"expected_verdict":"ALLOW","canonical_hash":"00"}"#,
            false,
        ),
        (
            r#"{"call":{"params":{}},"expected_verdict":"ALLOW","vector_hash":7}"#,
            false,
        ),
        // A fixture that expects nothing proves nothing.
        (r#"{"call":{"params":{}}}"#, false),
        ("{}", false),
    ];
    for (fixture, passes) in rows {
        let outcomes = conformance::run_file(fixture.as_bytes()).expect("JSON");
        assert_eq!(
            outcomes.first().map(|outcome| outcome.passed()),
            Some(passes),
            "{fixture}"
        );
    }
}

#[test]
fn mistyped_fixtures_are_decided_and_never_loosened() {
    let rows = [
        // Falsy arguments count as none; anything else that is no object is malformed.
        (r#"{"call":{"params":null}}"#, Allow, "within_thresholds"),
        (r#"{"call":{"params":[]}}"#, Allow, "within_thresholds"),
        (r#"{"call":{"params":0.0}}"#, Allow, "within_thresholds"),
        (
            r#"{"call":{"params":1}}"#,
            Deny,
            "policy_violation:malformed_input",
        ),
        (
            r#"{"call":{"params":[{}]}}"#,
            Deny,
            "policy_violation:malformed_input",
        ),
        (
            r#"{"call":{"params":{"x":1e999}}}"#,
            Deny,
            "policy_violation:malformed_input",
        ),
        // A budget that is on without a balance is empty.
        (r#"{"config":{"budget_usd":1}}"#, Deny, "budget_exhausted"),
        (r#"{"config":{"budget_usd":"1"}}"#, Deny, "budget_exhausted"),
        (r#"{"config":{"budget_usd":-1}}"#, Allow, "within_thresholds"),
        // A repeat limit of the wrong type allows nothing; one with a fraction is rounded down.
        (
            r#"{"config":{"max_repeat_calls":"3"},"state":{"repeat_counts":{"a":0},"last_tool_name":"a"},"call":{"tool_name":"a"}}"#,
            Deny,
            "max_repeat_exceeded",
        ),
        (
            r#"{"config":{"max_repeat_calls":2.0},"state":{"repeat_counts":{"a":2},"last_tool_name":"a"},"call":{"tool_name":"a"}}"#,
            Deny,
            "max_repeat_exceeded",
        ),
        // A tool without a counter has not repeated, even at a limit of 0.
        (
            r#"{"config":{"max_repeat_calls":0},"state":{"repeat_counts":{},"last_tool_name":"a"},"call":{"tool_name":"a"}}"#,
            Allow,
            "within_thresholds",
        ),
        // Any value may stand for a nonce; null stands for none.
        (
            r#"{"state":{"seen_nonces":["a"]},"call":{"nonce":"a"}}"#,
            Deny,
            "policy_violation:duplicate_nonce",
        ),
        (
            r#"{"state":{"seen_nonces":[null]},"call":{"nonce":null}}"#,
            Allow,
            "within_thresholds",
        ),
        // A digest that is none binds the approval all the same.
        (
            r#"{"state":{"pending_transition":{"decision":"approve","original_args_digest":"x"}}}"#,
            Deny,
            "hitl_transition:digest_mismatch",
        ),
        (
            r#"{"state":{"pending_transition":{"decision":"approve","original_args_digest":""}}}"#,
            Deny,
            "hitl_transition:unbound_authorization",
        ),
        (r#"{"config":{"hitl_mode":"ALWAYS"}}"#, Allow, "within_thresholds"),
        // The reference looks through one list level only; the edge looks through all (see params.rs).
        (
            r#"{"call":{"params":{"a":[{"ctx":"opaque"}]}}}"#,
            Hitl,
            "fail_closed:opaque_context",
        ),
        (
            r#"{"call":{"params":{"a":[[{"ctx":"opaque"}]]}}}"#,
            Allow,
            "within_thresholds",
        ),
        (
            r#"{"call":{"params":{"ctx":["opaque"]}}}"#,
            Allow,
            "within_thresholds",
        ),
    ];
    for (fixture, verdict, reason) in rows {
        let outcomes = conformance::run_file(fixture.as_bytes()).expect("JSON");
        let decision = &outcomes.first().expect("one outcome").decision;
        assert_eq!(
            (decision.verdict, &*decision.reason.word()),
            (verdict, reason),
            "{fixture}"
        );
    }
}
