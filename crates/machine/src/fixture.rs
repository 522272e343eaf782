//! The benchmark's sessions (docs/bench/authorize-v1.md), loaded through `apply` like everything else.

use audit::Kind;

use crate::apply::Turn;
use crate::command::{Fixture, Limit};
use crate::nonce::see_nonce;
use crate::reply::{Refusal, Reply};
use crate::scope::AccountId;
use crate::session::{insert, trip};
use crate::table::{Account, Fault, Key, Read, Row, Rows, Session};

pub(crate) fn load<R: Rows>(turn: &mut Turn<'_, '_, R>, fixture: &Fixture) -> Result<Reply, Fault> {
    if !turn.cluster.fixtures {
        return Ok(Reply::Refused(Refusal::Precondition(
            "this cluster was not initialised for benchmarks".to_owned(),
        )));
    }
    for load in &fixture.sessions {
        // Loading twice is loading once: what a session has done since stays.
        if turn.rows.session(&load.session)?.is_some() {
            continue;
        }
        let mut session = Session::opened(
            load.organization.clone(),
            load.agent.clone(),
            std::collections::BTreeMap::new(),
            turn.now(),
        );
        if load.tripped {
            trip(
                turn,
                &load.session,
                &mut session,
                decision::Reason::CircuitOpen,
                0,
            )?;
        }
        let account = Account {
            spent: load.spent,
            ..Account::opened(Limit::Amount(load.granted))
        };
        turn.rows.put(
            Key::Account(AccountId::Session(load.session.clone())),
            Row::Account(account),
        );
        for nonce in &load.nonces {
            see_nonce(turn, &load.session, *nonce)?;
        }
        // No idle timer: the benchmark's sessions do not go stale between its runs.
        insert(turn, &load.session, session)?;
    }
    let mut entry = turn.entry(Kind::Fixture);
    entry.detail = format!("{} sessions", fixture.sessions.len());
    let sequence = turn.record(entry);
    Ok(Reply::Done(turn.place(sequence)))
}
