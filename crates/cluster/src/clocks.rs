//! What the voters' clocks show: this node's own, and the others' as they said it last. Log time is bounded by them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use decision::{DurationNs, Timestamp};
use openraft::async_runtime::WatchReceiver as _;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::log_time::{Median, Reading};
use crate::raft::RaftNode;
use crate::status::MemberStatus;

/// How long an answer counts. A voter that is away, as in an upgrade, has its say about which of the other two is
/// right; a clock that gains 100 µs a second is 0.06 s further by then.
const REMEMBERED: Duration = Duration::from_secs(600);

/// This node's clock, and what is known of the others'.
pub(crate) struct Clocks {
    own: Arc<dyn Clock>,
    heard: Mutex<BTreeMap<u64, Heard>>,
}

/// Whose clocks count.
#[derive(Debug, Clone)]
pub(crate) struct Voters {
    /// This node, voter or not.
    own: u64,
    all: BTreeSet<u64>,
}

impl Voters {
    pub fn of(raft: &RaftNode) -> Self {
        let metrics = raft.metrics();
        let metrics = metrics.borrow_watched();
        Self {
            own: metrics.id,
            all: metrics.membership_config.membership().voter_ids().collect(),
        }
    }
}

/// A peer's answer to what its clock shows.
#[derive(Debug, Clone, Copy)]
struct Heard {
    said: Timestamp,
    asked: Instant,
    answered: Instant,
}

impl Heard {
    /// Moved on by this node's monotonic clock: what the peer's shows at `now`.
    fn at(&self, now: Instant) -> Reading {
        let age = nanos(now.saturating_duration_since(self.answered));
        let round_trip = nanos(self.answered.saturating_duration_since(self.asked));
        let earliest = self.said.plus(age);
        Reading {
            earliest,
            latest: earliest.plus(round_trip),
        }
    }
}

impl Clocks {
    pub fn new(own: Arc<dyn Clock>) -> Self {
        Self {
            own,
            heard: Mutex::default(),
        }
    }

    pub fn own(&self) -> Timestamp {
        self.own.now()
    }

    /// Reads the operating system's clock again.
    pub fn reread(&self) {
        self.own.reread();
    }

    /// The log time that a leader may stamp now; none while a majority of the voters has not told its clock.
    pub fn log_time(&self, voters: &Voters) -> Option<Timestamp> {
        let own = self.own();
        self.median(voters, own).map(|median| median.stamp(own))
    }

    pub fn median(&self, Voters { own: id, all: voters }: &Voters, own: Timestamp) -> Option<Median> {
        let readings: Vec<Reading> = voters
            .iter()
            .filter_map(|voter| match voter == id {
                true => Some(Reading::exact(own)),
                false => self.reading(*voter, REMEMBERED),
            })
            .collect();
        Median::of(voters.len(), &readings)
    }

    pub fn reading(&self, raft_id: u64, within: Duration) -> Option<Reading> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard
            .get(&raft_id)
            .filter(|heard| heard.answered.elapsed() <= within)
            .map(|heard| heard.at(Instant::now()))
    }

    pub fn hear(&self, raft_id: u64, said: Timestamp, asked: Instant) {
        let answered = Instant::now();
        let heard = Heard {
            said,
            asked,
            answered,
        };
        self.heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(raft_id, heard);
    }

    pub fn forget_all_but(&self, members: &[MemberStatus]) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.retain(|raft_id, _| members.iter().any(|member| member.raft_id == *raft_id));
    }
}

fn nanos(span: Duration) -> DurationNs {
    DurationNs::from_nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use decision::{DurationNs, Timestamp};
    use tokio::time::Instant;

    use super::{Clocks, Heard, REMEMBERED, Voters};
    use crate::clock::Clock;

    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Timestamp {
            Timestamp::from_nanos(10_000_000_000)
        }
    }

    fn voters(own: u64, all: impl IntoIterator<Item = u64>) -> Voters {
        Voters {
            own,
            all: all.into_iter().collect(),
        }
    }

    #[test]
    fn nothing_is_stamped_before_a_majority_has_told_its_clock() {
        let clocks = Clocks::new(Arc::new(Stopped));
        let told = |own, all: &[u64]| clocks.log_time(&voters(own, all.iter().copied())).is_some();
        assert!(!told(1, &[]), "no cluster yet");
        assert!(told(1, &[1]), "a cluster of one has its own");
        assert!(!told(1, &[1, 2]) && !told(1, &[1, 2, 3]));
        clocks.hear(2, Stopped.now(), Instant::now());
        assert!(told(1, &[1, 2]) && told(1, &[1, 2, 3]));
        assert!(!told(1, &[1, 2, 3, 4]) && !told(1, &[1, 3, 4]));
        assert!(
            !told(1, &[2, 3]),
            "a leader that is leaving does not count itself"
        );
        clocks.hear(3, Stopped.now(), Instant::now());
        assert!(told(1, &[1, 2, 3, 4]) && told(1, &[2, 3]));
    }

    #[test]
    fn an_old_answer_counts_no_longer() {
        let clocks = Clocks::new(Arc::new(Stopped));
        let Some(long_ago) = Instant::now().checked_sub(REMEMBERED + Duration::from_secs(1)) else {
            return;
        };
        let heard = Heard {
            said: Stopped.now(),
            asked: long_ago,
            answered: long_ago,
        };
        clocks.heard.lock().unwrap().insert(2, heard);
        assert_eq!(clocks.log_time(&voters(1, [1, 2])), None);
    }

    #[test]
    fn a_reading_moves_on_and_stays_as_vague_as_its_round_trip() {
        let said = Timestamp::from_nanos(1_000_000_000);
        let asked = Instant::now();
        let answered = asked + Duration::from_millis(30);
        let heard = Heard {
            said,
            asked,
            answered,
        };
        let now = heard.at(answered + Duration::from_secs(5));
        assert_eq!(now.earliest, said.plus(DurationNs::from_secs(5)));
        assert_eq!(now.latest.since(now.earliest), DurationNs::from_millis(30));
    }
}
