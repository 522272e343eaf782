//! Approvals: what people are shown and decide, and what agents are told of it.

use decision::{ApprovalId, Digest, NanoUsd, OrganizationId, RequestId, Timestamp, params};
use machine::command::{Decide, Principal, Ruling, Successor};
use machine::query::ApprovalPlace;
use machine::reply::ApprovalReply;
use machine::row::{Approval, ApprovalStatus};

use crate::admin::REASON_BYTES_MAX;
use crate::guard::{PARAMS_BYTES_MAX, nanoseconds};
use crate::invalid::{Invalid, bounded, id, known};
use crate::page::{self, Page};
use crate::payload::{Payload, required_request};
use crate::proto::haltgate::admin::v1 as admin;
use crate::proto::shackle::v1 as proto;

/// Reads the name of an approval.
pub fn approval_id(text: &str) -> Result<ApprovalId, Invalid> {
    id("approval_id", ApprovalId::parse(text))
}

/// Reads which part of the approvals is wanted.
pub fn approvals_page(message: &admin::ApprovalsListRequest) -> Result<Page<ApprovalPlace>, Invalid> {
    page::parse(message.page_size, &message.page_token, |token| {
        let (organization, id) = token.split_once('/')?;
        Some((
            OrganizationId::parse(organization).ok()?,
            ApprovalId::parse(id).ok()?,
        ))
    })
}

/// What a held call would be run with, and what would run in its place: kept beside the log.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    pub call: Vec<u8>,
    pub successor: Vec<u8>,
}

/// Reads a person's decision.
pub fn decide(message: &admin::ApprovalsDecideRequest, by: Principal) -> Result<Decide, Invalid> {
    let approval = approval_id(&message.approval_id)?;
    let ruling = match (known("ruling", message.ruling)?, &message.successor) {
        (admin::Ruling::Unspecified, _) => {
            return Err(Invalid::new("ruling", "is needed: nothing is decided by default"));
        }
        (admin::Ruling::Approve, None) => Ruling::Approve,
        (admin::Ruling::Reject, None) => Ruling::Reject,
        (admin::Ruling::Defer, None) => Ruling::Defer,
        (admin::Ruling::Escalate, None) => Ruling::Escalate,
        (admin::Ruling::Modify, Some(said)) => {
            Ruling::Modify(successor(said).map_err(|invalid| invalid.within("successor"))?)
        }
        (admin::Ruling::Modify, None) => return Err(Invalid::new("successor", "is needed")),
        (_, Some(_)) => return Err(Invalid::new("successor", "goes with RULING_MODIFY only")),
    };
    let info_digest = Digest::from_slice(&message.info_digest).ok_or_else(|| {
        Invalid::new(
            "info_digest",
            "must be the 32 bytes that the approval was shown with",
        )
    })?;
    bounded("note", &message.note, 0, REASON_BYTES_MAX)?;
    let request = required_request(&message.request_id, || {
        let payload = Payload::of("decide")
            .text(approval.as_str())
            .text(ruling.word())
            .bytes(info_digest.as_bytes())
            .text(&message.note);
        match &ruling {
            Ruling::Modify(successor) => payload
                .number(successor.call_number)
                .number(successor.nonce)
                .bytes(successor.digest.as_bytes()),
            Ruling::Approve | Ruling::Reject | Ruling::Defer | Ruling::Escalate => payload,
        }
    })?;
    Ok(Decide {
        by,
        approval,
        ruling,
        info_digest,
        note: message.note.clone(),
        request,
    })
}

/// Reads the call that shall run in the place of the held one.
fn successor(said: &proto::Successor) -> Result<Successor, Invalid> {
    if said.params_json.is_empty() || said.params_json.len() > PARAMS_BYTES_MAX {
        return Err(Invalid::new(
            "params_json",
            format!("must be 1 to {PARAMS_BYTES_MAX} bytes"),
        ));
    }
    let digest = params::inspect(&said.params_json)
        .digest
        .ok_or_else(|| Invalid::new("params_json", "must be a canonicalizable JSON object"))?;
    if !said.params_hash.is_empty() && said.params_hash != digest.as_bytes() {
        return Err(Invalid::new("params_hash", "is not of params_json"));
    }
    let request = match said.request_id.as_str() {
        "" => None,
        named => Some(id("request_id", RequestId::parse(named))?),
    };
    Ok(Successor {
        call_number: said.call_number,
        nonce: said.nonce,
        digest,
        request,
    })
}

