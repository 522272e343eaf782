//! `Redeem` and `VerifyAuthorization`: single-use authorizations.

use std::sync::Arc;

use audit::Ticket;
use cluster::Urgency;
use machine::query;
use machine::row::Read as _;
use machine::{Command, Reply};
use wire::Failure;
use wire::proto::shackle::v1 as proto;

use crate::door::{Ask, Door};
use crate::service::unexpected;

/// Uses a ticket up; only `redeemed` means that the call may run.
pub(crate) async fn redeem(
    door: &Arc<Door>,
    ask: &Ask,
    message: &proto::RedeemRequest,
) -> Result<proto::RedeemResponse, Failure> {
    door.emergency.check()?;
    let ticket = read(door, ask, &message.authorization).await?;
    let redeem = wire::ticket::redeem(message, &ticket, ask.principal())?;
    let reply = match door.propose(ask, Command::Redeem(redeem), Urgency::Call).await? {
        Reply::Redeemed(reply) => reply,
        _ => return Err(unexpected("a ticket")),
    };
    if reply.refused.is_none() {
        door.emergency.check()?;
    }
    // The last look before the word leaves: what this node has applied since must not be overtaken.
    if reply.refused.is_none() && door.node.progress().halt_epoch > reply.place.halt_epoch {
        let stands = door.local(|view| {
            Ok(match view.session(&ticket.session)? {
                Some(session) => query::halted(view, &ticket.session, &session)?.is_some(),
                None => true,
            })
        })?;
        if stands {
            return Err(Failure::new(
                wire::Code::DaemonUnavailable,
                "a halt was engaged while the answer was on its way: nothing may run",
            ));
        }
    }
    Ok(wire::ticket::redeemed(&reply))
}

/// Says what Redeem would say now.
pub(crate) async fn verify(
    door: &Arc<Door>,
    ask: &Ask,
    message: &proto::VerifyAuthorizationRequest,
) -> Result<proto::VerifyAuthorizationResponse, Failure> {
    let ticket = read(door, ask, &message.authorization).await?;
    let by = ask.principal();
    let found = door
        .read(ask, |view| {
            let Some(session) = view.session(&ticket.session)? else {
                return Ok(None);
            };
            let (now, halt_epoch) = view
                .cluster()?
                .map(|cluster| (cluster.now, cluster.halt_epoch))
                .unwrap_or_default();
            let call = view.call(&ticket.session, ticket.call_number)?;
            let against = machine::ticket::stands_against(
                view,
                now,
                &ticket.session,
                &session,
                call.as_ref(),
                &ticket.id,
            )?;
            let index = view.applied().map_or(0, |id| id.index);
            Ok(Some((session.organization, against, index, halt_epoch)))
        })
        .await?;
    let (organization, against, log_index, halt_epoch) = found.ok_or(machine::Refusal::SessionNotFound)?;
    if by.organization.as_ref() != Some(&organization) {
        return Err(door.refuse(
            ask,
            "session",
            format!("this identity may not act on session/{}", ticket.session),
        ));
    }
    Ok(proto::VerifyAuthorizationResponse {
        redeemable: against.is_none(),
        reason: against.map_or(String::new(), |reason| reason.word().into_owned()),
        log_index,
        halt_epoch,
    })
}

/// Reads a ticket and checks its signature with the keys that this node knows, else with those of the cluster.
async fn read(door: &Arc<Door>, ask: &Ask, bytes: &[u8]) -> Result<Ticket, Failure> {
    let keys = |view: &store::StateView<'_>| {
        let chain_id = view.cluster()?.map(|cluster| cluster.chain_id);
        Ok((view.keys()?.unwrap_or_default(), chain_id.unwrap_or_default()))
    };
    let (ring, chain_id) = door.local(keys)?;
    match wire::ticket::ticket(bytes, &chain_id, &ring) {
        Ok(ticket) => Ok(ticket),
        // A node that has just joined may have signed it.
        Err(_) => {
            let (ring, chain_id) = door.read(ask, keys).await?;
            Ok(wire::ticket::ticket(bytes, &chain_id, &ring)?)
        }
    }
}
