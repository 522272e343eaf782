//! The order of the rules, through real commands: whichever two match, the upper one answers and the lower one
//! is listed (docs/SPEC.md 7).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that breaks says where")]

#[path = "order/world.rs"]
mod world;

use decision::behaviour::{Cycle, Storm};
use decision::decide::RuleSet;
use decision::limits::Rate;
use decision::policy::{Denied, Effect, Matched, Rule as PolicyRule};
use decision::{ApprovalId, DurationNs, HitlRule, NanoUsd, PerBillion, Rule, RuleId, Verdict};
use machine::command::{Limit, Params, PreExec};
use machine::reply::VerdictReply;
use machine::row::HaltMode;
use machine::{Guard, PauseScope, Window};
use world::{ASKED, World, wide};

/// What lets one rule match: what is done before, what the guard says then, how the call differs.
struct Cause {
    name: &'static str,
    word: &'static str,
    verdict: Verdict,
    /// What an approval of the call skips.
    own: bool,
    /// What `on_deny` may turn into a question.
    liftable: bool,
    before: fn(&mut World),
    guard: fn(&mut Guard),
    call: fn(&mut PreExec),
    matched: fn(&mut Matched),
}

const DENY: Cause = Cause {
    name: "",
    word: "",
    verdict: Verdict::Deny,
    own: false,
    liftable: false,
    before: |_| {},
    guard: |_| {},
    call: |_| {},
    matched: |_| {},
};
/// A ceiling of the session's own.
const OWN: Cause = Cause {
    own: true,
    liftable: true,
    ..DENY
};
const ASK: Cause = Cause {
    verdict: Verdict::Hitl,
    own: true,
    ..DENY
};

/// The whole order, from the top.
#[rustfmt::skip]
const ORDER: [Cause; 27] = [
    Cause { name: "K1", word: "run_halted:global", before: |world| world.engage("global", HaltMode::Halt), ..DENY },
    Cause { name: "K2", word: "session_terminated", before: World::terminate, ..DENY },
    Cause { name: "R1", word: "policy_violation:malformed_input", call: |call| call.params = Params::Malformed, ..DENY },
    Cause { name: "R2", word: "circuit_open", before: World::trip, ..DENY },
    Cause { name: "R3", word: "policy_violation:duplicate_nonce", call: |call| call.nonce = 1, ..DENY },
    Cause { name: "R4", word: "hitl_transition:unbound_authorization", call: |call| call.approval = ApprovalId::parse("apr_none").ok(), ..DENY },
    Cause { name: "P1", word: "delegation:guard_not_permitted", guard: |guard| guard.agents.clear(), ..DENY },
    Cause { name: "P2", word: "escalation:tool_not_allowed", liftable: true, guard: |guard| guard.allowed_tools = Some(Vec::new()), ..DENY },
    Cause { name: "P3 params", word: "policy_violation:params_required", liftable: true, guard: |guard| guard.require_params = true, call: |call| call.params = Params::HashOnly, ..DENY },
    Cause { name: "P3 policy", word: "policy:no-delete", liftable: true, matched: |matched| matched.denied = Some(Denied { rule: RuleId::parse("no-delete").unwrap(), trips: false }), ..DENY },
    Cause { name: "R5", word: "budget_exhausted", before: |world| world.fund(&world.own(), Limit::Amount(NanoUsd::new(3))), ..OWN },
    Cause { name: "R5b", word: "budget_overrun", before: |world| world.fund(&world.own(), Limit::Amount(NanoUsd::new(7))), ..OWN },
    Cause { name: "Q1", word: "parent_guard_denied:org/acme/agent/bot-1", liftable: true, before: |world| world.fund("org/acme/agent/bot-1", Limit::Suspended), ..DENY },
    Cause { name: "Q2", word: "organization_quota_exceeded", before: |world| world.fund("org/acme", Limit::Suspended), ..DENY },
    Cause { name: "Q3", word: "timeout", guard: |guard| guard.timeout = Some(DurationNs::ZERO), ..OWN },
    Cause { name: "Q4 rate", word: "rate_exceeded", guard: |guard| guard.rate = Some(Rate { calls: 1, span: DurationNs::from_secs(60) }), ..OWN },
    Cause { name: "Q4 window", word: "window_exceeded", guard: |guard| guard.window = Some(Window { duration: DurationNs::from_secs(60), max_calls: 1 }), ..OWN },
    Cause { name: "Q5", word: "global_limit", guard: |guard| guard.max_total_calls = Some(1), ..OWN },
    Cause { name: "R6", word: "max_repeat_exceeded", guard: |guard| guard.max_repeat_calls = Some(1), ..OWN },
    Cause { name: "Q6 name_repeat", word: "name_repeat_exceeded", guard: |guard| guard.breakers.name_streak = Some(1), ..OWN },
    Cause { name: "Q6 retry_storm", word: "retry_storm", guard: |guard| guard.breakers.storm = Some(Storm { calls: 2, window: 2, progress_aware: false, ..Storm::default() }), ..OWN },
    Cause { name: "Q6 loop", word: "loop_detected", guard: |guard| guard.breakers.cycle = Some(Cycle { longest: 3, rounds: 1 }), ..OWN },
    Cause { name: "R7", word: "hitl_all_calls", guard: |guard| guard.hitl = HitlRule::Always, ..ASK },
    Cause { name: "R8", word: "budget_threshold", guard: |guard| guard.hitl = HitlRule::OnThreshold(PerBillion::ONE), ..ASK },
    Cause { name: "R9", word: "fail_closed:opaque_context", call: |call| call.params = Params::Opaque, ..ASK },
    Cause { name: "P3 asks", word: "policy:ask-first", matched: |matched| matched.asks = RuleId::parse("ask-first").ok(), ..ASK },
    Cause { name: "K1 pause", word: "run_halted:organization", own: false, before: |world| world.engage("org/acme", HaltMode::Pause), ..ASK },
];

