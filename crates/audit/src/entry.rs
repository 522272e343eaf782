use std::fmt;

use decision::money::NanoUsd;
use decision::time::Timestamp;
use decision::verdict::{DenyReason, Verdict};
use minicbor::{Decode, Encode};
use sha2::{Digest as _, Sha256};

/// One audit entry: fields 1–13 and 15 of SP/1.0's `AuditEntry`, then Haltgate's own (docs/SPEC.md 16).
///
/// `apply` makes it, so it has the same bytes on every replica. Signatures are not inside it: they follow in a
/// [`Seal`](crate::seal::Seal). A field that does not apply to the kind stays blank.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// Position in the chain, from 1; set by [`link`](crate::chain::link).
    #[n(0)]
    pub sequence: u64,
    #[n(1)]
    pub kind: Kind,
    /// UUIDv7 made from time, chain and sequence; set by [`link`](crate::chain::link).
    #[cbor(n(2), with = "minicbor::bytes")]
    pub entry_id: [u8; 16],
    /// Log time, nanoseconds since 1970.
    #[n(3)]
    pub timestamp: Timestamp,
    #[n(4)]
    pub session_id: String,
    #[n(5)]
    pub agent_id: String,
    #[n(6)]
    pub organization_id: String,
    /// The agent's number for the call, unique in its session; 0 where there is no call.
    #[n(7)]
    pub call_number: u64,
    #[n(8)]
    pub tool_name: String,
    /// SHA-256 of the canonical parameters: 32 bytes, or empty where there is no call.
    #[cbor(n(9), with = "minicbor::bytes")]
    pub tool_params_hash: Vec<u8>,
    /// What was decided; `None` for kinds that decide no call.
    #[n(10)]
    pub verdict: Option<Verdict>,
    #[n(11)]
    pub deny_reason: DenyReason,
    /// Available in the session's account before this entry, nano-USD.
    #[n(12)]
    pub budget_before: NanoUsd,
    /// Available in the session's account after this entry, nano-USD.
    #[n(13)]
    pub budget_after: NanoUsd,
    /// Who acted: the operator, approver or node; empty where an agent's call acted.
    #[n(14)]
    pub operator_id: String,
    /// Hash of the previous entry, zero before the first; set by [`link`](crate::chain::link).
    #[cbor(n(15), with = "minicbor::bytes")]
    pub previous_hash: [u8; 32],
    /// The normative reason, verbatim.
    #[n(16)]
    pub reason: String,
    /// Every reason that applied, the one that decided first.
    #[n(17)]
    pub all_reasons: Vec<String>,
    /// Raft term of the log entry that made this one.
    #[n(18)]
    pub log_term: u64,
    /// Raft index of the log entry that made this one; a batch makes several audit entries with one index.
    #[n(19)]
    pub log_index: u64,
    /// SHA-256 of the guard configuration in force: 32 bytes or empty.
    #[cbor(n(20), with = "minicbor::bytes")]
    pub policy_digest: Vec<u8>,
    #[n(21)]
    pub approval_id: String,
    /// SHA-256 of the exact bytes an approver was shown: 32 bytes or empty.
    #[cbor(n(22), with = "minicbor::bytes")]
    pub info_digest: Vec<u8>,
    #[n(23)]
    pub nonce: Option<u64>,
    #[n(24)]
    pub request_id: String,
    /// The cluster's chain; set by [`link`](crate::chain::link).
    #[n(25)]
    pub chain_id: String,
    /// What the other fields do not say, as text: the scope of a halt, a key change, a membership.
    #[n(26)]
    pub detail: String,
    /// The node that vouches for what was asked: it saw the certificate, or made the command itself. Empty where
    /// nobody does.
    #[cbor(n(27), default)]
    pub vouched_by: String,
}

impl Entry {
    /// Gives an entry of this kind and log time with every other field blank, for `..` updates.
    pub fn blank(kind: Kind, timestamp: Timestamp) -> Self {
        Self {
            sequence: 0,
            kind,
            entry_id: [0; 16],
            timestamp,
            session_id: String::new(),
            agent_id: String::new(),
            organization_id: String::new(),
            call_number: 0,
            tool_name: String::new(),
            tool_params_hash: Vec::new(),
            verdict: None,
            deny_reason: DenyReason::Unspecified,
            budget_before: NanoUsd::ZERO,
            budget_after: NanoUsd::ZERO,
            operator_id: String::new(),
            previous_hash: [0; 32],
            reason: String::new(),
            all_reasons: Vec::new(),
            log_term: 0,
            log_index: 0,
            policy_digest: Vec::new(),
            approval_id: String::new(),
            info_digest: Vec::new(),
            nonce: None,
            request_id: String::new(),
            chain_id: String::new(),
            detail: String::new(),
            vouched_by: String::new(),
        }
    }
}

