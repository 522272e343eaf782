//! `[guard]`: the default guard in SP/1.0's names, money in dollars.

use machine::Guard;
use serde::Deserialize;
use wire::Invalid;
use wire::proto::shackle::v1 as proto;

/// What a cluster's default guard is when it is formed. Absent keys are those of the shipped guard.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardSection {
    pub budget_usd: f64,
    pub budget_scope: BudgetScope,
    pub max_repeat_calls: u32,
    pub error_amplification: bool,
    pub timeout_seconds: u32,
    pub window_duration_s: u32,
    pub window_max_calls: u32,
    pub max_total_calls: u32,
    pub probabilistic_deny: bool,
    pub deny_jitter_ratio: f64,
    pub hitl_mode: HitlMode,
    pub hitl_budget_threshold: f64,
    pub hold_ttl_seconds: u32,
    pub unsettled_policy: UnsettledPolicy,
    pub trip_policy: TripPolicy,
    pub default_cost_usd: Option<f64>,
    pub settle_at_least_hold: bool,
    pub require_params: bool,
}

/// Declares an enum of the wire in the words of the file.
macro_rules! words {
    ($name:ident { $($variant:ident $word:literal $number:ident),* }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
        pub enum $name { $(#[serde(rename = $word)] $variant),* }

        impl $name {
            fn number(self) -> i32 {
                match self { $(Self::$variant => proto::$name::$number),* }.into()
            }
        }
    };
}

words!(BudgetScope {
    Session "per_session" PerSession,
    Agent "per_agent" PerAgent,
    Organization "per_organization" PerOrganization
});
words!(HitlMode {
    Never "never" HitlNever,
    OnDeny "on_deny" HitlOnDeny,
    OnThreshold "on_budget_threshold" HitlOnBudgetThreshold,
    Always "always" HitlAlways
});
words!(UnsettledPolicy { Charge "charge" Charge, Release "release" Release });
words!(TripPolicy { Behaviour "behaviour" Behaviour, Seed "seed" Seed, Never "never" Never });

impl Default for GuardSection {
    fn default() -> Self {
        let shipped = wire::guard_config::guard_config(&Guard::default());
        Self {
            budget_usd: shipped.budget_usd,
            budget_scope: BudgetScope::Session,
            max_repeat_calls: shipped.max_repeat_calls,
            error_amplification: shipped.error_amplification,
            timeout_seconds: shipped.timeout_seconds,
            window_duration_s: shipped.window_duration_s,
            window_max_calls: shipped.window_max_calls,
            max_total_calls: shipped.max_total_calls,
            probabilistic_deny: shipped.probabilistic_deny,
            deny_jitter_ratio: shipped.deny_jitter_ratio,
            hitl_mode: HitlMode::Never,
            hitl_budget_threshold: shipped.hitl_budget_threshold,
            hold_ttl_seconds: shipped.hold_ttl_seconds,
            unsettled_policy: UnsettledPolicy::Charge,
            trip_policy: TripPolicy::Behaviour,
            default_cost_usd: shipped.default_cost_usd,
            settle_at_least_hold: shipped.settle_at_least_hold,
            require_params: shipped.require_params,
        }
    }
}

impl GuardSection {
    /// Reads the guard, by the same rules as one that comes over the wire.
    pub fn to_guard(&self) -> Result<Guard, Invalid> {
        wire::guard_config::guard(&proto::GuardConfig {
            budget_usd: self.budget_usd,
            budget_scope: self.budget_scope.number(),
            max_repeat_calls: self.max_repeat_calls,
            error_amplification: self.error_amplification,
            timeout_seconds: self.timeout_seconds,
            window_duration_s: self.window_duration_s,
            window_max_calls: self.window_max_calls,
            max_total_calls: self.max_total_calls,
            probabilistic_deny: self.probabilistic_deny,
            deny_jitter_ratio: self.deny_jitter_ratio,
            hitl_mode: self.hitl_mode.number(),
            hitl_budget_threshold: self.hitl_budget_threshold,
            hold_ttl_seconds: self.hold_ttl_seconds,
            unsettled_policy: self.unsettled_policy.number(),
            trip_policy: self.trip_policy.number(),
            default_cost_usd: self.default_cost_usd,
            settle_at_least_hold: self.settle_at_least_hold,
            require_params: self.require_params,
            ..proto::GuardConfig::default()
        })
    }
}
