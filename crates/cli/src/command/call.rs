//! `haltgate call`: one PreExec by hand. The exit code is the verdict.

use std::time::Duration;

use client::{Client, request_id};
use decision::Digest;
use serde_json::json;
use tokio::time::Instant;
use wire::proto::shackle::v1 as sp;

use crate::args::{Call, Output};
use crate::export::hex;
use crate::failed::{End, Failed};
use crate::print;
use crate::remote::{Remote, credentials, dollars};

/// The pause before a call is sent again that people have decided about.
const AGAIN: Duration = Duration::from_millis(500);

pub async fn run(call: Call, output: Output) -> Result<(), Failed> {
    let client =
        Client::open(&call.remote.endpoints, &credentials(&call.remote))?.within(call.remote.timeout);
    let asked = request(&call).await?;
    let (asked, answer) = answered(&client, asked, call.wait).await?;
    show(output, &asked, &answer);
    match answer.verdict() {
        sp::Verdict::Allow => Ok(()),
        sp::Verdict::Hitl => {
            if output == Output::Table {
                print::outln!("{}", go_on(&asked));
            }
            Err(Failed::new(End::NeedsHuman, answer.human_readable_reason))
        }
        sp::Verdict::Deny | sp::Verdict::Unspecified => Err(Failed::refused(answer.human_readable_reason)),
    }
}

/// The call that the command line tells: the same line with a request id is the same call.
async fn request(call: &Call) -> Result<sp::PreExecRequest, Failed> {
    let estimated_cost_nanos = match &call.cost {
        Some(cost) => Some(dollars(cost)?.nanos()),
        None => None,
    };
    let request_id = call.request_id.clone().unwrap_or_else(request_id);
    Ok(sp::PreExecRequest {
        session_id: session(call, &request_id).await?,
        call_number: call.number,
        tool_name: call.tool.clone(),
        params_json: call.params.clone().into_bytes(),
        estimated_cost_nanos,
        tags: call.tag.iter().cloned().collect(),
        nonce: call.nonce.unwrap_or_else(|| nonce_of(&request_id)),
        approval_id: call.approval.clone().unwrap_or_default(),
        request_id,
        ..sp::PreExecRequest::default()
    })
}

/// The session that is named, or the one that was opened for this request id.
async fn session(call: &Call, request_id: &str) -> Result<String, Failed> {
    let (organization, agent) = match (&call.session, &call.org, &call.agent) {
        (Some(session), _, _) => return Ok(session.clone()),
        (None, Some(organization), Some(agent)) => (organization, agent),
        (None, _, _) => {
            return Err(Failed::usage(
                "name a --session, or --org and --agent to open one",
            ));
        }
    };
    let request = sp::RegisterRequest {
        agent_id: agent.clone(),
        organization_id: organization.clone(),
        guard_id: call.guard.clone().unwrap_or_default(),
        framework: "haltgate-cli".to_owned(),
        protocol_version: "1.0.0".to_owned(),
        request_id: session_request(request_id),
        ..sp::RegisterRequest::default()
    };
    let answer = Remote::open(&call.remote)?.call(request).await?;
    Ok(answer.session_id)
}

/// The request id that opens the session of a call.
fn session_request(request_id: &str) -> String {
    let digest = hex(Digest::of(request_id.as_bytes()).as_bytes());
    format!("session-{}", digest.get(..32).unwrap_or(&digest))
}

/// The nonce of a request id: the same id, the same nonce. 53 bits, so that every JSON reader keeps it; never 0, which
/// means "missing".
fn nonce_of(request_id: &str) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *Digest::of(request_id.as_bytes()).as_bytes();
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]) & ((1 << 53) - 1)).max(1)
}

/// Asks; where people are asked and there is time to wait, goes on as they decide. Gives the call that was answered.
async fn answered(
    client: &Client,
    mut asked: sp::PreExecRequest,
    wait: Option<Duration>,
) -> Result<(sp::PreExecRequest, sp::PreExecResponse), Failed> {
    let until = wait.map(|wait| Instant::now() + wait);
    let mut told = String::new();
    loop {
        let answer = client.pre_exec(asked.clone()).await?;
        let left = until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        if answer.verdict() != sp::Verdict::Hitl || left.is_zero() {
            return Ok((asked, answer));
        }
        if told != answer.approval_id {
            told.clone_from(&answer.approval_id);
            eprintln!("haltgate: waits for a person to decide {told}");
        }
        let waiting = client.wait_approval(&answer.session_id, &answer.approval_id, left);
        let Ok(decided) = waiting.await else {
            return Ok((asked, answer));
        };
        asked = next(asked, answer.approval_id, decided);
        tokio::time::sleep(AGAIN.min(left)).await;
    }
}

/// What has to be asked once people have decided: the same call, or the one they put in its place.
fn next(
    asked: sp::PreExecRequest,
    approval_id: String,
    decided: sp::WaitApprovalResponse,
) -> sp::PreExecRequest {
    let modified = decided.status() == sp::ApprovalStatus::Modified;
    match decided.successor.filter(|_| modified) {
        Some(successor) => sp::PreExecRequest {
            call_number: match successor.call_number {
                0 => asked.call_number.saturating_add(1),
                number => number,
            },
            params_json: successor.params_json,
            nonce: successor.nonce,
            request_id: if successor.request_id.is_empty() {
                request_id()
            } else {
                successor.request_id
            },
            approval_id,
            ..asked
        },
        None => sp::PreExecRequest { approval_id, ..asked },
    }
}

fn show(output: Output, asked: &sp::PreExecRequest, answer: &sp::PreExecResponse) {
    let mut shown = json!({
        "session": answer.session_id,
        "call_number": answer.call_number,
        "request_id": asked.request_id,
        "nonce": asked.nonce,
        "verdict": answer.verdict().as_str_name(),
        "reason": answer.reason,
        "budget_remaining_nanos": answer.budget_remaining_nanos,
        "repeat_count": answer.repeat_count,
        "blocked_by_scope": answer.blocked_by_scope,
        "approval_id": answer.approval_id,
        "replayed": answer.replayed,
        "log_index": answer.log_index,
        "audit_sequence": answer.audit_sequence,
        "halt_epoch": answer.halt_epoch,
    });
    if let (Output::Json, Some(fields)) = (output, shown.as_object_mut()) {
        fields.insert("warnings".to_owned(), json!(answer.warnings));
        fields.insert("retry_after_ms".to_owned(), json!(answer.retry_after_ms));
        fields.insert("authorization".to_owned(), json!(hex(&answer.authorization)));
    }
    print::object(output, &shown);
}

/// How to ask again for a call that waits for a person.
fn go_on(asked: &sp::PreExecRequest) -> String {
    let id = &asked.request_id;
    let mut line = format!(
        "waits for a person; send it again with --request-id {id} --session {} --number {}",
        asked.session_id, asked.call_number
    );
    if asked.nonce != nonce_of(id) {
        line.push_str(&format!(" --nonce {}", asked.nonce));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{nonce_of, session_request};

    #[test]
    fn a_request_id_has_one_nonce_and_one_session() {
        assert_eq!(nonce_of("R"), nonce_of("R"));
        assert_ne!(nonce_of("R"), nonce_of("S"));
        assert!((1..1 << 53).contains(&nonce_of("R")));
        assert_eq!(session_request("R"), session_request("R"));
        assert!(session_request("R").len() <= 64);
    }
}
