//! `haltgate kill`: stop, release, and what each node has applied.

use std::time::Duration;

use client::request_id;
use serde_json::{Value, json};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::HaltMode;

use crate::args::{Kill, KillMode, Output};
use crate::failed::{End, Failed};
use crate::print;
use crate::remote::{PAGE, Remote};

/// How long the question may take whether there is anything of a scope: people wait for what was stopped.
const LOOK: Duration = Duration::from_secs(1);

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
                scope,
                mode: match mode {
                    KillMode::Halt => HaltMode::Halt,
                    KillMode::Pause => HaltMode::Pause,
                    KillMode::Drain => HaltMode::Drain,
                }
                .into(),
                reason,
                ticket,
                ttl_seconds: ttl.map_or(0, |ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX)),
                two_person,
            };
            engage(&Remote::open(&remote)?, request, output).await
        }
        Kill::Release {
            remote,
            scope,
            justification,
            ticket,
        } => {
            let request = admin::HaltsReleaseRequest {
                request_id: request_id(),
                scope,
                justification,
                ticket,
            };
            release(&Remote::open(&remote)?, request, output).await
        }
        Kill::Drill { remote } => drill(&Remote::open(&remote)?, output).await,
        Kill::List { remote } => list(&Remote::open(&remote)?, output).await,
    }
}

async fn engage(remote: &Remote, request: admin::HaltsEngageRequest, output: Output) -> Result<(), Failed> {
    let scope = request.scope.clone();
    let asked = request.mode();
    let answer = remote.call(request).await?;
    let (in_force, until_ns) = match &answer.halt {
        Some(halt) => (halt.mode(), halt.until_ns),
        None => (asked, 0),
    };
    let seen = seen(remote, &scope).await;
    report(
        output,
        &Done {
            scope: &scope,
            engaged: true,
            words: engaged_words(in_force, asked, until_ns),
            log_index: answer.log_index,
            epoch: answer.halt_epoch,
            waits: false,
            more: json!({
                "mode": mode_word(in_force), "mode_asked": mode_word(asked), "until_ns": until_ns,
                "already_engaged": answer.already_engaged, "seen": seen,
            }),
        },
        &answer.nodes,
    );
    if seen == Some(false) {
        eprintln!("haltgate: nothing of {scope} has been seen: is the name right?");
    }
    Ok(())
}

/// How it is said that a scope is engaged, where every node has confirmed and where not. The mode in force decides: it
/// may be a stronger one than was asked for.
fn engaged_words(in_force: HaltMode, asked: HaltMode, until_ns: i64) -> [String; 2] {
    let (state, effect) = match in_force {
        HaltMode::Halt | HaltMode::Unspecified => ("stopped", "no node allows it any more"),
        HaltMode::Pause => ("paused", "every call is a question"),
        HaltMode::Drain => ("drained", "no node opens a session there any more"),
    };
    let until = match until_ns {
        0 => String::new(),
        until => format!(", until {}", print::utc(i128::from(until))),
    };
    if mode_word(in_force) == mode_word(asked) {
        return [
            format!("{state} on every node{until}"),
            format!("engaged: {effect}{until}, but not every node has confirmed"),
        ];
    }
    let stays = format!("stays {state} (the stronger mode stays); {effect}{until}");
    [
        format!("{stays}, on every node"),
        format!("{stays}, but not every node has confirmed"),
    ]
}

fn mode_word(mode: HaltMode) -> &'static str {
    match mode {
        HaltMode::Halt | HaltMode::Unspecified => "halt",
        HaltMode::Pause => "pause",
        HaltMode::Drain => "drain",
    }
}

/// Whether there is a session or an account of an organization or an agent; none, where that cannot be told.
async fn seen(remote: &Remote, scope: &str) -> Option<bool> {
    let parts: Vec<&str> = scope.split('/').collect();
    if !matches!(parts.as_slice(), ["org", _] | ["org", _, "agent", _]) {
        return None;
    }
    tokio::time::timeout(LOOK, look(remote, scope))
        .await
        .ok()
        .flatten()
}

async fn look(remote: &Remote, scope: &str) -> Option<bool> {
    let request = admin::SessionsListRequest {
        scope: scope.to_owned(),
        page_size: 1,
        ..admin::SessionsListRequest::default()
    };
    let sessions = remote.pool.call(&request, LOOK).await.ok()?;
    if !sessions.sessions.is_empty() {
        return Some(true);
    }
    let request = admin::BudgetsGetRequest {
        scope: scope.to_owned(),
    };
    match remote.pool.call(&request, LOOK).await {
        Ok(answer) => Some(answer.account.is_some()),
        Err(status) => (status.code() == tonic::Code::NotFound).then_some(false),
    }
}

