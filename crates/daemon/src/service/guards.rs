//! `Guards`: the limits that sessions run under.

use std::sync::Arc;

use cluster::Urgency;
use machine::{Command, Reply};
use tonic::{Request, Response, Status};
use wire::proto::haltgate::admin::v1 as proto;
use wire::proto::haltgate::admin::v1::guards_server::Guards;
use wire::{Code, Failure, admin};

use crate::door::Door;
use crate::roles::{self, Rpc};
use crate::rows;
use crate::service::unexpected;

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
                        rows::guard(view, &scope, effective)?,
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
                        rows::guards(view, &by, page)?,
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
        _request: Request<proto::GuardsCheckRequest>,
    ) -> Result<Response<proto::GuardsCheckResponse>, Status> {
        Err(Status::unimplemented("check"))
    }
}
