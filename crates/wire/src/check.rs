//! `Guards.Check`: a call that is only thought of.

use decision::{AgentId, Digest, GuardId, NanoUsd, OrganizationId, SessionId};
use machine::reply::VerdictReply;
use machine::{GuardPath, Scope};

use crate::guard::verdict;
use crate::guard_config::guard_config;
use crate::invalid::{Invalid, id};
use crate::proto::haltgate::admin::v1 as proto;
use crate::proto::shackle::v1 as shackle;

/// Whose call it would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Session(SessionId),
    /// An agent that would register now.
    Agent {
        organization: OrganizationId,
        agent: AgentId,
        guard: Option<GuardId>,
    },
}

/// Reads whose call is thought of, and the call as its agent would ask. Session, number and nonce are placeholders.
///
/// # Errors
/// A subject that is none; what is wrong with the call itself shows when it is read as one.
pub fn check(message: proto::GuardsCheckRequest) -> Result<(Subject, shackle::PreExecRequest), Invalid> {
    use proto::guards_check_request::Subject as Said;
    let guard = match message.guard_id.as_str() {
        "" => None,
        named => Some(id("guard_id", GuardId::parse(named))?),
    };
    let subject = match message.subject {
        Some(Said::SessionId(session)) => {
            if guard.is_some() {
                return Err(Invalid::new(
                    "guard_id",
                    "is for an agent: a session has its guard",
                ));
            }
            Subject::Session(id("session_id", SessionId::parse(&session))?)
        }
        Some(Said::Agent(agent)) => match agent.parse() {
            Ok(Scope::Agent(organization, agent)) => Subject::Agent {
                organization,
                agent,
                guard,
            },
            Ok(Scope::Global | Scope::Organization(_) | Scope::Guard(..) | Scope::Session(_)) | Err(_) => {
                return Err(Invalid::new("agent", "must be org/ORG/agent/AGENT"));
            }
        },
        None => return Err(Invalid::new("subject", "must be session_id or agent")),
    };
    // Of no call that ever was: whether it would be a repetition, nobody can say.
    let tool_params_hash = match message.params_json.as_slice() {
        [] => Digest::of(b"haltgate check").as_bytes().to_vec(),
        _ => Vec::new(),
    };
    let call = shackle::PreExecRequest {
        session_id: "check".to_owned(),
        call_number: 1,
        tool_name: message.tool_name,
        tool_params_hash,
        nonce: 1,
        tags: message.tags,
        params_json: message.params_json,
        estimated_cost_nanos: message.estimated_cost_nanos,
        ..shackle::PreExecRequest::default()
    };
    Ok((subject, call))
}

/// What the call would get.
#[derive(Debug, Clone)]
pub struct Checked {
    pub answer: VerdictReply,
    /// Of an ALLOW and of a question; a denied call holds nothing.
    pub hold: NanoUsd,
    pub leash: GuardPath,
    pub log_index: u64,
}

/// Writes what the call would get.
pub fn checked(checked: &Checked) -> proto::GuardsCheckResponse {
    let Checked {
        answer,
        hold,
        leash,
        log_index,
    } = checked;
    let reasons = std::iter::once(&answer.reason).chain(&answer.also);
    proto::GuardsCheckResponse {
        verdict: verdict(answer.verdict).into(),
        reason: answer.reason.word().into_owned(),
        all_reasons: reasons.map(|reason| reason.word().into_owned()).collect(),
        hold_nanos: hold.nanos(),
        guards: leash
            .guards()
            .iter()
            .map(|(scope, _)| scope.to_string())
            .collect(),
        effective: Some(guard_config(leash.effective())),
        log_index: *log_index,
    }
}
