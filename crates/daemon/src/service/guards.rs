//! `Guards`: the limits that sessions run under.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::Urgency;
use decision::{AgentId, NanoUsd, OrganizationId};
use machine::Working;
use machine::command::{AgentPattern, PreExec, Principal, Register};
use machine::query;
use machine::row::{Fault, Read as _};
use machine::{Command, GuardPath, Refusal, Reply};
use store::StateView;
use tonic::{Request, Response, Status};
use wire::check::{self, Checked, Subject};
use wire::guard::Question;
use wire::proto::haltgate::admin::v1 as proto;
use wire::proto::haltgate::admin::v1::guards_server::Guards;
use wire::proto::shackle::v1 as shackle;
use wire::{Code, Failure, admin};

use crate::door::{Ask, Door};
use crate::roles::{self, Rpc, Target};
use crate::service::{facts, unexpected};

#[derive(Debug, Clone)]
pub struct GuardKeeping(pub Arc<Door>);

#[tonic::async_trait]
impl Guards for GuardKeeping {
    async fn put(
        &self,
        request: Request<proto::GuardsPutRequest>,
    ) -> Result<Response<proto::GuardsPutResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::GuardsPut)?;
        let put = admin::put_guard(request.get_ref(), ask.principal())
            .map_err(|error| self.0.status(error.into()))?;
        self.0.permit(&ask, roles::of_guard_change(&put.scope))?;
        let scope = put.scope.clone();
        let answer = async {
            match self
                .0
                .propose(&ask, Command::PutGuard(put), Urgency::Urgent)
                .await?
            {
                Reply::Guard(guard, place) => {
                    self.0.applied_here(&ask, place.log_index).await;
                    let guard = Some(admin::stored_guard(&scope, &guard));
                    Ok(proto::GuardsPutResponse {
                        guard,
                        log_index: place.log_index,
                    })
                }
                _ => Err(unexpected("a change of a guard")),
            }
        };
        answer
            .await
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn get(
        &self,
        request: Request<proto::GuardsGetRequest>,
    ) -> Result<Response<proto::GuardsGetResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::GuardsGet)?;
        let proto::GuardsGetRequest { scope, effective } = request.into_inner();
        let scope = admin::guard_scope("scope", &scope).map_err(|error| self.0.status(error.into()))?;
        self.0.permit(&ask, roles::of_guard(&scope))?;
        let answer = async {
            let (found, log_index) = self
                .0
                .read(&ask, |view| {
                    Ok((
                        query::guard(view, &scope, effective)?,
                        view.applied().map_or(0, |id| id.index),
                    ))
                })
                .await?;
            let (of, guard) = found
                .ok_or_else(|| Failure::new(Code::NotFound, format!("{scope} has no guard of its own")))?;
            Ok(proto::GuardsGetResponse {
                guard: Some(admin::stored_guard(&of, &guard)),
                log_index,
            })
        };
        answer
            .await
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn list(
        &self,
        request: Request<proto::GuardsListRequest>,
    ) -> Result<Response<proto::GuardsListResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::GuardsList)?;
        let answer = async {
            let page = admin::guards_page(request.get_ref())?;
            let by = ask.principal();
            let (listed, log_index) = self
                .0
                .read(&ask, |view| {
                    Ok((
                        query::guards(view, &by, page)?,
                        view.applied().map_or(0, |id| id.index),
                    ))
                })
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
        };
        answer
            .await
            .map(Response::new)
            .map_err(|failure: Failure| self.0.status(failure))
    }

    async fn check(
        &self,
        request: Request<proto::GuardsCheckRequest>,
    ) -> Result<Response<proto::GuardsCheckResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::GuardsCheck)?;
        let (subject, call) =
            check::check(request.into_inner()).map_err(|error| self.0.status(error.into()))?;
        if let Subject::Agent { organization, .. } = &subject {
            self.0.permit(&ask, Target::Organization(organization))?;
        }
        self.think(&ask, &subject, &call)
            .await
            .map(|checked| Response::new(check::checked(&checked)))
            .map_err(|failure| self.0.status(failure))
    }
}

