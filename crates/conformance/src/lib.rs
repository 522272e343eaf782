//! Runs fixtures in the published SP/1.0 format against the rules; lenient, as the format is.
//!
//! Fixtures may lack fields or carry the wrong type on purpose. What the reference coerces is coerced
//! here and nowhere else: the edge refuses it.

use std::fmt;

use decision::billionths;
use decision::decide::{Decision, decide};
use decision::digest::Digest;
use decision::facts::{BudgetFacts, Facts, HitlRule, HumanDecision, Terminal, Transition};
use decision::json::{InvalidJson, Value};
use decision::money::{NanoUsd, PerBillion};
use decision::params::{DEPTH_MAX, Looking, canonical_json, fold, is_opaque};

/// A fixture file nests more than the arguments it holds, and some arguments nest too deep on purpose.
const FILE_DEPTH_MAX: u32 = 256;
/// Marks, in a fixture, arguments that JSON cannot write.
const NONCANONICAL_MARKER: &str = "__noncanonical__";

/// Runs a file with `fixtures`, one fixture on its own, or JSON lines of fixtures.
pub fn run_file(text: &[u8]) -> Result<Vec<Outcome>, InvalidJson> {
    match Value::parse(text, FILE_DEPTH_MAX) {
        Ok(file) => Ok(match file.field("fixtures").and_then(Value::as_array) {
            Some(fixtures) => fixtures.iter().map(run).collect(),
            None => vec![run(&file)],
        }),
        Err(_not_one_value) => text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.trim_ascii().is_empty())
            .map(|line| Value::parse(line, FILE_DEPTH_MAX).map(|fixture| run(&fixture)))
            .collect(),
    }
}

/// Decides one fixture and compares what it expects.
pub fn run(fixture: &Value<'_>) -> Outcome {
    let params = fixture.field("call").and_then(|call| call.field("params"));
    let decision = decide_fixture(fixture);
    Outcome {
        name: text_field(Some(fixture), "name").unwrap_or_default().to_owned(),
        verdict: Check::of(fixture, "expected_verdict", decision.verdict.word()),
        reason: Check::of(fixture, "expected_reason", &decision.reason.word()),
        canonical_hash: Check::of(fixture, "canonical_hash", &hash(params)),
        vector_hash: Check::of(fixture, "vector_hash", &hash(Some(&without_seal(fixture)))),
        decision,
    }
}

/// Holds what became of one fixture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub name: String,
    pub decision: Decision,
    pub verdict: Check,
    pub reason: Check,
    pub canonical_hash: Check,
    pub vector_hash: Check,
}

impl Outcome {
    /// Tells whether everything the fixture expects came out, and that it expects a verdict at all.
    pub fn passed(&self) -> bool {
        let expectations = [
            &self.verdict,
            &self.reason,
            &self.canonical_hash,
            &self.vector_hash,
        ];
        self.verdict == Check::Equal
            && !expectations
                .iter()
                .any(|check| matches!(check, Check::Differs { .. }))
    }
}

/// Writes `ok NAME: VERDICT reason`, or `FAILED NAME:` and what differs.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() {
            "vector"
        } else {
            &self.name
        };
        if self.passed() {
            return write!(
                f,
                "ok {name}: {} {}",
                self.decision.verdict,
                self.decision.reason.word()
            );
        }
        write!(f, "FAILED {name}:")?;
        let checks = [
            ("verdict", &self.verdict),
            ("reason", &self.reason),
            ("canonical_hash", &self.canonical_hash),
            ("vector_hash", &self.vector_hash),
        ];
        for (what, check) in checks {
            if let Check::Differs { expected, computed } = check {
                write!(f, " {what} is {computed}, expected {expected};")?;
            }
        }
        match self.verdict {
            Check::Absent => f.write_str(" no expected_verdict"),
            Check::Equal | Check::Differs { .. } => Ok(()),
        }
    }
}

/// Holds the comparison of one expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// The fixture does not say.
    Absent,
    Equal,
    Differs {
        expected: String,
        computed: String,
    },
}

