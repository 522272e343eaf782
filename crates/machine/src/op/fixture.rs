//! The benchmark's sessions (docs/bench/authorize-v1.md), loaded through `apply` like everything else.

use std::collections::BTreeMap;

use audit::{Detail, Entry, Kind};
use decision::{Limit, Reason};

use crate::command::{Fixture, FixtureSession};
use crate::row::reply::{Refusal, Reply};
use crate::row::{Account, Fault, Read as _, Record, Session};
use crate::scope::AccountId;
use crate::step::counters::trip;
use crate::step::memory::see_nonce;
use crate::step::session::insert;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, fixture: &Fixture) -> Done {
    if !turn.cluster.fixtures {
        let not_allowed = "this cluster was not initialised for benchmarks";
        return Err(Refusal::Precondition(not_allowed.to_owned()).into());
    }
    for session in &fixture.sessions {
        // Loading twice is loading once: what a session has done since stays.
        if turn.rows.session(&session.session)?.is_none() {
            load(turn, session)?;
        }
    }
    let sequence = turn.record(Entry {
        detail: Detail::Loaded(fixture.sessions.len()).to_string(),
        ..turn.entry(Kind::Fixture)
    });
    Ok(Reply::Done(turn.place(sequence)))
}

fn load(turn: &mut Turn<'_>, load: &FixtureSession) -> Result<(), Fault> {
    let (organization, agent) = (load.organization.clone(), load.agent.clone());
    let opened = Session::opened(organization, agent, BTreeMap::new(), turn.now());
    let mut session = Record::new(load.session.clone(), opened);
    if load.tripped {
        trip(turn, &mut session, Reason::CircuitOpen, 0)?;
    }
    let account = Account {
        spent: load.spent,
        ..Account::opened(Limit::Amount(load.granted))
    };
    turn.save(Record::new(AccountId::Session(load.session.clone()), account));
    for nonce in &load.nonces {
        see_nonce(turn, &load.session, *nonce)?;
    }
    // No idle timer: the benchmark's sessions do not go stale between its runs.
    insert(turn, session)
}
