//! P3: rules as data, at the edges of every test, and what holds for any rules and any call.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that breaks says where")]

use std::collections::BTreeMap;

use decision::id::{RuleId, ToolName};
use decision::json::Value;
use decision::money::NanoUsd;
use decision::pattern::{Pattern, ToolPattern};
use decision::policy::{
    Asked, Decimal, Effect, InvalidRules, Matched, Predicate, Rule, Scalar, TagTest, Test, check_rules,
    evaluate,
};
use decision::verdict::Reason;
use proptest::prelude::*;

/// Reads a predicate: keys joined by `/`, a word, and JSON where the word takes one.
fn predicate(text: &str) -> Predicate {
    let mut words = text.splitn(3, ' ');
    let path = words.next().unwrap().split('/').map(str::to_owned).collect();
    let word = words.next().unwrap();
    let value = Value::parse(words.next().unwrap_or("null").as_bytes(), 2).unwrap();
    let scalars = || value.as_array().unwrap().iter().map(scalar).collect();
    let test = match word {
        "exists" => Test::Exists,
        "absent" => Test::Absent,
        "=" => Test::Equals(scalar(&value)),
        "!=" => Test::NotEquals(scalar(&value)),
        "in" => Test::OneOf(scalars()),
        "not-in" => Test::NoneOf(scalars()),
        "<" => Test::Less(decimal(&value)),
        "<=" => Test::AtMost(decimal(&value)),
        ">" => Test::More(decimal(&value)),
        ">=" => Test::AtLeast(decimal(&value)),
        "like" => Test::Matches(Pattern::parse(value.as_str().unwrap()).unwrap()),
        "unlike" => Test::NotMatches(Pattern::parse(value.as_str().unwrap()).unwrap()),
        "longer" => Test::LongerThan(decimal(&value).as_str().parse().unwrap()),
        other => panic!("{other}"),
    };
    Predicate { path, test }
}

fn scalar(value: &Value<'_>) -> Scalar {
    match value {
        Value::Null => Scalar::Null,
        Value::Bool(truth) => Scalar::Bool(*truth),
        Value::Number(_) => Scalar::Number(decimal(value)),
        Value::String(text) => Scalar::Text(text.clone().into_owned()),
        other => panic!("{other:?}"),
    }
}

