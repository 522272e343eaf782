//! `haltgate.audit.v1` and `AuditEntry`: the chain as it is sent, and as a client reads it back to verify it.

use audit::{Checkpoint, Entry, Kind, PublicKey, Seal};
use decision::{NanoUsd, Timestamp, Verdict};

use crate::guard::{nanoseconds, verdict};
use crate::invalid::{Invalid, known};
use crate::money;
use crate::proto::haltgate::audit::v1 as proto;
use crate::proto::shackle::v1 as shackle;
use crate::same;

/// Which entries are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// From 1.
    pub from: u64,
    /// None: to the head, and on where `follow` says so.
    pub to: Option<u64>,
    pub follow: bool,
}

/// Reads which entries are wanted.
pub fn range(message: &proto::AuditStreamRequest) -> Result<Range, Invalid> {
    let from = message.from_sequence.max(1);
    let to = match message.to_sequence {
        0 => None,
        _ if message.follow => {
            return Err(Invalid::new(
                "to_sequence",
                "has no meaning with follow: leave one of them out",
            ));
        }
        to if to < from => return Err(Invalid::new("to_sequence", "must not be below from_sequence")),
        to => Some(to),
    };
    Ok(Range {
        from,
        to,
        follow: message.follow,
    })
}

/// Writes an entry, with its signatures where a seal covers it already.
pub fn entry_message(entry: &Entry, seal: Option<&Seal>) -> shackle::AuditEntry {
    let seal = seal.and_then(|seal| seal.signature(entry.sequence).map(|signature| (seal, signature)));
    shackle::AuditEntry {
        entry_id: uuid(&entry.entry_id),
        timestamp_ns: nanoseconds(entry.timestamp),
        session_id: entry.session_id.clone(),
        agent_id: entry.agent_id.clone(),
        organization_id: entry.organization_id.clone(),
        call_number: entry.call_number,
        tool_name: entry.tool_name.clone(),
        tool_params_hash: entry.tool_params_hash.clone(),
        verdict: entry
            .verdict
            .map_or(shackle::Verdict::Unspecified, verdict)
            .into(),
        deny_reason: same::deny_reason(entry.deny_reason).into(),
        budget_before_usd: money::to_dollars(entry.budget_before),
        budget_after_usd: money::to_dollars(entry.budget_after),
        operator_id: entry.operator_id.clone(),
        signature: seal.map(|(_, signature)| signature.to_vec()).unwrap_or_default(),
        previous_entry_hash: entry.previous_hash.to_vec(),
        sequence: entry.sequence,
        kind: entry.kind.as_str().to_owned(),
        reason: entry.reason.clone(),
        all_reasons: entry.all_reasons.clone(),
        log_term: entry.log_term,
        log_index: entry.log_index,
        policy_digest: entry.policy_digest.clone(),
        approval_id: entry.approval_id.clone(),
        info_digest: entry.info_digest.clone(),
        key_id: seal.map(|(seal, _)| seal.key_id.clone()).unwrap_or_default(),
        chain_id: entry.chain_id.clone(),
        chain_signature: seal
            .filter(|(seal, _)| seal.to == entry.sequence)
            .map(|(seal, _)| seal.chain_signature.to_vec())
            .unwrap_or_default(),
        budget_before_nanos: Some(entry.budget_before.nanos()),
        budget_after_nanos: Some(entry.budget_after.nanos()),
        nonce: entry.nonce.unwrap_or(0),
        request_id: entry.request_id.clone(),
        detail: entry.detail.clone(),
        vouched_by: entry.vouched_by.clone(),
    }
}

