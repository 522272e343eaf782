//! PostExec: a hold becomes what the call cost, once.

use audit::{Entry, Kind};
use decision::{NanoUsd, SessionId};

use crate::apply::Turn;
use crate::budget::{self, Overflow, Settle};
use crate::command::PostExec;
use crate::event::Event;
use crate::replay;
use crate::reply::{Refusal, Reply, Settled};
use crate::table::{
    Account, CALL_WINDOW, Call, DueWork, Fault, Hold, Key, Phase, Read, Requester, Row, Rows, Session,
    SessionStatus,
};

pub(crate) fn post_exec<R: Rows>(turn: &mut Turn<'_, '_, R>, report: &PostExec) -> Result<Reply, Fault> {
    let Some(session) = turn.rows.session(&report.session)? else {
        return Ok(Reply::Refused(Refusal::SessionNotFound));
    };
    let mut session = *session;
    if !report.by.speaks_for(&session.organization, &session.agent) {
        return Ok(turn.refuse(&report.by, format!("session/{}", report.session)));
    }
    if report.partial {
        let Some(request) = &report.request else {
            return Ok(Reply::Refused(Refusal::Invalid(
                "a partial settlement needs a request_id".to_owned(),
            )));
        };
        let by = Requester::Session(report.session.clone());
        if let Some(earlier) = replay::recall(turn, &by, request)? {
            return Ok(match earlier {
                Reply::Settled(settled) => Reply::Settled(Settled {
                    replayed: true,
                    ..settled
                }),
                other => other,
            });
        }
    }
    let number = report.call_number;
    let Some(call) = turn.rows.call(&report.session, number)? else {
        return Ok(never_allowed(number));
    };
    let (call, late) = match call.phase {
        Phase::Held => (*call, false),
        Phase::Expired(_) => (*call, true),
        Phase::Denied | Phase::Waiting | Phase::Cancelled => return Ok(never_allowed(number)),
        Phase::Settled { charged, reported } if !report.partial && reported == report.actual => {
            turn.events.push(Event::Replayed);
            return Ok(Reply::Settled(Settled {
                charged,
                remaining: None,
                replayed: true,
                place: turn.place(call.answer.place.sequence),
            }));
        }
        Phase::Settled { charged, .. } => {
            return Ok(Reply::Refused(Refusal::Conflict(format!(
                "call {number} was settled at {charged}: corrections are entries of their own"
            ))));
        }
    };
    if report.partial && late {
        return Ok(Reply::Refused(Refusal::Precondition(format!(
            "the hold of call {number} has expired: only one final report may still correct it"
        ))));
    }

    let key = Key::Hold(report.session.clone(), number);
    let mut hold = turn
        .rows
        .hold(&report.session, number)?
        .ok_or(Fault::Missing(key.clone()))?;
    let before = own_available(turn, &hold)?;
    let settlement = match (report.partial, late) {
        (true, _) => Settle::Part(report.actual.unwrap_or(NanoUsd::ZERO)),
        (false, false) => Settle::Close(final_charge(report, &hold)),
        // Time charged an amount already: the report replaces it.
        (false, true) => Settle::Close(late_charge(report, &hold)),
    };
    if let Err(Overflow) = budget::settle(turn, &mut hold, &settlement)? {
        return Ok(Reply::Refused(Refusal::Invalid(
            "the account could not book this amount".to_owned(),
        )));
    }
    let charged = hold.charged;
    let remaining = own_available(turn, &hold)?;
    let now = turn.now();
    // A late report settles money; it never revives a session.
    if session.status == SessionStatus::Active {
        session.last_activity = session.last_activity.max(now);
    }
    if let Some(last) = session
        .last_call
        .as_mut()
        .filter(|last| last.call_number == number)
    {
        last.failed |= !report.success || report.error_signal;
    }

    let entry = Entry {
        call_number: number,
        tool_name: call.tool.as_str().to_owned(),
        budget_before: before.unwrap_or(NanoUsd::ZERO),
        budget_after: remaining.unwrap_or(NanoUsd::ZERO),
        request_id: report
            .request
            .as_ref()
            .map(|request| request.id.as_str().to_owned())
            .unwrap_or_default(),
        reason: match (report.partial, late) {
            (true, _) => "partial",
            (false, true) => "late",
            (false, false) => "settled",
        }
        .to_owned(),
        detail: format!(
            "held {} charged {charged} success {}",
            hold.amount, report.success
        ),
        ..session_entry(turn, Kind::Settlement, &report.session, &session)
    };
    let sequence = turn.record(entry);
    turn.events.push(Event::Settled);
    if report.partial {
        turn.rows.put(key, Row::Hold(hold));
    } else {
        close_call(
            turn,
            &report.session,
            &session,
            call,
            &hold,
            Phase::Settled {
                charged,
                reported: report.actual,
            },
        )?;
    }
    turn.rows.put(
        Key::Session(report.session.clone()),
        Row::Session(Box::new(session)),
    );
    let reply = Reply::Settled(Settled {
        charged,
        remaining,
        replayed: false,
        place: turn.place(sequence),
    });
    if let (true, Some(request)) = (report.partial, &report.request) {
        replay::remember(turn, Requester::Session(report.session.clone()), request, &reply);
    }
    Ok(reply)
}

