//! `haltgate kill`: stop, release, and what each node has applied.

use std::time::Duration;

use client::request_id;
use serde_json::{Value, json};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::halts_client::HaltsClient;

use crate::args::{Kill, KillMode, Output};
use crate::failed::Failed;
use crate::print;
use crate::remote::Remote;

pub async fn run(command: Kill, output: Output) -> Result<(), Failed> {
    match command {
        Kill::Engage {
            remote,
            scope,
            reason,
            ticket,
            mode,
            ttl,
            two_person,
        } => {
            let request = admin::HaltsEngageRequest {
                request_id: request_id(),
                scope: scope.clone(),
                mode: match mode {
                    KillMode::Halt => admin::HaltMode::Halt,
                    KillMode::Pause => admin::HaltMode::Pause,
                    KillMode::Drain => admin::HaltMode::Drain,
                }
                .into(),
                reason,
                ticket,
                ttl_seconds: ttl.map_or(0, |ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX)),
                two_person,
            };
            let engage = |channel, request| async move { HaltsClient::new(channel).engage(request).await };
            let answer = Remote::open(&remote)?.call(request, engage).await?;
            let done = match mode {
                KillMode::Halt => ("stopped", "no node allows it any more"),
                KillMode::Pause => ("paused", "every call is a question"),
                KillMode::Drain => ("drained", "no node opens a session there any more"),
            };
            let (everywhere, so_far) = done;
            report(
                output,
                &Done {
                    scope: &scope,
                    engaged: true,
                    words: [
                        format!("{everywhere} on every node"),
                        format!("engaged: {so_far}, but not every node has confirmed"),
                    ],
                    log_index: answer.log_index,
                    epoch: answer.halt_epoch,
                },
                &answer.nodes,
            );
        }
        Kill::Release {
            remote,
            scope,
            justification,
            ticket,
        } => {
            let request = admin::HaltsReleaseRequest {
                request_id: request_id(),
                scope: scope.clone(),
                justification,
                ticket,
            };
            let release = |channel, request| async move { HaltsClient::new(channel).release(request).await };
            let answer = Remote::open(&remote)?.call(request, release).await?;
            let words = if answer.needs_second {
                let waits = "still engaged: another person has to release it, too";
                [waits.to_owned(), waits.to_owned()]
            } else {
                [
                    "released on every node".to_owned(),
                    "released, but not every node has confirmed".to_owned(),
                ]
            };
            report(
                output,
                &Done {
                    scope: &scope,
                    engaged: answer.needs_second,
                    words,
                    log_index: answer.log_index,
                    epoch: answer.halt_epoch,
                },
                &answer.nodes,
            );
        }
        Kill::Drill { remote } => return drill(&Remote::open(&remote)?, output).await,
        Kill::List { remote } => {
            let remote = Remote::open(&remote)?;
            let mut rows = Vec::new();
            let mut page_token = String::new();
            // Every page tells anew what the nodes have applied: a halt is on a node that has reached its epoch.
            loop {
                let request = admin::HaltsListRequest {
                    page_size: 500,
                    page_token,
                };
                let list = |channel, request| async move { HaltsClient::new(channel).list(request).await };
                let answer = remote.call(request, list).await?;
                rows.extend(answer.halts.iter().map(|row| halt(row, &answer.nodes)));
                page_token = answer.next_page_token;
                if page_token.is_empty() {
                    break;
                }
            }
            print::list(
                output,
                &rows,
                &[
                    "scope",
                    "mode",
                    "state",
                    "reason",
                    "ticket",
                    "engaged_by",
                    "epoch",
                    "nodes",
                ],
            );
        }
    }
    Ok(())
}

async fn drill(remote: &Remote, output: Output) -> Result<(), Failed> {
    let request = admin::HaltsDrillRequest {
        request_id: request_id(),
    };
    let drill = |channel, request| async move { HaltsClient::new(channel).drill(request).await };
    let answer = remote.call(request, drill).await?;
    let rows: Vec<Value> = answer
        .nodes
        .iter()
        .map(|node| {
            json!({
                "node": node.node_id,
                "reachable": node.reachable,
                "denied_after_ms": (node.denied_after_us > 0).then(|| millis(node.denied_after_us)),
                "answer": node.answer,
            })
        })
        .collect();
    match output {
        Output::Json => print::outln!(
            "{}",
            json!({
                "passed": answer.passed, "engaged_after_ms": millis(answer.engaged_after_us),
                "log_index": answer.log_index, "nodes": rows,
            })
        ),
        Output::Table => {
            print::list(output, &rows, &["node", "reachable", "denied_after_ms", "answer"]);
            let engaged = millis(answer.engaged_after_us);
            print::outln!("engaged after {engaged} ms; passed: {}", answer.passed);
        }
    }
    if answer.passed {
        Ok(())
    } else {
        Err(Failed::refused("a node did not deny: see above"))
    }
}

