//! `shackle.v1.GuardConfig` ⇄ the machine's guard. The wire's 0 means "off" and becomes unset here.
//!
//! Files and JSON have the same shape: `build.rs` derives it, and a key that a file leaves out is the shipped guard's.

mod breakers;
mod prices;
mod rules;
pub(crate) mod words;

use decision::decide::RuleSet;
use decision::limits::Rate;
use decision::{AgentId, Breakers, DurationNs, GuardId, HitlRule, PerBillion, Rule, ToolPattern};
use machine::command::AgentPattern;
use machine::{Guard, Window};

use crate::invalid::{Invalid, id, known};
use crate::money;
use crate::proto::shackle::v1 as proto;
use crate::same;

/// Entries of one list of a guard: it is read with every call.
const LIST_MAX: usize = 64;

/// Rules whose denial `on_deny` may turn into a question, by their words.
const ON_DENY: [(&str, Rule); 11] = [
    ("R5", Rule::R5),
    ("R5b", Rule::R5b),
    ("R6", Rule::R6),
    ("P2", Rule::P2),
    ("P3", Rule::P3),
    ("Q1", Rule::Q1),
    ("Q3", Rule::Q3),
    ("Q4_RATE", Rule::Q4Rate),
    ("Q4_WINDOW", Rule::Q4Window),
    ("Q5", Rule::Q5),
    ("Q6", Rule::Q6),
];

/// The shipped guard: what a file's absent keys are.
pub fn shipped() -> proto::GuardConfig {
    guard_config(&Guard::default())
}

/// The shipped breakers.
pub fn shipped_breakers() -> proto::Breakers {
    breakers::write(&Breakers::default())
}

/// Reads the rules of a guard. Its version is 0, or that of the guard that it shall replace.
///
/// # Errors
/// Whatever is out of its range, by the name of its field.
pub fn guard(config: &proto::GuardConfig) -> Result<Guard, Invalid> {
    let shipped = Guard::default();
    let threshold = money::ratio("hitl_budget_threshold", config.hitl_budget_threshold)?;
    let jitter = money::ratio("deny_jitter_ratio", config.deny_jitter_ratio)?;
    Ok(Guard {
        version: config.version,
        budget: money::amount("budget_usd", config.budget_usd, "", None)?,
        budget_scope: same::read_budget_scope("budget_scope", config.budget_scope)?,
        max_repeat_calls: above_zero(config.max_repeat_calls),
        error_amplification: config.error_amplification,
        timeout: span(config.timeout_seconds),
        window: window(config.window_duration_s, config.window_max_calls)?,
        max_total_calls: above_zero(config.max_total_calls),
        probabilistic: config.probabilistic_deny.then_some(jitter),
        hitl: hitl(config.hitl_mode, threshold)?,
        hold_ttl: span(config.hold_ttl_seconds).unwrap_or(shipped.hold_ttl),
        unsettled: same::read_unsettled("unsettled_policy", config.unsettled_policy)?,
        trip_policy: same::read_trip_policy("trip_policy", config.trip_policy)?,
        default_cost: match config.default_cost_usd {
            Some(usd) => money::dollars("default_cost_usd", usd)?,
            None => shipped.default_cost,
        },
        settle_at_least_hold: config.settle_at_least_hold,
        require_params: config.require_params,
        approval_ttl: span(config.approval_ttl_seconds).unwrap_or(shipped.approval_ttl),
        pause_scope: same::read_pause_scope("pause_scope", config.pause_scope)?,
        parent: match config.parent_guard_id.as_str() {
            "" => None,
            named => Some(id("parent_guard_id", GuardId::parse(named))?),
        },
        agents: agents(&config.agents)?,
        mode: same::read_guard_mode("mode", config.mode)?,
        allowed_tools: match &config.allowed_tools {
            Some(list) => {
                at_most("allowed_tools", list.tools.len())?;
                Some(tools("allowed_tools", &list.tools)?)
            }
            None => None,
        },
        rate: rate(config)?,
        breakers: match &config.breakers {
            Some(breakers) => breakers::read(breakers).map_err(|invalid| invalid.within("breakers"))?,
            None => shipped.breakers,
        },
        max_tokens: max_tokens(config.max_tokens)?,
        max_cost: money::amount("max_cost_usd", config.max_cost_usd, "", None)?,
        prices: prices::read(config)?,
        tool_limits: prices::tool_limits(&config.tool_overrides)?,
        on_deny_rules: on_deny_rules(&config.on_deny_rules)?,
        latch_scope: same::read_latch_scope("latch_scope", config.latch_scope)?,
        max_agent_sessions: above_zero(config.max_sessions_per_agent),
        max_organization_sessions: above_zero(config.max_sessions_per_organization),
        ticket_ttl: span(config.ticket_ttl_seconds),
        warn_at: Some(money::ratio("warn_ratio", config.warn_ratio)?).filter(|at| *at > PerBillion::ZERO),
        max_overdraft: config
            .max_overdraft_usd
            .map(|usd| money::dollars("max_overdraft_usd", usd))
            .transpose()?,
        rules: rules::read(&config.rules)?,
    })
}

