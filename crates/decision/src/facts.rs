//! Everything a decision needs, already looked up: plain values, no maps, no text to search.

use minicbor::{Decode, Encode};

use crate::decide::RuleSet;
use crate::digest::Digest;
use crate::money::{NanoUsd, PerBillion};
use crate::verdict::HaltScope;

/// Holds the facts of one call at its position in the log (docs/SPEC.md 7).
///
/// `Facts::core()` leaves every extension unset, so that the certified core alone decides.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// K1: the outermost engaged halt above this call.
    pub halt: Option<HaltScope>,
    /// K1: the outermost engaged pause, which makes HITL of what would be ALLOW.
    pub pause: Option<HaltScope>,
    /// K2, R4.
    pub status: Status,
    /// R1: the arguments cannot be canonicalized, or their digest is not the announced one.
    pub malformed: bool,
    /// R2.
    pub circuit_tripped: bool,
    /// R4: what an approval is compared with.
    pub nonce: Option<u64>,
    pub digest: Option<Digest>,
    /// R3.
    pub nonce_seen: bool,
    /// R4: what a person decided about the call that is held.
    pub transition: Option<&'a Transition>,
    /// P1: the check of the delegation or ticket that failed.
    pub delegation_failed: Option<&'a str>,
    /// P2.
    pub allowed_tool: bool,
    /// P3: the id of the first policy rule that denies.
    pub policy_denied: Option<&'a str>,
    /// P3: the guard requires arguments, and the call brought none.
    pub params_missing: bool,
    /// R5, R5b, R8, X; unset where there is no account.
    pub budget: Option<BudgetFacts>,
    /// R5, R5b: false only in the fixture format, which has a threshold over a budget that is off.
    pub budget_enforced: bool,
    /// R5b: what the call is expected to cost.
    pub estimate: NanoUsd,
    /// Q1: the first account above the session and below the organization that is exhausted or would be
    /// overrun, among those that enforce.
    pub ancestor_denied: Option<&'a str>,
    /// Q1: the same among those whose guard only observes.
    pub ancestor_observed: Option<&'a str>,
    /// Q2.
    pub organization_exceeded: bool,
    /// Q3.
    pub timed_out: bool,
    /// Q4: the sliding rate.
    pub rate_exceeded: bool,
    /// Q4: the tool's window.
    pub window_exceeded: bool,
    /// Q5.
    pub total_calls_reached: bool,
    /// R6: how many identical calls in a row may run; unset where off.
    pub max_repeat: Option<u32>,
    /// R6: how many identical calls in a row were allowed before this one.
    pub repeats: u32,
    /// R6: the call before this one was to the same tool.
    pub same_tool: bool,
    /// R6: the previous identical call failed, or its error text has a known signal.
    pub last_error_signal: bool,
    /// R6: such an error lowers the limit by one.
    pub error_amplification: bool,
    /// Q6.
    pub name_repeat_exceeded: bool,
    pub retry_storm: bool,
    pub loop_detected: bool,
    /// R7, R8, and R5b with `OnDeny`.
    pub hitl: HitlRule,
    /// Further rules whose DENY `OnDeny` turns into HITL.
    pub on_deny_rules: RuleSet,
    /// R9.
    pub opaque: bool,
    /// Policy HITL: the id of the first policy rule that asks a person.
    pub policy_hitl: Option<&'a str>,
    /// X.
    pub draw: Option<ProbabilisticDraw>,
    /// Says whether the session's own guard enforces or only observes.
    pub mode: Mode,
}

impl Facts<'_> {
    /// Gives the facts under which only R10 answers: every extension unset, no budget, nothing counted.
    pub const fn core() -> Self {
        Facts {
            halt: None,
            pause: None,
            status: Status::Active,
            malformed: false,
            circuit_tripped: false,
            nonce: None,
            digest: None,
            nonce_seen: false,
            transition: None,
            delegation_failed: None,
            allowed_tool: true,
            policy_denied: None,
            params_missing: false,
            budget: None,
            budget_enforced: true,
            estimate: NanoUsd::ZERO,
            ancestor_denied: None,
            ancestor_observed: None,
            organization_exceeded: false,
            timed_out: false,
            rate_exceeded: false,
            window_exceeded: false,
            total_calls_reached: false,
            max_repeat: None,
            repeats: 0,
            same_tool: false,
            last_error_signal: false,
            error_amplification: false,
            name_repeat_exceeded: false,
            retry_storm: false,
            loop_detected: false,
            hitl: HitlRule::Never,
            on_deny_rules: RuleSet::EMPTY,
            opaque: false,
            policy_hitl: None,
            draw: None,
            mode: Mode::Enforce,
        }
    }
}

impl Default for Facts<'_> {
    fn default() -> Self {
        Facts::core()
    }
}

/// Says where the session stands (docs/SPEC.md 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Active,
    /// `held`: this call is the one that waits; `decided`: a person has answered.
    Paused {
        held: bool,
        decided: bool,
    },
    Terminated,
    Stale,
}

/// Holds the balance of the session's account, or of the account its budget_scope names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetFacts {
    pub initial: NanoUsd,
    /// initial − spent − held; may be negative.
    pub available: NanoUsd,
}

/// Holds a person's decision about a held call, and the call it binds (docs/SPEC.md 8.3).
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    #[n(0)]
    pub decision: HumanDecision,
    #[n(1)]
    pub original_nonce: Option<u64>,
    #[n(2)]
    pub original_digest: Option<Digest>,
    #[n(3)]
    pub successor_nonce: Option<u64>,
    #[n(4)]
    pub successor_digest: Option<Digest>,
    #[n(5)]
    pub terminal: Option<Terminal>,
    #[n(6)]
    pub resume_attempt: bool,
}

/// Names what a person decided; a word that is not known decides nothing.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cbor(index_only)]
pub enum HumanDecision {
    #[n(0)]
    Unknown,
    #[n(1)]
    Approve,
    #[n(2)]
    Reject,
    #[n(3)]
    Modify,
    #[n(4)]
    Defer,
    #[n(5)]
    Escalate,
}

/// Names the states from which an approval no longer releases anything.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cbor(index_only)]
pub enum Terminal {
    #[n(0)]
    Rejected,
    #[n(1)]
    Superseded,
    #[n(2)]
    Consumed,
    #[n(3)]
    Executed,
    #[n(4)]
    Expired,
    #[n(5)]
    Revoked,
    #[n(6)]
    Cancelled,
}

/// Says when a person is asked (HitlMode).
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq)]
pub enum HitlRule {
    #[n(0)]
    Never,
    #[n(1)]
    OnDeny,
    /// From this part of the initial budget downwards.
    #[n(2)]
    OnThreshold(#[n(0)] PerBillion),
    #[n(3)]
    Always,
}

/// Holds the number the leader drew for rule X, and the odds it is compared with.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbabilisticDraw {
    /// Uniform over all of `u32`.
    #[n(0)]
    pub drawn: u32,
    #[n(1)]
    pub jitter: PerBillion,
}

/// Says whether a guard stops calls or only records that it would have.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cbor(index_only)]
pub enum Mode {
    #[n(0)]
    Enforce,
    #[n(1)]
    Observe,
}
