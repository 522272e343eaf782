//! Every rule alone, one row an edge.

use decision::decide::{Rule, decide};
use decision::facts::{Facts, HitlRule, Status};
use decision::money::{NanoUsd, PerBillion};
use decision::verdict::HaltScope;
use decision::verdict::Verdict::{Allow, Deny, Hitl};

use crate::sample::{Row, amplified, budget, drawn, paused, repeated};

#[test]
fn each_rule_answers_at_its_edge() {
    let core = Facts::core;
    let half = PerBillion::from_percent(50).unwrap();
    let rows: Vec<Row<'_>> = vec![
        ("R10 nothing set", core(), Allow, "within_thresholds", Rule::R10),
        // K1, K2
        (
            "K1 halt",
            Facts {
                halt: Some(HaltScope::Global),
                ..core()
            },
            Deny,
            "run_halted:global",
            Rule::K1,
        ),
        (
            "K1 pause",
            Facts {
                pause: Some(HaltScope::Agent),
                ..core()
            },
            Hitl,
            "run_halted:agent",
            Rule::K1,
        ),
        (
            "K2 ended",
            Facts {
                status: Status::Terminated,
                ..core()
            },
            Deny,
            "session_terminated",
            Rule::K2,
        ),
        (
            "K2 stale",
            Facts {
                status: Status::Stale,
                ..core()
            },
            Deny,
            "session_stale",
            Rule::K2,
        ),
        // R1 R2 R3
        (
            "R1",
            Facts {
                malformed: true,
                ..core()
            },
            Deny,
            "policy_violation:malformed_input",
            Rule::R1,
        ),
        (
            "R2",
            Facts {
                circuit_tripped: true,
                ..core()
            },
            Deny,
            "circuit_open",
            Rule::R2,
        ),
        (
            "R3",
            Facts {
                nonce_seen: true,
                ..core()
            },
            Deny,
            "policy_violation:duplicate_nonce",
            Rule::R3,
        ),
        // R4, undecided
        (
            "R4 held call",
            paused(true, false),
            Hitl,
            "hitl_pending",
            Rule::R4,
        ),
        (
            "R4 held call, decision not there",
            paused(true, true),
            Hitl,
            "hitl_pending",
            Rule::R4,
        ),
        (
            "R4 other call",
            paused(false, false),
            Deny,
            "session_paused",
            Rule::R4,
        ),
        (
            "R4 other call of a decided pause",
            paused(false, true),
            Deny,
            "session_paused",
            Rule::R4,
        ),
        // P1 P2 P3
        (
            "P1",
            Facts {
                delegation_failed: Some("scope"),
                ..core()
            },
            Deny,
            "delegation:scope",
            Rule::P1,
        ),
        (
            "P2",
            Facts {
                allowed_tool: false,
                ..core()
            },
            Deny,
            "escalation:tool_not_allowed",
            Rule::P2,
        ),
        (
            "P3",
            Facts {
                policy_denied: Some("p1"),
                ..core()
            },
            Deny,
            "policy:p1",
            Rule::P3,
        ),
        (
            "P3 without arguments",
            Facts {
                params_missing: true,
                ..core()
            },
            Deny,
            "policy_violation:params_required",
            Rule::P3,
        ),
        (
            "P3 asks",
            Facts {
                policy_hitl: Some("p2"),
                ..core()
            },
            Hitl,
            "policy:p2",
            Rule::P3,
        ),
        // R5 R5b
        ("R5 at 0", budget(100, 0, 0), Deny, "budget_exhausted", Rule::R5),
        (
            "R5 below 0",
            budget(100, -1, 0),
            Deny,
            "budget_exhausted",
            Rule::R5,
        ),
        (
            "R5 hides R5b",
            budget(100, 0, 5),
            Deny,
            "budget_exhausted",
            Rule::R5,
        ),
        (
            "R5 passes at 1",
            budget(100, 1, 0),
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R5 with a budget of 0",
            budget(0, 0, 0),
            Deny,
            "budget_exhausted",
            Rule::R5,
        ),
        (
            "R5b exact fit passes",
            budget(100, 10, 10),
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R5b one nano over",
            budget(100, 10, 11),
            Deny,
            "budget_overrun",
            Rule::R5b,
        ),
        (
            "R5b most of all",
            budget(1, 1, i64::MAX),
            Deny,
            "budget_overrun",
            Rule::R5b,
        ),
        (
            "R5b no estimate",
            budget(100, 1, 0),
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R5b negative estimate",
            budget(100, 1, i64::MIN),
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R5 budget that is off",
            Facts {
                budget_enforced: false,
                ..budget(100, 0, 5)
            },
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R5b without an account",
            Facts {
                estimate: NanoUsd::MAX,
                ..core()
            },
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        // Q1 Q2
        (
            "Q1",
            Facts {
                ancestor_denied: Some("g0"),
                ..core()
            },
            Deny,
            "parent_guard_denied:g0",
            Rule::Q1,
        ),
        (
            "Q1 of a guard that only observes",
            Facts {
                ancestor_observed: Some("g0"),
                ..core()
            },
            Allow,
            "observe:parent_guard_denied:g0",
            Rule::Q1,
        ),
        (
            "Q2",
            Facts {
                organization_exceeded: true,
                ..core()
            },
            Deny,
            "organization_quota_exceeded",
            Rule::Q2,
        ),
        // Q3 Q4 Q5
        (
            "Q3",
            Facts {
                timed_out: true,
                ..core()
            },
            Deny,
            "timeout",
            Rule::Q3,
        ),
        (
            "Q4 rate",
            Facts {
                rate_exceeded: true,
                ..core()
            },
            Deny,
            "rate_exceeded",
            Rule::Q4Rate,
        ),
        (
            "Q4 window",
            Facts {
                window_exceeded: true,
                ..core()
            },
            Deny,
            "window_exceeded",
            Rule::Q4Window,
        ),
        (
            "Q5",
            Facts {
                total_calls_reached: true,
                ..core()
            },
            Deny,
            "global_limit",
            Rule::Q5,
        ),
        // R6
        (
            "R6 third of three",
            repeated(3, 2),
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R6 fourth of three",
            repeated(3, 3),
            Deny,
            "max_repeat_exceeded",
            Rule::R6,
        ),
        (
            "R6 limit 0",
            repeated(0, 0),
            Deny,
            "max_repeat_exceeded",
            Rule::R6,
        ),
        (
            "R6 other tool before",
            Facts {
                same_tool: false,
                ..repeated(3, 9)
            },
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R6 off",
            Facts {
                max_repeat: None,
                ..repeated(0, 9)
            },
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R6 amplified",
            amplified(3, 2),
            Deny,
            "max_repeat_exceeded",
            Rule::R6,
        ),
        (
            "R6 amplified, first repeat",
            amplified(3, 1),
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R6 amplified never below one",
            amplified(1, 0),
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R6 amplification does not loosen 0",
            amplified(0, 0),
            Deny,
            "max_repeat_exceeded",
            Rule::R6,
        ),
        (
            "R6 error without amplification",
            Facts {
                error_amplification: false,
                ..amplified(3, 2)
            },
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        // Q6
        (
            "Q6 name",
            Facts {
                name_repeat_exceeded: true,
                ..core()
            },
            Deny,
            "name_repeat_exceeded",
            Rule::Q6,
        ),
        (
            "Q6 storm",
            Facts {
                retry_storm: true,
                ..core()
            },
            Deny,
            "retry_storm",
            Rule::Q6,
        ),
        (
            "Q6 loop",
            Facts {
                loop_detected: true,
                ..core()
            },
            Deny,
            "loop_detected",
            Rule::Q6,
        ),
        // R7 R8 R9
        (
            "R7",
            Facts {
                hitl: HitlRule::Always,
                ..core()
            },
            Hitl,
            "hitl_all_calls",
            Rule::R7,
        ),
        (
            "R8 at the threshold",
            Facts {
                hitl: HitlRule::OnThreshold(half),
                ..budget(100, 50, 0)
            },
            Hitl,
            "budget_threshold",
            Rule::R8,
        ),
        (
            "R8 above",
            Facts {
                hitl: HitlRule::OnThreshold(half),
                ..budget(100, 51, 0)
            },
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R8 without a budget",
            Facts {
                hitl: HitlRule::OnThreshold(PerBillion::ONE),
                ..core()
            },
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "R9",
            Facts {
                opaque: true,
                ..core()
            },
            Hitl,
            "fail_closed:opaque_context",
            Rule::R9,
        ),
        // X
        ("X lowest draw", drawn(100, 19, 0), Deny, "probabilistic", Rule::X),
        (
            "X highest draw",
            drawn(100, 19, u32::MAX),
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "X not at a fifth",
            drawn(100, 20, 0),
            Allow,
            "within_thresholds",
            Rule::R10,
        ),
        (
            "X only where the answer would be ALLOW",
            Facts {
                opaque: true,
                ..drawn(100, 19, 0)
            },
            Hitl,
            "fail_closed:opaque_context",
            Rule::R9,
        ),
    ];
    for (name, facts, verdict, reason, rule) in rows {
        let decision = decide(&facts);
        assert_eq!(
            (decision.verdict, &*decision.reason.word(), decision.rule),
            (verdict, reason, rule),
            "{name}"
        );
        assert!(decision.also.is_empty(), "{name}: {:?}", decision.also);
        assert!(!decision.released, "{name}");
    }
}

#[test]
fn trips_are_those_of_the_table() {
    let trips = [
        Rule::P1,
        Rule::P2,
        Rule::R5,
        Rule::Q3,
        Rule::Q4Rate,
        Rule::Q5,
        Rule::R6,
        Rule::Q6,
    ];
    let quiet = [
        Rule::K1,
        Rule::K2,
        Rule::R1,
        Rule::R2,
        Rule::R3,
        Rule::R4,
        Rule::P3,
        Rule::R5b,
        Rule::Q1,
        Rule::Q2,
        Rule::Q4Window,
        Rule::R7,
        Rule::R8,
        Rule::R9,
        Rule::X,
        Rule::R10,
    ];
    trips
        .iter()
        .for_each(|rule| assert!(rule.trips_by_default(), "{rule:?}"));
    quiet
        .iter()
        .for_each(|rule| assert!(!rule.trips_by_default(), "{rule:?}"));
}
