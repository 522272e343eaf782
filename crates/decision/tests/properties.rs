//! D1–D10 (SPEC 19): what holds for every call, whatever the facts.

use decision::decide::{Rule, RuleSet, decide};
use decision::digest::Digest;
use decision::facts::{
    BudgetFacts, Facts, HitlRule, HumanDecision, Mode, ProbabilisticDraw, Status, Terminal, Transition,
};
use decision::limits::repeat_limit;
use decision::money::{NanoUsd, PerBillion};
use decision::params::{canonical_params, inspect};
use decision::verdict::{HaltScope, Reason, Verdict};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn d2_same_facts_give_the_same_answer(call in call()) {
        prop_assert_eq!(decide(&call.facts()), decide(&call.clone().facts()));
    }

    #[test]
    fn d1_every_call_gets_an_answer_whose_reason_can_be_read_back(call in call()) {
        let decision = decide(&call.facts());
        for reason in std::iter::once(&decision.reason).chain(&decision.also) {
            let word = reason.word();
            prop_assert_eq!(Reason::parse(&word), Some(reason.clone()));
        }
        let allowed = decision.verdict == Verdict::Allow;
        prop_assert!(!decision.released || allowed);
        prop_assert_eq!(decision.rule == Rule::R10, decision.reason == Reason::WithinThresholds);
    }

    #[test]
    fn d1_any_bytes_are_inspected_and_any_fixture_is_decided(bytes in any::<Vec<u8>>(), text in "[\\[\\]{}\",:0-9eE.+\\\\u a-z-]{0,40}") {
        for input in [bytes.as_slice(), text.as_bytes()] {
            let facts = inspect(input);
            prop_assert_eq!(facts.malformed, facts.digest.is_none());
            let _outcomes = conformance::run_file(input);
        }
    }

    #[test]
    fn d2_canonical_form_is_a_fixed_point(value in json()) {
        let text = format!("{{\"v\":{value}}}");
        let canonical = canonical_params(text.as_bytes());
        prop_assert!(canonical.is_ok(), "{}", text);
        let canonical = canonical.unwrap_or_default();
        prop_assert_eq!(canonical_params(canonical.as_bytes()), Ok(canonical.clone()));
        prop_assert_eq!(inspect(text.as_bytes()).digest, Some(Digest::of(canonical.as_bytes())));
    }

    #[test]
    fn d3_open_circuit_or_engaged_halt_is_never_allowed(call in call(), halted: bool) {
        let scope = halted.then_some(HaltScope::Global);
        let decision = decide(&Facts { halt: scope, circuit_tripped: !halted, ..call.facts() });
        prop_assert_eq!(decision.verdict == Verdict::Hitl, false);
        prop_assert_eq!(decision.verdict == Verdict::Allow, false);
        prop_assert!(!halted || decision.rule == Rule::K1);
    }

    #[test]
    fn d4_replayed_nonce_is_denied(call in call()) {
        prop_assert_eq!(decide(&Facts { nonce_seen: true, ..call.facts() }).verdict, Verdict::Deny);
    }

    #[test]
    fn d6_enforced_budget_is_never_overspent_without_a_person(call in call()) {
        let facts = Facts { mode: Mode::Enforce, budget_enforced: true, ..call.facts() };
        let decision = decide(&facts);
        if let (Verdict::Allow, false, Some(budget)) = (decision.verdict, decision.released, facts.budget) {
            prop_assert!(budget.available > NanoUsd::ZERO);
            prop_assert!(facts.estimate <= budget.available);
        }
        let above = facts.organization_exceeded || facts.ancestor_denied.is_some();
        prop_assert!(!(above && decision.verdict == Verdict::Allow));
    }

    #[test]
    fn d5_no_more_identical_calls_run_than_the_limit(max in 0_u32..20, error: bool, amplify: bool) {
        let mut ran = 0;
        for _call in 0..40 {
            let facts = Facts {
                max_repeat: Some(max),
                repeats: ran,
                same_tool: true,
                last_error_signal: error,
                error_amplification: amplify,
                ..Facts::core()
            };
            if decide(&facts).verdict == Verdict::Allow {
                ran += 1;
            }
        }
        prop_assert_eq!(ran, repeat_limit(max, error && amplify));
        prop_assert!(ran <= max);
    }

    #[test]
    fn d7_always_asking_allows_only_what_a_person_released(call in call()) {
        let decision = decide(&Facts { hitl: HitlRule::Always, mode: Mode::Enforce, ..call.facts() });
        prop_assert!(decision.verdict != Verdict::Allow || decision.released);
    }

    #[test]
    fn d8_what_cannot_be_judged_is_not_allowed(call in call(), malformed: bool) {
        let decision = decide(&Facts { malformed, opaque: !malformed, mode: Mode::Enforce, ..call.facts() });
        prop_assert!(decision.verdict != Verdict::Allow || (decision.released && !malformed));
        prop_assert!(!malformed || decision.verdict == Verdict::Deny);
    }

    #[test]
    fn d9_rejection_is_final(call in call(), spent: bool) {
        let mut call = call;
        call.status = Status::Paused { held: true, decided: true };
        call.transition = Some(Transition {
            decision: if spent { HumanDecision::Approve } else { HumanDecision::Reject },
            terminal: Some(Terminal::Rejected),
            ..call.transition.unwrap_or(UNBOUND)
        });
        prop_assert_eq!(decide(&call.facts()).verdict, Verdict::Deny);
    }

    #[test]
    fn d9_only_the_approved_call_is_released(call in call()) {
        let decision = decide(&call.facts());
        if decision.released {
            let transition = call.transition.unwrap_or(UNBOUND);
            let (nonce, digest) = match transition.decision {
                HumanDecision::Approve => (transition.original_nonce, transition.original_digest),
                HumanDecision::Modify => (transition.successor_nonce, transition.successor_digest),
                other => return Err(TestCaseError::fail(format!("{other:?} released a call"))),
            };
            prop_assert!(nonce.is_some() || digest.is_some());
            prop_assert!(nonce.is_none() || nonce == call.nonce);
            prop_assert!(digest.is_none() || digest == call.digest);
        }
    }

    #[test]
    fn d10_setting_one_more_extension_never_loosens_the_answer(call in call(), extension in 0_usize..17) {
        // Without a draw: X denies only what would be allowed, so a question takes its place.
        let plain = Facts { draw: None, ..call.facts() };
        let mut stricter = plain.clone();
        match extension {
            0 => stricter.halt = Some(HaltScope::Session),
            1 => stricter.pause = stricter.pause.or(Some(HaltScope::Session)),
            2 => stricter.delegation_failed = Some("check"),
            3 => stricter.allowed_tool = false,
            4 => stricter.policy_denied = Some("rule"),
            5 => stricter.params_missing = true,
            6 => stricter.ancestor_denied = Some("guard"),
            7 => stricter.organization_exceeded = true,
            8 => stricter.timed_out = true,
            9 => stricter.rate_exceeded = true,
            10 => stricter.window_exceeded = true,
            11 => stricter.total_calls_reached = true,
            12 => stricter.error_amplification = true,
            13 => stricter.name_repeat_exceeded = true,
            14 => stricter.retry_storm = true,
            15 => stricter.loop_detected = true,
            _ => stricter.policy_hitl = Some("rule"),
        }
        let (before, after) = (decide(&plain), decide(&stricter));
        prop_assert!(
            strictness(after.verdict) >= strictness(before.verdict),
            "{:?} became {:?}", before, after
        );
    }

    #[test]
    fn d10_drawing_never_loosens_the_answer(call in call(), drawn: u32) {
        let without = Facts { draw: None, ..call.facts() };
        let with = Facts { draw: Some(ProbabilisticDraw { drawn, jitter: PerBillion::ONE }), ..call.facts() };
        prop_assert!(strictness(decide(&with).verdict) >= strictness(decide(&without).verdict));
    }

    #[test]
    fn d10_no_mode_softens_what_always_answers(call in call()) {
        let enforced = decide(&Facts { mode: Mode::Enforce, hitl: HitlRule::Never, ..call.facts() });
        let softest = decide(&Facts { mode: Mode::Observe, hitl: HitlRule::OnDeny, ..call.facts() });
        let rule = enforced.rule;
        let always = !rule.is_observable() && !rule.may_ask_instead() && rule != Rule::R10;
        prop_assert!(!always || softest.verdict == enforced.verdict, "{:?} became {:?}", enforced, softest);
    }
}

