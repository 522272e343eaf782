//! `haltgate kill`: stop, release, and what each node has applied.

use client::request_id;
use serde_json::{Value, json};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::halts_client::HaltsClient;

use crate::args::{Kill, Output};
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
        } => {
            let request = admin::HaltsEngageRequest {
                request_id: request_id(),
                scope: scope.clone(),
                mode: admin::HaltMode::Halt.into(),
                reason,
                ticket,
            };
            let engage = |channel, request| async move { HaltsClient::new(channel).engage(request).await };
            let answer = Remote::open(&remote)?.call(request, engage).await?;
            report(
                output,
                &scope,
                true,
                answer.log_index,
                answer.halt_epoch,
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
            report(
                output,
                &scope,
                false,
                answer.log_index,
                answer.halt_epoch,
                &answer.nodes,
            );
        }
        Kill::List { remote } => {
            let remote = Remote::open(&remote)?;
            let mut rows = Vec::new();
            let mut page_token = String::new();
            loop {
                let request = admin::HaltsListRequest {
                    page_size: 500,
                    page_token,
                };
                let list = |channel, request| async move { HaltsClient::new(channel).list(request).await };
                let answer = remote.call(request, list).await?;
                rows.extend(answer.halts.iter().map(halt));
                page_token = answer.next_page_token;
                if page_token.is_empty() {
                    break;
                }
            }
            print::list(
                output,
                &rows,
                &["scope", "mode", "reason", "ticket", "engaged_by", "epoch"],
            );
        }
    }
    Ok(())
}

/// Says which nodes refuse already; "stopped" only where every node has confirmed.
fn report(
    output: Output,
    scope: &str,
    engaged: bool,
    log_index: u64,
    epoch: u64,
    nodes: &[admin::NodeHaltEpoch],
) {
    let confirmed = |node: &admin::NodeHaltEpoch| node.reachable && node.applied_epoch >= epoch;
    let all = nodes.iter().all(confirmed);
    let words = match (engaged, all) {
        (true, true) => "stopped on every node",
        (true, false) => "engaged: no node allows it any more, but not every node has confirmed",
        (false, true) => "released on every node",
        (false, false) => "released, but not every node has confirmed",
    };
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

fn halt(halt: &admin::Halt) -> Value {
    json!({
        "scope": halt.scope, "mode": halt.mode().as_str_name().trim_start_matches("HALT_MODE_").to_lowercase(),
        "reason": halt.reason, "ticket": halt.ticket, "engaged_by": halt.engaged_by,
        "engaged_at_ns": halt.engaged_at_ns, "epoch": halt.epoch,
        "history": halt.history.iter().map(|event| json!({
            "engaged": event.engaged, "reason": event.reason, "by": event.by, "at_ns": event.at_ns,
            "epoch": event.epoch,
        })).collect::<Vec<_>>(),
    })
}
