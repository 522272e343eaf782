//! Every field of an entry, and a way to change it: the rows of the tampering tests.

use decision::money::NanoUsd;
use decision::time::Timestamp;
use decision::verdict::{DenyReason, Verdict};

use crate::entry::{Entry, Kind};

/// Whether the signature of an entry (field 14) covers the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signed {
    Yes,
    No,
}

pub(crate) type Flip = fn(&mut Entry);

pub(crate) const FIELDS: &[(&str, Signed, Flip)] = &[
    ("sequence", Signed::No, |e| e.sequence ^= 1 << 40),
    ("kind", Signed::No, |e| {
        e.kind = if e.kind == Kind::Fixture {
            Kind::Verdict
        } else {
            Kind::Fixture
        }
    }),
    ("entry_id", Signed::Yes, |e| e.entry_id[15] ^= 1),
    ("timestamp", Signed::Yes, |e| {
        e.timestamp = Timestamp::from_nanos(e.timestamp.nanos() ^ 1)
    }),
    ("session_id", Signed::Yes, |e| e.session_id.push('x')),
    ("agent_id", Signed::Yes, |e| e.agent_id.push('x')),
    ("organization_id", Signed::Yes, |e| e.organization_id.push('x')),
    ("call_number", Signed::Yes, |e| e.call_number ^= 1),
    ("tool_name", Signed::Yes, |e| e.tool_name.push('x')),
    ("tool_params_hash", Signed::Yes, |e| e.tool_params_hash.push(0)),
    ("verdict", Signed::Yes, |e| {
        e.verdict = if e.verdict == Some(Verdict::Allow) {
            Some(Verdict::Deny)
        } else {
            Some(Verdict::Allow)
        }
    }),
    ("no verdict", Signed::Yes, |e| {
        e.verdict = if e.verdict.is_some() {
            None
        } else {
            Some(Verdict::Allow)
        }
    }),
    ("deny_reason", Signed::Yes, |e| {
        e.deny_reason = match e.deny_reason {
            DenyReason::RunHalted => DenyReason::Unspecified,
            _ => DenyReason::RunHalted,
        }
    }),
    ("budget_before", Signed::Yes, |e| {
        e.budget_before = NanoUsd::new(e.budget_before.nanos() ^ 1)
    }),
    ("budget_after", Signed::Yes, |e| {
        e.budget_after = NanoUsd::new(e.budget_after.nanos() ^ 1)
    }),
    ("operator_id", Signed::Yes, |e| e.operator_id.push('x')),
    ("previous_hash", Signed::No, |e| e.previous_hash[0] ^= 1),
    ("reason", Signed::No, |e| e.reason.push('x')),
    ("all_reasons", Signed::No, |e| e.all_reasons.push(String::new())),
    ("log_term", Signed::No, |e| e.log_term ^= 1),
    ("log_index", Signed::No, |e| e.log_index ^= 1),
    ("policy_digest", Signed::No, |e| e.policy_digest.push(0)),
    ("approval_id", Signed::No, |e| e.approval_id.push('x')),
    ("info_digest", Signed::No, |e| e.info_digest.push(0)),
    ("nonce", Signed::No, |e| e.nonce = Some(e.nonce.unwrap_or(1) ^ 1)),
    ("no nonce", Signed::No, |e| {
        e.nonce = if e.nonce.is_some() { None } else { Some(0) }
    }),
    ("request_id", Signed::No, |e| e.request_id.push('x')),
    ("chain_id", Signed::No, |e| e.chain_id.push('x')),
    ("detail", Signed::No, |e| e.detail.push('x')),
    ("vouched_by", Signed::No, |e| e.vouched_by.push('x')),
];