impl Check {
    fn of(fixture: &Value<'_>, key: &str, computed: &str) -> Check {
        match fixture.field(key) {
            None => Check::Absent,
            Some(Value::String(expected)) if expected == computed => Check::Equal,
            Some(expected) => Check::Differs {
                expected: expected.as_str().unwrap_or("not a text").to_owned(),
                computed: computed.to_owned(),
            },
        }
    }
}

fn hash(value: Option<&Value<'_>>) -> String {
    let canonical = canonical_json(value.unwrap_or(&Value::Null)).unwrap_or_default();
    Digest::of(canonical.as_bytes()).to_string()
}

fn without_seal<'a>(fixture: &Value<'a>) -> Value<'a> {
    match fixture {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(key, _)| key != "vector_hash")
                .cloned()
                .collect(),
        ),
        other => other.clone(),
    }
}

fn decide_fixture(fixture: &Value<'_>) -> Decision {
    with_facts(fixture, decide)
}

/// Reads a fixture's facts, and gives what is made of them: for other deciders of the same cases.
pub fn with_facts<T>(fixture: &Value<'_>, then: impl FnOnce(&Facts<'_>) -> T) -> T {
    let (config, state, call) = (
        fixture.field("config"),
        fixture.field("state"),
        fixture.field("call"),
    );
    let empty = Value::Object(Vec::new());
    let params = field(call, "params")
        .filter(|params| is_truthy(params))
        .unwrap_or(&empty);
    let pending = field(state, "pending_transition").filter(|pending| is_truthy(pending));
    let mut nonces = Nonces::default();
    let nonce = nonces.number(field(call, "nonce"));
    let transition = pending.map(|pending| read_transition(pending, &mut nonces));
    let seen = field(state, "seen_nonces")
        .and_then(Value::as_array)
        .unwrap_or_default();
    let nonce_seen = nonce.is_some() && seen.iter().any(|used| nonces.number(Some(used)) == nonce);
    let tool = text_field(call, "tool_name").filter(|tool| !tool.is_empty());
    let counted = tool
        .and_then(|tool| field(field(state, "repeat_counts"), tool))
        .and_then(count);

    then(&Facts {
        malformed: is_malformed(params),
        circuit_tripped: field(state, "circuit_tripped").is_some_and(is_truthy),
        nonce,
        digest: canonical_json(params).map(|canonical| Digest::of(canonical.as_bytes())),
        nonce_seen,
        transition: transition.as_ref(),
        budget: Some(BudgetFacts {
            initial: money(state, "budget_initial_usd"),
            available: money(state, "budget_remaining_usd"),
        }),
        budget_enforced: is_budget_on(field(config, "budget_usd")),
        estimate: money(call, "estimated_cost_usd"),
        max_repeat: limit(field(config, "max_repeat_calls")),
        repeats: counted.unwrap_or_default(),
        same_tool: counted.is_some() && text_field(state, "last_tool_name") == tool,
        hitl: read_hitl(config),
        opaque: is_opaque(params, Looking::OneListLevel),
        ..Facts::core()
    })
}

/// R5: a budget is on above 0; one of another type is on as well, and then most likely empty.
fn is_budget_on(budget: Option<&Value<'_>>) -> bool {
    match budget {
        Some(Value::Number(text)) => billionths(text).is_some_and(|budget| budget > NanoUsd::ZERO),
        Some(other) => is_truthy(other),
        None => false,
    }
}

/// R6: a limit is unset by null; one of another type allows nothing.
fn limit(value: Option<&Value<'_>>) -> Option<u32> {
    let value = value.filter(|value| **value != Value::Null)?;
    Some(count(value).unwrap_or_default())
}

/// R1 as the fixture format has it.
fn is_malformed(params: &Value<'_>) -> bool {
    let marked = params.field(NONCANONICAL_MARKER) == Some(&Value::Bool(true));
    !matches!(params, Value::Object(_))
        || marked
        || nests_deeper(params, DEPTH_MAX)
        || canonical_json(params).is_none()
}

fn nests_deeper(value: &Value<'_>, depth_left: u32) -> bool {
    let deeper = |inner: &Value<'_>| match depth_left.checked_sub(1) {
        Some(left) => nests_deeper(inner, left),
        None => true,
    };
    match value {
        Value::Array(items) => items.iter().any(deeper),
        Value::Object(fields) => fields.iter().any(|(_, field)| deeper(field)),
        _ => false,
    }
}

