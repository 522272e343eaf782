//! What must hold of every answer that agents got, and of the chains of all nodes.

use std::collections::BTreeMap;

use serde_json::Value;
use wire::proto::shackle::v1 as sp;

use crate::load::Asked;
use crate::record::{Line, at};

/// All chains are the same, byte for byte.
pub fn one_chain(chains: &[Vec<Line>]) {
    for pair in chains.windows(2) {
        assert_eq!(pair[0].len(), pair[1].len(), "chains of equal length");
        for (a, b) in pair[0].iter().zip(&pair[1]) {
            assert_eq!(a, b);
        }
    }
}

/// I1: every verdict that an agent received stands in the chain, at the sequence it named.
pub fn answers_stand(asked: &[Asked], chain: &[Line]) -> usize {
    let mut checked = 0;
    for call in asked {
        for answered in &call.answers {
            let answer = &answered.answer;
            let entry = at(chain, answer.audit_sequence);
            let verdict = answer.verdict().as_str_name();
            let expected = serde_json::json!({
                "kind": "verdict", "session_id": answer.session_id, "call_number": answer.call_number,
                "verdict": verdict, "reason": answer.reason, "nonce": call.request.nonce,
                "request_id": call.request.request_id, "tool_name": call.request.tool_name,
                "log_index": answer.log_index,
            });
            for (field, value) in expected.as_object().expect("an object") {
                assert_eq!(&entry[field], value, "{field} of {entry}, answered {answer:?}");
            }
            checked += 1;
        }
    }
    checked
}

/// I3: a request that was sent again got its original answer, or a denial.
pub fn retries_agree(asked: &[Asked]) -> usize {
    let mut repeated = 0;
    for call in asked {
        let Some((first, rest)) = call.answers.split_first() else {
            continue;
        };
        for later in rest {
            repeated += 1;
            let (first, later) = (&first.answer, &later.answer);
            let same = later.verdict() == first.verdict() && later.audit_sequence == first.audit_sequence;
            assert!(
                same || later.verdict() == sp::Verdict::Deny,
                "first {first:?}, then {later:?}"
            );
        }
    }
    repeated
}

/// I3: no nonce of a session is allowed twice.
pub fn no_nonce_twice(chain: &[Line]) {
    let mut seen = BTreeMap::new();
    for entry in verdicts(chain, "ALLOW") {
        let key = (entry["session_id"].to_string(), entry["nonce"].to_string());
        if let Some(earlier) = seen.insert(key, entry["sequence"].clone()) {
            panic!("{entry}: the nonce was allowed at {earlier} too");
        }
    }
}

/// Nothing tripped a circuit: no entry of the chain says so.
pub fn nothing_tripped(chain: &[Line]) {
    for entry in chain {
        assert_ne!(entry["reason"], "circuit_open", "{entry}");
    }
}

/// I2: what was held and charged never went beyond the limit of the one organization that calls.
pub fn nobody_overspent(chain: &[Line], limit_nanos: i64, cost_nanos: i64) {
    let mut drawn: BTreeMap<(String, u64), i64> = BTreeMap::new();
    let mut used = 0;
    for entry in chain {
        let amount = match (entry["kind"].as_str(), entry["verdict"].as_str()) {
            (Some("verdict"), Some("ALLOW")) => cost_nanos,
            (Some("settlement" | "hold_expired"), _) => charged(entry),
            _ => continue,
        };
        let key = (
            entry["session_id"].to_string(),
            entry["call_number"].as_u64().expect("a number"),
        );
        used += amount - drawn.insert(key, amount).unwrap_or(0);
        assert!(used <= limit_nanos, "{used} of {limit_nanos} at {entry}");
    }
}

/// The verdict entries of a kind.
pub fn verdicts<'c>(chain: &'c [Line], verdict: &str) -> impl Iterator<Item = &'c Value> {
    chain.iter().filter(move |entry| entry["verdict"] == *verdict)
}

fn charged(entry: &Value) -> i64 {
    let detail = entry["detail"].as_str().expect("a text");
    let amount = detail
        .split(' ')
        .skip_while(|word| *word != "charged")
        .nth(1)
        .expect("a charge");
    amount.parse::<decision::NanoUsd>().expect("dollars").nanos()
}