const UNBOUND: Transition = Transition {
    decision: HumanDecision::Unknown,
    original_nonce: None,
    original_digest: None,
    successor_nonce: None,
    successor_digest: None,
    terminal: None,
    resume_attempt: false,
};

fn strictness(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allow => 0,
        Verdict::Hitl => 1,
        Verdict::Deny => 2,
    }
}

/// Holds what a random call's facts borrow from.
#[derive(Debug, Clone)]
struct Call {
    flags: u32,
    status: Status,
    transition: Option<Transition>,
    nonce: Option<u64>,
    digest: Option<Digest>,
    budget: Option<BudgetFacts>,
    estimate: NanoUsd,
    max_repeat: Option<u32>,
    repeats: u32,
    hitl: HitlRule,
    on_deny_rules: RuleSet,
    draw: Option<ProbabilisticDraw>,
    mode: Mode,
}

impl Call {
    fn facts(&self) -> Facts<'_> {
        let flag = |bit: u32| self.flags & (1 << bit) != 0;
        Facts {
            halt: flag(0).then_some(HaltScope::Agent),
            pause: flag(1).then_some(HaltScope::Global),
            status: self.status,
            malformed: flag(2),
            circuit_tripped: flag(3),
            nonce: self.nonce,
            digest: self.digest,
            nonce_seen: flag(4),
            transition: self.transition.as_ref(),
            delegation_failed: flag(5).then_some("ttl"),
            allowed_tool: !flag(6),
            policy_denied: flag(7).then_some("p1"),
            params_missing: flag(8),
            budget: self.budget,
            budget_enforced: !flag(9),
            estimate: self.estimate,
            ancestor_denied: flag(10).then_some("g1"),
            ancestor_observed: flag(11).then_some("g2"),
            organization_exceeded: flag(12),
            timed_out: flag(13),
            rate_exceeded: flag(14),
            window_exceeded: flag(15),
            total_calls_reached: flag(16),
            max_repeat: self.max_repeat,
            repeats: self.repeats,
            same_tool: flag(17),
            last_error_signal: flag(18),
            error_amplification: flag(19),
            name_repeat_exceeded: flag(20),
            retry_storm: flag(21),
            loop_detected: flag(22),
            hitl: self.hitl,
            on_deny_rules: self.on_deny_rules,
            opaque: flag(23),
            policy_hitl: flag(24).then_some("p3"),
            draw: self.draw,
            mode: self.mode,
        }
    }
}