/// Below all of these: a draw that is sure to deny.
#[rustfmt::skip]
const X: Cause = Cause {
    name: "X",
    word: "probabilistic",
    liftable: false,
    before: |world| {
        world.fund(&world.own(), Limit::Amount(NanoUsd::new(1_000_000_003)));
        world.correct(999_999_999);
    },
    guard: |guard| guard.probabilistic = Some(PerBillion::ONE),
    call: |call| call.estimate = Some(NanoUsd::ZERO),
    ..OWN
};

/// Two that cannot match together, and why.
const EXCLUSIVE: [(&str, &str, &str); 5] = [
    ("R5", "R5b", "an account has nothing left, or too little"),
    ("R7", "R8", "a guard has one HITL mode"),
    (
        "R1",
        "P3 params",
        "parameters that did not come are not malformed",
    ),
    ("R1", "R9", "what cannot be read is not looked into"),
    (
        "P3 params",
        "R9",
        "parameters that did not come are not looked into",
    ),
];

fn exclude_each_other(upper: &Cause, lower: &Cause) -> bool {
    EXCLUSIVE
        .iter()
        .any(|(one, two, _)| (*one, *two) == (upper.name, lower.name))
}

/// Lets causes work on a world, and asks.
fn answer(world: &mut World, causes: &[&Cause], guard: Guard) -> VerdictReply {
    // From below: what is above may end the session or stop everything.
    for cause in causes.iter().rev() {
        (cause.before)(world);
    }
    let mut guard = guard;
    for cause in causes {
        (cause.guard)(&mut guard);
    }
    // One rule, so that the call has to say what the rules found.
    guard.rules = vec![PolicyRule {
        id: RuleId::parse("a-rule").unwrap(),
        tools: Vec::new(),
        tags: Vec::new(),
        when: Vec::new(),
        effect: Effect::Ask,
    }];
    world.put(guard);
    let (mut call, mut matched) = (world.asked(), Matched::default());
    for cause in causes {
        (cause.call)(&mut call);
        (cause.matched)(&mut matched);
    }
    call.rules = Some(world.facts(matched));
    world.call(call)
}