/// Reads an entry back, exactly as it was hashed. What signatures it carries is the seal's matter.
///
/// # Errors
/// A value that no entry can have. That it is the right one only verification can tell.
pub fn entry(message: &shackle::AuditEntry) -> Result<Entry, Invalid> {
    Ok(Entry {
        sequence: message.sequence,
        kind: Kind::from_word(&message.kind)
            .ok_or_else(|| Invalid::new("kind", "is not a kind that this version knows"))?,
        entry_id: parse_uuid(&message.entry_id)
            .ok_or_else(|| Invalid::new("entry_id", "must be a UUID in lower case"))?,
        timestamp: Timestamp::from_nanos(
            u64::try_from(message.timestamp_ns)
                .map_err(|_| Invalid::new("timestamp_ns", "must be 0 or more"))?,
        ),
        session_id: message.session_id.clone(),
        agent_id: message.agent_id.clone(),
        organization_id: message.organization_id.clone(),
        call_number: message.call_number,
        tool_name: message.tool_name.clone(),
        tool_params_hash: digest_or_empty("tool_params_hash", &message.tool_params_hash)?,
        verdict: parse_verdict(message.verdict)?,
        deny_reason: same::read_deny_reason("deny_reason", message.deny_reason)?,
        budget_before: NanoUsd::new(message.budget_before_nanos.unwrap_or(0)),
        budget_after: NanoUsd::new(message.budget_after_nanos.unwrap_or(0)),
        operator_id: message.operator_id.clone(),
        previous_hash: exactly("previous_entry_hash", &message.previous_entry_hash)?,
        reason: message.reason.clone(),
        all_reasons: message.all_reasons.clone(),
        log_term: message.log_term,
        log_index: message.log_index,
        policy_digest: digest_or_empty("policy_digest", &message.policy_digest)?,
        approval_id: message.approval_id.clone(),
        info_digest: digest_or_empty("info_digest", &message.info_digest)?,
        // A nonce of 0 is refused at the edge, so 0 is "none" here.
        nonce: (message.nonce != 0).then_some(message.nonce),
        request_id: message.request_id.clone(),
        chain_id: message.chain_id.clone(),
        detail: message.detail.clone(),
        vouched_by: message.vouched_by.clone(),
    })
}

/// Writes a seal.
pub fn seal_message(seal: &Seal) -> proto::Seal {
    proto::Seal {
        from: seal.from,
        to: seal.to,
        key_id: seal.key_id.clone(),
        signatures: seal
            .signatures
            .iter()
            .map(|signature| signature.to_vec())
            .collect(),
        chain_signature: seal.chain_signature.to_vec(),
    }
}

/// Reads a seal back.
pub fn seal(message: &proto::Seal) -> Result<Seal, Invalid> {
    let seal = Seal {
        from: message.from,
        to: message.to,
        key_id: message.key_id.clone(),
        signatures: message
            .signatures
            .iter()
            .map(|signature| exactly("signatures", signature))
            .collect::<Result<_, _>>()?,
        chain_signature: exactly("chain_signature", &message.chain_signature)?,
    };
    seal.check_shape()
        .map_err(|error| Invalid::new("signatures", error.to_string()))?;
    Ok(seal)
}

/// Writes a key.
pub fn key_message(key: &PublicKey) -> proto::PublicKey {
    proto::PublicKey {
        key_id: key.key_id.clone(),
        public_key: key.public.to_vec(),
        node: key.node.clone(),
        registered_sequence: key.registered_at,
        retired_sequence: key.retired_at.unwrap_or(0),
    }
}

/// Reads a key back.
pub fn key(message: &proto::PublicKey) -> Result<PublicKey, Invalid> {
    let public = exactly("public_key", &message.public_key)?;
    if audit::key::key_id(&public) != message.key_id {
        return Err(Invalid::new("key_id", "is not made from this public key"));
    }
    Ok(PublicKey {
        key_id: message.key_id.clone(),
        public,
        node: message.node.clone(),
        registered_at: message.registered_sequence,
        retired_at: (message.retired_sequence != 0).then_some(message.retired_sequence),
    })
}

/// Writes a signed checkpoint and the ids of the keys that signed it.
pub fn checkpoint_message(checkpoint: &Checkpoint, key_ids: Vec<String>) -> proto::Checkpoint {
    proto::Checkpoint {
        chain_id: checkpoint.chain_id.clone(),
        size: checkpoint.size,
        head_hash: checkpoint.head.to_vec(),
        root_hash: checkpoint.root.to_vec(),
        key_ids,
        note: checkpoint.to_note(),
    }
}

fn parse_verdict(value: i32) -> Result<Option<Verdict>, Invalid> {
    Ok(match known("verdict", value)? {
        shackle::Verdict::Unspecified => None,
        shackle::Verdict::Allow => Some(Verdict::Allow),
        shackle::Verdict::Deny => Some(Verdict::Deny),
        shackle::Verdict::Hitl => Some(Verdict::Hitl),
    })
}

fn exactly<const N: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; N], Invalid> {
    bytes
        .try_into()
        .map_err(|_| Invalid::new(field, format!("must be {N} bytes")))
}

fn digest_or_empty(field: &'static str, bytes: &[u8]) -> Result<Vec<u8>, Invalid> {
    match bytes.len() {
        0 | 32 => Ok(bytes.to_vec()),
        _ => Err(Invalid::new(field, "must be 32 bytes or empty")),
    }
}

/// Places of the hyphens in a UUID's text.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for byte in bytes {
        if HYPHENS.contains(&text.len()) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    let bytes = number.to_be_bytes();
    // Whatever was left out or written otherwise shows here.
    (uuid(&bytes) == text).then_some(bytes)
}