/// Draws a call; most flags are off, so that late rules are reached as well as early ones.
fn call() -> impl Strategy<Value = Call> {
    let flags = prop_oneof![
        Just(0),
        (0_u32..25).prop_map(|bit| 1 << bit),
        any::<u32>(),
        sparse(),
        sparse()
    ];
    let money = prop_oneof![-3_i64..30, any::<i64>()].prop_map(NanoUsd::new);
    let budget =
        (money.clone(), money.clone()).prop_map(|(initial, available)| BudgetFacts { initial, available });
    let ratio = (0_u8..=100).prop_map(|percent| PerBillion::from_percent(percent).unwrap_or_default());
    let hitl = prop_oneof![
        Just(HitlRule::Never),
        Just(HitlRule::OnDeny),
        Just(HitlRule::Always),
        ratio.clone().prop_map(HitlRule::OnThreshold),
    ];
    let draw = (any::<u32>(), ratio).prop_map(|(drawn, jitter)| ProbabilisticDraw { drawn, jitter });
    let rules = prop_oneof![
        Just(RuleSet::EMPTY),
        Just(
            RuleSet::EMPTY
                .with(Rule::Q1)
                .with(Rule::Q6)
                .with(Rule::K1)
                .with(Rule::X)
        ),
    ];
    let mode = prop_oneof![4 => Just(Mode::Enforce), 1 => Just(Mode::Observe)];
    (
        (
            flags,
            status(),
            proptest::option::of(transition()),
            proptest::option::of(0_u64..3),
        ),
        (
            proptest::option::of(digest()),
            proptest::option::of(budget),
            money,
        ),
        (
            proptest::option::of(0_u32..4),
            0_u32..5,
            hitl,
            rules,
            proptest::option::of(draw),
            mode,
        ),
    )
        .prop_map(
            |((flags, status, transition, nonce), (digest, budget, estimate), rest)| {
                let (max_repeat, repeats, hitl, on_deny_rules, draw, mode) = rest;
                Call {
                    flags,
                    status,
                    transition,
                    nonce,
                    digest,
                    budget,
                    estimate,
                    max_repeat,
                    repeats,
                    hitl,
                    on_deny_rules,
                    draw,
                    mode,
                }
            },
        )
}

