//! How this node stands beside its cluster: whether what it holds is what the others hold, and what keeps it from
//! answering.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::OutOfService;

/// How old an uncommitted entry of the leader may be: one that is older will not be committed soon.
const UNCOMMITTED_MAX: Duration = Duration::from_secs(2);

/// Read by everyone who answers; written by the node's own watch over its peers.
#[derive(Debug, Default)]
pub struct Standing(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    out_of_service: Option<OutOfService>,
    /// Since when the leader's oldest uncommitted entry waits, as far as this node knows.
    uncommitted: Option<Instant>,
    building: Building,
    snapshots_failed: u64,
}

/// How far this node is with its next snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Building {
    #[default]
    No,
    Wanted,
    UnderWay,
}

/// How the states of the nodes that answer compare with this node's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub same: usize,
    pub differ: usize,
    /// The log entry at which a difference was seen.
    pub at: u64,
}

impl Comparison {
    /// Whether this node may go on: of all that can be compared, itself included, more than half are as it is.
    pub fn verdict(self) -> Option<OutOfService> {
        let (alike, answering) = (
            self.same.saturating_add(1),
            self.same.saturating_add(self.differ).saturating_add(1),
        );
        let majority = answering / 2 + 1;
        if alike >= majority {
            None
        } else if self.differ >= majority {
            Some(OutOfService::Diverged { index: self.at })
        } else {
            Some(OutOfService::NoMajority { index: self.at })
        }
    }
}

impl Standing {
    /// Why nothing that this node holds may be answered; none where it serves.
    pub fn out_of_service(&self) -> Option<OutOfService> {
        self.lock().out_of_service.clone()
    }

    /// What keeps the cluster from committing, where this node knows of anything.
    pub fn is_stuck(&self) -> bool {
        let uncommitted = self.lock().uncommitted;
        uncommitted.is_some_and(|since| since.elapsed() > UNCOMMITTED_MAX)
    }

    /// How long the leader's oldest uncommitted entry has waited.
    pub fn uncommitted_for(&self) -> Duration {
        let uncommitted = self.lock().uncommitted;
        uncommitted.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(crate) fn uncommitted_since(&self, since: Option<Instant>) {
        self.lock().uncommitted = since;
    }

    /// Takes what was found about this node's data. A state that diverged stays so: no later entry mends it.
    pub(crate) fn found(&self, found: Option<OutOfService>) {
        let mut state = self.lock();
        if state.out_of_service == found
            || matches!(state.out_of_service, Some(OutOfService::Diverged { .. }))
        {
            return;
        }
        match &found {
            Some(why) => tracing::error!(%why, "this node is out of service"),
            None => tracing::info!("this node is in service again"),
        }
        state.out_of_service = found;
    }

    pub(crate) fn building(&self) -> Building {
        self.lock().building
    }

    pub(crate) fn builds(&self, building: Building) {
        self.lock().building = building;
    }

    pub(crate) fn snapshot_failed(&self) {
        let mut state = self.lock();
        state.snapshots_failed = state.snapshots_failed.saturating_add(1);
    }

    /// How many snapshots could not be built since the start.
    pub fn snapshots_failed(&self) -> u64 {
        self.lock().snapshots_failed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Standing};
    use crate::error::OutOfService;

    #[test]
    fn the_majority_of_those_that_answer_serves() {
        // alike, different, what this node does
        let out = Some(OutOfService::Diverged { index: 9 });
        let nobody = Some(OutOfService::NoMajority { index: 9 });
        let rows = [
            (0, 0, None),
            (2, 0, None),
            (1, 0, None),
            (1, 1, None),
            (0, 2, out.clone()),
            (0, 1, nobody.clone()),
            (1, 2, nobody.clone()),
            (2, 2, None),
            (1, 3, out.clone()),
            (0, 4, out),
        ];
        for (same, differ, expected) in rows {
            let comparison = Comparison { same, differ, at: 9 };
            assert_eq!(comparison.verdict(), expected, "{comparison:?}");
        }
    }

    #[test]
    fn a_state_that_diverged_stays_so() {
        let standing = Standing::default();
        standing.found(Some(OutOfService::Removed));
        standing.found(None);
        assert_eq!(standing.out_of_service(), None);
        standing.found(Some(OutOfService::Diverged { index: 1 }));
        standing.found(None);
        assert!(standing.out_of_service().is_some());
    }
}
