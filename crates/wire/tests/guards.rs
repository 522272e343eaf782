//! A guard on the wire, in a file, and in the machine: the same three times.

#![expect(clippy::unwrap_used, reason = "a test that breaks says where")]

use decision::behaviour::{Cycle, ErrorRate, Storm};
use decision::decide::RuleSet;
use decision::facts::Mode;
use decision::limits::Rate;
use decision::policy::{Decimal, Effect, Predicate, Rule, Scalar, TagTest, Test};
use decision::{
    AgentId, Breakers, DurationNs, GuardId, HitlRule, NanoUsd, Pattern, PerBillion, RuleId, ToolPattern,
};
use machine::command::AgentPattern;
use machine::row::price::{ModelPrice, Prices, TokenPrice, ToolPrice};
use machine::{BudgetScope, Guard, LatchScope, PauseScope, ToolLimit, TripPolicy, Unsettled, Window};
use wire::guard_config::{guard, guard_config, shipped};
use wire::proto::shackle::v1 as proto;

/// Changes a message in one place.
type Change<T> = fn(&mut T);

fn tool(text: &str) -> ToolPattern {
    ToolPattern::parse(text).unwrap()
}

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

fn number(text: &str) -> Decimal {
    Decimal::parse(text).unwrap()
}

fn usd(cents: i64) -> NanoUsd {
    NanoUsd::new(cents * 10_000_000)
}

fn percent(percent: u8) -> PerBillion {
    PerBillion::from_percent(percent).unwrap()
}

fn every_test() -> Vec<Predicate> {
    let tests = [
        Test::Exists,
        Test::Absent,
        Test::Equals(Scalar::Text("e\"u".to_owned())),
        Test::NotEquals(Scalar::Null),
        Test::OneOf(vec![Scalar::Bool(true), Scalar::Number(number("-2.5e3"))]),
        Test::NoneOf(vec![Scalar::Text(String::new())]),
        Test::Less(number("1")),
        Test::AtMost(number("0.1")),
        Test::More(number("100")),
        Test::AtLeast(number("100.0")),
        Test::Matches(pattern("eu-*")),
        Test::NotMatches(pattern("*")),
        Test::LongerThan(80),
    ];
    tests
        .into_iter()
        .map(|test| Predicate {
            path: vec!["a".to_owned(), "b".to_owned()],
            test,
        })
        .collect()
}

fn rules() -> Vec<Rule> {
    let rule = |id, effect| Rule {
        id: RuleId::parse(id).unwrap(),
        tools: Vec::new(),
        tags: Vec::new(),
        when: Vec::new(),
        effect,
    };
    vec![
        Rule {
            tools: vec![tool("db.*"), tool("pay")],
            tags: vec![TagTest {
                key: "env".to_owned(),
                pattern: pattern("prod*"),
                or_absent: true,
            }],
            when: every_test(),
            ..rule("deny", Effect::Deny { trips: true })
        },
        rule("ask", Effect::Ask),
        rule("cost", Effect::Cost(usd(150))),
    ]
}