fn never_allowed(number: u64) -> Reply {
    Reply::Refused(Refusal::Precondition(format!(
        "call {number} was never allowed in this session: nothing to settle"
    )))
}

/// The rest of an open hold's price: an unknown cost is charged at the hold, never at zero.
fn final_charge(report: &PostExec, hold: &Hold) -> NanoUsd {
    let charge = report.actual.unwrap_or(hold.open);
    if hold.at_least {
        charge.max(hold.amount.saturating_sub(hold.charged))
    } else {
        charge
    }
}

/// What is missing (or, below zero, too much) after time has charged the hold.
fn late_charge(report: &PostExec, hold: &Hold) -> NanoUsd {
    let Some(actual) = report.actual else {
        return NanoUsd::ZERO;
    };
    let total = if hold.at_least {
        actual.max(hold.amount)
    } else {
        actual
    };
    total.saturating_sub(hold.charged)
}

fn own_available<R: Rows>(turn: &Turn<'_, '_, R>, hold: &Hold) -> Result<Option<NanoUsd>, Fault> {
    match hold.accounts.first() {
        Some(id) => Ok(turn.rows.account(id)?.as_ref().and_then(Account::available)),
        None => Ok(None),
    }
}

/// Settles a hold that nobody settled: its lease ran out, or its session ended.
pub(crate) fn expire_hold<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    session: &Session,
    number: u64,
    why: &str,
) -> Result<(), Fault> {
    let Some(call) = turn.rows.call(id, number)? else {
        return Ok(());
    };
    if call.phase != Phase::Held {
        return Ok(());
    }
    let key = Key::Hold(id.clone(), number);
    let mut hold = turn.rows.hold(id, number)?.ok_or(Fault::Missing(key.clone()))?;
    let before = own_available(turn, &hold)?;
    let charge = budget::unsettled_charge(&hold);
    if budget::settle(turn, &mut hold, &Settle::Close(charge))?.is_err() {
        // An account that full can book nothing more: the money is freed instead, and the entry says so.
        let _freed = budget::settle(turn, &mut hold, &Settle::Close(NanoUsd::ZERO))?;
    }
    let after = own_available(turn, &hold)?;
    let entry = Entry {
        call_number: number,
        tool_name: call.tool.as_str().to_owned(),
        budget_before: before.unwrap_or(NanoUsd::ZERO),
        budget_after: after.unwrap_or(NanoUsd::ZERO),
        reason: why.to_owned(),
        detail: format!("held {} charged {}", hold.amount, hold.charged),
        ..session_entry(turn, Kind::HoldExpired, id, session)
    };
    turn.record(entry);
    turn.events.push(Event::HoldExpired);
    let phase = Phase::Expired(hold.charged);
    close_call(turn, id, session, *call, &hold, phase)
}

/// Writes a call's last phase, and drops the call where its number has fallen behind the window.
fn close_call<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    id: &SessionId,
    session: &Session,
    call: Call,
    hold: &Hold,
    phase: Phase,
) -> Result<(), Fault> {
    let number = call.answer.call_number;
    turn.rows
        .delete(Key::Due(hold.expires_at, DueWork::HoldExpiry(id.clone(), number)));
    match phase {
        Phase::Expired(_) => turn
            .rows
            .put(Key::Hold(id.clone(), number), Row::Hold(hold.clone())),
        _ => turn.rows.delete(Key::Hold(id.clone(), number)),
    }
    turn.rows.put(
        Key::Call(id.clone(), number),
        Row::Call(Box::new(Call { phase, ..call })),
    );
    if number.saturating_add(CALL_WINDOW) <= session.highest_call {
        replay::forget_call(turn, id, number)?;
    }
    Ok(())
}

/// An entry about a session, its owner filled in.
pub(crate) fn session_entry<R: Rows>(
    turn: &Turn<'_, '_, R>,
    kind: Kind,
    id: &SessionId,
    session: &Session,
) -> Entry {
    let mut entry = turn.entry(kind);
    entry.session_id = id.as_str().to_owned();
    entry.agent_id = session.agent.as_str().to_owned();
    entry.organization_id = session.organization.as_str().to_owned();
    entry
}