/// Writes an approval as people see it; one of many is shown without arguments.
pub fn approval(approval_id: &ApprovalId, approval: &Approval, arguments: Arguments) -> admin::Approval {
    let decided = approval.decided.as_ref();
    admin::Approval {
        approval_id: approval_id.as_str().to_owned(),
        session_id: approval.session.as_str().to_owned(),
        organization_id: approval.organization.as_str().to_owned(),
        agent_id: approval.agent.as_str().to_owned(),
        requested_by: approval.requested_by.clone(),
        call_number: approval.call_number,
        tool_name: approval.tool.as_str().to_owned(),
        params_hash: approval
            .digest
            .map(|digest| digest.as_bytes().to_vec())
            .unwrap_or_default(),
        nonce: approval.nonce,
        estimate_nanos: approval.estimate.nanos(),
        reason: approval.why.word().into_owned(),
        policy_digest: approval.policy_digest.as_bytes().to_vec(),
        opened_at_ns: nanoseconds(approval.opened_at),
        expires_at_ns: nanoseconds(approval.expires_at),
        params_json: arguments.call,
        info_digest: approval.info_digest.as_bytes().to_vec(),
        status: status(approval.status).into(),
        decided_by: decided.map_or(String::new(), |decided| decided.by.clone()),
        decided_at_ns: decided.map_or(0, |decided| nanoseconds(decided.at)),
        note: decided.map_or(String::new(), |decided| decided.note.clone()),
        successor: approval
            .successor
            .as_ref()
            .map(|successor| written(successor, arguments.successor)),
    }
}

/// Digest of what an approver was shown, made again from the answer: what is echoed is what was seen.
///
/// # Errors
/// A field that no approval has, or arguments that are not those of its digest.
pub fn info_digest(shown: &admin::Approval) -> Result<Digest, Invalid> {
    let digest = Digest::from_slice(&shown.params_hash);
    if !shown.params_json.is_empty() && params::inspect(&shown.params_json).digest != digest {
        return Err(Invalid::new("params_json", "is not what params_hash is of"));
    }
    let approval = Approval {
        session: id("session_id", decision::SessionId::parse(&shown.session_id))?,
        organization: id(
            "organization_id",
            decision::OrganizationId::parse(&shown.organization_id),
        )?,
        agent: id("agent_id", decision::AgentId::parse(&shown.agent_id))?,
        requested_by: shown.requested_by.clone(),
        call_number: shown.call_number,
        tool: id("tool_name", decision::ToolName::parse(&shown.tool_name))?,
        digest,
        nonce: shown.nonce,
        estimate: NanoUsd::new(shown.estimate_nanos),
        why: decision::Reason::parse(&shown.reason)
            .ok_or_else(|| Invalid::new("reason", "is not a reason that this version knows"))?,
        policy_digest: Digest::from_slice(&shown.policy_digest)
            .ok_or_else(|| Invalid::new("policy_digest", "must be 32 bytes"))?,
        opened_at: Timestamp::ZERO,
        expires_at: Timestamp::from_nanos(u64::try_from(shown.expires_at_ns).unwrap_or(0)),
        info_digest: Digest::of(&[]),
        status: ApprovalStatus::Pending,
        decided: None,
        successor: None,
    };
    Ok(Digest::of(&approval.shown(&approval_id(&shown.approval_id)?)))
}

/// Writes what became of a decision.
pub fn decided(reply: &ApprovalReply) -> admin::ApprovalsDecideResponse {
    admin::ApprovalsDecideResponse {
        approval_id: reply.id.as_str().to_owned(),
        status: status(reply.status).into(),
        successor: reply
            .successor
            .as_ref()
            .map(|successor| written(successor, Vec::new())),
        log_index: reply.place.log_index,
    }
}

/// Writes an approval as its agent sees it.
pub fn waited(
    approval_id: &ApprovalId,
    approval: &Approval,
    arguments: Arguments,
    log_index: u64,
) -> proto::WaitApprovalResponse {
    proto::WaitApprovalResponse {
        approval_id: approval_id.as_str().to_owned(),
        status: status(approval.status).into(),
        successor: approval
            .successor
            .as_ref()
            .map(|successor| written(successor, arguments.successor)),
        expires_at_ns: nanoseconds(approval.expires_at),
        log_index,
    }
}

fn written(successor: &Successor, params_json: Vec<u8>) -> proto::Successor {
    proto::Successor {
        call_number: successor.call_number,
        nonce: successor.nonce,
        params_json,
        params_hash: successor.digest.as_bytes().to_vec(),
        request_id: successor
            .request
            .as_ref()
            .map_or(String::new(), |request| request.as_str().to_owned()),
    }
}

/// Writes where an approval stands.
pub const fn status(status: ApprovalStatus) -> proto::ApprovalStatus {
    match status {
        ApprovalStatus::Pending => proto::ApprovalStatus::Pending,
        ApprovalStatus::Deferred => proto::ApprovalStatus::Deferred,
        ApprovalStatus::Escalated => proto::ApprovalStatus::Escalated,
        ApprovalStatus::Approved => proto::ApprovalStatus::Approved,
        ApprovalStatus::Modified => proto::ApprovalStatus::Modified,
        ApprovalStatus::Rejected => proto::ApprovalStatus::Rejected,
        ApprovalStatus::Consumed => proto::ApprovalStatus::Consumed,
        ApprovalStatus::Expired => proto::ApprovalStatus::Expired,
        ApprovalStatus::Cancelled => proto::ApprovalStatus::Cancelled,
    }
}
