//! Counts of sessions: open and tripped, of an organization, an agent, a guard.

use minicbor::{Decode, Encode};

use crate::apply::Turn;
use crate::scope::AccountId;
use crate::table::{Fault, Key, Read, Row, Rows, Session};

/// Sessions of one organization, agent, or directly under one guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Tally {
    #[n(0)]
    pub open: u32,
    /// With a tripped circuit, ended ones too as long as they are kept.
    #[n(1)]
    pub tripped: u32,
}

/// Whose tallies a session counts in.
pub(crate) fn places(session: &Session) -> Vec<AccountId> {
    let organization = session.organization.clone();
    let mut places = vec![
        AccountId::Organization(organization.clone()),
        AccountId::Agent(organization.clone(), session.agent.clone()),
    ];
    places.extend(
        session
            .guard
            .clone()
            .map(|guard| AccountId::Guard(organization, guard)),
    );
    places
}

/// Changes the tallies that a session counts in.
pub(crate) fn count<R: Rows>(
    turn: &mut Turn<'_, '_, R>,
    session: &Session,
    change: impl Fn(&mut Tally),
) -> Result<(), Fault> {
    for place in places(session) {
        let mut tally = turn.rows.tally(&place)?.unwrap_or_default();
        change(&mut tally);
        let key = Key::Tally(place);
        if tally == Tally::default() {
            turn.rows.delete(key);
        } else {
            turn.rows.put(key, Row::Tally(tally));
        }
    }
    Ok(())
}
