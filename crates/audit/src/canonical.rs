use decision::verdict::{DenyReason, Verdict};
use sha2::{Digest as _, Sha256};

use crate::entry::Entry;

/// Separates hashed entries from everything else that is hashed or signed.
const ENTRY_LABEL: &[u8] = b"haltgate audit entry v1\n";

/// Bytes set aside for one entry: typical ones are 400–700, so that one allocation is enough.
const ENTRY_BYTES_TYPICAL: usize = 1024;

/// Gives the SHA-256 of an entry's canonical bytes: what the next entry links to, and the leaf of the Merkle tree.
pub fn hash(entry: &Entry) -> [u8; 32] {
    Sha256::digest(canonical_bytes(entry)).into()
}

/// Gives the hashed bytes of an entry: a label, fields 1–13, 15, and Haltgate's own from 100 (docs/SPEC.md 16).
///
/// A field is its tag (1 byte), the length of its value (4 bytes, big-endian) and the value. Tags:
/// 1–13 and 15 as in SP/1.0 · 100 sequence · 101 kind · 102 reason · 103 all_reasons (once a reason, in order)
/// · 104 log_term · 105 log_index · 106 policy_digest · 107 approval_id · 108 info_digest · 110 chain_id
/// · 114 nonce (empty where there is none) · 115 request_id · 116 detail · 120 vouched_by. Fields after 116 are there
/// only where they are set. Signatures and key id are not covered.
pub fn canonical_bytes(entry: &Entry) -> Vec<u8> {
    // Taken apart by name, so that a new field does not compile until it is encoded.
    let Entry {
        sequence,
        kind,
        entry_id: _,
        timestamp: _,
        session_id: _,
        agent_id: _,
        organization_id: _,
        call_number: _,
        tool_name: _,
        tool_params_hash: _,
        verdict: _,
        deny_reason: _,
        budget_before: _,
        budget_after: _,
        operator_id: _,
        previous_hash,
        reason,
        all_reasons,
        log_term,
        log_index,
        policy_digest,
        approval_id,
        info_digest,
        nonce,
        request_id,
        chain_id,
        detail,
        vouched_by,
    } = entry;
    let mut fields = Fields::starting_with(ENTRY_LABEL);
    fields.one_to_thirteen(entry);
    fields.bytes(15, previous_hash);
    fields.number(100, *sequence);
    fields.number(101, kind.number());
    fields.bytes(102, reason.as_bytes());
    for reason in all_reasons {
        fields.bytes(103, reason.as_bytes());
    }
    fields.number(104, *log_term);
    fields.number(105, *log_index);
    fields.bytes(106, policy_digest);
    fields.bytes(107, approval_id.as_bytes());
    fields.bytes(108, info_digest);
    fields.bytes(110, chain_id.as_bytes());
    match nonce {
        Some(nonce) => fields.number(114, *nonce),
        None => fields.bytes(114, &[]),
    }
    fields.bytes(115, request_id.as_bytes());
    fields.bytes(116, detail.as_bytes());
    if !vouched_by.is_empty() {
        fields.bytes(120, vouched_by.as_bytes());
    }
    fields.0
}

/// Gives the bytes an entry's signature (field 14) covers: fields 1–13 in order, nothing else (SP/1.0 `AuditEntry`).
pub fn signed_bytes(entry: &Entry) -> Vec<u8> {
    let mut fields = Fields::starting_with(&[]);
    fields.one_to_thirteen(entry);
    fields.0
}

/// Tag, length, value; see [`canonical_bytes`].
struct Fields(Vec<u8>);

impl Fields {
    fn starting_with(label: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(ENTRY_BYTES_TYPICAL);
        bytes.extend_from_slice(label);
        Self(bytes)
    }

    fn one_to_thirteen(&mut self, entry: &Entry) {
        self.bytes(1, &entry.entry_id);
        self.number(2, entry.timestamp.nanos());
        self.bytes(3, entry.session_id.as_bytes());
        self.bytes(4, entry.agent_id.as_bytes());
        self.bytes(5, entry.organization_id.as_bytes());
        self.number(6, entry.call_number);
        self.bytes(7, entry.tool_name.as_bytes());
        self.bytes(8, &entry.tool_params_hash);
        self.number(9, verdict_number(entry.verdict));
        self.number(10, deny_reason_number(entry.deny_reason));
        self.bytes(11, &entry.budget_before.nanos().to_be_bytes());
        self.bytes(12, &entry.budget_after.nanos().to_be_bytes());
        self.bytes(13, entry.operator_id.as_bytes());
    }

    fn number(&mut self, tag: u8, value: u64) {
        self.bytes(tag, &value.to_be_bytes());
    }

    fn bytes(&mut self, tag: u8, value: &[u8]) {
        self.0.push(tag);
        self.0.extend_from_slice(&length(value));
        self.0.extend_from_slice(value);
    }
}

/// Gives the length before a value, 4 bytes big-endian.
pub(crate) fn length(value: &[u8]) -> [u8; 4] {
    // INVARIANT: a message is at most 1 MiB (docs/SPEC.md 17), so no value reaches 4 GiB.
    u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes()
}

/// Gives the wire number of a verdict (docs/SPEC.md 4, `Verdict`); 0 where nothing was decided.
fn verdict_number(verdict: Option<Verdict>) -> u64 {
    match verdict {
        None => 0,
        Some(Verdict::Allow) => 1,
        Some(Verdict::Deny) => 2,
        Some(Verdict::Hitl) => 3,
    }
}

/// Gives the wire number of a deny reason (docs/SPEC.md 4, `DenyReason`).
fn deny_reason_number(reason: DenyReason) -> u64 {
    match reason {
        DenyReason::Unspecified => 0,
        DenyReason::BudgetExhausted => 1,
        DenyReason::MaxRepeatExceeded => 2,
        DenyReason::CircuitOpen => 3,
        DenyReason::WindowExceeded => 4,
        DenyReason::GlobalLimit => 5,
        DenyReason::PolicyViolation => 6,
        DenyReason::AuthFailed => 7,
        DenyReason::OrganizationQuotaExceeded => 8,
        DenyReason::ParentGuardDenied => 9,
        DenyReason::RunHalted => 10,
        DenyReason::BudgetOverrun => 11,
    }
}

#[cfg(test)]
mod tests;
