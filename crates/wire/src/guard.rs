//! `shackle.v1`: what agents ask and report, and what they are told.

use std::collections::HashMap;

use decision::json::Value;
use decision::limits::has_error_signal;
use decision::{
    AgentId, ApprovalId, Digest, GuardId, NanoUsd, Number, OrganizationId, Reason, SessionId, Timestamp,
    ToolName, Verdict, params,
};
use machine::command::{EndSession, Params, PostExec, PreExec, Principal, Register};
use machine::reply::{Registered, VerdictReply};

use crate::error::Failure;
use crate::guard_config::guard_config;
use crate::invalid::{Invalid, bounded, bounded_pairs, id};
use crate::money;
use crate::payload::{Payload, request};
use crate::proto::shackle::v1 as proto;
use crate::same;
use crate::version::{Version, negotiate};

/// Longest `params_json`, bytes: parameters of a tool call; larger ones go by their digest.
pub const PARAMS_BYTES_MAX: usize = 64 * 1024;
/// Longest `error_message`, bytes: searched for signals, not kept.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 4_096;
/// Longest text that an agent says of itself, bytes.
const LABEL_BYTES_MAX: usize = 256;

/// Reads a registration. An empty `organization_id` is the principal's own.
///
/// Whether the principal may speak for the agent is the caller's question.
///
/// # Errors
/// INVALID_REQUEST, or PROTOCOL_VERSION_MISMATCH.
pub fn register(message: &proto::RegisterRequest, by: Principal) -> Result<(Register, Version), Failure> {
    let version = negotiate(&message.protocol_version)?;
    let organization = match (message.organization_id.as_str(), by.organization.as_ref()) {
        ("", Some(own)) => own.clone(),
        (named, _) => id("organization_id", OrganizationId::parse(named))?,
    };
    let agent = id("agent_id", AgentId::parse(&message.agent_id))?;
    let resume = match message.session_id.as_str() {
        "" => None,
        named => Some(id("session_id", SessionId::parse(named))?),
    };
    for (field, text) in [
        ("agent_version", &message.agent_version),
        ("framework", &message.framework),
        ("runtime", &message.runtime),
    ] {
        bounded(field, text, 0, LABEL_BYTES_MAX)?;
    }
    bounded_pairs("metadata", message.metadata.iter())?;
    let named = match message.guard_id.as_str() {
        "" => None,
        named => Some(id("guard_id", GuardId::parse(named))?),
    };
    let request = request(&message.request_id, || {
        Payload::of("register")
            .text(organization.as_str())
            .text(agent.as_str())
            .text(&message.session_id)
            .text(&message.guard_id)
            .text(&message.agent_version)
            .text(&message.framework)
            .text(&message.runtime)
            .text(&version.to_string())
            .pairs(message.metadata.iter())
    })?;
    let metadata = message
        .metadata
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Ok((
        Register {
            by,
            organization,
            agent,
            resume,
            request,
            metadata,
            guard: named,
        },
        version,
    ))
}

/// A question about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question<'m> {
    pub call: PreExec,
    /// Only asks: nothing is written, and the answer is never ALLOW.
    pub dry_run: bool,
    /// What rules look at; it stays at the edge.
    pub looked_at: LookedAt<'m>,
}

/// What rules look at besides the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookedAt<'m> {
    pub tags: &'m HashMap<String, String>,
    /// The arguments' object; none where only a digest came, or where they are malformed.
    pub params: Option<Value<'m>>,
}

/// Reads a question. The parameters are looked at here and go no further.
///
/// # Errors
/// Anything that is not a well-formed call. Parameters that cannot be canonicalized, or that are not what their
/// digest says, are no error: they are denied, and recorded (R1).
pub fn pre_exec(message: &proto::PreExecRequest, by: Principal) -> Result<Question<'_>, Invalid> {
    let session = id("session_id", SessionId::parse(&message.session_id))?;
    above_zero("call_number", message.call_number)?;
    above_zero("nonce", message.nonce)?;
    let tool = id("tool_name", ToolName::parse(&message.tool_name))?;
    let estimate = money::amount(
        "estimated_cost_usd",
        message.estimated_cost_usd,
        "estimated_cost_nanos",
        message.estimated_cost_nanos,
    )?;
    bounded_pairs("tags", message.tags.iter())?;
    let Inspected {
        digest,
        params,
        numbers,
        value,
    } = inspect(&message.tool_params_hash, &message.params_json)?;
    let parent_guard = match message.parent_guard_id.as_str() {
        "" => None,
        named => {
            bounded("parent_guard_id", named, 1, LABEL_BYTES_MAX)?;
            Some(named.to_owned())
        }
    };
    let approval = match message.approval_id.as_str() {
        "" => None,
        named => Some(id("approval_id", ApprovalId::parse(named))?),
    };
    let request = request(&message.request_id, || {
        let payload = Payload::of("pre_exec")
            .number(message.call_number)
            .text(tool.as_str())
            .amount(estimate)
            .text(&message.parent_guard_id)
            .number(message.nonce)
            .pairs(message.tags.iter())
            .flag(message.dry_run)
            .number(message.estimated_tokens)
            .flag(params == Params::HashOnly);
        match &digest {
            Some(digest) => payload.bytes(digest.as_bytes()),
            // No canonical form: the raw bytes' digest tells one malformed call from another.
            None => payload
                .bytes(&message.tool_params_hash)
                .bytes(Digest::of(&message.params_json).as_bytes()),
        }
    })?;
    let call = PreExec {
        by,
        session,
        call_number: message.call_number,
        tool,
        digest,
        params,
        estimate,
        nonce: message.nonce,
        request,
        parent_guard,
        approval,
        numbers,
        rules: None,
    };
    Ok(Question {
        call,
        dry_run: message.dry_run,
        looked_at: LookedAt {
            tags: &message.tags,
            params: value,
        },
    })
}

