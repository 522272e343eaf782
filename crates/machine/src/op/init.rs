//! The first command of a cluster's life; nothing is accepted before it.

use audit::{Entry, Kind};

use crate::command::Init;
use crate::guard_check::check;
use crate::row::reply::{Refusal, Reply};
use crate::row::{Chain, Cluster, Record};
use crate::scope::GuardScope;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, init: &Init) -> Done {
    if turn.begun {
        return Err(Refusal::AlreadyInitialized.into());
    }
    check(&init.default_guard)?;
    if init.default_guard.parent.is_some() {
        let none = "the default guard is of no organization: it has no parent";
        return Err(Refusal::Invalid(none.to_owned()).into());
    }
    turn.begun = true;
    turn.cluster = Cluster {
        chain_id: init.chain_id.clone(),
        now: turn.now(),
        halt_epoch: 0,
        unfunded_organizations: init.unfunded_organizations,
        fixtures: init.fixtures,
        version: turn.version(),
    };
    turn.chain = Chain::empty(&init.chain_id);
    let mut guard = init.default_guard.clone();
    guard.version = 1;
    let sequence = turn.record(Entry {
        operator_id: init.by.name.clone(),
        policy_digest: guard.digest().as_bytes().to_vec(),
        ..turn.entry(Kind::Genesis)
    });
    turn.save(Record::new(GuardScope::Default, guard));
    Ok(Reply::Done(turn.place(sequence)))
}
