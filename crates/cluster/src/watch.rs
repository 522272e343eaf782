//! What a node minds all the time: the other nodes' clocks and states, its own clock, and whether it still leads
//! anyone. A node whose clock is off, or whose state is not the others', neither leads nor stands for election
//! while another can.

use std::time::Duration;

use decision::Timestamp;
use tokio::time::Instant;
use wire::proto::haltgate::peer::v1 as peer;

use crate::clocks::Voters;
use crate::error::OutOfService;
use crate::log_time::is_off;
use crate::node::{Leading, Node};
use crate::raft::Leader;
use crate::standing::Comparison;
use crate::status::MemberStatus;

/// How often the others are asked, and how often while a majority has not answered yet.
const ASK_EVERY: Duration = Duration::from_secs(1);
const ASK_SOON: Duration = Duration::from_millis(100);
/// How long one may take to answer; a longer round trip says little about its clock.
const ASK: Duration = Duration::from_secs(1);
/// A voter that answered within this can take leadership over.
const REACHED: Duration = Duration::from_secs(4);
/// How far behind it may be to do so at once.
const BEHIND_MAX: u64 = 1_000;
/// How long leadership may take to move, and the pause before it is offered again.
const HAND_ON: Duration = Duration::from_secs(5);
/// Elections' lengths without a leader after which one with a bad clock is better than none.
const LAST_RESORT: u32 = 5;