struct Inspected<'m> {
    digest: Option<Digest>,
    params: Params,
    numbers: Vec<Number>,
    value: Option<Value<'m>>,
}

/// Finds what the log may know of the parameters.
fn inspect<'m>(given: &[u8], params_json: &'m [u8]) -> Result<Inspected<'m>, Invalid> {
    let given = match given {
        [] => None,
        bytes => Some(
            Digest::from_slice(bytes)
                .ok_or_else(|| Invalid::new("tool_params_hash", "must be a SHA-256 digest of 32 bytes"))?,
        ),
    };
    if params_json.len() > PARAMS_BYTES_MAX {
        return Err(Invalid::new(
            "params_json",
            format!("must be at most {PARAMS_BYTES_MAX} bytes: send the digest of larger parameters"),
        ));
    }
    if params_json.is_empty() {
        return match given {
            Some(digest) => Ok(Inspected {
                digest: Some(digest),
                params: Params::HashOnly,
                numbers: Vec::new(),
                value: None,
            }),
            None => Err(Invalid::new(
                "tool_params_hash",
                "is needed, or params_json: `{}` where there are none",
            )),
        };
    }
    let inspected = params::Inspected::read(params_json);
    let facts = inspected.facts;
    let misnamed = given.is_some() && given != facts.digest;
    Ok(match facts.digest {
        Some(digest) if !facts.malformed && !misnamed => Inspected {
            digest: Some(digest),
            params: if facts.opaque {
                Params::Opaque
            } else {
                Params::Clear
            },
            numbers: inspected.numbers(),
            value: inspected.value,
        },
        Some(_) | None => Inspected {
            digest: None,
            params: Params::Malformed,
            numbers: Vec::new(),
            value: None,
        },
    })
}

/// Reads a report. The error text is searched for signals and dropped.
///
/// # Errors
/// Anything that is not a well-formed report.
pub fn post_exec(message: &proto::PostExecNotification, by: Principal) -> Result<PostExec, Invalid> {
    let session = id("session_id", SessionId::parse(&message.session_id))?;
    above_zero("call_number", message.call_number)?;
    let named = money::amount(
        "actual_cost_usd",
        message.actual_cost_usd,
        "actual_cost_nanos",
        message.actual_cost_nanos,
    )?;
    // SP/1.0 cannot say "unknown": a report with no price and no tokens says nothing about the cost.
    let (actual, model) = match message.cost_known {
        Some(false) => (None, None),
        Some(true) => (Some(named.unwrap_or(NanoUsd::ZERO)), None),
        None => (named, Some(message.model_used.clone())),
    };
    bounded(
        "error_message",
        &message.error_message,
        0,
        ERROR_MESSAGE_BYTES_MAX,
    )?;
    bounded("model_used", &message.model_used, 0, LABEL_BYTES_MAX)?;
    if message.duration_ms < 0 {
        return Err(Invalid::new("duration_ms", "must be 0 or more"));
    }
    let result =
        match message.result_hash.as_slice() {
            [] => None,
            bytes => Some(Digest::from_slice(bytes).ok_or_else(|| {
                Invalid::new("result_hash", "must be a SHA-256 digest of 32 bytes, or empty")
            })?),
        };
    let error_signal = has_error_signal(&message.error_message);
    let request = request(&message.request_id, || {
        Payload::of("post_exec")
            .number(message.call_number)
            .amount(actual)
            .flag(message.success)
            .flag(error_signal)
            .flag(message.partial)
            .number(message.tokens_in)
            .number(message.tokens_out)
            .text(&message.model_used)
            .bytes(&message.result_hash)
    })?;
    if message.partial && request.is_none() {
        return Err(Invalid::new(
            "request_id",
            "a partial report needs one, so that it counts once",
        ));
    }
    Ok(PostExec {
        by,
        session,
        call_number: message.call_number,
        actual,
        success: message.success,
        error_signal,
        partial: message.partial,
        request,
        tokens_in: message.tokens_in,
        tokens_out: message.tokens_out,
        model,
        result,
    })
}

/// A sign of life, and what the agent reckons it has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulse {
    pub session: SessionId,
    /// Compared with the cluster's figure, never believed.
    pub reckoned: NanoUsd,
}

