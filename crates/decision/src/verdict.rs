//! The words of an answer: verdicts, wire reasons, and the normative reason strings (docs/SPEC.md 7).

use std::borrow::Cow;
use std::fmt;

use minicbor::{Decode, Encode};

/// Says whether a call may run; 0 is no verdict, so an empty answer never executes (docs/SPEC.md 4).
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cbor(index_only)]
pub enum Verdict {
    #[n(1)]
    Allow = 1,
    #[n(2)]
    Deny = 2,
    #[n(3)]
    Hitl = 3,
}

impl Verdict {
    /// Gives the wire number and name's upper-case form: `ALLOW`, `DENY`, `HITL`.
    pub const fn word(self) -> &'static str {
        match self {
            Verdict::Allow => "ALLOW",
            Verdict::Deny => "DENY",
            Verdict::Hitl => "HITL",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Names the coarse reason of a denial on the SP/1.0 wire; numbers are the contract (docs/SPEC.md 4).
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cbor(index_only)]
pub enum DenyReason {
    #[n(0)]
    Unspecified = 0,
    #[n(1)]
    BudgetExhausted = 1,
    #[n(2)]
    MaxRepeatExceeded = 2,
    #[n(3)]
    CircuitOpen = 3,
    #[n(4)]
    WindowExceeded = 4,
    #[n(5)]
    GlobalLimit = 5,
    #[n(6)]
    PolicyViolation = 6,
    #[n(7)]
    AuthFailed = 7,
    #[n(8)]
    OrganizationQuotaExceeded = 8,
    #[n(9)]
    ParentGuardDenied = 9,
    #[n(10)]
    RunHalted = 10,
    #[n(11)]
    BudgetOverrun = 11,
}

/// Says how far a kill switch reaches, outermost first (docs/SPEC.md 13).
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HaltScope {
    #[n(0)]
    Global,
    #[n(1)]
    Organization,
    #[n(2)]
    Agent,
    /// A guard and everything below it, by the guard's id.
    #[n(3)]
    Guard(#[n(0)] String),
    #[n(4)]
    Session,
}

/// Writes `global`, `organization`, `agent`, `guard:<id>` or `session`.
impl fmt::Display for HaltScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HaltScope::Global => f.write_str("global"),
            HaltScope::Organization => f.write_str("organization"),
            HaltScope::Agent => f.write_str("agent"),
            HaltScope::Guard(id) => write!(f, "guard:{id}"),
            HaltScope::Session => f.write_str("session"),
        }
    }
}

impl HaltScope {
    fn parse(text: &str) -> Option<HaltScope> {
        Some(match text {
            "global" => HaltScope::Global,
            "organization" => HaltScope::Organization,
            "agent" => HaltScope::Agent,
            "session" => HaltScope::Session,
            _ => HaltScope::Guard(text.strip_prefix("guard:")?.to_owned()),
        })
    }
}

