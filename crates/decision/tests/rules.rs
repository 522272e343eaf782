//! Every rule of the order, one row an edge: facts in, verdict, reason and rule out.

use decision::decide::{Rule, RuleSet, decide};
use decision::digest::Digest;
use decision::facts::{
    BudgetFacts, Facts, HitlRule, HumanDecision, Mode, ProbabilisticDraw, Status, Terminal, Transition,
};
use decision::money::{NanoUsd, PerBillion};
use decision::verdict::HaltScope;
use decision::verdict::Verdict::{self, Allow, Deny, Hitl};

type Row<'a> = (&'a str, Facts<'a>, Verdict, &'a str, Rule);

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
fn transition_is_resolved_in_its_order() {
    use HumanDecision as D;
    let bound = Transition {
        original_nonce: Some(1),
        original_digest: Some(digest()),
        ..transition(D::Approve)
    };
    let successor = Transition {
        decision: D::Modify,
        successor_nonce: Some(2),
        successor_digest: Some(digest()),
        terminal: Some(Terminal::Superseded),
        ..bound
    };
    let spent = |terminal| Transition {
        terminal: Some(terminal),
        ..bound
    };
    let resumed = |decision| Transition {
        resume_attempt: true,
        decision,
        ..spent(Terminal::Consumed)
    };
    let rows = [
        (
            "unknown before all",
            1,
            resumed(D::Unknown),
            Deny,
            "hitl_transition:unknown_decision",
        ),
        (
            "resumed and spent",
            1,
            resumed(D::Approve),
            Deny,
            "policy_violation:duplicate_resume_no_effect",
        ),
        (
            "resumed and rejected",
            1,
            resumed(D::Reject),
            Deny,
            "policy_violation:duplicate_resume_no_effect",
        ),
        (
            "resumed and open",
            1,
            Transition {
                resume_attempt: true,
                ..bound
            },
            Allow,
            "hitl_transition:approve",
        ),
        (
            "reject",
            1,
            Transition {
                decision: D::Reject,
                ..bound
            },
            Deny,
            "hitl_transition:reject",
        ),
        (
            "defer",
            1,
            Transition {
                decision: D::Defer,
                ..bound
            },
            Hitl,
            "hitl_transition:defer_escalate",
        ),
        (
            "escalate",
            1,
            Transition {
                decision: D::Escalate,
                ..bound
            },
            Hitl,
            "hitl_transition:defer_escalate",
        ),
        (
            "modified original",
            1,
            successor,
            Deny,
            "hitl_transition:superseded_original",
        ),
        (
            "modified successor",
            2,
            successor,
            Allow,
            "hitl_transition:modify_successor",
        ),
        (
            "modified, neither",
            3,
            successor,
            Deny,
            "hitl_transition:nonce_mismatch",
        ),
        (
            "rejected",
            1,
            spent(Terminal::Rejected),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "superseded",
            1,
            spent(Terminal::Superseded),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "consumed",
            1,
            spent(Terminal::Consumed),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "executed",
            1,
            spent(Terminal::Executed),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "expired",
            1,
            spent(Terminal::Expired),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "revoked",
            1,
            spent(Terminal::Revoked),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "cancelled",
            1,
            spent(Terminal::Cancelled),
            Deny,
            "hitl_transition:terminal_no_effect",
        ),
        (
            "nothing bound",
            1,
            transition(D::Approve),
            Deny,
            "hitl_transition:unbound_authorization",
        ),
        (
            "no successor bound",
            2,
            transition(D::Modify),
            Deny,
            "hitl_transition:unbound_authorization",
        ),
        ("other nonce", 2, bound, Deny, "hitl_transition:nonce_mismatch"),
        (
            "other digest",
            1,
            Transition {
                original_digest: Some(Digest::of(b"other")),
                ..bound
            },
            Deny,
            "hitl_transition:digest_mismatch",
        ),
        (
            "only the nonce bound",
            1,
            Transition {
                original_digest: None,
                ..bound
            },
            Allow,
            "hitl_transition:approve",
        ),
        (
            "only the digest bound",
            9,
            Transition {
                original_nonce: None,
                ..bound
            },
            Allow,
            "hitl_transition:approve",
        ),
        ("approve", 1, bound, Allow, "hitl_transition:approve"),
    ];
    let statuses = [
        Status::Active,
        Status::Paused {
            held: true,
            decided: true,
        },
    ];
    for (name, nonce, transition, verdict, reason) in rows {
        for status in statuses {
            let facts = Facts {
                status,
                transition: Some(&transition),
                nonce: Some(nonce),
                ..called()
            };
            let decision = decide(&facts);
            assert_eq!(
                (decision.verdict, &*decision.reason.word()),
                (verdict, reason),
                "{name}"
            );
            assert_eq!(decision.rule, Rule::R4, "{name}");
            assert_eq!(decision.released, verdict == Allow, "{name}");
        }
    }
    let undecided = Status::Paused {
        held: true,
        decided: false,
    };
    let facts = Facts {
        status: undecided,
        transition: Some(&bound),
        ..called()
    };
    assert_eq!(decide(&facts).reason.word(), "hitl_pending");
    let silent = Facts {
        nonce: None,
        digest: None,
        transition: Some(&bound),
        ..called()
    };
    assert_eq!(decide(&silent).reason.word(), "hitl_transition:nonce_mismatch");
    let seen = Facts {
        nonce_seen: true,
        transition: Some(&successor),
        ..called()
    };
    assert_eq!(
        decide(&seen).reason.word(),
        "policy_violation:duplicate_resume_no_effect"
    );
    let seen_open = Facts {
        nonce_seen: true,
        transition: Some(&bound),
        ..called()
    };
    assert_eq!(
        decide(&seen_open).reason.word(),
        "policy_violation:duplicate_nonce"
    );
}

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