/// What an entry records. Numbers are hashed and stored: a number once given is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Kind {
    /// The first entry of a chain.
    #[n(1)]
    Genesis,
    #[n(2)]
    Verdict,
    #[n(3)]
    Settlement,
    #[n(4)]
    HoldExpired,
    #[n(5)]
    SessionRegistered,
    #[n(6)]
    SessionResumed,
    #[n(7)]
    SessionStale,
    #[n(8)]
    SessionEnded,
    #[n(9)]
    SessionPaused,
    #[n(10)]
    SessionUnpaused,
    #[n(11)]
    CircuitReset,
    #[n(12)]
    BudgetSet,
    #[n(13)]
    BudgetGranted,
    #[n(14)]
    GuardPut,
    #[n(15)]
    HaltEngaged,
    #[n(16)]
    HaltReleased,
    /// A node's public key joined the key ring; `detail` is a [`KeyChange`](crate::keyring::KeyChange).
    #[n(17)]
    KeyRegistered,
    /// A node's public key was replaced; `detail` is a [`KeyChange`](crate::keyring::KeyChange).
    #[n(18)]
    KeyRotated,
    #[n(19)]
    MembershipChanged,
    /// An authentication that was refused and is kept on record.
    #[n(20)]
    Refused,
    /// Made by a test or a demonstration, never by a call.
    #[n(21)]
    Fixture,
    /// From here on the rules are those of another version.
    #[n(22)]
    VersionActivated,
    /// The parameters of a held call were put before its approvers.
    #[n(32)]
    ApprovalShown,
    #[n(33)]
    ApprovalDecided,
    #[n(34)]
    ApprovalExpired,
    // 35–47 are kept free for approvals.
    /// The first of two people asked for a halt's release.
    #[n(48)]
    ReleaseAsked,
    /// A drain's time was over.
    #[n(49)]
    HaltExpired,
    /// An operator corrected what a call was charged.
    #[n(50)]
    Correction,
    /// A single-use authorization was used.
    #[n(51)]
    TicketRedeemed,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 29] = [
        Self::Genesis,
        Self::Verdict,
        Self::Settlement,
        Self::HoldExpired,
        Self::SessionRegistered,
        Self::SessionResumed,
        Self::SessionStale,
        Self::SessionEnded,
        Self::SessionPaused,
        Self::SessionUnpaused,
        Self::CircuitReset,
        Self::BudgetSet,
        Self::BudgetGranted,
        Self::GuardPut,
        Self::HaltEngaged,
        Self::HaltReleased,
        Self::KeyRegistered,
        Self::KeyRotated,
        Self::MembershipChanged,
        Self::Refused,
        Self::Fixture,
        Self::VersionActivated,
        Self::ApprovalShown,
        Self::ApprovalDecided,
        Self::ApprovalExpired,
        Self::ReleaseAsked,
        Self::HaltExpired,
        Self::Correction,
        Self::TicketRedeemed,
    ];

    /// Gives the number that is hashed (tag 101), stored and sent.
    pub fn number(self) -> u64 {
        match self {
            Self::Genesis => 1,
            Self::Verdict => 2,
            Self::Settlement => 3,
            Self::HoldExpired => 4,
            Self::SessionRegistered => 5,
            Self::SessionResumed => 6,
            Self::SessionStale => 7,
            Self::SessionEnded => 8,
            Self::SessionPaused => 9,
            Self::SessionUnpaused => 10,
            Self::CircuitReset => 11,
            Self::BudgetSet => 12,
            Self::BudgetGranted => 13,
            Self::GuardPut => 14,
            Self::HaltEngaged => 15,
            Self::HaltReleased => 16,
            Self::KeyRegistered => 17,
            Self::KeyRotated => 18,
            Self::MembershipChanged => 19,
            Self::Refused => 20,
            Self::Fixture => 21,
            Self::VersionActivated => 22,
            Self::ApprovalShown => 32,
            Self::ApprovalDecided => 33,
            Self::ApprovalExpired => 34,
            Self::ReleaseAsked => 48,
            Self::HaltExpired => 49,
            Self::Correction => 50,
            Self::TicketRedeemed => 51,
        }
    }

    /// Gives the word for exports and the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Genesis => "genesis",
            Self::Verdict => "verdict",
            Self::Settlement => "settlement",
            Self::HoldExpired => "hold_expired",
            Self::SessionRegistered => "session_registered",
            Self::SessionResumed => "session_resumed",
            Self::SessionStale => "session_stale",
            Self::SessionEnded => "session_ended",
            Self::SessionPaused => "session_paused",
            Self::SessionUnpaused => "session_unpaused",
            Self::CircuitReset => "circuit_reset",
            Self::BudgetSet => "budget_set",
            Self::BudgetGranted => "budget_granted",
            Self::GuardPut => "guard_put",
            Self::HaltEngaged => "halt_engaged",
            Self::HaltReleased => "halt_released",
            Self::KeyRegistered => "key_registered",
            Self::KeyRotated => "key_rotated",
            Self::MembershipChanged => "membership_changed",
            Self::Refused => "refused",
            Self::Fixture => "fixture",
            Self::VersionActivated => "version_activated",
            Self::ApprovalShown => "approval_shown",
            Self::ApprovalDecided => "approval_decided",
            Self::ApprovalExpired => "approval_expired",
            Self::ReleaseAsked => "release_asked",
            Self::HaltExpired => "halt_expired",
            Self::Correction => "correction",
            Self::TicketRedeemed => "ticket_redeemed",
        }
    }

    /// Gives the kind of a number that was stored or received, `None` for one never given.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Gives the kind of a word in an export, `None` for an unknown one.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const ENTRY_ID_LABEL: &[u8] = b"haltgate audit entry id v1\n";

