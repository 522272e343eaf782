//! `shackle.v1.GuardConfig` ⇄ the machine's guard. The wire's 0 means "off" and becomes unset here.

use decision::{DurationNs, HitlRule, PerBillion};
use machine::{BudgetScope, Guard, PauseScope, TripPolicy, Unsettled, Window};

use crate::invalid::Invalid;
use crate::money;
use crate::proto::shackle::v1 as proto;

/// Reads the rules of a guard; its version is given when it is written.
///
/// # Errors
/// Money and ratios out of range, unknown enum values, a window without a length, fields of later versions.
pub fn guard(config: &proto::GuardConfig) -> Result<Guard, Invalid> {
    let shipped = Guard::default();
    let budget = money::amount("budget_usd", config.budget_usd, "", None)?;
    let jitter = money::ratio("deny_jitter_ratio", config.deny_jitter_ratio)?;
    let threshold = money::ratio("hitl_budget_threshold", config.hitl_budget_threshold)?;
    if !config.parent_guard_id.is_empty() {
        return Err(Invalid::new(
            "parent_guard_id",
            "guard trees are not available yet: leave it empty",
        ));
    }
    if config.version != 0 {
        return Err(Invalid::new(
            "version",
            "a guard is replaced whatever is there: send 0",
        ));
    }
    Ok(Guard {
        version: 0,
        budget,
        budget_scope: budget_scope(config.budget_scope)?,
        max_repeat_calls: above_zero(config.max_repeat_calls),
        error_amplification: config.error_amplification,
        timeout: above_zero(config.timeout_seconds).map(seconds),
        window: window(config)?,
        max_total_calls: above_zero(config.max_total_calls),
        probabilistic: config.probabilistic_deny.then_some(jitter),
        hitl: hitl(config.hitl_mode, threshold)?,
        hold_ttl: above_zero(config.hold_ttl_seconds).map_or(shipped.hold_ttl, seconds),
        unsettled: unsettled(config.unsettled_policy)?,
        trip_policy: trip_policy(config.trip_policy)?,
        default_cost: match config.default_cost_usd {
            Some(usd) => money::dollars("default_cost_usd", usd)?,
            None => shipped.default_cost,
        },
        settle_at_least_hold: config.settle_at_least_hold,
        require_params: config.require_params,
        approval_ttl: above_zero(config.approval_ttl_seconds).map_or(shipped.approval_ttl, seconds),
        pause_scope: pause_scope(config.pause_scope)?,
        ..shipped
    })
}

/// Writes a guard as the wire has it.
pub fn guard_config(guard: &Guard) -> proto::GuardConfig {
    let window = guard.window;
    let (hitl_mode, hitl_budget_threshold) = match guard.hitl {
        HitlRule::Never => (proto::HitlMode::HitlNever, PerBillion::ZERO),
        HitlRule::OnDeny => (proto::HitlMode::HitlOnDeny, PerBillion::ZERO),
        HitlRule::OnThreshold(threshold) => (proto::HitlMode::HitlOnBudgetThreshold, threshold),
        HitlRule::Always => (proto::HitlMode::HitlAlways, PerBillion::ZERO),
    };
    proto::GuardConfig {
        budget_usd: guard.budget.map_or(0.0, money::to_dollars),
        budget_scope: match guard.budget_scope {
            BudgetScope::Session => proto::BudgetScope::PerSession,
            BudgetScope::Agent => proto::BudgetScope::PerAgent,
            BudgetScope::Organization => proto::BudgetScope::PerOrganization,
        }
        .into(),
        max_repeat_calls: guard.max_repeat_calls.unwrap_or(0),
        error_amplification: guard.error_amplification,
        timeout_seconds: guard.timeout.map_or(0, whole_seconds),
        window_duration_s: window.map_or(0, |window| whole_seconds(window.duration)),
        window_max_calls: window.map_or(0, |window| window.max_calls),
        max_total_calls: guard.max_total_calls.unwrap_or(0),
        probabilistic_deny: guard.probabilistic.is_some(),
        deny_jitter_ratio: guard.probabilistic.map_or(0.0, money::to_ratio),
        hitl_mode: hitl_mode.into(),
        hitl_budget_threshold: money::to_ratio(hitl_budget_threshold),
        parent_guard_id: String::new(),
        hold_ttl_seconds: whole_seconds(guard.hold_ttl),
        unsettled_policy: match guard.unsettled {
            Unsettled::Charge => proto::UnsettledPolicy::Charge,
            Unsettled::Release => proto::UnsettledPolicy::Release,
        }
        .into(),
        trip_policy: match guard.trip_policy {
            TripPolicy::Behaviour => proto::TripPolicy::Behaviour,
            TripPolicy::Seed => proto::TripPolicy::Seed,
            TripPolicy::Never => proto::TripPolicy::Never,
        }
        .into(),
        default_cost_usd: Some(money::to_dollars(guard.default_cost)),
        settle_at_least_hold: guard.settle_at_least_hold,
        require_params: guard.require_params,
        approval_ttl_seconds: whole_seconds(guard.approval_ttl),
        pause_scope: match guard.pause_scope {
            PauseScope::Session => proto::PauseScope::Session,
            PauseScope::Call => proto::PauseScope::Call,
        }
        .into(),
        version: guard.version,
        ..proto::GuardConfig::default()
    }
}

