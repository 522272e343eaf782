//! `haltgate call`: one PreExec by hand. The exit code is the verdict.

use client::{Client, Registration, request_id};
use serde_json::json;
use wire::proto::shackle::v1 as sp;

use crate::args::{Call, Output};
use crate::failed::{End, Failed};
use crate::print;
use crate::remote::{credentials, dollars};

pub async fn run(call: Call, output: Output) -> Result<(), Failed> {
    let client =
        Client::open(&call.remote.endpoints, &credentials(&call.remote))?.within(call.remote.timeout);
    let session = match (&call.session, &call.org, &call.agent) {
        (Some(session), _, _) => session.clone(),
        (None, Some(organization), Some(agent)) => {
            let registration = Registration {
                organization: organization.clone(),
                agent: agent.clone(),
                guard: call.guard.clone(),
                ..Registration::default()
            };
            client.register(&registration).await?.session_id
        }
        (None, _, _) => {
            return Err(Failed::usage(
                "name a --session, or --org and --agent to open one",
            ));
        }
    };
    let estimated_cost_nanos = match &call.cost {
        Some(cost) => Some(dollars(cost)?.nanos()),
        None => None,
    };
    let request = sp::PreExecRequest {
        session_id: session,
        call_number: call.number,
        tool_name: call.tool,
        params_json: call.params.into_bytes(),
        estimated_cost_nanos,
        tags: call.tag.into_iter().collect(),
        nonce: call.nonce.unwrap_or_else(client::nonce),
        request_id: call.request_id.unwrap_or_else(request_id),
        ..sp::PreExecRequest::default()
    };
    let answer = client.pre_exec(request).await?;
    let verdict = answer.verdict();
    print::object(
        output,
        &json!({
            "session": answer.session_id,
            "call_number": answer.call_number,
            "verdict": verdict.as_str_name(),
            "reason": answer.reason,
            "budget_remaining_nanos": answer.budget_remaining_nanos,
            "repeat_count": answer.repeat_count,
            "blocked_by_scope": answer.blocked_by_scope,
            "approval_id": answer.approval_id,
            "replayed": answer.replayed,
            "log_index": answer.log_index,
            "audit_sequence": answer.audit_sequence,
            "halt_epoch": answer.halt_epoch,
        }),
    );
    match verdict {
        sp::Verdict::Allow => Ok(()),
        sp::Verdict::Hitl => Err(Failed::new(End::NeedsHuman, answer.human_readable_reason)),
        sp::Verdict::Deny | sp::Verdict::Unspecified => Err(Failed::refused(answer.human_readable_reason)),
    }
}