/// Writes a guard as the wire has it.
pub fn guard_config(guard: &Guard) -> proto::GuardConfig {
    let (hitl_mode, hitl_budget_threshold) = match guard.hitl {
        HitlRule::Never => (proto::HitlMode::HitlNever, PerBillion::ZERO),
        HitlRule::OnDeny => (proto::HitlMode::HitlOnDeny, PerBillion::ZERO),
        HitlRule::OnThreshold(threshold) => (proto::HitlMode::HitlOnBudgetThreshold, threshold),
        HitlRule::Always => (proto::HitlMode::HitlAlways, PerBillion::ZERO),
    };
    let (window_duration_s, window_max_calls) = window_of(guard.window);
    let mut config = proto::GuardConfig {
        budget_usd: guard.budget.map_or(0.0, money::to_dollars),
        budget_scope: same::budget_scope(guard.budget_scope).into(),
        max_repeat_calls: guard.max_repeat_calls.unwrap_or(0),
        error_amplification: guard.error_amplification,
        timeout_seconds: guard.timeout.map_or(0, whole_seconds),
        window_duration_s,
        window_max_calls,
        max_total_calls: guard.max_total_calls.unwrap_or(0),
        probabilistic_deny: guard.probabilistic.is_some(),
        deny_jitter_ratio: guard.probabilistic.map_or(0.0, money::to_ratio),
        hitl_mode: hitl_mode.into(),
        hitl_budget_threshold: money::to_ratio(hitl_budget_threshold),
        parent_guard_id: guard
            .parent
            .as_ref()
            .map(|parent| parent.as_str().to_owned())
            .unwrap_or_default(),
        hold_ttl_seconds: whole_seconds(guard.hold_ttl),
        unsettled_policy: same::unsettled(guard.unsettled).into(),
        trip_policy: same::trip_policy(guard.trip_policy).into(),
        default_cost_usd: Some(money::to_dollars(guard.default_cost)),
        settle_at_least_hold: guard.settle_at_least_hold,
        require_params: guard.require_params,
        version: guard.version,
        approval_ttl_seconds: whole_seconds(guard.approval_ttl),
        pause_scope: same::pause_scope(guard.pause_scope).into(),
        mode: same::guard_mode(guard.mode).into(),
        allowed_tools: guard.allowed_tools.as_ref().map(|tools| proto::ToolList {
            tools: tools.iter().map(|tool| tool.as_str().to_owned()).collect(),
        }),
        rate_max_calls: guard.rate.map_or(0, |rate| rate.calls),
        rate_window_seconds: guard.rate.map_or(0, |rate| whole_seconds(rate.span)),
        breakers: Some(breakers::write(&guard.breakers)),
        max_tokens: guard.max_tokens.unwrap_or(0),
        max_cost_usd: guard.max_cost.map_or(0.0, money::to_dollars),
        tool_overrides: prices::tool_overrides(&guard.tool_limits),
        on_deny_rules: ON_DENY
            .iter()
            .filter(|(_, rule)| guard.on_deny_rules.contains(*rule))
            .map(|(word, _)| (*word).to_owned())
            .collect(),
        latch_scope: same::latch_scope(guard.latch_scope).into(),
        max_sessions_per_agent: guard.max_agent_sessions.unwrap_or(0),
        max_sessions_per_organization: guard.max_organization_sessions.unwrap_or(0),
        ticket_ttl_seconds: guard.ticket_ttl.map_or(0, whole_seconds),
        warn_ratio: guard.warn_at.map_or(0.0, money::to_ratio),
        max_overdraft_usd: guard.max_overdraft.map(money::to_dollars),
        rules: rules::write(&guard.rules),
        agents: guard.agents.iter().map(agent_text).collect(),
        ..proto::GuardConfig::default()
    };
    prices::write(&guard.prices, &mut config);
    config
}

