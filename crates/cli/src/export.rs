//! The audit log as JSON lines: every field of every entry, every signature, every public key. One object a
//! line; bytes are lower-case hexadecimal, money is nano-USD. Written by `audit export`, read by `audit verify`.

use audit::{Entry, Kind, PublicKey, Seal};
use decision::{DenyReason, NanoUsd, Timestamp, Verdict};
use serde::{Deserialize, Serialize};

/// One line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    Key(KeyLine),
    Entry(Box<EntryLine>),
    Seal(SealLine),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyLine {
    pub key_id: String,
    pub public_key: String,
    pub node: String,
    pub registered_sequence: u64,
    pub retired_sequence: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryLine {
    pub sequence: u64,
    pub kind: String,
    pub entry_id: String,
    pub timestamp_ns: u64,
    pub session_id: String,
    pub agent_id: String,
    pub organization_id: String,
    pub call_number: u64,
    pub tool_name: String,
    pub tool_params_hash: String,
    pub verdict: Option<String>,
    pub deny_reason: u64,
    pub budget_before_nanos: i64,
    pub budget_after_nanos: i64,
    pub operator_id: String,
    pub previous_entry_hash: String,
    pub reason: String,
    pub all_reasons: Vec<String>,
    pub log_term: u64,
    pub log_index: u64,
    pub policy_digest: String,
    pub approval_id: String,
    pub info_digest: String,
    pub nonce: Option<u64>,
    pub request_id: String,
    pub chain_id: String,
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealLine {
    pub from: u64,
    pub to: u64,
    pub key_id: String,
    pub signatures: Vec<String>,
    pub chain_signature: String,
}

/// A field of a line that cannot be what it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is malformed")]
pub struct Malformed(&'static str);

impl From<&PublicKey> for KeyLine {
    fn from(key: &PublicKey) -> Self {
        Self {
            key_id: key.key_id.clone(),
            public_key: hex(&key.public),
            node: key.node.clone(),
            registered_sequence: key.registered_at,
            retired_sequence: key.retired_at,
        }
    }
}

impl KeyLine {
    pub fn public(&self) -> Result<[u8; 32], Malformed> {
        fixed(&self.public_key, "public_key")
    }
}

impl From<&Entry> for EntryLine {
    fn from(entry: &Entry) -> Self {
        Self {
            sequence: entry.sequence,
            kind: entry.kind.as_str().to_owned(),
            entry_id: hex(&entry.entry_id),
            timestamp_ns: entry.timestamp.nanos(),
            session_id: entry.session_id.clone(),
            agent_id: entry.agent_id.clone(),
            organization_id: entry.organization_id.clone(),
            call_number: entry.call_number,
            tool_name: entry.tool_name.clone(),
            tool_params_hash: hex(&entry.tool_params_hash),
            verdict: entry.verdict.map(|verdict| verdict.word().to_owned()),
            deny_reason: number(entry.deny_reason),
            budget_before_nanos: entry.budget_before.nanos(),
            budget_after_nanos: entry.budget_after.nanos(),
            operator_id: entry.operator_id.clone(),
            previous_entry_hash: hex(&entry.previous_hash),
            reason: entry.reason.clone(),
            all_reasons: entry.all_reasons.clone(),
            log_term: entry.log_term,
            log_index: entry.log_index,
            policy_digest: hex(&entry.policy_digest),
            approval_id: entry.approval_id.clone(),
            info_digest: hex(&entry.info_digest),
            nonce: entry.nonce,
            request_id: entry.request_id.clone(),
            chain_id: entry.chain_id.clone(),
            detail: entry.detail.clone(),
        }
    }
}

impl TryFrom<EntryLine> for Entry {
    type Error = Malformed;

    fn try_from(line: EntryLine) -> Result<Self, Malformed> {
        Ok(Self {
            sequence: line.sequence,
            kind: Kind::from_word(&line.kind).ok_or(Malformed("kind"))?,
            entry_id: fixed(&line.entry_id, "entry_id")?,
            timestamp: Timestamp::from_nanos(line.timestamp_ns),
            session_id: line.session_id,
            agent_id: line.agent_id,
            organization_id: line.organization_id,
            call_number: line.call_number,
            tool_name: line.tool_name,
            tool_params_hash: unhex(&line.tool_params_hash, "tool_params_hash")?,
            verdict: match line.verdict.as_deref() {
                None => None,
                Some("ALLOW") => Some(Verdict::Allow),
                Some("DENY") => Some(Verdict::Deny),
                Some("HITL") => Some(Verdict::Hitl),
                Some(_) => return Err(Malformed("verdict")),
            },
            deny_reason: DENY_REASONS
                .into_iter()
                .find(|reason| number(*reason) == line.deny_reason)
                .ok_or(Malformed("deny_reason"))?,
            budget_before: NanoUsd::new(line.budget_before_nanos),
            budget_after: NanoUsd::new(line.budget_after_nanos),
            operator_id: line.operator_id,
            previous_hash: fixed(&line.previous_entry_hash, "previous_entry_hash")?,
            reason: line.reason,
            all_reasons: line.all_reasons,
            log_term: line.log_term,
            log_index: line.log_index,
            policy_digest: unhex(&line.policy_digest, "policy_digest")?,
            approval_id: line.approval_id,
            info_digest: unhex(&line.info_digest, "info_digest")?,
            nonce: line.nonce,
            request_id: line.request_id,
            chain_id: line.chain_id,
            detail: line.detail,
        })
    }
}

impl From<&Seal> for SealLine {
    fn from(seal: &Seal) -> Self {
        Self {
            from: seal.from,
            to: seal.to,
            key_id: seal.key_id.clone(),
            signatures: seal.signatures.iter().map(|signature| hex(signature)).collect(),
            chain_signature: hex(&seal.chain_signature),
        }
    }
}

impl TryFrom<SealLine> for Seal {
    type Error = Malformed;

    fn try_from(line: SealLine) -> Result<Self, Malformed> {
        Ok(Self {
            from: line.from,
            to: line.to,
            key_id: line.key_id,
            signatures: line
                .signatures
                .iter()
                .map(|text| fixed(text, "signatures"))
                .collect::<Result<_, _>>()?,
            chain_signature: fixed(&line.chain_signature, "chain_signature")?,
        })
    }
}

const DENY_REASONS: [DenyReason; 12] = [
    DenyReason::Unspecified,
    DenyReason::BudgetExhausted,
    DenyReason::MaxRepeatExceeded,
    DenyReason::CircuitOpen,
    DenyReason::WindowExceeded,
    DenyReason::GlobalLimit,
    DenyReason::PolicyViolation,
    DenyReason::AuthFailed,
    DenyReason::OrganizationQuotaExceeded,
    DenyReason::ParentGuardDenied,
    DenyReason::RunHalted,
    DenyReason::BudgetOverrun,
];

#[expect(
    clippy::as_conversions,
    reason = "the discriminants of this enum are its numbers on the wire"
)]
fn number(reason: DenyReason) -> u64 {
    reason as u64
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads hexadecimal back; the field is named where it is none.
pub fn unhex(text: &str, field: &'static str) -> Result<Vec<u8>, Malformed> {
    let nibble = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if !text.len().is_multiple_of(2) {
        return Err(Malformed(field));
    }
    let nibbles: Option<Vec<u8>> = text.bytes().map(nibble).collect();
    let nibbles = nibbles.ok_or(Malformed(field))?;
    Ok(nibbles
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |byte, nibble| byte << 4 | nibble))
        .collect())
}

