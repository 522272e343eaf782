//! Tickets: signed where an ALLOW leaves, read where somebody wants to run on one.

pub use audit::Ticket;
use audit::{KeyRing, Signer};
use decision::Digest;
use machine::command::{Principal, Redeem};
use machine::reply::Redeemed;
use machine::row::Authorization;

use crate::invalid::Invalid;
use crate::payload::{Payload, required_request};
use crate::proto::shackle::v1 as proto;

/// Writes and signs the ticket of an ALLOW.
pub fn authorization(allowed: &Authorization, chain_id: &str, signer: &Signer) -> Vec<u8> {
    let machine::row::Ticket {
        id,
        issued_at,
        expires_at,
        policy_digest,
        ..
    } = &allowed.ticket;
    Ticket {
        id: id.clone(),
        chain_id: chain_id.to_owned(),
        session: allowed.session.clone(),
        call_number: allowed.call_number,
        tool: allowed.tool.clone(),
        digest: allowed.digest,
        policy_digest: *policy_digest,
        issued_at: *issued_at,
        expires_at: *expires_at,
    }
    .sign(signer)
}

/// Reads a ticket that this cluster signed.
pub fn ticket(bytes: &[u8], chain_id: &str, keys: &KeyRing) -> Result<Ticket, Invalid> {
    let ticket =
        Ticket::verify(bytes, keys).map_err(|error| Invalid::new("authorization", error.to_string()))?;
    if ticket.chain_id != chain_id {
        return Err(Invalid::new("authorization", "is a ticket of another cluster"));
    }
    Ok(ticket)
}

/// Reads a ticket without asking anyone: proves that a node with one of these public keys signed it, and **not** that
/// it may still be used. A halt, a trip, a redemption, a new guard or time may have voided it; only Redeem knows.
///
/// # Errors
/// It is no ticket, or none of the keys signed it.
pub fn origin(bytes: &[u8], public_keys: &[[u8; 32]]) -> Result<Ticket, Invalid> {
    let mut keys = KeyRing::default();
    for (place, key) in public_keys.iter().enumerate() {
        keys.trust(*key, place.to_string())
            .map_err(|error| Invalid::new("public_keys", error.to_string()))?;
    }
    Ticket::verify(bytes, &keys).map_err(|error| Invalid::new("authorization", error.to_string()))
}

/// Reads the wish to use a ticket up.
pub fn redeem(message: &proto::RedeemRequest, ticket: &Ticket, by: Principal) -> Result<Redeem, Invalid> {
    let digest = Digest::of(&message.authorization);
    let request = required_request(&message.request_id, || {
        Payload::of("redeem").bytes(digest.as_bytes())
    })?;
    Ok(Redeem {
        by,
        session: ticket.session.clone(),
        call_number: ticket.call_number,
        ticket: ticket.id.clone(),
        request,
    })
}

/// Writes who won.
pub fn redeemed(reply: &Redeemed) -> proto::RedeemResponse {
    proto::RedeemResponse {
        redeemed: reply.refused.is_none(),
        reason: reply
            .refused
            .as_ref()
            .map_or(String::new(), |reason| reason.word().into_owned()),
        log_index: reply.place.log_index,
        halt_epoch: reply.place.halt_epoch,
        audit_sequence: reply.place.sequence,
    }
}