/// Sets everything, and nothing to what is shipped.
fn full() -> Guard {
    let window = Some(Window {
        duration: DurationNs::from_secs(10),
        max_calls: 4,
    });
    let price = |cents| TokenPrice {
        input: usd(cents),
        output: usd(cents * 5),
    };
    Guard {
        version: 7,
        budget: Some(usd(500)),
        budget_scope: BudgetScope::Organization,
        max_repeat_calls: Some(2),
        error_amplification: false,
        timeout: Some(DurationNs::from_secs(60)),
        window,
        max_total_calls: Some(9),
        probabilistic: Some(percent(10)),
        hitl: HitlRule::OnThreshold(percent(20)),
        hold_ttl: DurationNs::from_secs(30),
        unsettled: Unsettled::Release,
        trip_policy: TripPolicy::Seed,
        default_cost: NanoUsd::ZERO,
        settle_at_least_hold: true,
        require_params: true,
        approval_ttl: DurationNs::from_secs(60),
        pause_scope: PauseScope::Call,
        parent: GuardId::parse("root").ok(),
        agents: vec![
            AgentPattern::Exact(AgentId::parse("bot-1").unwrap()),
            AgentPattern::Prefix("bot-".to_owned()),
            AgentPattern::Prefix(String::new()),
        ],
        mode: Mode::Observe,
        allowed_tools: Some(vec![tool("db.read"), tool("web.*")]),
        rate: Some(Rate {
            calls: 30,
            span: DurationNs::from_secs(60),
        }),
        breakers: Breakers {
            name_streak: Some(20),
            storm: Some(Storm {
                calls: 6,
                window: 12,
                progress_aware: false,
                successes: 3,
                ..Storm::default()
            }),
            cycle: Some(Cycle {
                longest: 3,
                rounds: 4,
            }),
            error_rate: Some(ErrorRate {
                outcomes: 10,
                ratio: percent(50),
            }),
            denials: Some(5),
            result_aware: false,
            polling_tools: vec![tool("poll.*")],
        },
        max_tokens: Some(1_000_000),
        max_cost: Some(usd(1_000)),
        prices: Prices {
            tools: vec![ToolPrice {
                tool: tool("web.*"),
                cost: usd(2),
            }],
            models: vec![ModelPrice {
                model: pattern("small-*"),
                price: price(100),
            }],
            other_models: price(300),
        },
        tool_limits: vec![ToolLimit {
            tool: tool("mail.send"),
            max_repeat_calls: Some(1),
            window,
            ask: true,
        }],
        on_deny_rules: RuleSet::EMPTY
            .with(decision::Rule::R6)
            .with(decision::Rule::Q4Window),
        latch_scope: LatchScope::Agent,
        max_agent_sessions: Some(3),
        max_organization_sessions: Some(100),
        ticket_ttl: Some(DurationNs::from_secs(30)),
        warn_at: Some(percent(80)),
        max_overdraft: Some(NanoUsd::ZERO),
        rules: rules(),
    }
}

fn guards() -> [Guard; 4] {
    let none_allowed = Guard {
        allowed_tools: Some(Vec::new()),
        ..Guard::default()
    };
    [full(), none_allowed, Guard::default(), Guard::unlimited()]
}

#[test]
fn a_guard_reads_back_as_it_was_written() {
    for written in guards() {
        assert_eq!(guard(&guard_config(&written)).unwrap(), written);
    }
    // Every zero of SP/1.0 is "off", and ours have their defaults.
    let empty = Guard {
        max_repeat_calls: None,
        error_amplification: false,
        ..Guard::default()
    };
    assert_eq!(guard(&proto::GuardConfig::default()).unwrap(), empty);
}

#[test]
fn a_guard_reads_back_from_the_file_and_the_json_it_is_shown_as() {
    for written in guards() {
        let config = guard_config(&written);
        let file = toml::to_string(&config).unwrap();
        assert_eq!(
            toml::from_str::<proto::GuardConfig>(&file).unwrap(),
            config,
            "{file}"
        );
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<proto::GuardConfig>(&text).unwrap(), config);
    }
}

#[test]
fn keys_that_a_file_leaves_out_are_the_shipped_guards() {
    let read = |text: &str| guard(&toml::from_str(text).unwrap()).unwrap();
    assert_eq!(read(""), Guard::default());
    let breakers = read("breakers = { name_streak = 20 }").breakers;
    let shipped = Breakers {
        name_streak: Some(20),
        ..Breakers::default()
    };
    assert_eq!(breakers, shipped);
    assert_eq!(read("breakers = { storm_calls = 0 }").breakers.storm, None);
    assert_eq!(read("allowed_tools = []").allowed_tools, Some(Vec::new()));
    let rule = "[[rules]]\nid = \"big\"\neffect = \"ask\"\n\
                when = [{ path = [\"amount\"], op = \"more\", values = [\"100\"] }]";
    let big = Rule {
        id: RuleId::parse("big").unwrap(),
        tools: Vec::new(),
        tags: Vec::new(),
        when: vec![Predicate {
            path: vec!["amount".to_owned()],
            test: Test::More(number("100")),
        }],
        effect: Effect::Ask,
    };
    assert_eq!(read(rule).rules, [big]);
}

