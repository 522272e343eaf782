//! Every write there is. A command is plain data: whatever is not deterministic (time, ids, dice, the
//! verified identity, facts derived from parameters) was put into it, or into its stamp, before it
//! entered the log.

use std::collections::BTreeMap;

use audit::Seal;
use decision::policy::Matched;
use decision::{
    AgentId, ApprovalId, Digest, DurationNs, GuardId, NanoUsd, Number, OrganizationId, RequestId, SessionId,
    Timestamp, ToolName,
};
use minicbor::{Decode, Encode};

use crate::row::Guard;
use crate::scope::{AccountId, GuardScope, Scope};

pub use crate::principal::{AgentPattern, Principal};
pub use crate::row::Successor;
pub use decision::{HaltMode, Limit};

/// What one log entry carries: commands that waited together, stamped once by the leader.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Batch {
    /// The leader's clock when it proposed; log time never runs backwards (design: `apply`).
    #[n(0)]
    pub proposed: Timestamp,
    /// Random bytes of the leader: ids and dice are derived from it and the command's place.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub seed: [u8; 16],
    /// The version of the rules that was active when it was proposed; under another nothing of it is decided.
    #[n(2)]
    pub version: u32,
    /// The commands, in the order in which they are decided.
    #[n(3)]
    pub commands: Vec<Command>,
    /// The node that vouches for each command, in their order: the leader takes the name from the certificate of the
    /// peer that sent it. Shorter where the rest have none.
    #[n(4)]
    pub vouched_by: Vec<Option<String>>,
}

