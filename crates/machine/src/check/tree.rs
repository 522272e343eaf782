//! What must hold above sessions: guards, the paths of holds, counts of sessions, halts and their timers.

use std::collections::BTreeSet;

use decision::{ApprovalId, OrganizationId, SessionId, Timestamp};

use super::Check;
use crate::guard_path::GUARD_DEPTH_MAX;
use crate::row::{DueWork, Guard, Halt, HaltMode, Hold, Key, Row, Session};
use crate::scope::{AccountId, GuardScope, Scope};

impl Check<'_> {
    /// A guard was written by a put, and its parents are there, up to a root.
    pub(super) fn guard(&mut self, scope: &GuardScope, guard: &Guard) {
        self.fail(guard.version > 0, || format!("guard {scope} has no version"));
        let organization = match scope {
            GuardScope::Default => {
                return self.fail(guard.parent.is_none(), || {
                    "the default guard has a parent".to_owned()
                });
            }
            GuardScope::Organization(organization)
            | GuardScope::Agent(organization, _)
            | GuardScope::Named(organization, _) => organization,
        };
        let mut above = guard.parent.as_ref();
        let mut seen = BTreeSet::new();
        while let Some(parent) = above {
            let key = Key::Guard(GuardScope::Named(organization.clone(), parent.clone()));
            let Some(Row::Guard(found)) = self.rows.get(&key) else {
                return self.fail(false, || {
                    format!("guard {scope}: its parent {parent} is not there")
                });
            };
            if !seen.insert(parent) {
                return self.fail(false, || format!("guard {scope} is below itself"));
            }
            above = found.parent.as_ref();
        }
        let depth = seen.len();
        self.fail(depth <= GUARD_DEPTH_MAX, || {
            format!("guard {scope} is {depth} deep")
        });
    }

    /// A hold was taken from its own session outwards, from each account once, of one organization.
    pub(super) fn path(&mut self, id: &SessionId, number: u64, hold: &Hold) {
        let Some(session) = self.find_session(id) else {
            return self.fail(false, || format!("hold {id}/{number} is of no session"));
        };
        let (organization, agent) = (session.organization.clone(), session.agent.clone());
        let mut places = Vec::new();
        for account in &hold.accounts {
            let place = match account {
                AccountId::Session(of) => (of == id).then_some(0),
                AccountId::Guard(of, _) => (*of == organization).then_some(1),
                AccountId::Agent(of, who) => (*of == organization && *who == agent).then_some(2),
                AccountId::Organization(of) => (*of == organization).then_some(3),
            };
            self.fail(place.is_some(), || {
                format!("hold {id}/{number} was taken from {account}")
            });
            places.extend(place);
        }
        let distinct: BTreeSet<_> = hold.accounts.iter().collect();
        let once = distinct.len() == hold.accounts.len();
        self.fail(once && places.is_sorted(), || {
            format!("hold {id}/{number}: its path is {:?}", hold.accounts)
        });
    }

    /// Counts a session where it is to be counted; its guard is there.
    pub(super) fn count(&mut self, session: &Session) {
        for place in session.tallies() {
            let tally = self.tallies.entry(place).or_default();
            if session.ended_at.is_none() {
                tally.open = tally.open.saturating_add(1);
            }
            if session.trip.is_some() {
                tally.tripped = tally.tripped.saturating_add(1);
            }
        }
        if let Some(guard) = &session.guard {
            let named = GuardScope::Named(session.organization.clone(), guard.clone());
            let there = self.rows.contains_key(&Key::Guard(named));
            self.fail(there, || format!("guard {guard} has a session and is not there"));
        }
    }

    /// What is kept of each tally is what its sessions come to.
    pub(super) fn tallies(&mut self) {
        for (key, row) in self.rows {
            let (Key::Tally(of), Row::Tally(kept)) = (key, row) else {
                continue;
            };
            let counted = self.tallies.remove(of).unwrap_or_default();
            self.fail(counted == *kept, || {
                format!("tally {of} is {kept:?}, its sessions come to {counted:?}")
            });
        }
        for (of, counted) in std::mem::take(&mut self.tallies) {
            self.fail(counted == Default::default(), || {
                format!("tally {of} is not there, its sessions come to {counted:?}")
            });
        }
    }

    /// Only a drain ends by itself, and it is armed to; what is released asks nobody any more.
    pub(super) fn halt(&mut self, scope: &Scope, halt: &Halt) {
        if let Scope::Session(id) = scope {
            self.of_a_session(&Key::Halt(scope.clone()), id);
        }
        let by_itself = halt.engaged && halt.mode == HaltMode::Drain;
        self.fail(by_itself || halt.until.is_none(), || {
            format!("the {:?} of {scope} would end by itself", halt.mode)
        });
        if let Some(until) = halt.until {
            let armed = self
                .rows
                .contains_key(&Key::Due(until, DueWork::DrainEnd(scope.clone())));
            self.fail(armed, || format!("the end of the drain of {scope} is not armed"));
        }
        self.fail(halt.engaged || halt.release_asked.is_none(), || {
            format!("{scope} is released, and waits for a second person")
        });
        self.fail(halt.epoch <= self.halt_epoch(), || {
            format!("{scope} is of halt epoch {}, which is to come", halt.epoch)
        });
    }

    fn halt_epoch(&self) -> u64 {
        match self.rows.get(&Key::Cluster) {
            Some(Row::Cluster(cluster)) => cluster.halt_epoch,
            _ => 0,
        }
    }

    /// A drain's timer is that of a drain which ends then.
    pub(super) fn drain_timer(&mut self, at: Timestamp, scope: &Scope) {
        let until = match self.rows.get(&Key::Halt(scope.clone())) {
            Some(Row::Halt(halt)) => halt.until,
            _ => None,
        };
        self.fail(until == Some(at), || {
            format!("the end of a drain of {scope} is armed at {at}, and it lasts until {until:?}")
        });
    }

    /// An approval's timer is that of one which is not over, at its end.
    pub(super) fn approval_timer(&mut self, at: Timestamp, id: &ApprovalId) {
        let expires_at = self
            .find_approval(id)
            .filter(|approval| !approval.status.is_over())
            .map(|approval| approval.expires_at);
        self.fail(expires_at == Some(at), || {
            format!("approval {id} is armed to expire at {at}, and expires at {expires_at:?}")
        });
    }

    /// An index entry of an organization names an approval of it.
    pub(super) fn approval_index(&mut self, organization: &OrganizationId, id: &ApprovalId) {
        let own = self
            .find_approval(id)
            .is_some_and(|approval| approval.organization == *organization);
        self.fail(own, || {
            format!("{organization} lists approval {id}, which is not there")
        });
    }
}