#[test]
fn a_file_with_a_typo_is_refused() {
    let rows = [
        ("budget = 5.0", "budget"),
        ("hitl_mode = \"sometimes\"", "never, on_deny"),
        ("hitl_mode = \"HITL_ALWAYS\"", "always"),
        ("hitl_mode = 3", "string"),
        ("breakers = { storm = 5 }", "storm"),
        ("[[rules]]\nid = \"a\"\nefect = \"ask\"", "efect"),
        (
            "[[rules]]\nid = \"a\"\nwhen = [{ path = [\"a\"], op = \"unspecified\" }]",
            "exists",
        ),
        ("other_models = { input_usd = 1.0 }", "output_usd"),
        ("[[tool_prices]]\ntool = \"a\"", "cost_usd"),
    ];
    for (file, named) in rows {
        let error = toml::from_str::<proto::GuardConfig>(file)
            .unwrap_err()
            .to_string();
        assert!(error.contains(named), "{file}: {error}");
    }
}

#[test]
fn a_malformed_guard_is_invalid_and_says_where() {
    let rows: [(&str, Change<proto::GuardConfig>); 42] = [
        ("budget_usd", |config| config.budget_usd = -1.0),
        ("budget_scope", |config| config.budget_scope = 3),
        ("budget_scope", |config| config.budget_scope = -1),
        ("hitl_mode", |config| config.hitl_mode = 4),
        ("hitl_budget_threshold", |config| {
            config.hitl_budget_threshold = f64::NAN
        }),
        ("unsettled_policy", |config| config.unsettled_policy = 2),
        ("trip_policy", |config| config.trip_policy = 3),
        ("pause_scope", |config| config.pause_scope = 2),
        ("mode", |config| config.mode = 2),
        ("latch_scope", |config| config.latch_scope = 2),
        ("window_duration_s", |config| config.window_max_calls = 1),
        ("rate_window_seconds", |config| config.rate_max_calls = 1),
        ("parent_guard_id", |config| {
            config.parent_guard_id = "a/b".to_owned()
        }),
        ("deny_jitter_ratio", |config| config.deny_jitter_ratio = 1.1),
        ("warn_ratio", |config| config.warn_ratio = -0.1),
        ("default_cost_usd", |config| {
            config.default_cost_usd = Some(f64::INFINITY)
        }),
        ("max_overdraft_usd", |config| {
            config.max_overdraft_usd = Some(-1.0)
        }),
        ("max_cost_usd", |config| config.max_cost_usd = 1e-12),
        ("max_tokens", |config| config.max_tokens = u64::MAX),
        ("agents", |config| config.agents = vec!["a/*".to_owned()]),
        ("agents", |config| config.agents = vec![String::new()]),
        ("agents", |config| config.agents = vec!["a".to_owned(); 65]),
        ("allowed_tools", |config| config.allowed_tools = Some(list(&[""]))),
        ("allowed_tools", |config| {
            config.allowed_tools = Some(list(&["a"; 65]))
        }),
        ("tool_prices[1].tool", |config| {
            config.tool_prices = vec![price("a", 0.0), price("", 1.0)]
        }),
        ("tool_prices[0].cost_usd", |config| {
            config.tool_prices = vec![price("a", -1.0)]
        }),
        ("tool_prices", |config| {
            config.tool_prices = vec![price("a", 1.0); 65]
        }),
        ("model_prices[0].price", |config| {
            config.model_prices = vec![model("m", None)]
        }),
        ("model_prices[0].model", |config| {
            config.model_prices = vec![model("", Some(1.0))]
        }),
        ("model_prices[0].price.input_usd", |config| {
            config.model_prices = vec![model("m", Some(-1.0))]
        }),
        ("other_models.output_usd", |config| {
            config.other_models = Some(proto::TokenPrice {
                input_usd: 0.0,
                output_usd: -1.0,
            })
        }),
        ("tool_overrides[0].window_duration_s", |config| {
            config.tool_overrides = vec![proto::ToolOverride {
                tool: "a".to_owned(),
                window_max_calls: 1,
                ..Default::default()
            }]
        }),
        ("tool_overrides[0].tool", |config| {
            config.tool_overrides = vec![Default::default()]
        }),
        ("breakers.name_streak", |config| breakers(config).name_streak = 65),
        ("breakers.storm_window", |config| {
            breakers(config).storm_window = 0
        }),
        ("breakers.storm_calls", |config| breakers(config).storm_calls = 11),
        ("breakers.cycle_longest", |config| {
            breakers(config).cycle_longest = 9
        }),
        ("breakers.cycle_rounds", |config| {
            breakers(config).cycle_rounds = 0
        }),
        ("breakers.error_outcomes", |config| {
            breakers(config).error_outcomes = 65;
            breakers(config).error_ratio = 0.5;
        }),
        ("breakers.error_ratio", |config| {
            breakers(config).error_outcomes = 10
        }),
        ("breakers.error_ratio", |config| {
            breakers(config).error_ratio = 2.0
        }),
        ("breakers.polling_tools", |config| {
            breakers(config).polling_tools = vec![String::new()]
        }),
    ];
    for (field, change) in rows {
        let mut config = shipped();
        change(&mut config);
        assert_eq!(guard(&config).unwrap_err().field, field);
    }
}