/// One write. The numbers rest on disk: a number once given is never reused.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Command {
    /// Opens the cluster's state: chain id, default guard, defaults for accounts.
    #[n(0)]
    Init(#[n(0)] Init),
    /// Opens or resumes a session.
    #[n(1)]
    Register(#[n(0)] Register),
    /// Asks whether a call may run.
    #[n(2)]
    PreExec(#[n(0)] PreExec),
    /// Reports what a call cost and how it ended.
    #[n(3)]
    PostExec(#[n(0)] PostExec),
    /// Sessions heard from since the last such command of one node.
    #[n(4)]
    Seen(#[n(0)] Seen),
    /// Ends a session at its own agent's wish.
    #[n(5)]
    EndSession(#[n(0)] EndSession),
    /// Work that log time has made due; names nothing.
    #[n(6)]
    Due,
    /// Sets an account's limit.
    #[n(7)]
    SetBudget(#[n(0)] SetBudget),
    /// Adds to an account's limit.
    #[n(8)]
    GrantBudget(#[n(0)] GrantBudget),
    /// Replaces the guard of a scope.
    #[n(9)]
    PutGuard(#[n(0)] PutGuard),
    /// Engages the kill switch.
    #[n(10)]
    Engage(#[n(0)] Engage),
    /// Releases the kill switch.
    #[n(11)]
    Release(#[n(0)] Release),
    /// An operator's act on one session.
    #[n(12)]
    Session(#[n(0)] SessionAct),
    /// Makes a node's public signing key known.
    #[n(13)]
    RegisterKey(#[n(0)] RegisterKey),
    /// Signatures over entries that were made unsigned.
    #[n(14)]
    Seal(#[n(0)] Seal),
    /// Records a change of membership that Raft has made.
    #[n(15)]
    Members(#[n(0)] Members),
    /// Records a call that the edge refused for its identity.
    #[n(16)]
    Refused(#[n(0)] RefusedAtEdge),
    /// Loads sessions of the benchmark; only where `Init` allowed it.
    #[n(17)]
    Fixture(#[n(0)] Fixture),
    // 18 brought a held call's arguments: they travel beside the log now (docs/SPEC.md 8.4).
    /// A person's decision about a held call.
    #[n(19)]
    Decide(#[n(0)] Decide),
    /// Corrects what an account was charged, by an entry of its own.
    #[n(20)]
    Correct(#[n(0)] Correct),
    /// Uses a ticket up, before its call runs.
    #[n(21)]
    Redeem(#[n(0)] Redeem),
    /// Goes on with a newer version of the rules, once every member has said that it can.
    #[n(22)]
    ActivateVersion(#[n(0)] ActivateVersion),
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Init {
    /// Names the chain and the cluster; in every audit entry.
    #[n(0)]
    pub chain_id: String,
    #[n(1)]
    pub by: Principal,
    #[n(2)]
    pub default_guard: Guard,
    /// Whether an organization without an account may spend without limit.
    #[n(3)]
    pub unfunded_organizations: bool,
    /// Whether `Fixture` is accepted, ever.
    #[n(4)]
    pub fixtures: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Register {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub organization: OrganizationId,
    #[n(2)]
    pub agent: AgentId,
    /// A session to resume instead of opening one.
    #[n(3)]
    pub resume: Option<SessionId>,
    #[n(4)]
    pub request: Option<Request>,
    /// What the agent says of itself; at most 32 pairs, checked at the edge.
    #[n(5)]
    pub metadata: BTreeMap<String, String>,
    /// The named guard to run under.
    #[n(6)]
    pub guard: Option<GuardId>,
}

/// The retry key of a write and what it must agree with when it comes again.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Request {
    #[n(0)]
    pub id: RequestId,
    /// SHA-256 over the request's payload as the edge read it.
    #[n(1)]
    pub payload: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct PreExec {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub session: SessionId,
    #[n(2)]
    pub call_number: u64,
    #[n(3)]
    pub tool: ToolName,
    /// Digest of the canonical parameters; none when they are malformed.
    #[n(4)]
    pub digest: Option<Digest>,
    /// Whether the node saw the parameters themselves, or only their digest.
    #[n(5)]
    pub params: Params,
    /// None when the caller named no cost: the guard's default prices it.
    #[n(6)]
    pub estimate: Option<NanoUsd>,
    #[n(7)]
    pub nonce: u64,
    #[n(8)]
    pub request: Option<Request>,
    /// A guard the caller claims to run under; refused unless it lies on the session's path.
    #[n(9)]
    pub parent_guard: Option<String>,
    /// The approval that this call follows.
    #[n(10)]
    pub approval: Option<ApprovalId>,
    /// The parameters' own numbers, for the breakers.
    #[n(11)]
    pub numbers: Vec<Number>,
    /// What the rules of its guards say, where any has rules.
    #[n(12)]
    pub rules: Option<RuleFacts>,
}

/// What the proposing node found with the rules that it knew.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RuleFacts {
    /// Of the guards that they are of ([`GuardPath::digest`](crate::GuardPath::digest)). Under others they do not hold.
    #[n(0)]
    pub policy_digest: Digest,
    /// What each guard's rules say, outermost first.
    #[n(1)]
    pub matched: Vec<Matched>,
}

/// What the proposing node found in the parameters. They never enter the log themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Params {
    /// Only the digest came.
    #[n(0)]
    HashOnly,
    /// They came, are canonical, and can be inspected.
    #[n(1)]
    Clear,
    /// They came and hold a context that cannot be evaluated (SP/1.0.1 rule 9).
    #[n(2)]
    Opaque,
    /// They came and cannot be canonicalized, or are not what the digest says (rule 1).
    #[n(3)]
    Malformed,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct PostExec {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub session: SessionId,
    #[n(2)]
    pub call_number: u64,
    /// None when the caller does not know: the hold is charged.
    #[n(3)]
    pub actual: Option<NanoUsd>,
    #[n(4)]
    pub success: bool,
    /// Whether the error text holds a known signal (SP/1.0 §3.6); the text itself stays outside.
    #[n(5)]
    pub error_signal: bool,
    /// A part of the cost; the hold stays open. Needs a request.
    #[n(6)]
    pub partial: bool,
    #[n(7)]
    pub request: Option<Request>,
    #[n(8)]
    pub tokens_in: u64,
    #[n(9)]
    pub tokens_out: u64,
    /// Prices the tokens where no cost is named, empty where nobody said which it was; none where the cost is not
    /// known at all.
    #[n(10)]
    pub model: Option<String>,
    #[n(11)]
    pub result: Option<Digest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Seen {
    #[n(0)]
    pub sessions: Vec<SessionId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct EndSession {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub session: SessionId,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetBudget {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub account: AccountId,
    #[n(2)]
    pub limit: Limit,
    #[n(3)]
    pub request: Request,
    #[n(4)]
    pub justification: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GrantBudget {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub account: AccountId,
    /// Above zero.
    #[n(2)]
    pub amount: NanoUsd,
    #[n(3)]
    pub request: Request,
    #[n(4)]
    pub justification: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Correct {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub account: AccountId,
    /// Added to what is spent; below zero gives back.
    #[n(2)]
    pub amount: NanoUsd,
    #[n(3)]
    pub request: Request,
    #[n(4)]
    pub justification: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Redeem {
    /// Any agent or sidecar of the session's organization: whoever runs the tool.
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub session: SessionId,
    #[n(2)]
    pub call_number: u64,
    #[n(3)]
    pub ticket: String,
    #[n(4)]
    pub request: Request,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct PutGuard {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub scope: GuardScope,
    /// Its version is 0, or that of the guard it replaces.
    #[n(2)]
    pub guard: Guard,
    #[n(3)]
    pub request: Request,
    #[n(4)]
    pub justification: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Engage {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub scope: Scope,
    #[n(2)]
    pub reason: String,
    #[n(3)]
    pub ticket: String,
    #[n(4)]
    pub request: Request,
    #[n(5)]
    pub mode: HaltMode,
    /// How long a drain lasts; only a drain may end by itself.
    #[n(6)]
    pub ttl: Option<DurationNs>,
    /// Its release shall need two people.
    #[n(7)]
    pub two_person: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Release {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub scope: Scope,
    #[n(2)]
    pub justification: String,
    #[n(3)]
    pub request: Request,
    #[n(4)]
    pub ticket: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SessionAct {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub session: SessionId,
    #[n(2)]
    pub act: Act,
    #[n(3)]
    pub justification: String,
    #[n(4)]
    pub request: Request,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Act {
    #[n(0)]
    ResetCircuit,
    #[n(1)]
    Pause,
    /// Lifts a pause; a call that waited for a human is cancelled.
    #[n(2)]
    Resume,
    #[n(3)]
    Terminate,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Decide {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub approval: ApprovalId,
    #[n(2)]
    pub ruling: Ruling,
    /// Of what the approver was shown.
    #[n(3)]
    pub info_digest: Digest,
    #[n(4)]
    pub note: String,
    #[n(5)]
    pub request: Request,
}

/// What a person decides about a held call.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Ruling {
    #[n(0)]
    Approve,
    #[n(1)]
    Reject,
    /// Another call may run in its place.
    #[n(2)]
    Modify(#[n(0)] Successor),
    #[n(3)]
    Defer,
    #[n(4)]
    Escalate,
}

impl Ruling {
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Modify(_) => "modify",
            Self::Defer => "defer",
            Self::Escalate => "escalate",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RegisterKey {
    /// The name of the node that holds the private half.
    #[n(0)]
    pub node: String,
    #[cbor(n(1), with = "minicbor::bytes")]
    pub public: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Members {
    /// The operator's identity, or the node itself where it joined on its own.
    #[n(0)]
    pub by: Principal,
    /// What was done, such as `add-learner 5` or `promote 5`.
    #[n(1)]
    pub change: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ActivateVersion {
    #[n(0)]
    pub by: Principal,
    #[n(1)]
    pub version: u32,
    /// The Raft ids that answered that they can, in ascending order.
    #[n(2)]
    pub members: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RefusedAtEdge {
    #[n(0)]
    pub by: Principal,
    /// The RPC that was refused.
    #[n(1)]
    pub rpc: String,
    #[n(2)]
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Fixture {
    #[n(0)]
    pub sessions: Vec<FixtureSession>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FixtureSession {
    #[n(0)]
    pub session: SessionId,
    #[n(1)]
    pub organization: OrganizationId,
    #[n(2)]
    pub agent: AgentId,
    #[n(3)]
    pub granted: NanoUsd,
    #[n(4)]
    pub spent: NanoUsd,
    #[n(5)]
    pub tripped: bool,
    #[n(6)]
    pub nonces: Vec<u64>,
}
