//! `Guards`: the limits that sessions run under.

use std::collections::BTreeMap;
use std::sync::Arc;

use decision::{AgentId, NanoUsd, OrganizationId, SessionId};
use machine::Working;
use machine::command::{AgentPattern, PreExec, Principal, Register};
use machine::query;
use machine::row::{Fault, Read as _, Rows};
use machine::{GuardPath, Refusal};
use store::StateView;
use wire::check::{self, Checked, Subject};
use wire::guard::Question;
use wire::proto::haltgate::admin::v1 as proto;
use wire::{Code, Failure, admin};

use crate::admit::Ask;
use crate::door::{Door, log_index};
use crate::judge;
use crate::roles::{self, Target};

pub async fn put(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::GuardsPutRequest,
) -> Result<proto::GuardsPutResponse, Failure> {
    let put = admin::put_guard(&message, ask.principal())?;
    let scope = put.scope.clone();
    let (guard, place) = door.propose(ask, put).await?;
    door.applied_here(ask, place.log_index).await;
    Ok(proto::GuardsPutResponse {
        guard: Some(admin::stored_guard(&scope, &guard)),
        log_index: place.log_index,
    })
}

pub async fn get(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::GuardsGetRequest,
) -> Result<proto::GuardsGetResponse, Failure> {
    let scope = admin::guard_scope("scope", &message.scope)?;
    door.admission.permit(ask, roles::of_guard(&scope))?;
    let (found, log_index) = door
        .read_at(ask, |view, _| query::guard(view, &scope, message.effective))
        .await?;
    let (of, guard) =
        found.ok_or_else(|| Failure::new(Code::NotFound, format!("{scope} has no guard of its own")))?;
    Ok(proto::GuardsGetResponse {
        guard: Some(admin::stored_guard(&of, &guard)),
        log_index,
    })
}

pub async fn list(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::GuardsListRequest,
) -> Result<proto::GuardsListResponse, Failure> {
    let page = admin::guards_page(&message)?;
    let by = ask.principal();
    let (listed, log_index) = door
        .read_at(ask, |view, _| query::guards(view, &by, page))
        .await?;
    Ok(proto::GuardsListResponse {
        guards: listed
            .items
            .iter()
            .map(|(scope, guard)| admin::stored_guard(scope, guard))
            .collect(),
        next_page_token: listed.next.map(|scope| scope.to_string()).unwrap_or_default(),
        log_index,
    })
}

/// Decides a call over what is current and keeps nothing of it.
pub async fn check(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::GuardsCheckRequest,
) -> Result<proto::GuardsCheckResponse, Failure> {
    let (subject, call) = check::check(message)?;
    if let Subject::Agent { organization, .. } = &subject {
        door.admission.permit(ask, Target::Organization(organization))?;
    }
    let question = wire::guard::pre_exec(&call, ask.principal())?;
    let checked = door
        .read(ask, |view| checked(door, view, ask, &subject, &question))
        .await?;
    Ok(check::checked(&checked?))
}

fn checked(
    door: &Door,
    view: &StateView<'_>,
    ask: &Ask,
    subject: &Subject,
    question: &Question<'_>,
) -> Result<Result<Checked, Failure>, Fault> {
    let log_index = log_index(view);
    let mut working = Working::over(view);
    let id = match session_of(&mut working, subject, log_index.saturating_add(1))? {
        Ok(id) => id,
        Err(failure) => return Ok(Err(failure)),
    };
    let Some(session) = working.session(&id)? else {
        return Ok(Err(Refusal::SessionNotFound.into()));
    };
    if !ask.principal().reaches(&session.organization) {
        let why = "this identity may not see that session".to_owned();
        return Ok(Err(door.admission.refuse(ask, "organization", why)));
    }
    let leash = GuardPath::of(&working, &session)?;
    let call_number = session.highest_call.saturating_add(1);
    let call = PreExec {
        by: agent_itself(&session.organization, &session.agent),
        session: id.clone(),
        call_number,
        nonce: judge::drawn(),
        rules: judge::under(&leash, &question.call.tool, &question.looked_at),
        ..question.call.clone()
    };
    let judged = judge::suppose(&mut working, log_index.saturating_add(2), call)?;
    let answer = match judged.and_then(judge::verdict) {
        Ok(answer) => answer,
        Err(failure) => return Ok(Err(failure)),
    };
    let held = working.hold(&id, call_number)?.map(|hold| hold.amount);
    let asked = match &answer.approval_id {
        Some(approval) => working.approval(approval)?.map(|approval| approval.estimate),
        None => None,
    };
    Ok(Ok(Checked {
        answer,
        hold: held.or(asked).unwrap_or(NanoUsd::ZERO),
        leash,
        log_index,
    }))
}

/// The session that is meant: one there is, or one that the agent would open.
fn session_of<R: Rows>(
    working: &mut Working<'_, R>,
    subject: &Subject,
    index: u64,
) -> Result<Result<SessionId, Failure>, Fault> {
    let (organization, agent, guard) = match subject {
        Subject::Session(id) => return Ok(Ok(id.clone())),
        Subject::Agent {
            organization,
            agent,
            guard,
        } => (organization, agent, guard),
    };
    let register = Register {
        by: agent_itself(organization, agent),
        organization: organization.clone(),
        agent: agent.clone(),
        resume: None,
        request: None,
        metadata: BTreeMap::new(),
        guard: guard.clone(),
    };
    let registered = judge::suppose(working, index, register)?;
    Ok(registered.map(|registered| registered.session))
}

/// The agent as its own certificate would name it.
fn agent_itself(organization: &OrganizationId, agent: &AgentId) -> Principal {
    Principal {
        name: format!("org/{organization}/agent/{agent}"),
        organization: Some(organization.clone()),
        agents: vec![AgentPattern::Exact(agent.clone())],
    }
}
