//! A person decides about a held call. The first decision that ends the question wins.

use audit::{Entry, Kind};
use decision::Digest;

use crate::command::{Decide, Ruling};
use crate::row::reply::{Refusal, Reply};
use crate::row::{Approval, ApprovalStatus, Decided, Fault, Record, Requester, Session, Successor, bytes};
use crate::step::approval;
use crate::step::memory::nonce_seen;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, decide: &Decide) -> Done {
    let approval = approval::named(turn, &decide.approval)?;
    let what = || format!("approval/{}", approval.id);
    turn.reaches(&decide.by, Some(&approval.organization), what)?;
    let is_whose_call_it_is = decide.by.name == approval.requested_by
        || decide.by.speaks_for(&approval.organization, &approval.agent);
    if is_whose_call_it_is {
        return Err(turn.not_yours(&decide.by, format!("{}: who asked does not decide", what())));
    }
    turn.once(Requester::identity(&decide.by), &decide.request, |turn| {
        rule(turn, decide, approval)
    })
}

fn rule(turn: &mut Turn<'_>, decide: &Decide, mut approval: Record<Approval>) -> Done {
    let said = Digest::of(&bytes(&(&decide.ruling, &decide.info_digest)));
    if !approval.status.is_open() {
        let earlier = approval.decided.as_ref();
        if earlier.is_some_and(|decided| decided.payload == said) {
            return Ok(Reply::Approval(approval::reply(turn, &approval, 0)));
        }
    }
    may_be_decided(turn, decide, &approval)?;
    approval.status = match &decide.ruling {
        Ruling::Approve => ApprovalStatus::Approved,
        Ruling::Reject => ApprovalStatus::Rejected,
        Ruling::Defer => ApprovalStatus::Deferred,
        Ruling::Escalate => ApprovalStatus::Escalated,
        Ruling::Modify(successor) => {
            approval.successor = Some(complete(turn, &approval, successor.clone())?);
            ApprovalStatus::Modified
        }
    };
    approval.decided = Some(Decided {
        by: decide.by.name.clone(),
        at: turn.now(),
        note: decide.note.clone(),
        payload: said,
    });
    let sequence = turn.record(Entry {
        operator_id: decide.by.name.clone(),
        reason: decide.ruling.word().to_owned(),
        detail: decide.note.clone(),
        request_id: decide.request.id.as_str().to_owned(),
        ..approval::entry(turn, Kind::ApprovalDecided, &approval)
    });
    let answer = approval::reply(turn, &approval, sequence);
    if approval.status == ApprovalStatus::Rejected {
        let mut session = turn.need::<Session>(&approval.session)?;
        approval::cancel_call(turn, &mut session, &approval)?;
        turn.save(session);
        approval::finish(turn, approval, ApprovalStatus::Rejected);
    } else {
        approval::save(turn, approval);
    }
    Ok(Reply::Approval(answer))
}

fn may_be_decided(turn: &Turn<'_>, decide: &Decide, approval: &Record<Approval>) -> Result<(), Refusal> {
    let id = &approval.id;
    if !approval.status.is_open() {
        let status = approval.status.word();
        return Err(Refusal::Conflict(format!("approval {id} is {status} already")));
    }
    if turn.now() >= approval.expires_at {
        return Err(Refusal::Conflict(format!("approval {id} has expired")));
    }
    if decide.info_digest != approval.info_digest {
        return Err(Refusal::Conflict(
            "info_digest is not of what is shown now: look at the approval again".to_owned(),
        ));
    }
    Ok(())
}

/// The successor as it may run: with a nonce that is new, and a number.
fn complete(turn: &mut Turn<'_>, approval: &Approval, mut successor: Successor) -> Done<Successor> {
    if successor.nonce == 0 {
        successor.nonce = fresh_nonce(turn, approval)?;
    }
    let seen = nonce_seen(turn, &approval.session, successor.nonce)?;
    if successor.nonce == approval.nonce || seen {
        return Err(Refusal::Invalid("the successor's nonce was used in this session".to_owned()).into());
    }
    if successor.call_number == 0 {
        let session = turn.find::<Session>(&approval.session)?;
        let highest = session.map_or(0, |session| session.highest_call);
        successor.call_number = highest.saturating_add(1);
    }
    Ok(successor)
}

/// A nonce that the session has not seen, drawn alike on every replica.
fn fresh_nonce(turn: &mut Turn<'_>, approval: &Approval) -> Result<u64, Fault> {
    loop {
        let [a, b, c, d, e, f, g, h, ..] = turn.random();
        // As many bits as a number of JSON keeps in every language.
        let nonce = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 11;
        let seen = nonce_seen(turn, &approval.session, nonce)?;
        if nonce != 0 && nonce != approval.nonce && !seen {
            return Ok(nonce);
        }
    }
}