/// What came of a thought.
enum Thought {
    Checked(Box<Checked>),
    Refused(Refusal),
    /// Of another organization.
    Elsewhere,
    Unexpected,
}

impl GuardKeeping {
    /// Decides a call over what is current and keeps nothing of it.
    async fn think(
        &self,
        ask: &Ask,
        subject: &Subject,
        call: &shackle::PreExecRequest,
    ) -> Result<Checked, Failure> {
        let question = wire::guard::pre_exec(call, ask.principal())?;
        let thought = self
            .0
            .read(ask, |view| thought(view, ask, subject, &question))
            .await?;
        match thought {
            Thought::Checked(checked) => Ok(*checked),
            Thought::Refused(refusal) => Err(refusal.into()),
            Thought::Elsewhere => Err(self.0.refuse(
                ask,
                "organization",
                "this identity may not see that session".to_owned(),
            )),
            Thought::Unexpected => Err(unexpected("a call that is only thought of")),
        }
    }
}

fn thought(
    view: &StateView<'_>,
    ask: &Ask,
    subject: &Subject,
    question: &Question<'_>,
) -> Result<Thought, Fault> {
    let log_index = view.applied().map_or(0, |id| id.index);
    let mut working = Working::over(view);
    let id = match subject {
        Subject::Session(id) => id.clone(),
        Subject::Agent {
            organization,
            agent,
            guard,
        } => {
            let register = Register {
                by: agent_itself(organization, agent),
                organization: organization.clone(),
                agent: agent.clone(),
                resume: None,
                request: None,
                metadata: BTreeMap::new(),
                guard: guard.clone(),
            };
            let registered = facts::suppose(
                &mut working,
                log_index.saturating_add(1),
                Command::Register(register),
            )?;
            match registered {
                Some(Reply::Registered(registered)) => registered.session,
                Some(Reply::Refused(refusal)) => return Ok(Thought::Refused(refusal)),
                _ => return Ok(Thought::Unexpected),
            }
        }
    };
    let Some(session) = working.session(&id)? else {
        return Ok(Thought::Refused(Refusal::SessionNotFound));
    };
    if !ask.principal().reaches(&session.organization) {
        return Ok(Thought::Elsewhere);
    }
    let leash = GuardPath::of(&working, &session)?;
    let call_number = session.highest_call.saturating_add(1);
    let call = PreExec {
        by: agent_itself(&session.organization, &session.agent),
        session: id.clone(),
        call_number,
        nonce: facts::drawn(),
        rules: facts::under(&leash, &question.call.tool, &question.looked_at),
        ..question.call.clone()
    };
    let replied = facts::suppose(&mut working, log_index.saturating_add(2), Command::PreExec(call))?;
    let answer = match replied {
        Some(Reply::Verdict(answer)) => answer,
        Some(Reply::Refused(refusal)) => return Ok(Thought::Refused(refusal)),
        _ => return Ok(Thought::Unexpected),
    };
    let held = working.hold(&id, call_number)?.map(|hold| hold.amount);
    let asked = match &answer.approval_id {
        Some(approval) => working.approval(approval)?.map(|approval| approval.estimate),
        None => None,
    };
    Ok(Thought::Checked(Box::new(Checked {
        answer,
        hold: held.or(asked).unwrap_or(NanoUsd::ZERO),
        leash,
        log_index,
    })))
}

/// The agent as its own certificate would name it.
fn agent_itself(organization: &OrganizationId, agent: &AgentId) -> Principal {
    Principal {
        name: format!("org/{organization}/agent/{agent}"),
        organization: Some(organization.clone()),
        agents: vec![AgentPattern::Exact(agent.clone())],
    }
}
