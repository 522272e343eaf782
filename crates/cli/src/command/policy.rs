//! `haltgate policy`: what a call would get, and why. The exit code is the verdict.

use decision::NanoUsd;
use serde_json::json;
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::guards_check_request::Subject;
use wire::proto::shackle::v1::Verdict;

use crate::args::{Output, Policy};
use crate::failed::{End, Failed};
use crate::print;
use crate::remote::{Remote, dollars};

pub async fn run(Policy::Check(check): Policy, output: Output) -> Result<(), Failed> {
    let subject = match (check.session, check.agent) {
        (Some(session), _) => Subject::SessionId(session),
        (None, Some(agent)) => Subject::Agent(agent),
        (None, None) => return Err(Failed::usage("name a --session or an --agent")),
    };
    let estimated_cost_nanos = match &check.cost {
        Some(cost) => Some(dollars(cost)?.nanos()),
        None => None,
    };
    let request = admin::GuardsCheckRequest {
        subject: Some(subject),
        guard_id: check.guard.unwrap_or_default(),
        tool_name: check.tool,
        params_json: check.params.unwrap_or_default().into_bytes(),
        estimated_cost_nanos,
        tags: check.tag.into_iter().collect(),
    };
    let answer = Remote::open(&check.remote)?.call(request).await?;
    let verdict = answer.verdict();
    let mut shown = json!({
        "verdict": verdict.as_str_name(),
        "reason": answer.reason,
        "all_reasons": answer.all_reasons,
        "guards": answer.guards,
        "hold": NanoUsd::new(answer.hold_nanos).to_string(),
        "log_index": answer.log_index,
    });
    if let (Output::Json, Some(fields)) = (output, shown.as_object_mut()) {
        let effective = serde_json::to_value(answer.effective.unwrap_or_default())
            .map_err(|error| Failed::refused(format!("the guard cannot be shown: {error}")))?;
        fields.insert("effective".to_owned(), effective);
    }
    print::object(output, &shown);
    match verdict {
        Verdict::Allow => Ok(()),
        Verdict::Hitl => Err(Failed::new(End::NeedsHuman, "a person would be asked")),
        Verdict::Deny | Verdict::Unspecified => Err(Failed::refused("the call would be denied")),
    }
}