#[test]
fn on_deny_asks_only_where_no_other_denial_stands() {
    let on_deny = |facts| Facts {
        hitl: HitlRule::OnDeny,
        ..facts
    };
    let listed = RuleSet::EMPTY
        .with(Rule::Q5)
        .with(Rule::K1)
        .with(Rule::R2)
        .with(Rule::P1)
        .with(Rule::Q2);
    let rows: Vec<Row<'_>> = vec![
        (
            "R5b",
            on_deny(budget(100, 10, 11)),
            Hitl,
            "budget_overrun",
            Rule::R5b,
        ),
        (
            "not R5",
            on_deny(budget(100, 0, 11)),
            Deny,
            "budget_exhausted",
            Rule::R5,
        ),
        (
            "not with Q2",
            Facts {
                organization_exceeded: true,
                ..on_deny(budget(100, 10, 11))
            },
            Deny,
            "organization_quota_exceeded",
            Rule::Q2,
        ),
        (
            "not with a later denial",
            Facts {
                retry_storm: true,
                ..on_deny(budget(100, 10, 11))
            },
            Deny,
            "retry_storm",
            Rule::Q6,
        ),
        (
            "listed rule",
            Facts {
                on_deny_rules: listed,
                total_calls_reached: true,
                ..on_deny(Facts::core())
            },
            Hitl,
            "global_limit",
            Rule::Q5,
        ),
        (
            "listed rule in another mode",
            Facts {
                on_deny_rules: listed,
                total_calls_reached: true,
                ..Facts::core()
            },
            Deny,
            "global_limit",
            Rule::Q5,
        ),
        (
            "never K1, even listed",
            Facts {
                on_deny_rules: listed,
                halt: Some(HaltScope::Global),
                ..on_deny(Facts::core())
            },
            Deny,
            "run_halted:global",
            Rule::K1,
        ),
        (
            "never R2, even listed",
            Facts {
                on_deny_rules: listed,
                circuit_tripped: true,
                ..on_deny(Facts::core())
            },
            Deny,
            "circuit_open",
            Rule::R2,
        ),
        (
            "never P1, even listed",
            Facts {
                on_deny_rules: listed,
                delegation_failed: Some("x"),
                ..on_deny(Facts::core())
            },
            Deny,
            "delegation:x",
            Rule::P1,
        ),
        (
            "never Q2, even listed",
            Facts {
                on_deny_rules: listed,
                organization_exceeded: true,
                ..on_deny(Facts::core())
            },
            Deny,
            "organization_quota_exceeded",
            Rule::Q2,
        ),
    ];
    for (name, facts, verdict, reason, rule) in rows {
        let decision = decide(&facts);
        assert_eq!(
            (decision.verdict, &*decision.reason.word(), decision.rule),
            (verdict, reason, rule),
            "{name}"
        );
    }
}