/// Asks the others, and minds this node's own clock and state, until Raft ends.
pub(crate) async fn peers(node: Node) {
    let mut led = Instant::now();
    let mut offered: Option<Instant> = None;
    while node.runs() {
        let round = ask_all(&node).await;
        if round.led {
            led = Instant::now();
        }
        node.standing().found(round.verdict(&node));
        let diverged = node.in_service().is_err();
        let off = is_off_even_read_again(&node);
        let last_resort = led.elapsed() > node.options().election_max * LAST_RESORT;
        node.raft()
            .runtime_config()
            .elect(!diverged && (!off || last_resort));
        if (off || diverged) && node.status().leads() && offered.is_none_or(|at| at.elapsed() > HAND_ON) {
            offered = Some(Instant::now());
            hand_on(&node).await;
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
        node.clocks().reread();
        off()
    }
}

/// What the others said, this time.
#[derive(Debug, Default)]
struct Round {
    /// This node leads, or a leader has answered it.
    led: bool,
    /// Of this cluster.
    answered: usize,
    /// The leader answered, and this node is none of its members.
    stranger: bool,
    /// Of another cluster.
    foreign: usize,
    other_cluster: String,
    compared: Comparison,
}

impl Round {
    /// What the answers say of this node's data.
    fn verdict(&self, node: &Node) -> Option<OutOfService> {
        let status = node.status();
        // One node of another cluster is that node's trouble; most of them, and no leader here, is this one's.
        if !self.led && self.foreign > self.answered && self.foreign.saturating_mul(2) > status.members.len()
        {
            return Some(OutOfService::OtherCluster {
                own: node.cluster_id(),
                theirs: self.other_cluster.clone(),
            });
        }
        // A pristine node is a stranger before it joins.
        if status.last_log > 0 && self.stranger {
            return Some(OutOfService::Removed);
        }
        self.compared.verdict()
    }

    fn take_in(&mut self, node: &Node, member: &MemberStatus, hello: &peer::HelloResponse) {
        let own = node.cluster_id();
        if hello.cluster_id.is_empty() || own.is_empty() {
            return;
        }
        if hello.cluster_id != own {
            self.foreign = self.foreign.saturating_add(1);
            self.other_cluster.clone_from(&hello.cluster_id);
            return;
        }
        self.answered = self.answered.saturating_add(1);
        if hello.leader_id == hello.raft_id && hello.raft_id == member.raft_id {
            self.led = true;
            // A release that does not say so (nor which versions it has) is not taken at its silence.
            self.stranger = hello.machine_version != 0 && !hello.knows_sender;
            let waited = Duration::from_millis(hello.uncommitted_ms);
            let since = (!waited.is_zero())
                .then(|| Instant::now().checked_sub(waited))
                .flatten();
            node.standing().uncommitted_since(since);
        }
        if member.voter {
            self.compare(node, hello);
        }
    }

    /// At the later of the two positions that both have.
    fn compare(&mut self, node: &Node, hello: &peer::HelloResponse) {
        let here_and_there = |index: u64, theirs: &[u8]| {
            let ours = node.reader().digest_at(index)?;
            (!theirs.is_empty()).then(|| (index, ours.as_slice() == theirs))
        };
        let at_theirs = here_and_there(hello.applied_index, &hello.digest);
        let at_ours = here_and_there(hello.asked_index, &hello.digest_asked);
        match at_theirs.or(at_ours) {
            Some((_, true)) => self.compared.same = self.compared.same.saturating_add(1),
            Some((index, false)) => {
                self.compared.differ = self.compared.differ.saturating_add(1);
                self.compared.at = index;
            }
            None => {}
        }
    }
}

/// Learners too: on the day they vote, their clocks are known. And whom the configuration lists: a node that was
/// moved to another cluster's data knows nobody else.
async fn ask_all(node: &Node) -> Round {
    let mut others = node.status().members;
    others.retain(|member| member.raft_id != node.raft_id());
    node.clocks().forget_all_but(&others);
    for listed in node.listed() {
        let known = |member: &MemberStatus| member.member.name == listed.name;
        if listed.name != node.member().name && !others.iter().any(known) {
            others.push(MemberStatus {
                raft_id: 0,
                member: listed.clone(),
                voter: false,
                matched: 0,
            });
        }
    }
    let asking = others.iter().map(async |member| {
        let asked = Instant::now();
        (member, asked, node.ask(&member.member, ASK).await)
    });
    let answers = futures::future::join_all(asking).await;
    let mut round = Round {
        led: node.leads(),
        ..Round::default()
    };
    for (member, asked, answer) in answers {
        let Ok(hello) = answer else { continue };
        if hello.raft_id == member.raft_id && hello.cluster_id == node.cluster_id() {
            node.clocks()
                .hear(member.raft_id, Timestamp::from_nanos(hello.clock_ns), asked);
        }
        round.take_in(node, member, &hello);
    }
    round
}

/// Gives leadership to the voter that is furthest, of those whose clocks are right.
async fn hand_on(node: &Node) {
    let skew_ms = node.clock_skew().unwrap_or(0) / 1_000_000;
    let Some(to) = node.successor() else {
        tracing::warn!(
            skew_ms,
            "this leader should not lead, and no other voter can take over"
        );
        return;
    };
    tracing::warn!(skew_ms, to, "this leader should not lead: it hands leadership on");
    if let Err(error) = node.transfer_leader(Some(to), HAND_ON).await {
        tracing::warn!(%error, "leadership was not handed on");
    }
}

impl Node {
    /// The voter that can lead at once: it answers, its clock is right, and its log is the furthest.
    pub(crate) fn successor(&self) -> Option<u64> {
        let median = self
            .clocks()
            .median(&Voters::of(self.raft()), self.clocks().own())?;
        let status = self.status();
        let right = |voter: &MemberStatus| {
            let reading = self.clocks().reading(voter.raft_id, REACHED);
            reading.is_some_and(|reading| !is_off(median.skew(reading)))
        };
        let near = |voter: &MemberStatus| voter.matched.saturating_add(BEHIND_MAX) >= status.last_log;
        status
            .members
            .iter()
            .filter(|member| {
                member.voter && member.raft_id != status.raft_id && right(member) && near(member)
            })
            .max_by_key(|voter| voter.matched)
            .map(|voter| voter.raft_id)
    }
}

/// Tells those who wait for a place in this node's log as soon as it leads nobody, and steps down where it beats
/// but commits nothing: a leader that cannot replicate is none, and another may be able to.
pub(crate) async fn leading(node: Node) {
    let mut committed = 0;
    let mut since: Option<Instant> = None;
    let mut silent_until: Option<Instant> = None;
    while node.runs() {
        let now = Instant::now();
        let leading = match node.leader() {
            Leader::Here => Leading::Yes,
            Leader::HereAlone => Leading::Alone,
            Leader::There(..) | Leader::Unknown => Leading::No,
        };
        node.now_leading(leading);
        let status = node.status();
        if leading == Leading::No {
            since = None;
        } else {
            if status.committed != committed || status.last_log <= status.committed {
                since = (status.last_log > status.committed).then_some(now);
            }
            committed = status.committed;
            node.standing().uncommitted_since(since);
        }
        let give_up = node.options().election_max * 2;
        if leading == Leading::Yes && since.is_some_and(|since| now - since > give_up) {
            tracing::error!(
                committed,
                last_log = status.last_log,
                "this leader's entries are not committed: it falls silent, so that another is elected"
            );
            node.raft().runtime_config().heartbeat(false);
            silent_until = Some(now + give_up);
            since = None;
        }
        if silent_until.is_some_and(|until| now > until || leading == Leading::No) {
            node.raft().runtime_config().heartbeat(true);
            silent_until = None;
        }
        tokio::time::sleep(node.options().heartbeat).await;
    }
}