fn window(config: &proto::GuardConfig) -> Result<Option<Window>, Invalid> {
    match (
        above_zero(config.window_max_calls),
        above_zero(config.window_duration_s),
    ) {
        (Some(max_calls), Some(duration)) => Ok(Some(Window {
            duration: seconds(duration),
            max_calls,
        })),
        (Some(_), None) => Err(Invalid::new(
            "window_duration_s",
            "must be at least 1 when window_max_calls is set",
        )),
        (None, _) => Ok(None),
    }
}

fn budget_scope(value: i32) -> Result<BudgetScope, Invalid> {
    Ok(match known("budget_scope", value)? {
        proto::BudgetScope::PerSession => BudgetScope::Session,
        proto::BudgetScope::PerAgent => BudgetScope::Agent,
        proto::BudgetScope::PerOrganization => BudgetScope::Organization,
    })
}

fn hitl(value: i32, threshold: PerBillion) -> Result<HitlRule, Invalid> {
    Ok(match known("hitl_mode", value)? {
        proto::HitlMode::HitlNever => HitlRule::Never,
        proto::HitlMode::HitlOnDeny => HitlRule::OnDeny,
        proto::HitlMode::HitlOnBudgetThreshold => HitlRule::OnThreshold(threshold),
        proto::HitlMode::HitlAlways => HitlRule::Always,
    })
}

fn unsettled(value: i32) -> Result<Unsettled, Invalid> {
    Ok(match known("unsettled_policy", value)? {
        proto::UnsettledPolicy::Charge => Unsettled::Charge,
        proto::UnsettledPolicy::Release => Unsettled::Release,
    })
}

fn pause_scope(value: i32) -> Result<PauseScope, Invalid> {
    Ok(match known("pause_scope", value)? {
        proto::PauseScope::Session => PauseScope::Session,
        proto::PauseScope::Call => PauseScope::Call,
    })
}

fn trip_policy(value: i32) -> Result<TripPolicy, Invalid> {
    Ok(match known("trip_policy", value)? {
        proto::TripPolicy::Behaviour => TripPolicy::Behaviour,
        proto::TripPolicy::Seed => TripPolicy::Seed,
        proto::TripPolicy::Never => TripPolicy::Never,
    })
}

/// Reads an enum; a number that this version does not know is refused, not taken for 0.
pub(crate) fn known<E: TryFrom<i32>>(field: &'static str, value: i32) -> Result<E, Invalid> {
    E::try_from(value).map_err(|_| Invalid::new(field, "is not a value that this version knows"))
}

fn above_zero(value: u32) -> Option<u32> {
    (value > 0).then_some(value)
}

fn seconds(value: u32) -> DurationNs {
    DurationNs::from_secs(u64::from(value))
}

fn whole_seconds(span: DurationNs) -> u32 {
    u32::try_from(span.secs()).unwrap_or(u32::MAX)
}