fn decimal(value: &Value<'_>) -> Decimal {
    match value {
        Value::Number(text) => Decimal::parse(text).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn rule(id: &str, when: &[&str], effect: Effect) -> Rule {
    Rule {
        id: RuleId::parse(id).unwrap(),
        tools: Vec::new(),
        tags: Vec::new(),
        when: when.iter().map(|text| predicate(text)).collect(),
        effect,
    }
}

fn deny(id: &str, when: &[&str]) -> Rule {
    rule(id, when, Effect::Deny { trips: false })
}

/// Evaluates rules against a call of `pay` with these arguments (empty for none) and no tags.
fn ask(rules: &[Rule], params: &str) -> Matched {
    let value = (!params.is_empty()).then(|| Value::parse(params.as_bytes(), 64).unwrap());
    let (tool, tags) = (ToolName::parse("pay").unwrap(), BTreeMap::new());
    let call = Asked {
        tool: &tool,
        tags: &tags,
        params: value.as_ref(),
    };
    evaluate(rules, &call)
}

/// Says what is denied, as `id`, `id!` where it trips, or nothing.
fn denied(matched: &Matched) -> String {
    matched.denied.as_ref().map_or(String::new(), |denied| {
        format!("{}{}", denied.rule, if denied.trips { "!" } else { "" })
    })
}

/// A predicate | the arguments | hit, missed, or error.
const PREDICATES: &str = r#"
a exists                | {"a":1}                    | hit
a exists                | {"a":null}                 | hit
a exists                | {"A":1}                    | missed
a/b exists              | {"a":{"b":0}}              | hit
a/b exists              | {"a":{}}                   | missed
a/b exists              | {}                         | missed
a/b exists              | {"a":null}                 | missed
a/b exists              | {"a":[{"b":1}]}            | error
a/b exists              | {"a":"{\"b\":1}"}          | error
a/b exists              | {"a/b":1}                  | missed
a absent                | {}                         | hit
a absent                | {"a":null}                 | missed
a/b absent              | {"a":[1]}                  | error
a = "x"                 | {"a":"x"}                  | hit
a = "x"                 | {"a":"\u0078"}             | hit
a = "x"                 | {"a":"X"}                  | missed
a = "x"                 | {"a":"x "}                 | missed
a = "x"                 | {"a":["x"]}                | error
a = "x"                 | {"a":null}                 | error
a = "x"                 | {}                         | error
a = 100                 | {"a":100}                  | hit
a = 100                 | {"a":1e2}                  | hit
a = 100                 | {"a":100.00}               | hit
a = 100                 | {"a":100.000000000000000001} | hit
a = 100                 | {"a":101}                  | missed
a = 100                 | {"a":"100"}                | error
a = 0                   | {"a":-0.0}                 | hit
a = true                | {"a":true}                 | hit
a = true                | {"a":false}                | missed
a = true                | {"a":1}                    | error
a = null                | {"a":null}                 | hit
a = null                | {"a":{}}                   | missed
a = null                | {}                         | error
a != "x"                | {"a":"y"}                  | hit
a != "x"                | {"a":"x"}                  | missed
a != "x"                | {"a":1}                    | error
a != null               | {"a":[]}                   | hit
a in ["x","y"]          | {"a":"y"}                  | hit
a in ["x","y"]          | {"a":"z"}                  | missed
a in ["x",2]            | {"a":2.0}                  | hit
a in ["x","y"]          | {"a":1}                    | error
a in ["x",null]         | {"a":null}                 | hit
a in ["x",null]         | {"a":1}                    | error
a in ["x"]              | {}                         | error
a not-in ["x","y"]      | {"a":"z"}                  | hit
a not-in ["x","y"]      | {"a":"x"}                  | missed
a not-in ["x","y"]      | {"a":["z"]}                | error
a < 10                  | {"a":9.999}                | hit
a < 10                  | {"a":10}                   | missed
a < 10                  | {"a":-1e300}               | hit
a < 10                  | {"a":"9"}                  | error
a <= 10                 | {"a":10.0}                 | hit
a <= 10                 | {"a":11}                   | missed
a <= 0.1                | {"a":0.1000000000000000055} | hit
a <= 10                 | {}                         | error
a > 100                 | {"a":100.5}                | hit
a > 100                 | {"a":1e3}                  | hit
a > 100                 | {"a":100}                  | missed
a > 100                 | {"a":-101}                 | missed
a > 100                 | {"a":true}                 | error
a > 100                 | {"a":{"x":101}}            | error
a > -2                  | {"a":-1.5}                 | hit
a > -2                  | {"a":-2.5}                 | missed
a > 9007199254740992    | {"a":9007199254740993}     | hit
a > 9007199254740993    | {"a":9007199254740992}     | missed
a > 1e300               | {"a":99999999999999999999} | missed
a > 0                   | {"a":1e-320}               | hit
a > 0                   | {"a":1e-99999999999999999999} | missed
a >= 0.5                | {"a":0.5}                  | hit
a >= 0.5                | {"a":0.05}                 | missed
a >= 0.5                | {"a":null}                 | error
a like "/etc/*"         | {"a":"/etc/passwd"}        | hit
a like "/etc/*"         | {"a":"/tmp/etc/x"}         | missed
a like "*rm -rf*"       | {"a":"sudo rm -rf /"}      | hit
a like "*"              | {"a":""}                   | hit
a like "*"              | {"a":7}                    | error
a unlike "https://*"    | {"a":"http://x"}           | hit
a unlike "https://*"    | {"a":"https://x"}          | missed
a unlike "https://*"    | {"a":["https://x"]}        | error
a unlike "https://*"    | {}                         | error
a longer 2              | {"a":"äöü"}                | hit
a longer 2              | {"a":"äö"}                 | missed
a longer 2              | {"a":[1,2,3]}              | hit
a longer 2              | {"a":[]}                   | missed
a longer 2              | {"a":333}                  | error
"#;

#[test]
fn each_test_is_hit_missed_or_closed() {
    let mut rows = 0;
    for row in PREDICATES.lines().filter(|row| !row.is_empty()) {
        let fields: Vec<_> = row.split(" | ").map(str::trim).collect();
        let [test, params, expected] = fields[..] else {
            panic!("{row}")
        };
        let says = |matched: &Matched| match denied(matched).as_str() {
            "r" => "hit",
            "error" => "error",
            _ => "missed",
        };
        assert_eq!(says(&ask(&[deny("r", &[test])], params)), expected, "{row}");
        // What cannot be judged denies, whatever the rule would have done.
        let asking = ask(&[rule("r", &[test], Effect::Ask)], params);
        assert_eq!(asking.denied.is_some(), expected == "error", "{row}");
        assert_eq!(asking.asks.is_some(), expected == "hit", "{row}");
        rows += 1;
    }
    assert_eq!(rows, 85);
}

#[test]
fn predicates_are_asked_in_order_up_to_the_first_that_does_not_hold() {
    let guarded = ["amount exists", "amount > 100"];
    let rows: [(&[&str], &str, &str); 7] = [
        (&guarded, r#"{"amount":101}"#, "r"),
        (&guarded, r#"{"amount":100}"#, ""),
        (&guarded, "{}", ""),
        (&["amount > 100"], "{}", "error"),
        (&["amount > 100", "amount exists"], "{}", "error"),
        (&guarded, r#"{"amount":"101"}"#, "error"),
        (&["to = \"x\"", "amount > 100"], r#"{"to":"y","amount":[]}"#, ""),
    ];
    for (when, params, expected) in rows {
        assert_eq!(
            denied(&ask(&[deny("r", when)], params)),
            expected,
            "{when:?} {params}"
        );
    }
}

#[test]
fn effects_of_all_rules_are_gathered() {
    let cost = |id: &str, nanos: i64| rule(id, &[], Effect::Cost(NanoUsd::new(nanos)));
    let trips = |id: &str| rule(id, &[], Effect::Deny { trips: true });
    let person = |id: &str| rule(id, &[], Effect::Ask);
    // rules, denied, asked, cost
    let rows = [
        (vec![], "", None, None),
        (vec![cost("a", 5), cost("b", 7), cost("c", 6)], "", None, Some(7)),
        (vec![person("a"), person("b")], "", Some("a"), None),
        (vec![deny("a", &[]), deny("b", &[])], "a", None, None),
        (vec![deny("a", &[]), trips("b"), trips("c")], "b!", None, None),
        (vec![trips("a"), deny("b", &["x > 1"])], "a!", None, None),
        (vec![deny("a", &["x > 1"]), deny("b", &[])], "error", None, None),
        (vec![deny("a", &["x > 1"]), trips("b")], "b!", None, None),
        (
            vec![person("a"), deny("b", &[]), cost("c", 1)],
            "b",
            Some("a"),
            Some(1),
        ),
    ];
    for (rules, expected, asks, price) in rows {
        let matched = ask(&rules, "{}");
        assert_eq!(denied(&matched), expected, "{rules:?}");
        assert_eq!(matched.asks.as_ref().map(RuleId::as_str), asks, "{rules:?}");
        assert_eq!(matched.cost, price.map(NanoUsd::new), "{rules:?}");
        assert!(!matched.params_needed);
    }
    assert_eq!(
        Reason::Policy(RuleId::error().as_str().to_owned()).word(),
        "policy:error"
    );
}

#[test]
fn rule_about_arguments_needs_them_where_its_tool_and_tags_match() {
    let mut elsewhere = deny("r", &["a exists"]);
    elsewhere.tools = vec![ToolPattern::parse("read_*").unwrap()];
    let mut tagged = deny("r", &["a exists"]);
    tagged.tags = vec![tag("env", "prod", false)];
    let rows = [
        (deny("r", &["a exists"]), true, ""),
        (deny("r", &[]), false, "r"),
        (elsewhere, false, ""),
        (tagged, false, ""),
    ];
    for (rule, needed, expected) in rows {
        let matched = ask(&[rule], "");
        assert_eq!(
            (matched.params_needed, denied(&matched).as_str()),
            (needed, expected)
        );
    }
}

fn tag(key: &str, pattern: &str, or_absent: bool) -> TagTest {
    TagTest {
        key: key.to_owned(),
        pattern: Pattern::parse(pattern).unwrap(),
        or_absent,
    }
}

#[test]
fn tag_left_out_escapes_only_a_rule_that_lets_it() {
    let prod = || tag("env", "prod*", false);
    let prod_or_none = || tag("env", "prod*", true);
    // tests, the call's tags, denied
    let rows = [
        (vec![prod()], vec![("env", "prod-eu")], true),
        (vec![prod()], vec![("env", "dev")], false),
        (vec![prod()], vec![], false),
        (vec![prod_or_none()], vec![("env", "prod")], true),
        (vec![prod_or_none()], vec![], true),
        (vec![prod_or_none()], vec![("env", "dev")], false),
        (vec![prod_or_none()], vec![("ENV", "dev")], true),
        (vec![prod_or_none()], vec![("env", "")], false),
        (
            vec![prod(), tag("team", "*", false)],
            vec![("env", "prod")],
            false,
        ),
        (
            vec![prod(), tag("team", "*", false)],
            vec![("env", "prod"), ("team", "")],
            true,
        ),
    ];
    let tool = ToolName::parse("pay").unwrap();
    for (tests, tags, expected) in rows {
        let mut rule = deny("r", &[]);
        rule.tags = tests;
        let tags = tags
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let call = Asked {
            tool: &tool,
            tags: &tags,
            params: None,
        };
        assert_eq!(evaluate(&[rule], &call).denied.is_some(), expected, "{tags:?}");
    }
}

#[test]
fn what_is_no_id_or_number_is_refused() {
    for id in [
        "",
        "a b",
        "a:b",
        "a/b",
        "a\n",
        "ä",
        "'",
        ".a",
        "*",
        &"a".repeat(65),
    ] {
        assert!(RuleId::parse(id).is_err(), "{id:?}");
    }
    for number in [
        "",
        "1 2",
        "01",
        "+1",
        ".5",
        "1.",
        "NaN",
        "inf",
        "0x1",
        "\"1\"",
        &"1".repeat(65),
    ] {
        assert_eq!(Decimal::parse(number), None, "{number:?}");
    }
}

#[test]
fn rule_out_of_bounds_is_refused_by_the_field() {
    let long = "a".repeat(257);
    let when = |test: Test| Rule {
        when: vec![
            predicate("a exists"),
            Predicate {
                path: vec!["a".to_owned()],
                test,
            },
        ],
        ..deny("r", &[])
    };
    let path = |path: Vec<String>| Rule {
        when: vec![Predicate {
            path,
            test: Test::Exists,
        }],
        ..deny("r", &[])
    };
    let text = || Scalar::Text(long.clone());
    let fine = deny("r", &["a/b/c/d/e/f/g/h exists"]);
    let rows = [
        (
            deny("error", &[]),
            "rule error: id is not `error`, which names rules that cannot be judged",
        ),
        (
            Rule {
                tools: vec![ToolPattern::parse("a").unwrap(); 65],
                ..fine.clone()
            },
            "rule r: tools has at most 64 patterns",
        ),
        (
            Rule {
                tags: vec![tag("a", "*", false); 17],
                ..fine.clone()
            },
            "rule r: tags has at most 16 tests",
        ),
        (
            Rule {
                tags: vec![tag("", "*", false)],
                ..fine.clone()
            },
            "rule r: tags has keys of 1 to 256 bytes",
        ),
        (
            deny("r", &["a exists"; 17]),
            "rule r: when has at most 16 predicates",
        ),
        (path(vec![]), "rule r: when[0].path has 1 to 8 keys"),
        (
            path(vec!["a".to_owned(); 9]),
            "rule r: when[0].path has 1 to 8 keys",
        ),
        (
            path(vec![long.clone()]),
            "rule r: when[0].path has keys of at most 256 bytes",
        ),
        (
            when(Test::Equals(text())),
            "rule r: when[1].test has a text of at most 256 bytes",
        ),
        (
            when(Test::NotEquals(text())),
            "rule r: when[1].test has a text of at most 256 bytes",
        ),
        (
            when(Test::OneOf(vec![])),
            "rule r: when[1].test has 1 to 64 choices",
        ),
        (
            when(Test::NoneOf(vec![Scalar::Null; 65])),
            "rule r: when[1].test has 1 to 64 choices",
        ),
        (
            when(Test::OneOf(vec![Scalar::Null, text()])),
            "rule r: when[1].test has texts of at most 256 bytes",
        ),
        (
            rule("r", &[], Effect::Cost(NanoUsd::ZERO)),
            "rule r: effect is a cost above zero",
        ),
        (
            rule("r", &[], Effect::Cost(NanoUsd::new(-1))),
            "rule r: effect is a cost above zero",
        ),
    ];
    for (rule, refused) in rows {
        assert_eq!(rule.check().unwrap_err().to_string(), refused);
        assert!(check_rules(&[rule]).is_err());
    }
    assert_eq!(fine.check(), Ok(()));
    assert_eq!(
        check_rules(&[fine.clone(), fine.clone()]),
        Err(InvalidRules::SameId(fine.id.clone()))
    );
    let numbered: Vec<_> = (0..65).map(|number| deny(&format!("r{number}"), &[])).collect();
    assert_eq!(check_rules(&numbered), Err(InvalidRules::TooMany));
    assert_eq!(check_rules(&numbered[..64]), Ok(()));
}

#[test]
fn bytes_at_rest_are_what_they_were() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut full = rule(
        "r",
        &["a > 1.50", "b in [\"x\",true,null]"],
        Effect::Deny { trips: true },
    );
    full.tools = vec![ToolPattern::parse("p*").unwrap()];
    full.tags = vec![tag("env", "prod", true)];
    let bytes = minicbor::to_vec(&full).unwrap();
    assert_eq!(minicbor::decode::<Rule>(&bytes).unwrap(), full);
    assert_eq!(
        hex(&bytes),
        "8561728162702a818363656e766470726f64f5828281616182088164312e353082816162820481838200816178820281f5820380820081f5"
    );
    let matched = Matched {
        params_needed: true,
        ..ask(
            &[deny("r", &[]), rule("c", &[], Effect::Cost(NanoUsd::new(7)))],
            "{}",
        )
    };
    let bytes = minicbor::to_vec(&matched).unwrap();
    assert_eq!(minicbor::decode::<Matched>(&bytes).unwrap(), matched);
    assert_eq!(hex(&bytes), "84826172f4f607f5");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_more_rule_never_loosens_the_answer(
        rules in proptest::collection::vec(any_rule(), 0..6),
        more in any_rule(),
        at in 0_usize..6,
        call in any_call(),
    ) {
        let mut stricter = rules.clone();
        stricter.insert(at.min(rules.len()), more);
        let (before, after) = (call.ask(&rules), call.ask(&stricter));
        let denial = |matched: &Matched| matched.denied.as_ref().map_or(0, |denied| 1 + u8::from(denied.trips));
        prop_assert!(denial(&after) >= denial(&before), "{:?} became {:?}", before, after);
        prop_assert!(after.asks.is_some() >= before.asks.is_some());
        prop_assert!(after.cost >= before.cost);
        prop_assert!(after.params_needed >= before.params_needed);
    }

    #[test]
    fn order_of_rules_changes_no_more_than_the_name(
        rules in proptest::collection::vec(any_rule(), 0..6),
        call in any_call(),
    ) {
        let backward: Vec<_> = rules.iter().rev().cloned().collect();
        let (one, other) = (call.ask(&rules), call.ask(&backward));
        prop_assert_eq!(one.denied.map(|denied| denied.trips), other.denied.map(|denied| denied.trips));
        prop_assert_eq!(one.asks.is_some(), other.asks.is_some());
        prop_assert_eq!((one.cost, one.params_needed), (other.cost, other.params_needed));
    }

    #[test]
    fn numbers_order_as_numbers_do(left in -1_000_000_i64..1_000_000, right in -1_000_000_i64..1_000_000, zeros in 0_usize..4) {
        let params = format!(r#"{{"a":{left}}}"#);
        let limit = format!("{right}.{}e0", "0".repeat(zeros + 1));
        let hit = |word: &str| !denied(&ask(&[deny("r", &[&format!("a {word} {limit}")])], &params)).is_empty();
        prop_assert_eq!([hit("<"), hit("<="), hit(">"), hit(">="), hit("=")],
            [left < right, left <= right, left > right, left >= right, left == right]);
    }
}

#[derive(Debug, Clone)]
struct Call {
    tool: &'static str,
    tags: BTreeMap<String, String>,
    params: Option<&'static str>,
}

impl Call {
    fn ask(&self, rules: &[Rule]) -> Matched {
        let tool = ToolName::parse(self.tool).unwrap();
        let value = self.params.map(|text| Value::parse(text.as_bytes(), 64).unwrap());
        let call = Asked {
            tool: &tool,
            tags: &self.tags,
            params: value.as_ref(),
        };
        evaluate(rules, &call)
    }
}

fn any_call() -> impl Strategy<Value = Call> {
    let params = proptest::sample::select(vec![
        None,
        Some("{}"),
        Some(r#"{"a":1}"#),
        Some(r#"{"a":"x","b":[1]}"#),
        Some(r#"{"a":null,"b":{"a":2.5}}"#),
        Some("[1]"),
        Some("1e999"),
    ]);
    let tags = proptest::collection::btree_map("[ab]", "[xy]?", 0..2);
    (proptest::sample::select(vec!["pay", "read", "*"]), tags, params).prop_map(|(tool, tags, params)| Call {
        tool,
        tags,
        params,
    })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let predicates = proptest::sample::select(vec![
        "a exists",
        "b absent",
        "a = 1",
        "a != \"x\"",
        "a in [1,\"x\"]",
        "a not-in [null,\"x\"]",
        "a < 2",
        "b/a >= 2.5",
        "a like \"*x\"",
        "a unlike \"y*\"",
        "b longer 0",
    ]);
    let tools = proptest::collection::vec(proptest::sample::select(vec!["pay", "*", "r*"]), 0..2);
    let tags = proptest::collection::vec(
        ("[ab]", proptest::sample::select(vec!["x", "*"]), any::<bool>()),
        0..2,
    );
    let effect = prop_oneof![
        any::<bool>().prop_map(|trips| Effect::Deny { trips }),
        Just(Effect::Ask),
        (1_i64..9).prop_map(|nanos| Effect::Cost(NanoUsd::new(nanos))),
    ];
    (
        "[a-z]{1,3}",
        tools,
        tags,
        proptest::collection::vec(predicates, 0..3),
        effect,
    )
        .prop_map(|(id, tools, tags, when, effect)| Rule {
            tools: tools
                .iter()
                .map(|text| ToolPattern::parse(text).unwrap())
                .collect(),
            tags: tags
                .iter()
                .map(|(key, pattern, or_absent)| tag(key, pattern, *or_absent))
                .collect(),
            ..rule(&id, &when, effect)
        })
}