#[test]
fn observing_guard_lets_its_own_rules_pass_and_names_them() {
    let observe = |facts| Facts {
        mode: Mode::Observe,
        ..facts
    };
    let decision = decide(&observe(with_own_ceilings(Facts::core())));
    assert_eq!(
        (decision.verdict, &*decision.reason.word()),
        (Allow, "observe:budget_exhausted")
    );
    assert_eq!(decision.rule, Rule::R5);
    assert!(
        decision
            .also
            .iter()
            .all(|reason| reason.word().starts_with("observe:"))
    );
    assert_eq!(decision.also.len(), 10);
    let rows: Vec<(&str, Facts<'_>, Verdict, &str)> = vec![
        (
            "P2",
            Facts {
                allowed_tool: false,
                ..Facts::core()
            },
            Allow,
            "observe:escalation:tool_not_allowed",
        ),
        (
            "P3",
            Facts {
                policy_denied: Some("p"),
                ..Facts::core()
            },
            Allow,
            "observe:policy:p",
        ),
        (
            "R7",
            Facts {
                hitl: HitlRule::Always,
                ..Facts::core()
            },
            Allow,
            "observe:hitl_all_calls",
        ),
        ("X", drawn(100, 19, 0), Allow, "observe:probabilistic"),
        (
            "K1",
            Facts {
                halt: Some(HaltScope::Global),
                ..Facts::core()
            },
            Deny,
            "run_halted:global",
        ),
        (
            "K1 pause",
            Facts {
                pause: Some(HaltScope::Global),
                ..Facts::core()
            },
            Hitl,
            "run_halted:global",
        ),
        (
            "K2",
            Facts {
                status: Status::Terminated,
                ..Facts::core()
            },
            Deny,
            "session_terminated",
        ),
        (
            "R1",
            Facts {
                malformed: true,
                ..Facts::core()
            },
            Deny,
            "policy_violation:malformed_input",
        ),
        (
            "R2",
            Facts {
                circuit_tripped: true,
                ..Facts::core()
            },
            Deny,
            "circuit_open",
        ),
        (
            "R3",
            Facts {
                nonce_seen: true,
                ..Facts::core()
            },
            Deny,
            "policy_violation:duplicate_nonce",
        ),
        ("R4", paused(true, false), Hitl, "hitl_pending"),
        (
            "P1",
            Facts {
                delegation_failed: Some("x"),
                ..Facts::core()
            },
            Deny,
            "delegation:x",
        ),
        (
            "Q1",
            Facts {
                ancestor_denied: Some("g"),
                ..Facts::core()
            },
            Deny,
            "parent_guard_denied:g",
        ),
        (
            "Q2",
            Facts {
                organization_exceeded: true,
                ..Facts::core()
            },
            Deny,
            "organization_quota_exceeded",
        ),
    ];
    for (name, facts, verdict, reason) in rows {
        let decision = decide(&observe(facts));
        assert_eq!(
            (decision.verdict, &*decision.reason.word()),
            (verdict, reason),
            "{name}"
        );
    }
}

#[test]
fn dry_run_never_allows() {
    let approval = approval();
    for facts in [
        Facts::core(),
        released(&approval),
        paused(true, false),
        budget(1, 0, 0),
    ] {
        let decision = decide(&facts);
        let word = format!("dry_run:{}", decision.reason.word());
        let dry = decision.into_dry_run();
        assert_eq!((dry.verdict, dry.released), (Deny, false));
        assert_eq!(dry.reason.word(), word);
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

fn budget(initial: i64, available: i64, estimate: i64) -> Facts<'static> {
    Facts {
        budget: Some(BudgetFacts {
            initial: NanoUsd::new(initial),
            available: NanoUsd::new(available),
        }),
        estimate: NanoUsd::new(estimate),
        ..Facts::core()
    }
}

fn repeated(max: u32, repeats: u32) -> Facts<'static> {
    Facts {
        max_repeat: Some(max),
        repeats,
        same_tool: true,
        ..Facts::core()
    }
}

fn amplified(max: u32, repeats: u32) -> Facts<'static> {
    Facts {
        error_amplification: true,
        last_error_signal: true,
        ..repeated(max, repeats)
    }
}

fn drawn(initial: i64, available: i64, drawn: u32) -> Facts<'static> {
    Facts {
        draw: Some(ProbabilisticDraw {
            drawn,
            jitter: PerBillion::ONE,
        }),
        ..budget(initial, available, 0)
    }
}

fn paused(held: bool, decided: bool) -> Facts<'static> {
    Facts {
        status: Status::Paused { held, decided },
        ..Facts::core()
    }
}

/// Sets everything that the session's own guard would stop a call for.
fn with_own_ceilings(facts: Facts<'_>) -> Facts<'_> {
    Facts {
        budget: Some(BudgetFacts {
            initial: NanoUsd::new(100),
            available: NanoUsd::ZERO,
        }),
        timed_out: true,
        rate_exceeded: true,
        window_exceeded: true,
        total_calls_reached: true,
        max_repeat: Some(0),
        same_tool: true,
        name_repeat_exceeded: true,
        retry_storm: true,
        loop_detected: true,
        hitl: HitlRule::Always,
        opaque: true,
        ..facts
    }
}

fn digest() -> Digest {
    Digest::of(b"arguments")
}

fn called() -> Facts<'static> {
    Facts {
        nonce: Some(1),
        digest: Some(digest()),
        ..Facts::core()
    }
}

fn transition(decision: HumanDecision) -> Transition {
    Transition {
        decision,
        original_nonce: None,
        original_digest: None,
        successor_nonce: None,
        successor_digest: None,
        terminal: None,
        resume_attempt: false,
    }
}

fn approval() -> Transition {
    Transition {
        original_nonce: Some(1),
        original_digest: Some(digest()),
        ..transition(HumanDecision::Approve)
    }
}

fn released(approval: &Transition) -> Facts<'_> {
    Facts {
        status: Status::Paused {
            held: true,
            decided: true,
        },
        transition: Some(approval),
        ..called()
    }
}
