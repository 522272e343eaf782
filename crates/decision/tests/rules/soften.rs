//! What on_deny, an observing guard and a dry run make of an answer.

use decision::decide::{Rule, RuleSet, decide};
use decision::facts::{Facts, HitlRule, Mode, Status};
use decision::verdict::HaltScope;
use decision::verdict::Verdict::{self, Allow, Deny, Hitl};

use crate::sample::{Row, approval, budget, drawn, paused, released, with_own_ceilings};

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
