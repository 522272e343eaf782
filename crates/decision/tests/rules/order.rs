//! Which rule answers where several match.

use decision::decide::decide;
use decision::facts::{Facts, Status};
use decision::verdict::HaltScope;
use decision::verdict::Verdict::{self, Allow, Deny, Hitl};

use crate::sample::{approval, released, with_own_ceilings};

#[test]
fn release_outranks_the_sessions_own_ceilings_and_nothing_above_them() {
    let approval = approval();
    let rows: Vec<(&str, Facts<'_>, Verdict, &str)> = vec![
        (
            "own ceilings",
            with_own_ceilings(released(&approval)),
            Allow,
            "hitl_transition:approve",
        ),
        (
            "K1",
            Facts {
                halt: Some(HaltScope::Session),
                ..released(&approval)
            },
            Deny,
            "run_halted:session",
        ),
        (
            "K1 pause",
            Facts {
                pause: Some(HaltScope::Global),
                ..released(&approval)
            },
            Hitl,
            "run_halted:global",
        ),
        (
            "K2",
            Facts {
                status: Status::Stale,
                ..released(&approval)
            },
            Deny,
            "session_stale",
        ),
        (
            "R1",
            Facts {
                malformed: true,
                ..released(&approval)
            },
            Deny,
            "policy_violation:malformed_input",
        ),
        (
            "R2",
            Facts {
                circuit_tripped: true,
                ..released(&approval)
            },
            Deny,
            "circuit_open",
        ),
        (
            "R3",
            Facts {
                nonce_seen: true,
                ..released(&approval)
            },
            Deny,
            "policy_violation:duplicate_nonce",
        ),
        (
            "P1",
            Facts {
                delegation_failed: Some("x"),
                ..released(&approval)
            },
            Deny,
            "delegation:x",
        ),
        (
            "P2",
            Facts {
                allowed_tool: false,
                ..released(&approval)
            },
            Deny,
            "escalation:tool_not_allowed",
        ),
        (
            "P3",
            Facts {
                policy_denied: Some("p"),
                ..released(&approval)
            },
            Deny,
            "policy:p",
        ),
        (
            "P3 asked already",
            Facts {
                policy_hitl: Some("p"),
                ..released(&approval)
            },
            Allow,
            "hitl_transition:approve",
        ),
        (
            "Q1",
            Facts {
                ancestor_denied: Some("g"),
                ..released(&approval)
            },
            Deny,
            "parent_guard_denied:g",
        ),
        (
            "Q2",
            Facts {
                organization_exceeded: true,
                ..released(&approval)
            },
            Deny,
            "organization_quota_exceeded",
        ),
    ];
    for (name, facts, verdict, reason) in rows {
        let decision = decide(&facts);
        assert_eq!(
            (decision.verdict, &*decision.reason.word()),
            (verdict, reason),
            "{name}"
        );
        assert_eq!(decision.released, verdict == Allow, "{name}");
        assert!(decision.also.is_empty(), "{name}: {:?}", decision.also);
    }
}

#[test]
fn first_match_answers_and_the_rest_is_listed_in_order() {
    let everything = with_own_ceilings(Facts {
        halt: Some(HaltScope::Organization),
        pause: Some(HaltScope::Agent),
        status: Status::Paused {
            held: false,
            decided: false,
        },
        malformed: true,
        circuit_tripped: true,
        nonce_seen: true,
        delegation_failed: Some("ttl"),
        allowed_tool: false,
        params_missing: true,
        policy_denied: Some("p1"),
        policy_hitl: Some("p2"),
        ancestor_denied: Some("g0"),
        organization_exceeded: true,
        ..Facts::core()
    });
    let decision = decide(&everything);
    let words: Vec<_> = std::iter::once(&decision.reason)
        .chain(&decision.also)
        .map(|reason| reason.word().into_owned())
        .collect();
    let order = [
        "run_halted:organization",
        "policy_violation:malformed_input",
        "circuit_open",
        "policy_violation:duplicate_nonce",
        "session_paused",
        "delegation:ttl",
        "escalation:tool_not_allowed",
        "policy_violation:params_required",
        "policy:p1",
        "budget_exhausted",
        "parent_guard_denied:g0",
        "organization_quota_exceeded",
        "timeout",
        "rate_exceeded",
        "window_exceeded",
        "global_limit",
        "max_repeat_exceeded",
        "name_repeat_exceeded",
        "retry_storm",
        "loop_detected",
        "hitl_all_calls",
        "fail_closed:opaque_context",
        "policy:p2",
        "run_halted:agent",
    ];
    assert_eq!(words, order);
}