fn words(answer: &VerdictReply) -> Vec<String> {
    std::iter::once(&answer.reason)
        .chain(&answer.also)
        .map(|reason| reason.word().into_owned())
        .collect()
}

#[test]
fn each_rule_answers_alone() {
    for cause in ORDER.iter().chain([&X]) {
        let answer = answer(&mut World::under(Guard::unlimited()), &[cause], wide());
        assert_eq!(words(&answer), [cause.word], "{}", cause.name);
        assert_eq!(answer.verdict, cause.verdict, "{}", cause.name);
    }
    let answer = answer(&mut World::under(Guard::unlimited()), &[], wide());
    assert_eq!(words(&answer), ["within_thresholds"], "R10");
}

#[test]
fn of_any_two_rules_the_upper_one_answers_and_the_lower_one_is_listed() {
    let mut pairs = 0;
    for (place, upper) in ORDER.iter().enumerate() {
        for lower in ORDER.iter().skip(place + 1) {
            if exclude_each_other(upper, lower) {
                continue;
            }
            let both = [upper, lower];
            let answer = answer(&mut World::under(Guard::unlimited()), &both, wide());
            let names = (upper.name, lower.name);
            assert_eq!(words(&answer), [upper.word, lower.word], "{names:?}");
            assert_eq!(answer.verdict, upper.verdict, "{names:?}");
            pairs += 1;
        }
    }
    assert_eq!(pairs, ORDER.len() * (ORDER.len() - 1) / 2 - EXCLUSIVE.len());
}

/// X is drawn only where the answer would be ALLOW: no rule above lists it, and it hides nothing but R10.
#[test]
fn chance_denies_only_what_nothing_else_stops() {
    // With nothing left, or too little, there is no odds to speak of.
    for upper in ORDER.iter().filter(|cause| !matches!(cause.name, "R5" | "R5b")) {
        let answer = answer(&mut World::under(Guard::unlimited()), &[upper, &X], wide());
        assert_eq!(words(&answer), [upper.word], "{}", upper.name);
    }
}

#[test]
fn where_all_match_the_whole_order_is_listed() {
    let kept = |cause: &&Cause| !matches!(cause.name, "R5b" | "R8" | "P3 params" | "R9");
    let causes: Vec<_> = ORDER.iter().filter(kept).collect();
    let answer = answer(&mut World::under(Guard::unlimited()), &causes, wide());
    let order: Vec<_> = causes.iter().map(|cause| cause.word).collect();
    assert_eq!(words(&answer), order);
}

/// A world in which a person let the call run that is looked at.
fn released() -> World {
    let mut world = World::under(Guard {
        pause_scope: PauseScope::Call,
        ..Guard::unlimited()
    });
    world.put(Guard {
        hitl: HitlRule::Always,
        ..wide()
    });
    let asked = world.asked();
    let answer = world.call(asked);
    world.approve(&answer.approval_id.unwrap());
    world
}

#[test]
fn a_release_skips_the_sessions_own_ceilings_and_nothing_above_them() {
    for cause in ORDER.iter().chain([&X]) {
        let mut world = released();
        match cause.name {
            // The approval is what R4 looks at.
            "R4" => continue,
            // Of the call itself: another one ran with its nonce meanwhile.
            "R3" => {
                world.put(wide());
                let other = PreExec {
                    call_number: ASKED + 1,
                    ..world.asked()
                };
                assert_eq!(world.call(other).verdict, Verdict::Allow);
                let answer = answer(&mut world, &[], wide());
                assert_eq!(words(&answer), [cause.word], "R3");
                continue;
            }
            _ => {}
        }
        let answer = answer(&mut world, &[cause], wide());
        let (verdict, word) = match cause.own {
            true => (Verdict::Allow, "hitl_transition:approve"),
            false => (cause.verdict, cause.word),
        };
        assert_eq!(
            (answer.verdict, answer.reason.word().as_ref()),
            (verdict, word),
            "{}",
            cause.name
        );
        // An end cancels what waits.
        let also = Vec::from_iter((cause.name == "K2").then_some("hitl_transition:terminal_no_effect"));
        assert_eq!(words(&answer).split_off(1), also, "{}", cause.name);
    }
    // All of its own ceilings at once.
    let own: Vec<_> = ORDER
        .iter()
        .filter(|cause| cause.own && !matches!(cause.name, "R5b" | "R8"))
        .collect();
    let answer = answer(&mut released(), &own, wide());
    assert_eq!(words(&answer), ["hitl_transition:approve"]);
}

