//! `haltgate guard`: the limits that sessions run under.

use client::request_id;
use daemon::GuardSection;
use serde_json::{Value, json};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::guards_client::GuardsClient;

use crate::args::{Guard, Output};
use crate::failed::{Failed, file};
use crate::print;
use crate::remote::Remote;

pub async fn run(command: Guard, output: Output) -> Result<(), Failed> {
    match command {
        Guard::Put {
            remote,
            scope,
            file: path,
            justification,
        } => {
            let text = std::fs::read_to_string(&path).map_err(file(&path))?;
            let wrong = |error: &dyn std::fmt::Display| Failed::usage(format!("{}: {error}", path.display()));
            let section: GuardSection = toml::from_str(&text).map_err(|error| wrong(&error))?;
            let guard = section.to_guard().map_err(|error| wrong(&error))?;
            let request = admin::GuardsPutRequest {
                request_id: request_id(),
                scope,
                config: Some(wire::guard_config::guard_config(&guard)),
                justification,
            };
            let put = |channel, request| async move { GuardsClient::new(channel).put(request).await };
            let answer = Remote::open(&remote)?.call(request, put).await?;
            print::object(output, &answer.guard.as_ref().map_or(Value::Null, guard_json));
        }
        Guard::Show { remote, scope } => {
            let request = admin::GuardsGetRequest {
                scope,
                effective: true,
            };
            let get = |channel, request| async move { GuardsClient::new(channel).get(request).await };
            let answer = Remote::open(&remote)?.call(request, get).await?;
            print::object(output, &answer.guard.as_ref().map_or(Value::Null, guard_json));
        }
        Guard::List { remote } => {
            let remote = Remote::open(&remote)?;
            let mut rows = Vec::new();
            let mut page_token = String::new();
            loop {
                let request = admin::GuardsListRequest {
                    page_size: 500,
                    page_token,
                };
                let list = |channel, request| async move { GuardsClient::new(channel).list(request).await };
                let answer = remote.call(request, list).await?;
                rows.extend(answer.guards.iter().map(guard_json));
                page_token = answer.next_page_token;
                if page_token.is_empty() {
                    break;
                }
            }
            let columns = [
                "scope",
                "version",
                "budget_usd",
                "max_repeat_calls",
                "max_total_calls",
                "timeout_seconds",
                "hitl_mode",
            ];
            print::list(output, &rows, &columns);
        }
    }
    Ok(())
}

fn guard_json(guard: &admin::Guard) -> Value {
    let config = guard.config.clone().unwrap_or_default();
    json!({
        "scope": guard.scope,
        "version": config.version,
        "budget_usd": config.budget_usd,
        "budget_scope": config.budget_scope().as_str_name().to_lowercase(),
        "max_repeat_calls": config.max_repeat_calls,
        "error_amplification": config.error_amplification,
        "timeout_seconds": config.timeout_seconds,
        "window_duration_s": config.window_duration_s,
        "window_max_calls": config.window_max_calls,
        "max_total_calls": config.max_total_calls,
        "probabilistic_deny": config.probabilistic_deny,
        "deny_jitter_ratio": config.deny_jitter_ratio,
        "hitl_mode": config.hitl_mode().as_str_name().to_lowercase(),
        "hitl_budget_threshold": config.hitl_budget_threshold,
        "hold_ttl_seconds": config.hold_ttl_seconds,
        "unsettled_policy": config.unsettled_policy().as_str_name().trim_start_matches("UNSETTLED_POLICY_").to_lowercase(),
        "trip_policy": config.trip_policy().as_str_name().trim_start_matches("TRIP_POLICY_").to_lowercase(),
        "default_cost_usd": config.default_cost_usd,
        "settle_at_least_hold": config.settle_at_least_hold,
        "require_params": config.require_params,
    })
}
