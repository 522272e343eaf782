//! What stands against running on a ticket.

use decision::{Facts, Reason, SessionId, Status, Timestamp, Verdict, decide};

use crate::guard_path::GuardPath;
use crate::row::{Call, Fault, Phase, Rows, Session, SessionStatus};
use crate::stops::Stops;

/// Says what stands against running on this ticket now; nothing, where it may be redeemed. Changes nothing.
///
/// # Errors
/// The rows cannot be read.
pub fn stands_against(
    rows: &(impl Rows + ?Sized),
    now: Timestamp,
    session_id: &SessionId,
    session: &Session,
    call: Option<&Call>,
    ticket_id: &str,
) -> Result<Option<Reason>, Fault> {
    let path = GuardPath::of(rows, session)?;
    let stops = Stops::on(rows, session, Some(session_id), &path)?;
    let failed = failed_check(now, &path, session, stops.epoch, call, ticket_id);
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
    Ok((decision.verdict != Verdict::Allow).then_some(decision.reason))
}

/// P1: the check of the ticket that fails.
fn failed_check(
    now: Timestamp,
    path: &GuardPath,
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
    } else if ticket.policy_digest != path.digest()
        || ticket.halt_epoch < halted_at
        || ticket.sequence <= session.tickets_void_to
    {
        Some("ticket_void")
    } else {
        None
    }
}
