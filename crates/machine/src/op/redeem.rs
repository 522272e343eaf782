//! Uses a ticket up: of all who try, on whatever node, one is told that the call may run.

use audit::{Entry, Kind};

use crate::command::Redeem;
use crate::row::reply::{Redeemed, Reply};
use crate::row::{Call, Record, Requester, Session};
use crate::ticket::stands_against;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, redeem: &Redeem) -> Done {
    let session = turn.session(&redeem.session)?;
    if redeem.by.organization.as_ref() != Some(&session.organization) {
        return Err(turn.not_yours(&redeem.by, format!("session/{}", session.id)));
    }
    turn.once(Requester::identity(&redeem.by), &redeem.request, |turn| {
        use_up(turn, redeem, &session)
    })
}

fn use_up(turn: &mut Turn<'_>, redeem: &Redeem, session: &Record<Session>) -> Done {
    let call = turn.find::<Call>(&(session.id.clone(), redeem.call_number))?;
    let known = call.as_ref().map(|call| &call.row);
    let refused = stands_against(
        &*turn.rows,
        turn.now(),
        &session.id,
        session,
        known,
        &redeem.ticket,
    )?;
    let word = refused.as_ref().map(|reason| reason.word().into_owned());
    let sequence = turn.record(Entry {
        operator_id: redeem.by.name.clone(),
        call_number: redeem.call_number,
        tool_name: known.map_or(String::new(), |call| call.tool.as_str().to_owned()),
        request_id: redeem.request.id.as_str().to_owned(),
        reason: word.unwrap_or_else(|| "redeemed".to_owned()),
        ..turn.entry_of(Kind::TicketRedeemed, session)
    });
    if let (None, Some(mut call)) = (&refused, call) {
        if let Some(ticket) = call.ticket.as_mut() {
            ticket.redeemed_by = Some(redeem.by.name.clone());
        }
        turn.save(call);
    }
    let place = turn.place(sequence);
    Ok(Reply::Redeemed(Redeemed { refused, place }))
}
