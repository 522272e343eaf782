//! `Sessions`: agents' sessions, as operators see and steer them.

use std::sync::Arc;

use cluster::Urgency;
use machine::command::Act;
use machine::query;
use machine::{Command, Reply};
use tonic::{Request, Response, Status};
use wire::admin::{self, SessionOrder};
use wire::proto::haltgate::admin::v1 as proto;
use wire::proto::haltgate::admin::v1::sessions_server::Sessions;
use wire::proto::shackle::v1::SessionStatus;
use wire::session::Shown;
use wire::{Failure, guard};

use crate::door::{Ask, Door};
use crate::roles::{self, Rpc};
use crate::service::unexpected;

#[derive(Debug, Clone)]
pub struct SessionKeeping(pub Arc<Door>);

#[tonic::async_trait]
impl Sessions for SessionKeeping {
    async fn list(
        &self,
        request: Request<proto::SessionsListRequest>,
    ) -> Result<Response<proto::SessionsListResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::SessionsList)?;
        let wanted =
            admin::sessions_wanted(request.get_ref()).map_err(|error| self.0.status(error.into()))?;
        if let Some(of) = &wanted.of {
            self.0.permit(&ask, roles::of_scope(of))?;
        }
        let answer = async {
            let by = ask.principal();
            let (listed, log_index) = self
                .0
                .read(&ask, |view| {
                    let index = view.applied().map_or(0, |id| id.index);
                    Ok((query::sessions(view, &by, &wanted, index)?, index))
                })
                .await?;
            Ok(proto::SessionsListResponse {
                sessions: listed
                    .items
                    .iter()
                    .map(|session| wire::session::state(session, Shown::Listed))
                    .collect(),
                next_page_token: listed.next.map(|place| place.to_string()).unwrap_or_default(),
                log_index,
            })
        };
        answer
            .await
            .map(Response::new)
            .map_err(|failure: Failure| self.0.status(failure))
    }

    async fn get(
        &self,
        request: Request<proto::SessionsGetRequest>,
    ) -> Result<Response<proto::SessionsGetResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::SessionsGet)?;
        let answer = async {
            let id = guard::session_id(&request.get_ref().session_id)?;
            let found = self
                .0
                .read(&ask, |view| {
                    query::session_view(view, &id, view.applied().map_or(0, |id| id.index))
                })
                .await?
                .ok_or(machine::Refusal::SessionNotFound)?;
            if !ask.principal().reaches(&found.session.organization) {
                return Err(self.0.refuse(
                    &ask,
                    "organization",
                    format!("this identity may not see session/{id}"),
                ));
            }
            let log_index = found.log_index;
            Ok(proto::SessionsGetResponse {
                session: Some(wire::session::state(&found, Shown::Whole)),
                log_index,
            })
        };
        answer
            .await
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn reset_circuit(
        &self,
        request: Request<proto::SessionsResetCircuitRequest>,
    ) -> Result<Response<proto::SessionsResetCircuitResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::SessionsResetCircuit)?;
        let proto::SessionsResetCircuitRequest {
            request_id,
            session_id,
            justification,
        } = request.get_ref();
        let (status, log_index) = self
            .act(
                &ask,
                SessionOrder {
                    act: Act::ResetCircuit,
                    request_id,
                    session_id,
                    justification,
                },
            )
            .await?;
        Ok(Response::new(proto::SessionsResetCircuitResponse {
            log_index,
            status,
        }))
    }

    async fn pause(
        &self,
        request: Request<proto::SessionsPauseRequest>,
    ) -> Result<Response<proto::SessionsPauseResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::SessionsPause)?;
        let proto::SessionsPauseRequest {
            request_id,
            session_id,
            justification,
        } = request.get_ref();
        let (status, log_index) = self
            .act(
                &ask,
                SessionOrder {
                    act: Act::Pause,
                    request_id,
                    session_id,
                    justification,
                },
            )
            .await?;
        Ok(Response::new(proto::SessionsPauseResponse { log_index, status }))
    }

    async fn resume(
        &self,
        request: Request<proto::SessionsResumeRequest>,
    ) -> Result<Response<proto::SessionsResumeResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::SessionsResume)?;
        let proto::SessionsResumeRequest {
            request_id,
            session_id,
            justification,
        } = request.get_ref();
        let (status, log_index) = self
            .act(
                &ask,
                SessionOrder {
                    act: Act::Resume,
                    request_id,
                    session_id,
                    justification,
                },
            )
            .await?;
        Ok(Response::new(proto::SessionsResumeResponse { log_index, status }))
    }

    async fn terminate(
        &self,
        request: Request<proto::SessionsTerminateRequest>,
    ) -> Result<Response<proto::SessionsTerminateResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::SessionsTerminate)?;
        let proto::SessionsTerminateRequest {
            request_id,
            session_id,
            justification,
        } = request.get_ref();
        let (status, log_index) = self
            .act(
                &ask,
                SessionOrder {
                    act: Act::Terminate,
                    request_id,
                    session_id,
                    justification,
                },
            )
            .await?;
        Ok(Response::new(proto::SessionsTerminateResponse {
            log_index,
            status,
        }))
    }
}

impl SessionKeeping {
    /// Has an order about a session carried out; gives its status then, and the log index.
    async fn act(&self, ask: &Ask, order: SessionOrder<'_>) -> Result<(i32, u64), Status> {
        let carried_out = async {
            let act = admin::session_act(order, ask.principal())?;
            match self
                .0
                .propose(ask, Command::Session(act), Urgency::Urgent)
                .await?
            {
                Reply::Session(status, place) => {
                    self.0.applied_here(ask, place.log_index).await;
                    let status: SessionStatus = wire::session::status(status);
                    Ok((status.into(), place.log_index))
                }
                _ => Err(unexpected("an order about a session")),
            }
        };
        carried_out
            .await
            .map_err(|failure: Failure| self.0.status(failure))
    }
}