fn read_transition(pending: &Value<'_>, nonces: &mut Nonces) -> Transition {
    let word = |key: &str| text_field(Some(pending), key).map(fold).unwrap_or_default();
    let digest = |key: &str| {
        let text = text_field(Some(pending), key).filter(|text| !text.is_empty())?;
        // A text that is no digest still binds the approval: to nothing that can come.
        Some(Digest::from_hex(text).unwrap_or(Digest::of(text.as_bytes())))
    };
    Transition {
        decision: match word("decision").as_str() {
            "approve" => HumanDecision::Approve,
            "reject" => HumanDecision::Reject,
            "modify" => HumanDecision::Modify,
            "defer" => HumanDecision::Defer,
            "escalate" => HumanDecision::Escalate,
            _ => HumanDecision::Unknown,
        },
        original_nonce: nonces.number(pending.field("original_nonce")),
        original_digest: digest("original_args_digest"),
        successor_nonce: nonces.number(pending.field("successor_nonce")),
        successor_digest: digest("successor_args_digest"),
        terminal: match word("terminal_status").as_str() {
            "rejected" => Some(Terminal::Rejected),
            "superseded" => Some(Terminal::Superseded),
            "consumed" => Some(Terminal::Consumed),
            "executed" => Some(Terminal::Executed),
            "expired" => Some(Terminal::Expired),
            "revoked" => Some(Terminal::Revoked),
            "cancelled" => Some(Terminal::Cancelled),
            _ => None,
        },
        resume_attempt: pending.field("resume_attempt").is_some_and(is_truthy),
    }
}

/// R7 and R8; the reference's core has no `on_deny`, and no mode by another spelling.
fn read_hitl(config: Option<&Value<'_>>) -> HitlRule {
    match text_field(config, "hitl_mode") {
        Some("always") => HitlRule::Always,
        Some("on_threshold") => match field(config, "hitl_budget_threshold") {
            Some(Value::Number(text)) => ratio(text).map_or(HitlRule::Never, HitlRule::OnThreshold),
            _ => HitlRule::Never,
        },
        _ => HitlRule::Never,
    }
}

fn ratio(text: &str) -> Option<PerBillion> {
    let parts = billionths(text)?
        .nanos()
        .clamp(0, i64::from(PerBillion::ONE.parts()));
    PerBillion::new(u32::try_from(parts).ok()?)
}

/// Tells nonces apart by what is written, so that any JSON value can stand for one.
#[derive(Default)]
struct Nonces {
    seen: Vec<String>,
}

impl Nonces {
    fn number(&mut self, value: Option<&Value<'_>>) -> Option<u64> {
        let value = value.filter(|value| **value != Value::Null)?;
        let written = canonical_json(value)?;
        let position = self
            .seen
            .iter()
            .position(|known| *known == written)
            .unwrap_or_else(|| {
                self.seen.push(written);
                self.seen.len() - 1
            });
        u64::try_from(position).ok()
    }
}

/// Reads a dollar amount, rounded to the nearest nano; 0 where it is missing or no number.
fn money(object: Option<&Value<'_>>, key: &str) -> NanoUsd {
    match field(object, key) {
        Some(Value::Number(text)) => billionths(text).unwrap_or_default(),
        _ => NanoUsd::ZERO,
    }
}

/// Reads a counter or a limit in whole numbers, rounded down; below 0 counts as 0.
fn count(value: &Value<'_>) -> Option<u32> {
    match value {
        Value::Number(text) => {
            let whole = billionths(text)?.nanos().max(0) / i64::from(PerBillion::ONE.parts());
            Some(u32::try_from(whole).unwrap_or(u32::MAX))
        }
        _ => None,
    }
}

/// Tells what Python takes for true.
fn is_truthy(value: &Value<'_>) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(text) => text
            .split(['e', 'E'])
            .next()
            .is_some_and(|m| m.contains(|c| ('1'..='9').contains(&c))),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn text_field<'v>(object: Option<&'v Value<'_>>, key: &str) -> Option<&'v str> {
    field(object, key).and_then(Value::as_str)
}

fn field<'v, 'a>(object: Option<&'v Value<'a>>, key: &str) -> Option<&'v Value<'a>> {
    object.and_then(|object| object.field(key))
}
