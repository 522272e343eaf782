//! `ShackleDaemon`: what agents call. PreExec takes the road of a call (`road`).

use std::sync::Arc;

use machine::Refusal;
use machine::query;
use machine::row::{HaltMode, Read as _};
use store::StateView;
use wire::Failure;
use wire::proto::shackle::v1 as proto;
use wire::session::Shown;

use crate::admit::Ask;
use crate::door::{Door, log_index};

pub use crate::road::pre_exec;
pub use crate::service::control::{wait_approval, watch_control};
pub use crate::service::stream::pre_exec_stream;
pub use crate::service::tickets::{redeem, verify_authorization};

pub async fn register(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::RegisterRequest,
) -> Result<proto::RegisterResponse, Failure> {
    door.emergency.check()?;
    door.take("registers", &door.registers, ask.caller.address)?;
    let (register, spoken) = wire::guard::register(&message, ask.principal())?;
    if !register.by.speaks_for(&register.organization, &register.agent) {
        let named = format!("org/{}/agent/{}", register.organization, register.agent);
        return Err(door.admission.refuse(
            ask,
            "agent",
            format!("{} may not register {named}", ask.identity),
        ));
    }
    let registered = door.propose(ask, register).await?;
    Ok(wire::guard::register_response(
        &registered,
        spoken,
        env!("CARGO_PKG_VERSION"),
    ))
}

pub async fn post_exec(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::PostExecNotification,
) -> Result<(), Failure> {
    let report = wire::guard::post_exec(&message, ask.principal())?;
    door.own_session(ask, &report.session)?;
    door.propose(ask, report).await.map(drop)
}

/// Costs no log entry: what is compared is what this node knows, and the leader is told some seconds later.
pub async fn heartbeat(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::Heartbeat,
) -> Result<proto::HeartbeatAck, Failure> {
    let pulse = wire::guard::heartbeat(&message)?;
    let read = |view: &StateView<'_>| {
        let Some(session) = view.session(&pulse.session)? else {
            return Ok(None);
        };
        let left = query::budget_left(view, &pulse.session, &session)?;
        // Under a pause an agent may still ask.
        let halt = query::halted(view, &pulse.session, &session)?
            .filter(|(_, halt)| halt.mode == HaltMode::Halt)
            .map(|(_, halt)| halt.reason);
        let now = view.cluster()?.map(|cluster| cluster.now);
        Ok(Some((session, left, halt, now.unwrap_or_default())))
    };
    // A session that was opened elsewhere a moment ago may not be here yet.
    let heard = match door.local(read)? {
        Some(heard) => Some(heard),
        None => door.read(ask, read).await?,
    };
    let (session, left, halt, now) = heard.ok_or(Refusal::SessionNotFound)?;
    door.admission.speaks_for(ask, &pulse.session, &session)?;
    door.node.seen(pulse.session.clone());
    Ok(wire::guard::heartbeat_ack(&pulse, left, halt, now))
}

pub async fn get_session_state(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::GetSessionStateRequest,
) -> Result<proto::SessionState, Failure> {
    let id = wire::guard::session_id(&message.session_id)?;
    let read = |view: &StateView<'_>| query::session_view(view, &id, log_index(view));
    let found = if message.allow_stale {
        door.local(read)?
    } else {
        door.read(ask, read).await?
    };
    let found = found.ok_or(Refusal::SessionNotFound)?;
    door.admission.speaks_for(ask, &id, &found.session)?;
    Ok(wire::session::state(&found, Shown::Whole))
}

pub async fn end_session(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::EndSessionRequest,
) -> Result<proto::EndSessionResponse, Failure> {
    let end = wire::guard::end_session(&message, ask.principal())?;
    door.own_session(ask, &end.session)?;
    let session_id = end.session.as_str().to_owned();
    let status = door.propose(ask, end).await?;
    Ok(proto::EndSessionResponse {
        session_id,
        status: wire::same::session_status(status).into(),
    })
}