/// Reads a heartbeat.
pub fn heartbeat(message: &proto::Heartbeat) -> Result<Pulse, Invalid> {
    Ok(Pulse {
        session: id("session_id", SessionId::parse(&message.session_id))?,
        reckoned: money::dollars("local_budget_remaining", message.local_budget_remaining)?,
    })
}

/// Reads the wish to end a session.
///
/// It carries no retry key: ending twice is one end.
pub fn end_session(message: &proto::EndSessionRequest, by: Principal) -> Result<EndSession, Invalid> {
    request(&message.request_id, || Payload::of("end_session"))?;
    Ok(EndSession {
        by,
        session: id("session_id", SessionId::parse(&message.session_id))?,
    })
}

/// Reads which session is meant.
pub fn session_id(text: &str) -> Result<SessionId, Invalid> {
    id("session_id", SessionId::parse(text))
}

/// Writes the answer to a registration.
pub fn register_response(
    registered: &Registered,
    spoken: Version,
    daemon_version: &str,
) -> proto::RegisterResponse {
    proto::RegisterResponse {
        session_id: registered.session.as_str().to_owned(),
        daemon_version: daemon_version.to_owned(),
        negotiated_protocol: spoken.to_string(),
        active_config: Some(guard_config(&registered.guard)),
        daemon_time_ns: nanoseconds(registered.place.time),
    }
}

/// Writes a verdict as its agent may see it: the first reason only, and of a denial by chance what it stands for.
pub fn pre_exec_response(answer: &VerdictReply) -> proto::PreExecResponse {
    let shown = shown_reason(&answer.reason);
    // A denial by chance looks like the one it stands for, in its figure too.
    let remaining = if shown == answer.reason {
        answer.remaining
    } else {
        Some(NanoUsd::ZERO)
    };
    let reason = shown.word().into_owned();
    proto::PreExecResponse {
        session_id: answer.session.as_str().to_owned(),
        call_number: answer.call_number,
        verdict: verdict(answer.verdict).into(),
        deny_reason: match answer.verdict {
            Verdict::Deny => same::deny_reason(shown.deny_reason()),
            Verdict::Allow | Verdict::Hitl => proto::DenyReason::Unspecified,
        }
        .into(),
        human_readable_reason: shown.text().to_owned(),
        budget_remaining_usd: remaining.map_or(0.0, money::to_dollars),
        repeat_count: i32::try_from(answer.repeats).unwrap_or(i32::MAX),
        daemon_time_ns: nanoseconds(answer.place.time),
        probabilistic_deny: false,
        all_reasons: vec![reason.clone()],
        reason,
        approval_id: answer
            .approval_id
            .as_ref()
            .map(|id| id.as_str().to_owned())
            .unwrap_or_default(),
        authorization: Vec::new(),
        warnings: answer
            .warnings
            .iter()
            .map(|warning| warning.word().to_owned())
            .collect(),
        replayed: answer.replayed,
        log_index: answer.place.log_index,
        halt_epoch: answer.place.halt_epoch,
        budget_remaining_nanos: remaining.map(NanoUsd::nanos),
        blocked_by_scope: answer.blocked_by.clone().unwrap_or_default(),
        // Rounded up: not a moment too early.
        retry_after_ms: answer
            .retry_after
            .map_or(0, |wait| wait.nanos().div_ceil(1_000_000)),
        audit_sequence: answer.place.sequence,
    }
}

/// Rule X is not told to agents: it stands for `budget_exhausted`.
fn shown_reason(reason: &Reason) -> Reason {
    match reason {
        Reason::Probabilistic => Reason::BudgetExhausted,
        Reason::DryRun(inner) => Reason::DryRun(Box::new(shown_reason(inner))),
        other => other.clone(),
    }
}

/// Writes the answer to a heartbeat: what the session's account has left (none: unlimited), and the reason of the
/// halt that covers it.
pub fn heartbeat_ack(
    pulse: &Pulse,
    available: Option<NanoUsd>,
    halt_reason: Option<String>,
    now: Timestamp,
) -> proto::HeartbeatAck {
    let drift = available.is_some_and(|available| available.nanos().abs_diff(pulse.reckoned.nanos()) > 1);
    proto::HeartbeatAck {
        session_id: pulse.session.as_str().to_owned(),
        daemon_budget_remaining: available.map_or(0.0, money::to_dollars),
        drift_detected: drift,
        daemon_time_ns: nanoseconds(now),
        halted: halt_reason.is_some(),
        halt_reason: halt_reason.unwrap_or_default(),
    }
}

pub(crate) const fn verdict(verdict: Verdict) -> proto::Verdict {
    match verdict {
        Verdict::Allow => proto::Verdict::Allow,
        Verdict::Deny => proto::Verdict::Deny,
        Verdict::Hitl => proto::Verdict::Hitl,
    }
}

/// Log time as the wire has it.
pub(crate) fn nanoseconds(time: Timestamp) -> i64 {
    i64::try_from(time.nanos()).unwrap_or(i64::MAX)
}

fn above_zero(field: &'static str, value: u64) -> Result<(), Invalid> {
    if value > 0 {
        Ok(())
    } else {
        Err(Invalid::new(field, "must be 1 or more"))
    }
}
