//! Tickets: with an ALLOW goes a single-use authorization, which whoever runs the tool redeems before it does.

use audit::Kind;
use decision::{Digest, Facts, Reason, SessionId, Status, Timestamp, ToolName, Verdict, decide};
use minicbor::{Decode, Encode};

use crate::apply::Turn;
use crate::command::{PreExec, Redeem};
use crate::halt;
use crate::leash::Leash;
use crate::post_exec::session_entry;
use crate::pre_exec::mint;
use crate::replay;
use crate::reply::{Place, Redeemed, Refusal, Reply};
use crate::session;
use crate::table::{Call, Fault, Key, Phase, Read, Row, Rows, Session, SessionStatus};

/// What is kept of a ticket with its call.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Ticket {
    /// Unguessable.
    #[n(0)]
    pub id: String,
    #[n(1)]
    pub issued_at: Timestamp,
    #[n(2)]
    pub expires_at: Timestamp,
    /// Of the guards that allowed the call; a change of any of them voids it.
    #[n(3)]
    pub policy_digest: Digest,
    /// Who used it.
    #[n(4)]
    pub redeemed_by: Option<String>,
    /// The halt epoch it was issued in; a halt above it since then voids it for good.
    #[n(5)]
    pub halt_epoch: u64,
    /// The audit entry that it came with; a trip or a pause after that voids it for good.
    #[n(6)]
    pub sequence: u64,
}

/// A ticket and what it is for: what is signed and handed to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Authorization {
    #[n(0)]
    pub ticket: Ticket,
    #[n(1)]
    pub session: SessionId,
    #[n(2)]
    pub call_number: u64,
    #[n(3)]
    pub tool: ToolName,
    #[n(4)]
    pub digest: Option<Digest>,
}

/// The ticket of a call that is allowed now, where its guard hands out tickets.
pub(crate) fn issue<R: Rows>(turn: &mut Turn<'_, '_, R>, leash: &Leash) -> Option<Ticket> {
    let ttl = leash.effective().ticket_ttl?;
    Some(Ticket {
        id: mint(turn, "tkt_"),
        issued_at: turn.now(),
        expires_at: turn.now().plus(ttl),
        policy_digest: leash.digest(),
        redeemed_by: None,
        halt_epoch: turn.cluster.halt_epoch,
        sequence: turn.next_sequence(),
    })
}

/// What a call's ticket authorizes.
pub(crate) fn authorization(ticket: Ticket, call: &PreExec) -> Authorization {
    Authorization {
        ticket,
        session: call.session.clone(),
        call_number: call.call_number,
        tool: call.tool.clone(),
        digest: call.digest,
    }
}

/// Says what stands against running on this ticket now; nothing, where it may be redeemed. Changes nothing.
///
/// # Errors
/// The rows cannot be read.
pub fn stands_against<R: Rows>(
    rows: &R,
    now: Timestamp,
    session_id: &SessionId,
    session: &Session,
    call: Option<&Call>,
    ticket_id: &str,
) -> Result<Option<Reason>, Fault> {
    let leash = Leash::of(rows, session)?;
    let stops = halt::above_leash(rows, session, Some(session_id), &leash)?;
    let halted_at = halt::last_change(rows, session, session_id, &leash)?;
    let failed = failed_check(now, &leash, session, halted_at, call, ticket_id);
    let decision = decide(&Facts {
        halt: stops.any_call().cloned(),
        status: match session.status {
            SessionStatus::Terminated => Status::Terminated,
            SessionStatus::Stale => Status::Stale,
            SessionStatus::Paused => Status::Paused {
                held: false,
                decided: false,
            },
            SessionStatus::Active => Status::Active,
        },
        circuit_tripped: session.trip.is_some(),
        delegation_failed: failed,
        ..Facts::core()
    });
    Ok(match decision.verdict {
        Verdict::Allow => None,
        Verdict::Deny | Verdict::Hitl => Some(decision.reason),
    })
}

/// P1: the check of the ticket that fails.
fn failed_check(
    now: Timestamp,
    leash: &Leash,
    session: &Session,
    halted_at: u64,
    call: Option<&Call>,
    id: &str,
) -> Option<&'static str> {
    let Some((call, ticket)) = call
        .and_then(|call| call.ticket.as_ref().map(|ticket| (call, ticket)))
        .filter(|(_, ticket)| ticket.id == id)
    else {
        return Some("ticket_unknown");
    };
    if ticket.redeemed_by.is_some() {
        Some("ticket_redeemed")
    } else if now >= ticket.expires_at {
        Some("ticket_expired")
    } else if call.phase != Phase::Held {
        Some("ticket_settled")
    } else if ticket.policy_digest != leash.digest()
        || ticket.halt_epoch < halted_at
        || ticket.sequence <= session.tickets_void_to
    {
        Some("ticket_void")
    } else {
        None
    }
}

/// Uses a ticket up: of all who try, on whatever node, one is told that the call may run.
pub(crate) fn redeem<R: Rows>(turn: &mut Turn<'_, '_, R>, redeem: &Redeem) -> Result<Reply, Fault> {
    let id = &redeem.session;
    let Some(session) = session::find(turn, id)? else {
        return Ok(Reply::Refused(Refusal::SessionNotFound));
    };
    if redeem.by.organization.as_ref() != Some(&session.organization) {
        return Ok(turn.refuse(&redeem.by, format!("session/{id}")));
    }
    let requester = replay::identity(&redeem.by);
    if let Some(earlier) = replay::recall(turn, &requester, &redeem.request)? {
        return Ok(earlier);
    }
    let call = turn.rows.call(id, redeem.call_number)?;
    let against = stands_against(
        turn.rows,
        turn.now(),
        id,
        &session,
        call.as_deref(),
        &redeem.ticket,
    )?;
    let mut entry = session_entry(turn, Kind::TicketRedeemed, id, &session);
    entry.operator_id.clone_from(&redeem.by.name);
    entry.call_number = redeem.call_number;
    entry.request_id = redeem.request.id.as_str().to_owned();
    entry.reason = against
        .as_ref()
        .map_or_else(|| "redeemed".to_owned(), |reason| reason.word().into_owned());
    if let Some(call) = &call {
        entry.tool_name = call.tool.as_str().to_owned();
    }
    let sequence = turn.record(entry);
    if let (None, Some(mut call)) = (&against, call) {
        if let Some(ticket) = call.ticket.as_mut() {
            ticket.redeemed_by = Some(redeem.by.name.clone());
        }
        turn.rows
            .put(Key::Call(id.clone(), redeem.call_number), Row::Call(call));
    }
    let place: Place = turn.place(sequence);
    let reply = Reply::Redeemed(Redeemed {
        refused: against,
        place,
    });
    replay::remember(turn, requester, &redeem.request, &reply);
    Ok(reply)
}