/// Names why a verdict was given; `word` is the contract for programs (docs/SPEC.md 7).
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    // K1, K2
    #[n(0)]
    RunHalted(#[n(0)] HaltScope),
    #[n(1)]
    SessionTerminated,
    #[n(2)]
    SessionStale,
    // R1 R2 R3
    #[n(3)]
    MalformedInput,
    #[n(4)]
    CircuitOpen,
    #[n(5)]
    DuplicateNonce,
    #[n(6)]
    DuplicateResumeNoEffect,
    // R4
    #[n(7)]
    HitlPending,
    #[n(8)]
    SessionPaused,
    #[n(9)]
    UnknownDecision,
    #[n(10)]
    Rejected,
    #[n(11)]
    DeferredOrEscalated,
    #[n(12)]
    SupersededOriginal,
    #[n(13)]
    TerminalNoEffect,
    #[n(14)]
    UnboundAuthorization,
    #[n(15)]
    NonceMismatch,
    #[n(16)]
    DigestMismatch,
    #[n(17)]
    Approved,
    #[n(18)]
    ModifiedSuccessor,
    // P1 P2 P3
    /// Carries the check of a delegation or ticket that failed.
    #[n(19)]
    Delegation(#[n(0)] String),
    #[n(20)]
    ToolNotAllowed,
    /// Carries the id of the policy rule that matched.
    #[n(21)]
    Policy(#[n(0)] String),
    #[n(22)]
    ParamsRequired,
    // R5 R5b Q1 Q2
    #[n(23)]
    BudgetExhausted,
    #[n(24)]
    BudgetOverrun,
    /// Carries the name of the account above the session that refused.
    #[n(25)]
    ParentGuardDenied(#[n(0)] String),
    #[n(26)]
    OrganizationQuotaExceeded,
    // Q3 Q4 Q5
    #[n(27)]
    Timeout,
    #[n(28)]
    RateExceeded,
    #[n(29)]
    WindowExceeded,
    #[n(30)]
    GlobalLimit,
    // R6 Q6
    #[n(31)]
    MaxRepeatExceeded,
    #[n(32)]
    NameRepeatExceeded,
    #[n(33)]
    RetryStorm,
    #[n(34)]
    LoopDetected,
    // R7 R8 R9 X R10
    #[n(35)]
    HitlAllCalls,
    #[n(36)]
    BudgetThreshold,
    #[n(37)]
    OpaqueContext,
    #[n(38)]
    Probabilistic,
    #[n(39)]
    WithinThresholds,
    // Around another reason: a guard that only observes, a call that only asks.
    #[n(40)]
    Observed(#[n(0)] Box<Reason>),
    #[n(41)]
    DryRun(#[n(0)] Box<Reason>),
    // Why an outcome tripped a circuit; the calls after it are denied `circuit_open`.
    #[n(42)]
    ErrorRateExceeded,
    #[n(43)]
    TokenCeiling,
    #[n(44)]
    CostCeiling,
    #[n(45)]
    ConsecutiveDenials,
}

/// Every reason whose word is fixed; the others carry a name after a prefix.
const FIXED: [Reason; 40] = [
    Reason::SessionTerminated,
    Reason::SessionStale,
    Reason::MalformedInput,
    Reason::CircuitOpen,
    Reason::DuplicateNonce,
    Reason::DuplicateResumeNoEffect,
    Reason::HitlPending,
    Reason::SessionPaused,
    Reason::UnknownDecision,
    Reason::Rejected,
    Reason::DeferredOrEscalated,
    Reason::SupersededOriginal,
    Reason::TerminalNoEffect,
    Reason::UnboundAuthorization,
    Reason::NonceMismatch,
    Reason::DigestMismatch,
    Reason::Approved,
    Reason::ModifiedSuccessor,
    Reason::ToolNotAllowed,
    Reason::ParamsRequired,
    Reason::BudgetExhausted,
    Reason::BudgetOverrun,
    Reason::OrganizationQuotaExceeded,
    Reason::Timeout,
    Reason::RateExceeded,
    Reason::WindowExceeded,
    Reason::GlobalLimit,
    Reason::MaxRepeatExceeded,
    Reason::NameRepeatExceeded,
    Reason::RetryStorm,
    Reason::LoopDetected,
    Reason::HitlAllCalls,
    Reason::BudgetThreshold,
    Reason::OpaqueContext,
    Reason::Probabilistic,
    Reason::WithinThresholds,
    Reason::ErrorRateExceeded,
    Reason::TokenCeiling,
    Reason::CostCeiling,
    Reason::ConsecutiveDenials,
];

impl Reason {
    /// Gives the normative reason string, verbatim (PreExecResponse.reason).
    pub fn word(&self) -> Cow<'static, str> {
        let (prefix, _, _) = self.row();
        match self {
            Reason::RunHalted(scope) => Cow::Owned(format!("{prefix}{scope}")),
            Reason::Delegation(name) | Reason::Policy(name) | Reason::ParentGuardDenied(name) => {
                Cow::Owned(format!("{prefix}{name}"))
            }
            Reason::Observed(inner) | Reason::DryRun(inner) => {
                Cow::Owned(format!("{prefix}{}", inner.word()))
            }
            _ => Cow::Borrowed(prefix),
        }
    }

    /// Gives the wire's coarse reason of a denial; `Unspecified` for reasons that never deny.
    pub fn deny_reason(&self) -> DenyReason {
        match self {
            Reason::Observed(_) => DenyReason::Unspecified,
            // A dry run is always a denial: one that nothing else denied is the guard's policy.
            Reason::DryRun(inner) => match inner.deny_reason() {
                DenyReason::Unspecified => DenyReason::PolicyViolation,
                denied => denied,
            },
            _ => self.row().1,
        }
    }

    /// Gives a short sentence for people (human_readable_reason); carries no figures.
    pub fn text(&self) -> &'static str {
        self.row().2
    }

    /// Reads a normative reason string back.
    pub fn parse(word: &str) -> Option<Reason> {
        if let Some(fixed) = FIXED.into_iter().find(|reason| reason.row().0 == word) {
            return Some(fixed);
        }
        let (prefix, rest) = word.split_at(word.find(':')?.saturating_add(1));
        match prefix {
            "run_halted:" => HaltScope::parse(rest).map(Reason::RunHalted),
            "delegation:" => Some(Reason::Delegation(rest.to_owned())),
            "policy:" => Some(Reason::Policy(rest.to_owned())),
            "parent_guard_denied:" => Some(Reason::ParentGuardDenied(rest.to_owned())),
            "observe:" => Reason::parse_plain(rest).map(|inner| Reason::Observed(Box::new(inner))),
            "dry_run:" => match rest.strip_prefix("observe:") {
                Some(observed) => Reason::parse_plain(observed)
                    .map(|inner| Reason::DryRun(Box::new(Reason::Observed(Box::new(inner))))),
                None => Reason::parse_plain(rest).map(|inner| Reason::DryRun(Box::new(inner))),
            },
            _ => None,
        }
    }

    /// Reads a reason that wraps no other, so that a long word cannot nest without end.
    fn parse_plain(word: &str) -> Option<Reason> {
        if word.starts_with("observe:") || word.starts_with("dry_run:") {
            None
        } else {
            Reason::parse(word)
        }
    }

    /// One row a reason: its word (or prefix), its wire reason when it denies, and its sentence.
    fn row(&self) -> (&'static str, DenyReason, &'static str) {
        use DenyReason as D;
        match self {
            Reason::RunHalted(_) => ("run_halted:", D::RunHalted, "The kill switch is engaged."),
            Reason::SessionTerminated => ("session_terminated", D::PolicyViolation, "The session has ended."),
            Reason::SessionStale => (
                "session_stale",
                D::PolicyViolation,
                "The session missed its heartbeats; register again.",
            ),
            Reason::MalformedInput => (
                "policy_violation:malformed_input",
                D::PolicyViolation,
                "The call's arguments are not a canonical JSON object.",
            ),
            Reason::CircuitOpen => (
                "circuit_open",
                D::CircuitOpen,
                "The session's circuit breaker is open.",
            ),
            Reason::DuplicateNonce => (
                "policy_violation:duplicate_nonce",
                D::PolicyViolation,
                "This nonce was used before in this session.",
            ),
            Reason::DuplicateResumeNoEffect => (
                "policy_violation:duplicate_resume_no_effect",
                D::PolicyViolation,
                "This approval was used before; resuming again has no effect.",
            ),
            Reason::HitlPending => (
                "hitl_pending",
                D::Unspecified,
                "The call waits for a person's decision.",
            ),
            Reason::SessionPaused => (
                "session_paused",
                D::PolicyViolation,
                "The session is paused while another call waits for a person.",
            ),
            Reason::UnknownDecision => (
                "hitl_transition:unknown_decision",
                D::PolicyViolation,
                "The recorded decision is none that is known here.",
            ),
            Reason::Rejected => (
                "hitl_transition:reject",
                D::PolicyViolation,
                "A person rejected the call.",
            ),
            Reason::DeferredOrEscalated => (
                "hitl_transition:defer_escalate",
                D::Unspecified,
                "The decision was deferred or handed to another person.",
            ),
            Reason::SupersededOriginal => (
                "hitl_transition:superseded_original",
                D::PolicyViolation,
                "A person replaced this call with a modified one.",
            ),
            Reason::TerminalNoEffect => (
                "hitl_transition:terminal_no_effect",
                D::PolicyViolation,
                "The approval is used up or no longer open.",
            ),
            Reason::UnboundAuthorization => (
                "hitl_transition:unbound_authorization",
                D::PolicyViolation,
                "The approval names no call.",
            ),
            Reason::NonceMismatch => (
                "hitl_transition:nonce_mismatch",
                D::PolicyViolation,
                "The approval is for a call with another nonce.",
            ),
            Reason::DigestMismatch => (
                "hitl_transition:digest_mismatch",
                D::PolicyViolation,
                "The approval is for a call with other arguments.",
            ),
            Reason::Approved => (
                "hitl_transition:approve",
                D::Unspecified,
                "A person approved the call.",
            ),
            Reason::ModifiedSuccessor => (
                "hitl_transition:modify_successor",
                D::Unspecified,
                "A person approved the call in this modified form.",
            ),
            Reason::Delegation(_) => (
                "delegation:",
                D::AuthFailed,
                "The delegation or ticket is not valid for this call.",
            ),
            Reason::ToolNotAllowed => (
                "escalation:tool_not_allowed",
                D::PolicyViolation,
                "The guard does not allow this tool.",
            ),
            Reason::Policy(_) => ("policy:", D::PolicyViolation, "A policy rule matched the call."),
            Reason::ParamsRequired => (
                "policy_violation:params_required",
                D::PolicyViolation,
                "The guard decides only calls that come with their arguments.",
            ),
            Reason::BudgetExhausted => ("budget_exhausted", D::BudgetExhausted, "The budget is used up."),
            Reason::BudgetOverrun => (
                "budget_overrun",
                D::BudgetOverrun,
                "The estimated cost is above what the budget has left.",
            ),
            Reason::ParentGuardDenied(_) => (
                "parent_guard_denied:",
                D::ParentGuardDenied,
                "An account above this session has too little left.",
            ),
            Reason::OrganizationQuotaExceeded => (
                "organization_quota_exceeded",
                D::OrganizationQuotaExceeded,
                "The organization's account has too little left, or there is none.",
            ),
            Reason::Timeout => (
                "timeout",
                D::GlobalLimit,
                "The session has run longer than its guard allows.",
            ),
            Reason::RateExceeded => (
                "rate_exceeded",
                D::WindowExceeded,
                "Calls come faster than the guard allows.",
            ),
            Reason::WindowExceeded => (
                "window_exceeded",
                D::WindowExceeded,
                "The guard's number of calls for this window is reached.",
            ),
            Reason::GlobalLimit => (
                "global_limit",
                D::GlobalLimit,
                "The guard's number of calls for this session is reached.",
            ),
            Reason::MaxRepeatExceeded => (
                "max_repeat_exceeded",
                D::MaxRepeatExceeded,
                "The same call with the same arguments was repeated too often.",
            ),
            Reason::NameRepeatExceeded => (
                "name_repeat_exceeded",
                D::MaxRepeatExceeded,
                "The same tool was called too often in a row.",
            ),
            Reason::RetryStorm => (
                "retry_storm",
                D::MaxRepeatExceeded,
                "Most of the last calls retry the same tool.",
            ),
            Reason::LoopDetected => (
                "loop_detected",
                D::MaxRepeatExceeded,
                "The last calls go round in a circle.",
            ),
            Reason::HitlAllCalls => (
                "hitl_all_calls",
                D::Unspecified,
                "The guard asks a person for every call.",
            ),
            Reason::BudgetThreshold => (
                "budget_threshold",
                D::Unspecified,
                "The budget is below the part from which a person is asked.",
            ),
            Reason::OpaqueContext => (
                "fail_closed:opaque_context",
                D::Unspecified,
                "The call depends on a context that cannot be inspected.",
            ),
            Reason::Probabilistic => (
                "probabilistic",
                D::BudgetExhausted,
                "The budget is nearly used up.",
            ),
            Reason::WithinThresholds => (
                "within_thresholds",
                D::Unspecified,
                "The call is within its limits.",
            ),
            Reason::Observed(_) => (
                "observe:",
                D::Unspecified,
                "The guard only observes; it would have stopped this call.",
            ),
            Reason::DryRun(_) => (
                "dry_run:",
                D::PolicyViolation,
                "This was a question only; nothing may run on it.",
            ),
            Reason::ErrorRateExceeded => (
                "error_rate_exceeded",
                D::CircuitOpen,
                "Too many of the last calls failed.",
            ),
            Reason::TokenCeiling => (
                "token_ceiling_reached",
                D::BudgetExhausted,
                "The session has used the tokens its guard allows.",
            ),
            Reason::CostCeiling => (
                "cost_ceiling_reached",
                D::BudgetExhausted,
                "The session has cost what its guard allows.",
            ),
            Reason::ConsecutiveDenials => (
                "consecutive_denials",
                D::CircuitOpen,
                "Too many calls in a row were denied.",
            ),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word())
    }
}