/// Microseconds as milliseconds with their fraction.
fn millis(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64() * 1e3
}

/// What was ordered, and how that is said where every node has confirmed and where not.
struct Done<'a> {
    scope: &'a str,
    engaged: bool,
    words: [String; 2],
    log_index: u64,
    epoch: u64,
}

fn has(node: &admin::NodeHaltEpoch, epoch: u64) -> bool {
    node.reachable && node.applied_epoch >= epoch
}

/// Says which nodes have it already; "stopped" only where every node has confirmed.
fn report(output: Output, done: &Done<'_>, nodes: &[admin::NodeHaltEpoch]) {
    let Done {
        scope,
        engaged,
        words: [everywhere, so_far],
        log_index,
        epoch,
    } = done;
    let confirmed = |node: &admin::NodeHaltEpoch| has(node, *epoch);
    let all = nodes.iter().all(confirmed);
    let words = if all { everywhere } else { so_far };
    match output {
        Output::Json => crate::print::outln!(
            "{}",
            json!({
                "scope": scope, "engaged": engaged, "log_index": log_index, "halt_epoch": epoch,
                "confirmed_by_all": all,
                "nodes": nodes.iter().map(|node| json!({
                    "node": node.node_id, "applied_epoch": node.applied_epoch, "reachable": node.reachable,
                    "confirmed": confirmed(node),
                })).collect::<Vec<_>>(),
            })
        ),
        Output::Table => {
            crate::print::outln!("{scope}: {words} (log index {log_index}, halt epoch {epoch})");
            for node in nodes {
                let says = match (node.reachable, confirmed(node)) {
                    (true, true) => "confirmed",
                    (true, false) => "has not applied it yet",
                    (false, _) => "does not answer",
                };
                crate::print::outln!("  node {}: {says}", node.node_id);
            }
        }
    }
}

/// One engaged scope and how far it has come: `stopped` only once every node that answers has applied it, and with
/// the names of those that did not.
fn halt(halt: &admin::Halt, nodes: &[admin::NodeHaltEpoch]) -> Value {
    let told: Vec<String> = nodes
        .iter()
        .map(|node| match (node.reachable, has(node, halt.epoch)) {
            (true, true) => format!("{}: {}", node.node_id, node.applied_epoch),
            (true, false) => format!("{}: {} (behind)", node.node_id, node.applied_epoch),
            (false, _) => format!("{}: does not answer", node.node_id),
        })
        .collect();
    let missing: Vec<u64> = nodes
        .iter()
        .filter(|node| !has(node, halt.epoch))
        .map(|node| node.node_id)
        .collect();
    let behind = nodes.iter().any(|node| node.reachable && !has(node, halt.epoch));
    let state = match (halt.mode(), behind, missing.as_slice()) {
        (_, true, _) => "engaged, not confirmed by every node",
        (admin::HaltMode::Halt | admin::HaltMode::Unspecified, false, []) => "stopped",
        (admin::HaltMode::Halt | admin::HaltMode::Unspecified, false, _) => {
            "stopped on every node that answers"
        }
        (admin::HaltMode::Pause, false, _) => "paused",
        (admin::HaltMode::Drain, false, _) => "drained",
    };
    json!({
        "state": state, "not_confirmed_by": missing, "nodes": told.join(", "),
        "node_epochs": nodes.iter().map(|node| json!({
            "node": node.node_id, "applied_epoch": node.applied_epoch, "reachable": node.reachable,
        })).collect::<Vec<_>>(),
        "until_ns": halt.until_ns, "two_person": halt.two_person, "release_asked_by": halt.release_asked_by,
        "scope": halt.scope, "mode": halt.mode().as_str_name().trim_start_matches("HALT_MODE_").to_lowercase(),
        "reason": halt.reason, "ticket": halt.ticket, "engaged_by": halt.engaged_by,
        "engaged_at_ns": halt.engaged_at_ns, "epoch": halt.epoch,
        "history": halt.history.iter().map(|event| json!({
            "engaged": event.engaged, "reason": event.reason, "by": event.by, "at_ns": event.at_ns,
            "epoch": event.epoch, "ticket": event.ticket,
        })).collect::<Vec<_>>(),
    })
}
