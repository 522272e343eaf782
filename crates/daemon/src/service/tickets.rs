//! `Redeem` and `VerifyAuthorization`: single-use authorizations.

use std::sync::Arc;

use audit::Ticket;
use machine::row::Read as _;
use wire::Failure;
use wire::proto::shackle::v1 as proto;

use crate::admit::Ask;
use crate::door::Door;
use crate::road;

/// Uses a ticket up; only `redeemed` means that the call may run.
pub async fn redeem(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::RedeemRequest,
) -> Result<proto::RedeemResponse, Failure> {
    door.emergency.check()?;
    let ticket = read(door, ask, &message.authorization).await?;
    let redeem = wire::ticket::redeem(&message, &ticket, ask.principal())?;
    let reply = door.propose(ask, redeem).await?;
    if reply.refused.is_none() {
        // The last look before the word leaves: what this node has applied since must not be overtaken.
        door.emergency.check()?;
        if road::is_overtaken(door, &ticket.session, reply.place.halt_epoch)? {
            return Err(road::overtaken());
        }
    }
    Ok(wire::ticket::redeemed(&reply))
}

/// Says what Redeem would say now.
pub async fn verify_authorization(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::VerifyAuthorizationRequest,
) -> Result<proto::VerifyAuthorizationResponse, Failure> {
    let ticket = read(door, ask, &message.authorization).await?;
    let by = ask.principal();
    let (found, log_index) = door
        .read_at(ask, |view, _| {
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
            Ok(Some((session.organization, against, halt_epoch)))
        })
        .await?;
    let (organization, against, halt_epoch) = found.ok_or(machine::Refusal::SessionNotFound)?;
    if by.organization.as_ref() != Some(&organization) {
        return Err(door.admission.not_theirs(ask, &ticket.session));
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