#[test]
fn on_deny_asks_instead_of_the_rules_it_may_and_of_no_other() {
    let every_rule = [
        Rule::K1,
        Rule::K2,
        Rule::R1,
        Rule::R2,
        Rule::R3,
        Rule::R4,
        Rule::P1,
        Rule::P2,
        Rule::P3,
        Rule::R5,
        Rule::R5b,
        Rule::Q1,
        Rule::Q2,
        Rule::Q3,
        Rule::Q4Rate,
        Rule::Q4Window,
        Rule::Q5,
        Rule::R6,
        Rule::Q6,
        Rule::R7,
        Rule::R8,
        Rule::R9,
        Rule::X,
        Rule::R10,
    ];
    let all = every_rule.into_iter().fold(RuleSet::EMPTY, RuleSet::with);
    let on_deny = |guard: Guard, on_deny_rules| Guard {
        hitl: HitlRule::OnDeny,
        on_deny_rules,
        ..guard
    };
    for (rules, listed) in [(all, true), (RuleSet::EMPTY, false)] {
        let denials = ORDER.iter().filter(|cause| cause.verdict == Verdict::Deny);
        for cause in denials.chain([&X]) {
            let mut world = World::under(on_deny(Guard::unlimited(), rules));
            let answer = answer(&mut world, &[cause], on_deny(wide(), rules));
            let asks = cause.liftable && listed || cause.name == "R5b";
            let verdict = if asks { Verdict::Hitl } else { Verdict::Deny };
            assert_eq!(
                (answer.verdict, words(&answer)),
                (verdict, vec![cause.word.to_owned()]),
                "{}",
                cause.name
            );
        }
    }
}

/// A question never hides a denial that nobody may lift.
#[test]
fn a_denial_below_answers_before_a_question_above_that_stands_for_one() {
    let on_deny = |guard: Guard| Guard {
        hitl: HitlRule::OnDeny,
        ..guard
    };
    let by_name = |name: &str| ORDER.iter().find(|cause| cause.name == name).unwrap();
    for below in ["Q1", "Q2", "Q3", "Q5", "R6", "Q6 loop"] {
        let mut world = World::under(on_deny(Guard::unlimited()));
        let causes = [by_name("R5b"), by_name(below)];
        let answer = answer(&mut world, &causes, on_deny(wide()));
        assert_eq!(answer.verdict, Verdict::Deny, "{below}");
        assert_eq!(words(&answer), [by_name(below).word, "budget_overrun"], "{below}");
    }
}

/// A whole session waits: another call is denied by R4, the held one is asked again.
#[test]
fn while_a_session_waits_other_calls_are_denied_and_the_held_one_stays_a_question() {
    let mut world = World::under(Guard::unlimited());
    world.put(Guard {
        hitl: HitlRule::Always,
        pause_scope: PauseScope::Session,
        ..wide()
    });
    let asked = world.asked();
    assert_eq!(words(&world.call(asked.clone())), ["hitl_all_calls"]);
    let other = PreExec {
        call_number: ASKED + 1,
        nonce: ASKED + 1,
        ..asked.clone()
    };
    assert_eq!(words(&world.call(other)), ["session_paused", "hitl_all_calls"]);
    assert_eq!(words(&world.call(asked)), ["hitl_pending"]);
}
