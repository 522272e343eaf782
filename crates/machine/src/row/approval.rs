//! A question to people, and what they said.

use decision::{
    AgentId, ApprovalId, Digest, HumanDecision, NanoUsd, OrganizationId, Reason, RequestId, SessionId,
    Terminal, Timestamp, ToolName, Transition,
};
use minicbor::{Decode, Encode};

/// A question to people, and what they said. Kept for an hour after it is over.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Approval {
    #[n(0)]
    pub session: SessionId,
    #[n(1)]
    pub organization: OrganizationId,
    #[n(2)]
    pub agent: AgentId,
    /// The identity that asked; it never decides.
    #[n(3)]
    pub requested_by: String,
    #[n(4)]
    pub call_number: u64,
    #[n(5)]
    pub tool: ToolName,
    #[n(6)]
    pub digest: Option<Digest>,
    #[n(7)]
    pub nonce: u64,
    /// What the call would hold.
    #[n(8)]
    pub estimate: NanoUsd,
    /// Why a person was asked.
    #[n(9)]
    pub why: Reason,
    /// Of the guard that asked.
    #[n(10)]
    pub policy_digest: Digest,
    #[n(11)]
    pub opened_at: Timestamp,
    #[n(12)]
    pub expires_at: Timestamp,
    // 13 was the arguments: they are kept beside the log and the state (docs/SPEC.md 8.4).
    /// Digest of all that the approver is shown ([`Approval::shown`]).
    #[n(14)]
    pub info_digest: Digest,
    #[n(15)]
    pub status: ApprovalStatus,
    #[n(16)]
    pub decided: Option<Decided>,
    /// What may run in the original's place; its parameters are gone once it ran.
    #[n(17)]
    pub successor: Option<Successor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum ApprovalStatus {
    #[n(0)]
    Pending,
    /// Put off, or handed up: still open, its call still waits.
    #[n(1)]
    Deferred,
    #[n(2)]
    Escalated,
    /// The call may run once.
    #[n(3)]
    Approved,
    /// Its successor may run once.
    #[n(4)]
    Modified,
    #[n(5)]
    Rejected,
    #[n(6)]
    Consumed,
    #[n(7)]
    Expired,
    /// An operator resumed or ended the session.
    #[n(8)]
    Cancelled,
}

impl ApprovalStatus {
    /// Says whether nothing can become of it any more.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Pending | Self::Deferred | Self::Escalated | Self::Approved | Self::Modified => false,
            Self::Rejected | Self::Consumed | Self::Expired | Self::Cancelled => true,
        }
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Deferred => "deferred",
            Self::Escalated => "escalated",
            Self::Approved => "approved",
            Self::Modified => "modified",
            Self::Rejected => "rejected",
            Self::Consumed => "consumed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// Says whether a person may still decide.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Deferred | Self::Escalated)
    }
}

/// Who decided, when, and what they said.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Decided {
    #[n(0)]
    pub by: String,
    #[n(1)]
    pub at: Timestamp,
    #[n(2)]
    pub note: String,
    /// The digest of the decision's payload: an equal repetition is no conflict.
    #[n(3)]
    pub payload: Digest,
}

/// Calls of one session that may wait for people at once, where only the call pauses.
pub const OPEN_APPROVALS_MAX: usize = 64;

impl Approval {
    /// What the core decides by (docs/SPEC.md 8.3). Its time is over at its end, whenever that is written down.
    pub fn transition(&self, now: Timestamp) -> Transition {
        let (decision, terminal) = match self.status {
            status if !status.is_over() && now >= self.expires_at => {
                (HumanDecision::Approve, Some(Terminal::Expired))
            }
            ApprovalStatus::Pending => (HumanDecision::Unknown, None),
            ApprovalStatus::Deferred => (HumanDecision::Defer, None),
            ApprovalStatus::Escalated => (HumanDecision::Escalate, None),
            ApprovalStatus::Approved => (HumanDecision::Approve, None),
            ApprovalStatus::Modified => (HumanDecision::Modify, None),
            ApprovalStatus::Rejected => (HumanDecision::Reject, Some(Terminal::Rejected)),
            ApprovalStatus::Consumed => (HumanDecision::Approve, Some(Terminal::Consumed)),
            ApprovalStatus::Expired => (HumanDecision::Approve, Some(Terminal::Expired)),
            ApprovalStatus::Cancelled => (HumanDecision::Approve, Some(Terminal::Cancelled)),
        };
        Transition {
            decision,
            original_nonce: Some(self.nonce),
            original_digest: self.digest,
            successor_nonce: self.successor.as_ref().map(|successor| successor.nonce),
            successor_digest: self.successor.as_ref().map(|successor| successor.digest),
            terminal,
            resume_attempt: false,
        }
    }

    /// The bytes that an approver is shown, of which `info_digest` is the SHA-256: a label, then each field
    /// as its length in 4 bytes and its bytes, numbers in 8, all big-endian (docs/SPEC.md 15.2).
    pub fn shown(&self, id: &ApprovalId) -> Vec<u8> {
        let number = |number: u64| number.to_be_bytes().to_vec();
        let fields = [
            id.as_str().as_bytes().to_vec(),
            self.organization.as_str().as_bytes().to_vec(),
            self.agent.as_str().as_bytes().to_vec(),
            self.session.as_str().as_bytes().to_vec(),
            self.requested_by.as_bytes().to_vec(),
            number(self.call_number),
            self.tool.as_str().as_bytes().to_vec(),
            self.digest
                .map(|digest| digest.as_bytes().to_vec())
                .unwrap_or_default(),
            number(self.nonce),
            self.estimate.nanos().to_be_bytes().to_vec(),
            self.why.word().as_bytes().to_vec(),
            self.policy_digest.as_bytes().to_vec(),
            number(self.expires_at.nanos()),
        ];
        let mut bytes = b"haltgate approval v2\n".to_vec();
        for field in fields {
            let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&field);
        }
        bytes
    }

    /// Says whether a call is what was approved, tool and money included: the digest covers the arguments only.
    pub fn is_about(&self, tool: &ToolName, hold: NanoUsd) -> bool {
        self.tool == *tool && hold <= self.estimate
    }
}

/// The call that a person put in the place of a held one: same tool, other parameters.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Successor {
    /// Suggested to the agent, not bound; 0 = the next free one.
    #[n(0)]
    pub call_number: u64,
    /// 0 = drawn by the cluster.
    #[n(1)]
    pub nonce: u64,
    #[n(2)]
    pub digest: Digest,
    // 3 was its arguments, which are kept as the original's are.
    /// Suggested to the agent.
    #[n(4)]
    pub request: Option<RequestId>,
}
