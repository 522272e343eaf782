//! `haltgate approvals`: what people are asked, and what they decide.

use client::request_id;
use serde_json::{Value, json};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::shackle::v1::Successor;

use crate::args::{Approvals, DecideApproval, Output};
use crate::export::{hex, unhex};
use crate::failed::Failed;
use crate::print;
use crate::remote::{PAGE, Remote};

pub async fn run(command: Approvals, output: Output) -> Result<(), Failed> {
    use admin::Ruling;
    match command {
        Approvals::List { remote, all } => list(&Remote::open(&remote)?, all, output).await,
        Approvals::Show { remote, approval } => {
            let shown = show(&Remote::open(&remote)?, approval).await?;
            let mut row = approval_json(&shown);
            if output == Output::Table {
                for_people(&mut row);
            }
            print::object(output, &row);
            Ok(())
        }
        Approvals::Approve { decide } => rule(decide, Ruling::Approve, None, output).await,
        Approvals::Reject { decide } => rule(decide, Ruling::Reject, None, output).await,
        Approvals::Defer { decide } => rule(decide, Ruling::Defer, None, output).await,
        Approvals::Escalate { decide } => rule(decide, Ruling::Escalate, None, output).await,
        Approvals::Modify { decide, params } => {
            let successor = Successor {
                params_json: params.into_bytes(),
                ..Successor::default()
            };
            rule(decide, Ruling::Modify, Some(successor), output).await
        }
        Approvals::Watch { remote } => watch(&Remote::open(&remote)?, output).await,
    }
}

async fn list(remote: &Remote, all: bool, output: Output) -> Result<(), Failed> {
    let page = |page_token| admin::ApprovalsListRequest {
        all,
        page_size: PAGE,
        page_token,
    };
    let rows = |answer: admin::ApprovalsListResponse| {
        let rows = answer.approvals.iter().map(approval_json).collect();
        (rows, answer.next_page_token)
    };
    let mut rows = remote.pages(page, rows).await?;
    let columns = [
        "approval",
        "status",
        "organization",
        "agent",
        "tool",
        "estimate_usd",
        "reason",
        "expires_at",
    ];
    if output == Output::Table {
        rows.iter_mut().for_each(for_people);
    }
    print::list(output, &rows, &columns);
    Ok(())
}

async fn show(remote: &Remote, approval_id: String) -> Result<admin::Approval, Failed> {
    let request = admin::ApprovalsGetRequest { approval_id };
    let answer = remote.call(request).await?;
    let shown = answer
        .approval
        .ok_or_else(|| Failed::refused("the node answered nothing".to_owned()))?;
    // What is echoed has to be of what was seen here, not of what the node says that it showed.
    if shown.status() == wire::proto::shackle::v1::ApprovalStatus::Pending {
        let seen = wire::approval::info_digest(&shown).map_err(|error| Failed::refused(error.to_string()))?;
        if seen.as_bytes() != shown.info_digest.as_slice() {
            return Err(Failed::refused(
                "info_digest is not of what the node showed: do not decide on it".to_owned(),
            ));
        }
    }
    Ok(shown)
}

async fn rule(
    decide: DecideApproval,
    ruling: admin::Ruling,
    successor: Option<Successor>,
    output: Output,
) -> Result<(), Failed> {
    let remote = Remote::open(&decide.remote)?;
    let info_digest = match decide.info_digest {
        Some(hex) => unhex(&hex, "info_digest")
            .map_err(|_| Failed::usage(format!("{hex:?} is not a digest in hex")))?,
        None => show(&remote, decide.approval.clone()).await?.info_digest,
    };
    let unseen = decide.unseen;
    let request = admin::ApprovalsDecideRequest {
        request_id: request_id(),
        approval_id: decide.approval,
        ruling: ruling.into(),
        info_digest,
        note: decide.note,
        successor,
        unseen,
    };
    let answer = remote.call(request).await?;
    let successor = answer.successor.as_ref();
    print::object(
        output,
        &json!({
            "approval": answer.approval_id,
            "status": word(answer.status().as_str_name()),
            "log_index": answer.log_index,
            "successor": successor.map(|successor| json!({
                "call_number": successor.call_number, "nonce": successor.nonce,
            })),
        }),
    );
    Ok(())
}

async fn watch(remote: &Remote, output: Output) -> Result<(), Failed> {
    let mut stream = remote.follow(admin::ApprovalsWatchRequest {}).await?;
    loop {
        let next = stream.message().await.map_err(Failed::from)?;
        let Some(next) = next else { return Ok(()) };
        let Some(approval) = next.approval else {
            match output {
                Output::Json => print::outln!("{}", json!({ "open_end": true, "log_index": next.log_index })),
                Output::Table => print::outln!("-- what was open ends here; from here on changes --"),
            }
            continue;
        };
        let row = approval_json(&approval);
        match output {
            Output::Json => print::outln!("{row}"),
            Output::Table => print::outln!(
                "{} {} {} {} {} {}",
                approval.approval_id,
                word(approval.status().as_str_name()),
                approval.organization_id,
                approval.agent_id,
                approval.tool_name,
                approval.reason
            ),
        }
    }
}

fn approval_json(approval: &admin::Approval) -> Value {
    let params = String::from_utf8_lossy(&approval.params_json).into_owned();
    let usd = decision::NanoUsd::new(approval.estimate_nanos).to_string();
    json!({
        "approval": approval.approval_id,
        "status": word(approval.status().as_str_name()),
        "organization": approval.organization_id,
        "agent": approval.agent_id,
        "session": approval.session_id,
        "requested_by": approval.requested_by,
        "call_number": approval.call_number,
        "tool": approval.tool_name,
        "params": params,
        "params_hash": hex(&approval.params_hash),
        "nonce": approval.nonce,
        "nonce_text": approval.nonce.to_string(),
        "estimate_usd": usd,
        "reason": approval.reason,
        "opened_at_ns": approval.opened_at_ns,
        "expires_at_ns": approval.expires_at_ns,
        "info_digest": hex(&approval.info_digest),
        "decided_by": approval.decided_by,
        "decided_at_ns": approval.decided_at_ns,
        "note": approval.note,
        "successor": approval.successor.as_ref().map(|successor| json!({
            "call_number": successor.call_number, "nonce": successor.nonce,
            "params": String::from_utf8_lossy(&successor.params_json),
        })),
    })
}

/// A table has the nonce once, and marks what people have decided and the agent has not used yet.
fn for_people(row: &mut Value) {
    let Some(fields) = row.as_object_mut() else { return };
    fields.remove("nonce_text");
    if let Some(Value::String(status)) = fields.get_mut("status")
        && matches!(status.as_str(), "approved" | "modified")
    {
        status.push_str(" (waiting for the agent)");
    }
}

/// `APPROVAL_STATUS_PENDING` is `pending`.
fn word(name: &str) -> String {
    name.trim_start_matches("APPROVAL_STATUS_").to_lowercase()
}
