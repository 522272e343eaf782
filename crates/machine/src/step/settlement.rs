//! A hold that nobody settled is settled by time, or by its session's end.

use audit::{Detail, Entry, Kind};
use decision::{NanoUsd, SessionId};

use crate::event::Event;
use crate::guard_path::GuardPath;
use crate::row::{Call, DueWork, Fault, Hold, Phase, Record, Session};
use crate::step::counters::trip_if_outgrown;
use crate::step::memory::close_call;
use crate::step::money::{self, Settle, own_available, settle};
use crate::turn::Turn;

/// Settles a hold that nobody settled; says whether it was open.
pub(crate) fn expire_hold(
    turn: &mut Turn<'_>,
    session: &SessionId,
    number: u64,
    why: &str,
) -> Result<bool, Fault> {
    let id = (session.clone(), number);
    let (Some(mut call), Some(mut session)) = (turn.find::<Call>(&id)?, turn.find::<Session>(session)?)
    else {
        return Ok(false);
    };
    if call.phase != Phase::Held {
        return Ok(false);
    }
    let mut hold = turn.need::<Hold>(&id)?;
    let path = GuardPath::of(&*turn.rows, &session)?;
    let before = own_available(turn, path.effective(), &session)?;
    let in_parts = hold.charged;
    let charge = money::unsettled_charge(&hold);
    if !settle(turn, &mut hold, Settle::Close(charge))? {
        // An account that full can book nothing more: the money is freed instead, and the entry says so.
        settle(turn, &mut hold, Settle::Close(NanoUsd::ZERO))?;
    }
    let after = own_available(turn, path.effective(), &session)?;
    let entry = Entry {
        call_number: number,
        tool_name: call.tool.as_str().to_owned(),
        budget_before: before.unwrap_or(NanoUsd::ZERO),
        budget_after: after.unwrap_or(NanoUsd::ZERO),
        reason: why.to_owned(),
        detail: Detail::Expired {
            held: hold.amount,
            charged: hold.charged,
        }
        .to_string(),
        ..turn.entry_of(Kind::HoldExpired, &session)
    };
    turn.record(entry);
    turn.tell(Event::HoldExpired);
    disarm(turn, &hold);
    let charged = hold.charged.saturating_sub(in_parts);
    // Silence is no way around a ceiling.
    session.cost = session.cost.saturating_add(charged);
    trip_if_outgrown(turn, &mut session, path.tripping(), number)?;
    call.phase = Phase::Expired(charged);
    // The hold stays for a late report, and goes with its call.
    turn.save(hold);
    close_call(turn, &session, call);
    turn.save(session);
    Ok(true)
}

/// The hold is closed: its timer goes.
pub(crate) fn disarm(turn: &mut Turn<'_>, hold: &Record<Hold>) {
    let (session, number) = hold.id.clone();
    turn.disarm(hold.expires_at, DueWork::HoldExpiry(session, number));
}