#[test]
fn only_denials_that_a_person_may_lift_are_asked_for() {
    let asked = |word: &str| {
        guard(&proto::GuardConfig {
            on_deny_rules: vec![word.to_owned()],
            ..Default::default()
        })
    };
    let words = "R5 R5b R6 P2 P3 Q1 Q3 Q4_RATE Q4_WINDOW Q5 Q6";
    for word in words.split(' ') {
        assert!(asked(word).is_ok(), "{word}");
    }
    for word in "K1 K2 R1 R2 R3 R4 P1 Q2 Q4 R7 R8 R9 R10 X r6"
        .split(' ')
        .chain([""])
    {
        assert_eq!(asked(word).unwrap_err().field, "on_deny_rules", "{word}");
    }
}

#[test]
fn a_malformed_rule_is_invalid_and_says_where() {
    let rows: [(&str, Change<proto::Rule>); 16] = [
        ("rules[0].id", |rule| rule.id = String::new()),
        ("rules[0].id", |rule| rule.id = "error".to_owned()),
        ("rules[0].tools", |rule| rule.tools = vec![String::new()]),
        ("rules[0].tools", |rule| rule.tools = vec!["a".to_owned(); 65]),
        ("rules[0].tags[0].matches", |rule| {
            rule.tags = vec![tag("env", "")]
        }),
        ("rules[0].tags", |rule| rule.tags = vec![tag("", "a")]),
        ("rules[0].effect", |rule| rule.effect = 3),
        ("rules[0].trips", |rule| {
            rule.effect = proto::RuleEffect::Ask.into();
            rule.trips = true;
        }),
        ("rules[0].cost_usd", |rule| rule.cost_usd = 1.0),
        ("rules[0].cost_usd", |rule| {
            rule.effect = proto::RuleEffect::Cost.into()
        }),
        ("rules[0].when", |rule| {
            rule.when = vec![asks(proto::PredicateOp::Exists, &[]); 17]
        }),
        ("rules[0].when[1].op", |rule| {
            rule.when = vec![
                asks(proto::PredicateOp::Exists, &[]),
                asks(proto::PredicateOp::Unspecified, &[]),
            ]
        }),
        ("rules[0].when[0].path", |rule| {
            rule.when = vec![proto::Predicate {
                path: Vec::new(),
                ..asks(proto::PredicateOp::Exists, &[])
            }]
        }),
        ("rules[0].when[0].path", |rule| {
            rule.when = vec![proto::Predicate {
                path: vec!["a".to_owned(); 9],
                ..asks(proto::PredicateOp::Exists, &[])
            }]
        }),
        ("rules[0].when[0].op", |rule| {
            rule.when = vec![proto::Predicate {
                op: 14,
                ..asks(proto::PredicateOp::Exists, &[])
            }]
        }),
        ("rules[0].when[0].values", |rule| {
            rule.when = vec![asks(proto::PredicateOp::OneOf, &["1"; 65])]
        }),
    ];
    for (field, change) in rows {
        let mut rule = proto::Rule {
            id: "a".to_owned(),
            ..Default::default()
        };
        change(&mut rule);
        let config = proto::GuardConfig {
            rules: vec![rule],
            ..Default::default()
        };
        assert_eq!(guard(&config).unwrap_err().field, field);
    }
    let twice = proto::GuardConfig {
        rules: vec![
            proto::Rule {
                id: "a".to_owned(),
                ..Default::default()
            };
            2
        ],
        ..Default::default()
    };
    assert_eq!(guard(&twice).unwrap_err().field, "rules");
}