fn fixed<const N: usize>(text: &str, field: &'static str) -> Result<[u8; N], Malformed> {
    unhex(text, field)?.try_into().map_err(|_| Malformed(field))
}

#[cfg(test)]
mod tests {
    use audit::{Entry, Kind, Seal};
    use decision::{NanoUsd, Timestamp, Verdict};

    use super::{EntryLine, Line, SealLine};

    #[test]
    fn an_entry_reads_back_the_same_through_its_line() {
        let entry = Entry {
            sequence: 7,
            verdict: Some(Verdict::Deny),
            nonce: Some(u64::MAX),
            budget_after: NanoUsd::new(-5),
            tool_params_hash: vec![0xab; 32],
            all_reasons: vec!["a".to_owned(), "b".to_owned()],
            detail: "x \" y\n".to_owned(),
            ..Entry::blank(Kind::Verdict, Timestamp::from_nanos(u64::MAX))
        };
        let text = serde_json::to_string(&Line::Entry(Box::new(EntryLine::from(&entry)))).unwrap();
        let Line::Entry(line) = serde_json::from_str(&text).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(Entry::try_from(*line).unwrap(), entry);
    }

    #[test]
    fn a_seal_reads_back_the_same_through_its_line() {
        let seal = Seal {
            from: 1,
            to: 2,
            key_id: "k".to_owned(),
            signatures: vec![[1; 64], [2; 64]],
            chain_signature: [3; 64],
        };
        let text = serde_json::to_string(&Line::Seal(SealLine::from(&seal))).unwrap();
        let Line::Seal(line) = serde_json::from_str(&text).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(Seal::try_from(line).unwrap(), seal);
    }

    #[test]
    fn a_field_that_is_not_what_it_must_be_is_named() {
        let line = EntryLine::from(&Entry::blank(Kind::Genesis, Timestamp::ZERO));
        for (spoiled, field) in [
            (
                EntryLine {
                    kind: "x".to_owned(),
                    ..line.clone()
                },
                "kind",
            ),
            (
                EntryLine {
                    entry_id: "00".to_owned(),
                    ..line.clone()
                },
                "entry_id",
            ),
            (
                EntryLine {
                    verdict: Some("allow".to_owned()),
                    ..line.clone()
                },
                "verdict",
            ),
            (
                EntryLine {
                    deny_reason: 99,
                    ..line.clone()
                },
                "deny_reason",
            ),
            (
                EntryLine {
                    policy_digest: "A0".to_owned(),
                    ..line.clone()
                },
                "policy_digest",
            ),
            (
                EntryLine {
                    info_digest: "0".to_owned(),
                    ..line.clone()
                },
                "info_digest",
            ),
        ] {
            assert_eq!(
                Entry::try_from(spoiled).unwrap_err().to_string(),
                format!("{field} is malformed")
            );
        }
    }
}