/// Gives the UUIDv7 of an entry: its milliseconds, then bits of SHA-256 over time, sequence and chain.
///
/// It binds the sequence, which SP/1.0 does not sign, to field 1, which it does.
pub fn entry_id(timestamp: Timestamp, chain_id: &str, sequence: u64) -> [u8; 16] {
    let nanoseconds = timestamp.nanos();
    let digest = Sha256::new()
        .chain_update(ENTRY_ID_LABEL)
        .chain_update(nanoseconds.to_be_bytes())
        .chain_update(sequence.to_be_bytes())
        .chain_update(chain_id.as_bytes())
        .finalize();
    let mut bytes = [0_u8; 16];
    let milliseconds = (nanoseconds / 1_000_000).to_be_bytes();
    let source = milliseconds.iter().skip(2).chain(digest.iter());
    for (byte, from) in bytes.iter_mut().zip(source) {
        *byte = *from;
    }
    let [.., version, _, variant, _, _, _, _, _, _, _] = &mut bytes;
    *version = (*version & 0x0f) | 0x70;
    *variant = (*variant & 0x3f) | 0x80;
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Entry, Kind, entry_id};
    use decision::time::Timestamp;

    #[test]
    fn numbers_words_and_stored_bytes_of_kinds_agree_and_are_unique() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind.number()), Some(kind));
            assert_eq!(Kind::from_word(kind.as_str()), Some(kind));
            let stored = minicbor::to_vec(kind).unwrap();
            assert_eq!(stored, minicbor::to_vec(kind.number()).unwrap(), "{kind}");
        }
    }

    #[test]
    fn entry_id_is_a_uuid_version_7_of_its_millisecond() {
        let id = entry_id(Timestamp::from_nanos(1_700_000_000_123_456_789), "chain", 9);
        assert_eq!(id[..6], 1_700_000_000_123_u64.to_be_bytes()[2..]);
        assert_eq!(id[6] >> 4, 7);
        assert_eq!(id[8] >> 6, 2);
        assert_ne!(
            id,
            entry_id(Timestamp::from_nanos(1_700_000_000_123_456_789), "chain", 10)
        );
        assert_ne!(
            id,
            entry_id(Timestamp::from_nanos(1_700_000_000_123_456_789), "other", 9)
        );
        assert_ne!(
            id,
            entry_id(Timestamp::from_nanos(1_700_000_000_123_456_788), "chain", 9)
        );
    }

    #[test]
    fn stored_entry_reads_back_the_same() {
        let mut entry = Entry::blank(Kind::Verdict, Timestamp::from_nanos(5));
        entry.nonce = Some(7);
        entry.all_reasons = vec!["a".into(), "b".into()];
        entry.tool_params_hash = vec![1; 32];
        let stored = minicbor::to_vec(&entry).unwrap();
        assert_eq!(minicbor::decode::<Entry>(&stored).unwrap(), entry);
    }
}