fn window(duration_s: u32, max_calls: u32) -> Result<Option<Window>, Invalid> {
    match (above_zero(max_calls), span(duration_s)) {
        (Some(max_calls), Some(duration)) => Ok(Some(Window { duration, max_calls })),
        (Some(_), None) => Err(Invalid::new(
            "window_duration_s",
            "must be at least 1 when window_max_calls is set",
        )),
        (None, _) => Ok(None),
    }
}

fn window_of(window: Option<Window>) -> (u32, u32) {
    window.map_or((0, 0), |window| {
        (whole_seconds(window.duration), window.max_calls)
    })
}

fn rate(config: &proto::GuardConfig) -> Result<Option<Rate>, Invalid> {
    match (
        above_zero(config.rate_max_calls),
        span(config.rate_window_seconds),
    ) {
        (Some(calls), Some(span)) => Ok(Some(Rate { calls, span })),
        (Some(_), None) => Err(Invalid::new(
            "rate_window_seconds",
            "must be at least 1 when rate_max_calls is set",
        )),
        (None, _) => Ok(None),
    }
}

/// Files have 63 bits for a number.
fn max_tokens(tokens: u64) -> Result<Option<u64>, Invalid> {
    match i64::try_from(tokens) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(tokens)),
        Err(_) => Err(Invalid::new("max_tokens", "must be below 2^63")),
    }
}

fn on_deny_rules(words: &[String]) -> Result<RuleSet, Invalid> {
    words.iter().try_fold(RuleSet::EMPTY, |set, word| {
        match ON_DENY.iter().find(|(known, _)| known == word) {
            Some((_, rule)) => Ok(set.with(*rule)),
            None => {
                let known: Vec<_> = ON_DENY.iter().map(|(known, _)| *known).collect();
                Err(Invalid::new(
                    "on_deny_rules",
                    format!("must be of {}", known.join(", ")),
                ))
            }
        }
    })
}

fn agents(texts: &[String]) -> Result<Vec<AgentPattern>, Invalid> {
    at_most("agents", texts.len())?;
    let pattern = |text: &String| match text.strip_suffix('*') {
        Some("") => Ok(AgentPattern::Prefix(String::new())),
        Some(prefix) => id("agents", AgentId::parse(prefix))
            .map(|prefix| AgentPattern::Prefix(prefix.as_str().to_owned())),
        None => id("agents", AgentId::parse(text)).map(AgentPattern::Exact),
    };
    texts.iter().map(pattern).collect()
}

fn agent_text(pattern: &AgentPattern) -> String {
    match pattern {
        AgentPattern::Exact(agent) => agent.as_str().to_owned(),
        AgentPattern::Prefix(prefix) => format!("{prefix}*"),
    }
}

fn tools(field: &'static str, texts: &[String]) -> Result<Vec<ToolPattern>, Invalid> {
    texts.iter().map(|text| tool(field, text)).collect()
}

fn tool(field: &'static str, text: &str) -> Result<ToolPattern, Invalid> {
    ToolPattern::parse(text).map_err(|invalid| Invalid::new(field, invalid.to_string()))
}

/// Reads a list; what is wrong in one of its rows is named with the row's place.
fn at<T, U>(field: &str, rows: &[T], read: impl Fn(&T) -> Result<U, Invalid>) -> Result<Vec<U>, Invalid> {
    let row = |(place, row)| read(row).map_err(|invalid| invalid.within(&format!("{field}[{place}]")));
    rows.iter().enumerate().map(row).collect()
}

fn at_most(field: &'static str, length: usize) -> Result<(), Invalid> {
    if length > LIST_MAX {
        return Err(Invalid::new(field, format!("must be at most {LIST_MAX}")));
    }
    Ok(())
}

fn hitl(value: i32, threshold: PerBillion) -> Result<HitlRule, Invalid> {
    Ok(match known("hitl_mode", value)? {
        proto::HitlMode::HitlNever => HitlRule::Never,
        proto::HitlMode::HitlOnDeny => HitlRule::OnDeny,
        proto::HitlMode::HitlOnBudgetThreshold => HitlRule::OnThreshold(threshold),
        proto::HitlMode::HitlAlways => HitlRule::Always,
    })
}

fn above_zero(value: u32) -> Option<u32> {
    (value > 0).then_some(value)
}

fn span(seconds: u32) -> Option<DurationNs> {
    above_zero(seconds).map(|seconds| DurationNs::from_secs(u64::from(seconds)))
}

fn whole_seconds(span: DurationNs) -> u32 {
    u32::try_from(span.secs()).unwrap_or(u32::MAX)
}
