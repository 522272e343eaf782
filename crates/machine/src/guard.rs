//! Guard configuration: the limits a session runs under.

use decision::{Digest, DurationNs, HitlRule, NanoUsd, PerBillion};
use minicbor::{Decode, Encode};

/// The limits of SP/1.0 §5.2 and ours; `None` is "not limited". The wire's 0 became `None` at the edge.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Guard {
    /// Counts the writes of this guard; stamped when it is written.
    #[n(0)]
    pub version: u64,
    /// What a session's account (or the scope's) is opened with at registration.
    #[n(1)]
    pub budget: Option<NanoUsd>,
    #[n(2)]
    pub budget_scope: BudgetScope,
    /// Identical consecutive calls that may run.
    #[n(3)]
    pub max_repeat_calls: Option<u32>,
    #[n(4)]
    pub error_amplification: bool,
    /// Wall clock since the first call, by log time.
    #[n(5)]
    pub timeout: Option<DurationNs>,
    #[n(6)]
    pub window: Option<Window>,
    #[n(7)]
    pub max_total_calls: Option<u32>,
    /// The jitter ratio of probabilistic denial.
    #[n(8)]
    pub probabilistic: Option<PerBillion>,
    #[n(9)]
    pub hitl: HitlRule,
    /// How long a hold waits for its settlement.
    #[n(10)]
    pub hold_ttl: DurationNs,
    #[n(11)]
    pub unsettled: Unsettled,
    #[n(12)]
    pub trip_policy: TripPolicy,
    /// The price of a call that names none. Never zero by default: an unpriced call is not free.
    #[n(13)]
    pub default_cost: NanoUsd,
    #[n(14)]
    pub settle_at_least_hold: bool,
    /// Whether a call must bring its parameters, not only their digest.
    #[n(15)]
    pub require_params: bool,
    /// How long an approval stays open.
    #[n(16)]
    pub approval_ttl: DurationNs,
    #[n(17)]
    pub pause_scope: PauseScope,
}

/// Calls of one tool in one window (SP/1.0 layer 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Window {
    #[n(0)]
    pub duration: DurationNs,
    #[n(1)]
    pub max_calls: u32,
}

/// Whose account a session draws on first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum BudgetScope {
    #[n(0)]
    Session,
    #[n(1)]
    Agent,
    #[n(2)]
    Organization,
}

/// What waits while a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum PauseScope {
    /// The whole session.
    #[n(0)]
    Session,
    /// The one call.
    #[n(1)]
    Call,
}

/// What becomes of a hold that nobody settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Unsettled {
    #[n(0)]
    Charge,
    #[n(1)]
    Release,
}

/// Which denials trip the session's circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum TripPolicy {
    /// Those of behaviour: `Rule::trips_by_default`.
    #[n(0)]
    Behaviour,
    /// Any denial, as SP/1.0 §5.3 has it (the kill switch and probabilistic denial excepted).
    #[n(1)]
    Seed,
    #[n(2)]
    Never,
}

impl Default for Guard {
    /// The shipped default: stops an exact loop, prices what is unpriced, leaves the rest to budgets.
    fn default() -> Self {
        Self {
            version: 0,
            budget: None,
            budget_scope: BudgetScope::Session,
            max_repeat_calls: Some(3),
            error_amplification: true,
            timeout: None,
            window: None,
            max_total_calls: None,
            probabilistic: None,
            hitl: HitlRule::Never,
            hold_ttl: DurationNs::from_secs(600),
            unsettled: Unsettled::Charge,
            trip_policy: TripPolicy::Behaviour,
            // One cent: of the order of one model call, so that forgetting prices shows within a
            // hundred calls per dollar instead of never.
            default_cost: NanoUsd::new(10_000_000),
            settle_at_least_hold: false,
            require_params: false,
            approval_ttl: DurationNs::from_secs(300),
            pause_scope: PauseScope::Session,
        }
    }
}

impl Guard {
    /// SHA-256 over the guard's bytes at rest; in the audit entry of every verdict it took part in.
    pub fn digest(&self) -> Digest {
        Digest::of(&crate::table::bytes(self))
    }
}