/// Draws a word of which few bits are set.
fn sparse() -> impl Strategy<Value = u32> {
    (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(a, b, c)| a & b & c)
}

fn status() -> impl Strategy<Value = Status> {
    prop_oneof![
        5 => Just(Status::Active),
        5 => (any::<bool>(), any::<bool>()).prop_map(|(held, decided)| Status::Paused { held, decided }),
        1 => Just(Status::Terminated),
        1 => Just(Status::Stale),
    ]
}

fn transition() -> impl Strategy<Value = Transition> {
    use HumanDecision as D;
    let decision = prop_oneof![
        4 => Just(D::Approve),
        3 => Just(D::Modify),
        1 => Just(D::Reject),
        1 => Just(D::Defer),
        1 => Just(D::Escalate),
        1 => Just(D::Unknown),
    ];
    let terminal = prop_oneof![3 => Just(None), 1 => Just(Some(Terminal::Consumed))];
    let nonce = || proptest::option::of(0_u64..3);
    let bound = || proptest::option::of(digest());
    (
        decision,
        nonce(),
        bound(),
        nonce(),
        bound(),
        terminal,
        any::<bool>(),
    )
        .prop_map(
            |(
                decision,
                original_nonce,
                original_digest,
                successor_nonce,
                successor_digest,
                terminal,
                resume,
            )| {
                Transition {
                    decision,
                    original_nonce,
                    original_digest,
                    successor_nonce,
                    successor_digest,
                    terminal,
                    resume_attempt: resume,
                }
            },
        )
}

fn digest() -> impl Strategy<Value = Digest> {
    prop_oneof![Just(Digest::of(b"a")), Just(Digest::of(b"b"))]
}

/// Draws JSON text whose objects have distinct keys.
fn json() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<(i64, i8)>().prop_map(|(digits, exponent)| format!("{digits}e{exponent}")),
        any::<(i32, u32)>().prop_map(|(whole, fraction)| format!("{whole}.{fraction}")),
    ];
    let string = "[ -!#-\\[\\]-~é😀]{0,6}|\\\\n|\\\\u0041|\\\\\\\\".prop_map(|text| format!("\"{text}\""));
    let leaf = prop_oneof![number, string, Just("null".to_owned()), Just("true".to_owned())];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(" , "))),
            proptest::collection::btree_map("[a-z]{0,3}", inner, 0..4).prop_map(|fields| {
                let fields: Vec<_> = fields
                    .iter()
                    .rev()
                    .map(|(key, value)| format!("\"{key}\": {value}"))
                    .collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}
