//! Releases the kill switch at a scope, or asks for it where two people have to.

use audit::{Detail, Entry, Kind};

use crate::command::Release;
use crate::row::reply::{HaltReply, Refusal, Reply};
use crate::row::{Halt, Record, ReleaseAsked, Requester};
use crate::step::halts::{self, Word, lift};
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, release: &Release) -> Done {
    let organization = halts::reach(turn, &release.by, &release.scope)?;
    turn.once(Requester::identity(&release.by), &release.request, |turn| {
        let organization = organization.map_or(String::new(), |of| of.as_str().to_owned());
        carry_out(turn, release, organization)
    })
}

fn carry_out(turn: &mut Turn<'_>, release: &Release, organization: String) -> Done {
    let halt = turn.find::<Halt>(&release.scope)?.filter(|halt| halt.engaged);
    let Some(mut halt) = halt else {
        return Err(Refusal::NotFound(format!("{} is not halted", release.scope)).into());
    };
    let is_first = is_first_of_two(&halt, release);
    let scope = release.scope.to_string();
    let ticket = release.ticket.clone();
    let (kind, detail) = if is_first {
        halt.release_asked = Some(ReleaseAsked {
            by: release.by.name.clone(),
            at: turn.now(),
        });
        (Kind::ReleaseAsked, Detail::Asked { scope, ticket })
    } else {
        let word = Word {
            reason: &release.justification,
            ticket: &release.ticket,
            by: &release.by.name,
        };
        lift(turn, &mut halt, word);
        let epoch = halt.epoch;
        (Kind::HaltReleased, Detail::Lifted { scope, epoch, ticket })
    };
    let sequence = turn.record(Entry {
        operator_id: release.by.name.clone(),
        organization_id: organization,
        reason: release.justification.clone(),
        request_id: release.request.id.as_str().to_owned(),
        detail: detail.to_string(),
        ..turn.entry(kind)
    });
    let reply = HaltReply {
        reason: halt.reason.clone(),
        engaged: halt.engaged,
        place: turn.place(sequence),
        mode: halt.mode,
        needs_second: is_first,
    };
    turn.save(halt);
    Ok(Reply::Halt(reply))
}

/// Where two people have to ask, says whether nobody, or the same person, has asked before.
fn is_first_of_two(halt: &Record<Halt>, release: &Release) -> bool {
    match &halt.release_asked {
        _ if !halt.two_person => false,
        None => true,
        Some(first) => person(&first.by).eq_ignore_ascii_case(person(&release.by.name)),
    }
}

/// Who it is, whatever role the certificate gives: two certificates of one person are one.
fn person(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
