//! Settings from the environment: `HALTGATE_<SECTION>_<KEY>`.

use toml::{Table, Value};

const PREFIX: &str = "HALTGATE_";

/// The settings of each section, and whether each is text. Variables of other names under the prefix are
/// the command line's, unless they begin with a section's name: then they are a typo.
const SECTIONS: [(&str, &[&str], &[&str]); 10] = [
    ("node", &["name", "data_dir"], &["id"]),
    (
        "listen",
        &[
            "grpc",
            "peer",
            "http",
            "advertise_grpc",
            "advertise_peer",
            "advertise_http",
        ],
        &[],
    ),
    ("tls", &["ca", "cert", "key", "trust_domain"], &[]),
    (
        "cluster",
        &[],
        &["members", "bootstrap", "unfunded_organizations"],
    ),
    (
        "guard",
        &[
            "budget_scope",
            "hitl_mode",
            "unsettled_policy",
            "trip_policy",
            "pause_scope",
            "mode",
            "latch_scope",
        ],
        &[
            "budget_usd",
            "max_repeat_calls",
            "error_amplification",
            "timeout_seconds",
            "window_duration_s",
            "window_max_calls",
            "max_total_calls",
            "probabilistic_deny",
            "deny_jitter_ratio",
            "hitl_budget_threshold",
            "hold_ttl_seconds",
            "default_cost_usd",
            "settle_at_least_hold",
            "require_params",
            "approval_ttl_seconds",
            "allowed_tools",
            "rate_max_calls",
            "rate_window_seconds",
            "breakers",
            "max_tokens",
            "max_cost_usd",
            "tool_prices",
            "model_prices",
            "other_models",
            "tool_overrides",
            "on_deny_rules",
            "max_sessions_per_agent",
            "max_sessions_per_organization",
            "ticket_ttl_seconds",
            "warn_ratio",
            "max_overdraft_usd",
            "rules",
        ],
    ),
    (
        "limits",
        &[],
        &[
            "message_bytes",
            "pre_exec_bytes",
            "calls_per_second_per_session",
            "registers_per_second_per_address",
            "in_flight",
            "stream_in_flight",
            "connections",
            "deadline_ms",
            "deadline_max_ms",
        ],
    ),
    ("audit", &["signing_key"], &[]),
    (
        "timing",
        &[],
        &["heartbeat_ms", "election_min_ms", "election_max_ms"],
    ),
    ("raft", &[], &["snapshot_every", "log_kept"]),
    ("log", &["level", "format"], &[]),
];

/// A variable that cannot be a setting.
#[derive(Debug, thiserror::Error)]
#[error("the variable {variable}: {message}")]
pub struct InvalidVariable {
    variable: String,
    message: String,
}

/// Lays the variables over the table; says whether there was any.
///
/// # Errors
/// A variable of a section that has no such key, or a value that TOML cannot read.
pub(crate) fn overlay(
    table: &mut Table,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<bool, InvalidVariable> {
    let mut overlaid = false;
    for (variable, text) in variables {
        let Some(name) = variable.strip_prefix(PREFIX).map(str::to_ascii_lowercase) else {
            continue;
        };
        let Some((section, texts, others)) = SECTIONS.iter().find(|(section, ..)| {
            name.strip_prefix(section)
                .is_some_and(|rest| rest.starts_with('_'))
        }) else {
            continue;
        };
        let key = name.get(section.len().saturating_add(1)..).unwrap_or_default();
        let wrong = |message: String| InvalidVariable {
            variable: variable.clone(),
            message,
        };
        let value = if texts.contains(&key) {
            Value::String(text)
        } else if others.contains(&key) {
            literal(&text).ok_or_else(|| wrong(format!("{section}.{key} cannot be {text:?}")))?
        } else {
            return Err(wrong(format!("there is no setting {section}.{key}")));
        };
        let entry = table
            .entry((*section).to_owned())
            .or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(keys) = entry else {
            return Err(wrong(format!("{section} is not a section in the file")));
        };
        keys.insert(key.to_owned(), value);
        overlaid = true;
    }
    Ok(overlaid)
}

/// A number, a bool, a list or a table on one line, as in the file.
fn literal(text: &str) -> Option<Value> {
    let line: Table = format!("value = {text}").parse().ok()?;
    match line.len() {
        1 => line.into_iter().next().map(|(_, value)| value),
        _ => None,
    }
}
