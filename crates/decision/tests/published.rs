//! The published SP/1.0 files, the reference's 10,000 answers and AgentBrake's to 1,500 sequences.
//!
//! They live outside the project: `HALTGATE_CONFORMANCE` names their folder, and `.ci/tests` runs these tests where
//! it is there. The project's own table of the same 29 vectors is in `vectors.rs`, that of the detectors in
//! `behaviour.rs`; both always run.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that breaks says where")]

use std::io::Read as _;
use std::path::{Path, PathBuf};

use conformance::Check;
use decision::behaviour::{Breakers, Candidate, Outcome, RecentCall, Storm};
use decision::id::ToolName;
use decision::json::Value;
use decision::money::NanoUsd;
use decision::params::{Inspected, canonical_json};
use decision::pattern::ToolPattern;

#[test]
#[ignore = "needs the published files: HALTGATE_CONFORMANCE names their folder"]
fn published_vectors_hold_with_their_digests() {
    let folder = folder();
    let mut vectors = 0;
    for name in ["conformance.json", "conformance-1.0.1.json"] {
        let text = std::fs::read(folder.join(name)).expect("a published file");
        for outcome in conformance::run_file(&text).expect("JSON") {
            assert!(outcome.passed(), "{outcome:#?}");
            assert_eq!(outcome.canonical_hash, Check::Equal, "{}", outcome.name);
            assert_eq!(outcome.vector_hash, Check::Equal, "{}", outcome.name);
            vectors += 1;
        }
    }
    assert_eq!(vectors, 29);
}

#[test]
#[ignore = "needs the published files: HALTGATE_CONFORMANCE names their folder"]
fn published_answers_of_the_reference_to_ten_thousand_random_cases_are_the_cores() {
    let folder = folder();
    let text = unpacked(&folder.join("decide_vectors.jsonl.gz"));
    let mut cases = 0;
    for line in text.lines() {
        for outcome in conformance::run_file(line.as_bytes()).expect("JSON") {
            assert!(outcome.passed(), "{line}\n{outcome:#?}");
            assert_eq!(outcome.reason, Check::Equal);
            cases += 1;
        }
    }
    assert_eq!(cases, 10_000);
}

#[test]
#[ignore = "needs the published files: HALTGATE_CONFORMANCE names their folder"]
fn published_answers_of_agentbrake_to_fifteen_hundred_sequences_are_the_detectors() {
    let folder = folder();
    let text = unpacked(&folder.join("detector_vectors.jsonl.gz"));
    let mut steps = 0;
    for line in text.lines() {
        steps += agree_on(&Value::parse(line.as_bytes(), 64).expect("JSON"));
    }
    assert_eq!((text.lines().count(), steps), (1_500, 12_697));
}

fn agree_on(case: &Value<'_>) -> usize {
    let config = case.field("config").expect("config");
    let loop_threshold: u32 = number(config, "loop_threshold");
    let budget: NanoUsd = number(config, "budget_usd");
    let breakers = Breakers {
        storm: Some(Storm {
            calls: number(config, "max_calls_per_tool"),
            window: number(config, "window"),
            progress_aware: config.field("progress_aware") == Some(&Value::Bool(true)),
            successes: 2,
            ..Storm::default()
        }),
        ..Breakers::off()
    };
    assert_eq!(breakers.check(), Ok(()));
    let allowed: Vec<ToolPattern> = items(config, "allowed_tools")
        .iter()
        .map(|tool| ToolPattern::parse(tool.as_str().expect("a name")).expect("a pattern"))
        .collect();

    let (mut recent, mut in_a_row, mut spent) = (Vec::<RecentCall>::new(), 0, NanoUsd::ZERO);
    for step in items(case, "steps") {
        let asking = call(step);
        let candidate = Candidate {
            tool: &asking.tool,
            digest: asking.digest,
            numbers: &asking.numbers,
        };
        if !recent.last().is_some_and(|last| candidate.is_same(last)) {
            in_a_row = 0;
        }
        let repeats = breakers.repeats(in_a_row, &recent, &candidate);
        spent = spent.checked_add(number(step, "cost_usd")).expect("a sum");
        let rows = [
            (
                "escalation",
                !allowed.iter().any(|pattern| pattern.matches(candidate.tool)),
            ),
            // Its threshold counts the call that asks, max_repeat_calls those that may run.
            ("loop", repeats >= loop_threshold - 1),
            ("retry_storm", breakers.retry_storm(&recent, &candidate)),
            ("budget", spent > budget),
        ];
        let expected = step.field("expect").expect("expect");
        for (flag, set) in rows {
            assert_eq!(
                Some(&Value::Bool(set)),
                expected.field(flag),
                "{flag}\n{recent:#?}\n{step:?}"
            );
        }
        in_a_row += 1;
        recent.push(asking);
        let keep = recent.len().saturating_sub(breakers.recent_needed());
        recent.drain(..keep);
    }
    items(case, "steps").len()
}

fn call(step: &Value<'_>) -> RecentCall {
    let arguments = canonical_json(step.field("args").expect("args")).expect("finite numbers");
    let inspected = Inspected::read(arguments.as_bytes());
    RecentCall {
        tool: ToolName::parse(text(step, "name")).expect("a tool"),
        digest: inspected.facts.digest,
        outcome: match text(step, "outcome") {
            "ok" => Outcome::Succeeded,
            "error" => Outcome::Failed,
            _ => Outcome::Pending,
        },
        result: None,
        numbers: inspected.numbers(),
    }
}

fn items<'a>(value: &'a Value<'a>, field: &str) -> &'a [Value<'a>] {
    value.field(field).and_then(Value::as_array).expect("a list")
}

fn text<'a>(value: &'a Value<'a>, field: &str) -> &'a str {
    value.field(field).and_then(Value::as_str).expect("a text")
}

fn number<T: std::str::FromStr>(value: &Value<'_>, field: &str) -> T {
    let Some(Value::Number(text)) = value.field(field) else {
        panic!("{field} is no number")
    };
    text.parse().ok().expect("a number in range")
}

fn unpacked(path: &Path) -> String {
    let packed = std::fs::File::open(path).expect("the random cases");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut text)
        .expect("gzip");
    text
}

fn folder() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/conformance");
    #[expect(
        clippy::disallowed_methods,
        reason = "the test looks for files outside the project"
    )]
    let folder = std::env::var("HALTGATE_CONFORMANCE").unwrap_or_else(|_| beside.to_owned());
    PathBuf::from(folder)
}
