//! The audit log as JSON lines: every field of every entry, every signature, every public key. One object a
//! line; bytes are lower-case hexadecimal, money is nano-USD. Written by `audit export`, read by `audit verify`.

use audit::{Entry, Kind, PublicKey, Seal};
use decision::{DenyReason, NanoUsd, Timestamp, Verdict};
use serde::{Deserialize, Serialize};
use wire::same::{deny_reason, read_deny_reason};

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

/// A row reads: the field's name and type in a line, and its name in the entry. A field of entries without its row does
/// not compile.
macro_rules! entry_line {
    ($($(#[$attribute:meta])* $field:ident: $type:ty = $of:ident;)*) => {
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct EntryLine { $($(#[$attribute])* pub $field: $type,)* }

        impl From<&Entry> for EntryLine {
            fn from(entry: &Entry) -> Self {
                Self { $($field: Form::write(&entry.$of),)* }
            }
        }

        impl TryFrom<EntryLine> for Entry {
            type Error = Malformed;

            fn try_from(line: EntryLine) -> Result<Self, Malformed> {
                Ok(Self { $($of: Form::read(line.$field).ok_or(Malformed(stringify!($field)))?,)* })
            }
        }
    };
}

entry_line! {
    sequence: u64 = sequence;
    kind: String = kind;
    entry_id: String = entry_id;
    timestamp_ns: u64 = timestamp;
    session_id: String = session_id;
    agent_id: String = agent_id;
    organization_id: String = organization_id;
    call_number: u64 = call_number;
    tool_name: String = tool_name;
    tool_params_hash: String = tool_params_hash;
    verdict: Option<String> = verdict;
    deny_reason: i32 = deny_reason;
    budget_before_nanos: i64 = budget_before;
    budget_after_nanos: i64 = budget_after;
    operator_id: String = operator_id;
    previous_entry_hash: String = previous_hash;
    reason: String = reason;
    all_reasons: Vec<String> = all_reasons;
    log_term: u64 = log_term;
    log_index: u64 = log_index;
    policy_digest: String = policy_digest;
    approval_id: String = approval_id;
    info_digest: String = info_digest;
    nonce: Option<u64> = nonce;
    request_id: String = request_id;
    chain_id: String = chain_id;
    detail: String = detail;
    #[serde(default, skip_serializing_if = "String::is_empty")]
    vouched_by: String = vouched_by;
}

/// What a field of an entry is in a line: most are the same there.
trait Form<Line>: Sized {
    fn write(&self) -> Line;
    /// None where it is not what it must be.
    fn read(line: Line) -> Option<Self>;
}

impl<T: Clone> Form<T> for T {
    fn write(&self) -> T {
        self.clone()
    }

    fn read(line: T) -> Option<T> {
        Some(line)
    }
}

impl Form<String> for Vec<u8> {
    fn write(&self) -> String {
        hex(self)
    }

    fn read(line: String) -> Option<Self> {
        unhex(&line, "").ok()
    }
}

impl<const N: usize> Form<String> for [u8; N] {
    fn write(&self) -> String {
        hex(self)
    }

    fn read(line: String) -> Option<Self> {
        fixed(&line, "").ok()
    }
}

impl Form<String> for Kind {
    fn write(&self) -> String {
        self.as_str().to_owned()
    }

    fn read(line: String) -> Option<Self> {
        Self::from_word(&line)
    }
}

impl Form<u64> for Timestamp {
    fn write(&self) -> u64 {
        self.nanos()
    }

    fn read(line: u64) -> Option<Self> {
        Some(Self::from_nanos(line))
    }
}

impl Form<i64> for NanoUsd {
    fn write(&self) -> i64 {
        self.nanos()
    }

    fn read(line: i64) -> Option<Self> {
        Some(Self::new(line))
    }
}

impl Form<Option<String>> for Option<Verdict> {
    fn write(&self) -> Option<String> {
        self.map(|verdict| verdict.word().to_owned())
    }

    fn read(line: Option<String>) -> Option<Self> {
        let all = [Verdict::Allow, Verdict::Deny, Verdict::Hitl];
        match line {
            Some(word) => all.into_iter().find(|verdict| verdict.word() == word).map(Some),
            None => Some(None),
        }
    }
}

/// Its number on the wire.
impl Form<i32> for DenyReason {
    fn write(&self) -> i32 {
        deny_reason(*self).into()
    }

    fn read(line: i32) -> Option<Self> {
        read_deny_reason("deny_reason", line).ok()
    }
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
            vouched_by: "n2".to_owned(),
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