#[test]
fn each_op_takes_its_own_values() {
    use proto::PredicateOp as Op;
    let rows: [(Op, &[&str]); 15] = [
        (Op::Exists, &["1"]),
        (Op::Absent, &["1"]),
        (Op::Equals, &[]),
        (Op::Equals, &["1", "2"]),
        (Op::Equals, &["eu"]),
        (Op::Equals, &["[]"]),
        (Op::NotEquals, &["{\"a\":1}"]),
        (Op::OneOf, &[]),
        (Op::NoneOf, &["1", "x"]),
        (Op::Less, &["\"1\""]),
        (Op::More, &["NaN"]),
        (Op::AtLeast, &["1e"]),
        (Op::Matches, &[""]),
        (Op::LongerThan, &["-1"]),
        (Op::LongerThan, &["1.5"]),
    ];
    for (op, values) in rows {
        let config = proto::GuardConfig {
            rules: vec![proto::Rule {
                id: "a".to_owned(),
                when: vec![asks(op, values)],
                ..Default::default()
            }],
            ..Default::default()
        };
        assert_eq!(
            guard(&config).unwrap_err().field,
            "rules[0].when[0].values",
            "{op:?} {values:?}"
        );
    }
}

fn list(tools: &[&str]) -> proto::ToolList {
    proto::ToolList {
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
    }
}

fn price(tool: &str, cost_usd: f64) -> proto::ToolPrice {
    proto::ToolPrice {
        tool: tool.to_owned(),
        cost_usd,
    }
}

fn model(model: &str, input_usd: Option<f64>) -> proto::ModelPrice {
    proto::ModelPrice {
        model: model.to_owned(),
        price: input_usd.map(|input_usd| proto::TokenPrice {
            input_usd,
            output_usd: 0.0,
        }),
    }
}

fn breakers(config: &mut proto::GuardConfig) -> &mut proto::Breakers {
    config.breakers.as_mut().unwrap()
}

fn tag(key: &str, matches: &str) -> proto::TagTest {
    proto::TagTest {
        key: key.to_owned(),
        matches: matches.to_owned(),
        or_absent: false,
    }
}

fn asks(op: proto::PredicateOp, values: &[&str]) -> proto::Predicate {
    proto::Predicate {
        path: vec!["a".to_owned()],
        op: op.into(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}
