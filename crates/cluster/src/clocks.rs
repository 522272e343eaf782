//! What the voters' clocks show. Every node asks the others; log time is bounded by what they say, and a node whose
//! own clock is off neither leads nor stands for election while another can.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use decision::{DurationNs, Timestamp};
use openraft::async_runtime::WatchReceiver as _;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::log_time::{Median, Reading, is_off};
use crate::node::{Node, RaftNode};
use crate::status::MemberStatus;

/// How often the others are asked, and how often while a majority has not answered yet.
const ASK_EVERY: Duration = Duration::from_secs(1);
const ASK_SOON: Duration = Duration::from_millis(100);
/// How long one may take to answer; a longer round trip says little about its clock.
const ASK: Duration = Duration::from_secs(1);
/// How long an answer counts. A voter that is away, as in an upgrade, has its say about which of the other two is
/// right; a clock that gains 100 µs a second is 0.06 s further by then.
const REMEMBERED: Duration = Duration::from_secs(600);
/// A voter that answered within this can take leadership over.
const REACHED: Duration = Duration::from_secs(4);
/// How far behind it may be to do so at once.
const BEHIND_MAX: u64 = 1_000;
/// How long leadership may take to move, and the pause before it is offered again.
const HAND_ON: Duration = Duration::from_secs(5);
/// Elections' lengths without a leader after which one with a bad clock is better than none.
const LAST_RESORT: u32 = 5;

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

    /// The log time that a leader may stamp now; none while a majority of the voters has not told its clock.
    pub fn log_time(&self, voters: &Voters) -> Option<Timestamp> {
        let own = self.own();
        self.median(voters, own).map(|median| median.stamp(own))
    }

    fn median(&self, Voters { own: id, all: voters }: &Voters, own: Timestamp) -> Option<Median> {
        let readings: Vec<Reading> = voters
            .iter()
            .filter_map(|voter| match voter == id {
                true => Some(Reading::exact(own)),
                false => self.reading(*voter, REMEMBERED),
            })
            .collect();
        Median::of(voters.len(), &readings)
    }

    fn reading(&self, raft_id: u64, within: Duration) -> Option<Reading> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard
            .get(&raft_id)
            .filter(|heard| heard.answered.elapsed() <= within)
            .map(|heard| heard.at(Instant::now()))
    }

    fn hear(&self, raft_id: u64, said: Timestamp, asked: Instant) {
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

    fn forget_all_but(&self, members: &[MemberStatus]) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.retain(|raft_id, _| members.iter().any(|member| member.raft_id == *raft_id));
    }
}

impl Node {
    /// How far this node's clock is from the median of the voters', in nanoseconds, above 0 ahead; none while a
    /// majority has not told its clock.
    pub fn clock_skew(&self) -> Option<i64> {
        let own = self.clocks().own();
        let median = self.clocks().median(&Voters::of(self.raft()), own)?;
        Some(median.skew(Reading::exact(own)))
    }

    /// The log time that this node would stamp, if it leads.
    pub(crate) fn log_time(&self) -> Option<Timestamp> {
        self.clocks().log_time(&Voters::of(self.raft()))
    }

    fn others(&self) -> Vec<MemberStatus> {
        let status = self.status();
        let mut members = status.members;
        members.retain(|member| member.raft_id != status.raft_id);
        members
    }
}

/// Asks for clocks, and minds this node's own, until Raft ends.
pub(crate) async fn keep(node: &Node) {
    let mut led = Instant::now();
    let mut offered: Option<Instant> = None;
    while node.runs() {
        if ask_others(node).await == Led::Yes {
            led = Instant::now();
        }
        let off = is_off_even_read_again(node);
        let last_resort = led.elapsed() > node.options().election_max * LAST_RESORT;
        node.raft().runtime_config().elect(!off || last_resort);
        if off && node.status().leads() && offered.is_none_or(|at| at.elapsed() > HAND_ON) {
            offered = Some(Instant::now());
            hand_on(node).await;
        }
        let known = node.clock_skew().is_some();
        tokio::time::sleep(if known { ASK_EVERY } else { ASK_SOON }).await;
    }
}

/// Whether this node's clock is off, and not only what was read of it when the process started: a machine that was
/// suspended, or whose clock was put right since, is not.
fn is_off_even_read_again(node: &Node) -> bool {
    let off = || node.clock_skew().is_some_and(is_off);
    off() && {
        node.clocks().own.reread();
        off()
    }
}

/// Whether this node leads, or a leader has just answered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Led {
    Yes,
    No,
}

/// Learners too: on the day they vote, their clocks are known.
async fn ask_others(node: &Node) -> Led {
    let others = node.others();
    node.clocks().forget_all_but(&others);
    let asking = others.iter().map(|member| ask_member(node, member));
    let answers = futures::future::join_all(asking).await;
    match node.status().leads() || answers.contains(&Led::Yes) {
        true => Led::Yes,
        false => Led::No,
    }
}

async fn ask_member(node: &Node, member: &MemberStatus) -> Led {
    let asked = Instant::now();
    match node.ask(&member.member, ASK).await {
        Ok(hello) if hello.raft_id == member.raft_id => {
            node.clocks()
                .hear(member.raft_id, Timestamp::from_nanos(hello.clock_ns), asked);
            match hello.leader_id == hello.raft_id {
                true => Led::Yes,
                false => Led::No,
            }
        }
        Ok(_another_copy) => Led::No,
        Err(_no_answer) => Led::No,
    }
}

/// Gives leadership to the voter that is furthest, of those whose clocks are right.
async fn hand_on(node: &Node) {
    let skew_ms = node.clock_skew().unwrap_or(0) / 1_000_000;
    let Some(to) = successor(node) else {
        tracing::warn!(
            skew_ms,
            "this leader's clock is off, and no other voter can take over: log time follows theirs"
        );
        return;
    };
    tracing::warn!(skew_ms, to, "this leader's clock is off: it hands leadership on");
    if let Err(error) = node.transfer_leader(Some(to), HAND_ON).await {
        tracing::warn!(%error, "leadership was not handed on");
    }
}

fn successor(node: &Node) -> Option<u64> {
    let median = node
        .clocks()
        .median(&Voters::of(node.raft()), node.clocks().own())?;
    let last = node.status().last_log;
    let right = |voter: &MemberStatus| {
        let reading = node.clocks().reading(voter.raft_id, REACHED);
        reading.is_some_and(|reading| !is_off(median.skew(reading)))
    };
    let near = |voter: &MemberStatus| voter.matched.saturating_add(BEHIND_MAX) >= last;
    node.others()
        .iter()
        .filter(|member| member.voter && right(member) && near(member))
        .max_by_key(|voter| voter.matched)
        .map(|voter| voter.raft_id)
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