async fn release(remote: &Remote, request: admin::HaltsReleaseRequest, output: Output) -> Result<(), Failed> {
    let scope = request.scope.clone();
    let answer = remote.call(request).await?;
    let needs_second = answer.needs_second;
    let words = if needs_second {
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
            engaged: needs_second,
            words,
            log_index: answer.log_index,
            epoch: answer.halt_epoch,
            waits: needs_second,
            more: json!({ "needs_second": needs_second }),
        },
        &answer.nodes,
    );
    if needs_second {
        let waits = format!("{scope} waits for the release of another person");
        return Err(Failed::new(End::NeedsHuman, waits));
    }
    Ok(())
}

async fn list(remote: &Remote, output: Output) -> Result<(), Failed> {
    let page = |page_token| admin::HaltsListRequest {
        page_size: PAGE,
        page_token,
    };
    // Every page tells anew what the nodes have applied: a halt is on a node that has reached its epoch.
    let rows = |answer: admin::HaltsListResponse| {
        let rows = answer.halts.iter().map(|row| halt(row, &answer.nodes));
        (rows.collect(), answer.next_page_token)
    };
    let rows: Vec<Value> = remote.pages(page, rows).await?;
    let columns = [
        "scope",
        "mode",
        "state",
        "reason",
        "ticket",
        "engaged_by",
        "engaged_at",
        "until",
        "epoch",
        "nodes",
    ];
    print::list(output, &rows, &columns);
    Ok(())
}

async fn drill(remote: &Remote, output: Output) -> Result<(), Failed> {
    let request = admin::HaltsDrillRequest {
        request_id: request_id(),
    };
    let answer = remote.call(request).await?;
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

/// Microseconds as milliseconds, to the hundredth.
fn millis(micros: u64) -> f64 {
    (Duration::from_micros(micros).as_secs_f64() * 1e5).round() / 100.0
}

/// What was ordered, and how that is said where every node has confirmed and where not.
struct Done<'a> {
    scope: &'a str,
    engaged: bool,
    words: [String; 2],
    log_index: u64,
    epoch: u64,
    /// Nothing was done yet that a node could confirm.
    waits: bool,
    /// Further fields in JSON.
    more: Value,
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
        waits,
        more,
    } = done;
    let confirmed = |node: &admin::NodeHaltEpoch| !waits && has(node, *epoch);
    let all = nodes.iter().all(confirmed) && !waits;
    let words = if all { everywhere } else { so_far };
    match output {
        Output::Json => {
            let mut value = json!({
                "scope": scope, "engaged": engaged, "log_index": log_index, "halt_epoch": epoch,
                "confirmed_by_all": all,
                "nodes": nodes.iter().map(|node| json!({
                    "node": node.node_id, "applied_epoch": node.applied_epoch, "reachable": node.reachable,
                    "confirmed": confirmed(node),
                })).collect::<Vec<_>>(),
            });
            if let (Some(fields), Some(more)) = (value.as_object_mut(), more.as_object()) {
                fields.extend(more.clone());
            }
            print::outln!("{value}");
        }
        Output::Table => {
            print::outln!("{scope}: {words} (log index {log_index}, halt epoch {epoch})");
            for node in nodes.iter().filter(|_| !waits) {
                let says = match (node.reachable, confirmed(node)) {
                    (true, true) => "confirmed",
                    (true, false) => "has not applied it yet",
                    (false, _) => "does not answer",
                };
                print::outln!("  node {}: {says}", node.node_id);
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
        (HaltMode::Halt | HaltMode::Unspecified, false, []) => "stopped",
        (HaltMode::Halt | HaltMode::Unspecified, false, _) => "stopped on every node that answers",
        (HaltMode::Pause, false, _) => "paused",
        (HaltMode::Drain, false, _) => "drained",
    };
    json!({
        "state": state, "not_confirmed_by": missing, "nodes": told.join(", "),
        "node_epochs": nodes.iter().map(|node| json!({
            "node": node.node_id, "applied_epoch": node.applied_epoch, "reachable": node.reachable,
        })).collect::<Vec<_>>(),
        "until_ns": halt.until_ns, "two_person": halt.two_person, "release_asked_by": halt.release_asked_by,
        "scope": halt.scope, "mode": mode_word(halt.mode()),
        "reason": halt.reason, "ticket": halt.ticket, "engaged_by": halt.engaged_by,
        "engaged_at_ns": halt.engaged_at_ns, "epoch": halt.epoch,
        "history": halt.history.iter().map(|event| json!({
            "engaged": event.engaged, "reason": event.reason, "by": event.by, "at_ns": event.at_ns,
            "epoch": event.epoch, "ticket": event.ticket,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::{HaltMode, engaged_words};

    #[test]
    fn the_words_are_of_the_mode_in_force() {
        let [everywhere, so_far] = engaged_words(HaltMode::Pause, HaltMode::Drain, 0);
        for words in [&everywhere, &so_far] {
            assert!(
                words.starts_with("stays paused (the stronger mode stays); "),
                "{words}"
            );
            assert!(!words.contains("drained"), "{words}");
        }
        let [everywhere, _] = engaged_words(HaltMode::Drain, HaltMode::Drain, 1_709_210_096_000_000_000);
        assert_eq!(everywhere, "drained on every node, until 2024-02-29T12:34:56Z");
    }
}
