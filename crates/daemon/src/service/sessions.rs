//! `Sessions`: agents' sessions, as operators see and steer them.

use std::sync::Arc;

use machine::Refusal;
use machine::command::Act;
use machine::query;
use wire::admin::{self, SessionOrder};
use wire::proto::haltgate::admin::v1 as proto;
use wire::session::Shown;
use wire::{Failure, guard};

use crate::admit::Ask;
use crate::door::Door;
use crate::roles;

pub async fn list(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::SessionsListRequest,
) -> Result<proto::SessionsListResponse, Failure> {
    let wanted = admin::sessions_wanted(&message)?;
    if let Some(of) = &wanted.of {
        door.admission.permit(ask, roles::of_scope(of))?;
    }
    let by = ask.principal();
    let (listed, log_index) = door
        .read_at(ask, |view, index| query::sessions(view, &by, &wanted, index))
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
}

pub async fn get(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::SessionsGetRequest,
) -> Result<proto::SessionsGetResponse, Failure> {
    let id = guard::session_id(&message.session_id)?;
    let (found, log_index) = door
        .read_at(ask, |view, index| query::session_view(view, &id, index))
        .await?;
    let found = found.ok_or(Refusal::SessionNotFound)?;
    if !ask.principal().reaches(&found.session.organization) {
        let why = format!("this identity may not see session/{id}");
        return Err(door.admission.refuse(ask, "organization", why));
    }
    Ok(proto::SessionsGetResponse {
        session: Some(wire::session::state(&found, Shown::Whole)),
        log_index,
    })
}

/// The four orders about one session: their messages are alike.
macro_rules! orders {
    ($($function:ident($request:ident) -> $response:ident: $act:ident;)*) => {
        $(pub async fn $function(
            door: &Arc<Door>,
            ask: &Ask,
            message: proto::$request,
        ) -> Result<proto::$response, Failure> {
            let order = SessionOrder {
                act: Act::$act,
                request_id: &message.request_id,
                session_id: &message.session_id,
                justification: &message.justification,
            };
            let (status, log_index) = act(door, ask, order).await?;
            Ok(proto::$response { log_index, status })
        })*
    };
}

orders! {
    reset_circuit(SessionsResetCircuitRequest) -> SessionsResetCircuitResponse: ResetCircuit;
    pause(SessionsPauseRequest) -> SessionsPauseResponse: Pause;
    resume(SessionsResumeRequest) -> SessionsResumeResponse: Resume;
    terminate(SessionsTerminateRequest) -> SessionsTerminateResponse: Terminate;
}

/// Has an order about a session carried out; gives its status then, and the log index.
async fn act(door: &Door, ask: &Ask, order: SessionOrder<'_>) -> Result<(i32, u64), Failure> {
    let act = admin::session_act(order, ask.principal())?;
    let (status, place) = door.propose(ask, act).await?;
    door.applied_here(ask, place.log_index).await;
    Ok((wire::same::session_status(status).into(), place.log_index))
}
