//! Counts of sessions: open and tripped, of an organization, an agent, a guard.

use minicbor::{Decode, Encode};

use crate::row::session::Session;
use crate::scope::AccountId;

/// Sessions of one organization, agent, or directly under one guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Tally {
    #[n(0)]
    pub open: u32,
    /// With a tripped circuit, ended ones too as long as they are kept.
    #[n(1)]
    pub tripped: u32,
}

impl Session {
    /// Whose tallies the session counts in.
    pub fn tallies(&self) -> Vec<AccountId> {
        let organization = self.organization.clone();
        let mut of = vec![
            AccountId::Organization(organization.clone()),
            AccountId::Agent(organization.clone(), self.agent.clone()),
        ];
        of.extend(
            self.guard
                .clone()
                .map(|guard| AccountId::Guard(organization, guard)),
        );
        of
    }
}
