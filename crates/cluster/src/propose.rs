//! From a command to its reply. Commands that wait together travel in one log entry; operators' go first,
//! in room of their own. Batches never wait on a timer: an idle pipeline takes what there is.

use std::sync::Arc;
use std::time::Duration;

use machine::{Batch, Command, Reply};
use openraft::errors::{ClientWriteError, RaftError};
use store::Payload;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::clock::Entropy;
use crate::clocks::{Clocks, Voters};
use crate::error::Unavailable;
use crate::node::{Node, RaftNode};

/// Commands in one log entry: more adds latency for the first without fewer fsyncs for the last.
const BATCH_MAX: usize = 256;
/// Batches under way: one being synced, one being replicated, one behind them. An operator's command waits for
/// these, and for nothing else.
const IN_FLIGHT_MAX: usize = 3;
/// Room for agents' calls that wait on the leader: what it decides in a quarter of a second, after which agents
/// have given up. A full queue answers at once; it never grows.
const CALLS_MAX: usize = 1_024;
/// Room that only operators' commands may use.
const URGENT_MAX: usize = 256;
/// How long to wait before asking for the leader again, when nothing tells of a change.
const RETRY: Duration = Duration::from_millis(20);

/// Whether a command waits with the agents' calls or goes before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    Call,
    /// Halts, terminations, memberships, and what the cluster needs to go on.
    Urgent,
}

/// Why the leader's queue gave no reply.
#[derive(Debug)]
pub(crate) enum Lost {
    /// Not the leader, or no longer: the command may have been carried out all the same.
    NotLeader,
    Unavailable(Unavailable),
}

struct Waiting {
    command: Command,
    answer: oneshot::Sender<Result<Reply, Lost>>,
}

/// Where commands wait on the leader.
pub(crate) struct Queues {
    calls: mpsc::Sender<Waiting>,
    urgent: mpsc::Sender<Waiting>,
}

impl Node {
    /// Has a command decided and recorded, wherever the leader is, and gives its reply.
    ///
    /// A command whose answer was lost on the way is sent again; the retry table makes that harmless.
    ///
    /// # Errors
    /// No reply within `within`: the command may or may not have been carried out.
    pub async fn propose(
        &self,
        command: Command,
        urgency: Urgency,
        within: Duration,
    ) -> Result<Reply, Unavailable> {
        let deadline = Instant::now() + within;
        let mut changed = self.changed();
        loop {
            let lost = match self.leader() {
                Leader::Here => {
                    match tokio::time::timeout_at(deadline, self.propose_here(command.clone(), urgency)).await
                    {
                        Ok(Ok(reply)) => return Ok(reply),
                        Ok(Err(Lost::NotLeader)) => Unavailable::NoLeader,
                        Ok(Err(Lost::Unavailable(Unavailable::NoClock))) => Unavailable::NoClock,
                        Ok(Err(Lost::Unavailable(unavailable))) => return Err(unavailable),
                        Err(_elapsed) => return Err(Unavailable::Deadline),
                    }
                }
                Leader::HereAlone => return Err(Unavailable::NoQuorum),
                Leader::There(raft_id, member) => {
                    match self.forward(raft_id, &member, &command, urgency, deadline).await {
                        Ok(reply) => return Ok(reply),
                        Err(Lost::NotLeader) => Unavailable::NoLeader,
                        Err(Lost::Unavailable(Unavailable::NoClock)) => Unavailable::NoClock,
                        Err(Lost::Unavailable(Unavailable::NoLeader)) if !self.is_leaderless() => {
                            Unavailable::NoLeader
                        }
                        Err(Lost::Unavailable(unavailable)) => return Err(unavailable),
                    }
                }
                Leader::Unknown if self.is_leaderless() => return Err(Unavailable::NoLeader),
                Leader::Unknown => Unavailable::NoLeader,
            };
            if let Some(why) = self.status().stopped {
                return Err(Unavailable::Stopped(why));
            }
            let again = (Instant::now() + RETRY).min(deadline);
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep_until(again) => {}
            }
            if Instant::now() >= deadline {
                return Err(lost);
            }
        }
    }

    /// Waits for a place in this node's own log; only the leader has one.
    pub(crate) async fn propose_here(&self, command: Command, urgency: Urgency) -> Result<Reply, Lost> {
        match self.leader() {
            Leader::Here => {}
            Leader::HereAlone => return Err(Lost::Unavailable(Unavailable::NoQuorum)),
            Leader::There(..) | Leader::Unknown => return Err(Lost::NotLeader),
        }
        let (answer, reply) = oneshot::channel();
        let queue = match urgency {
            Urgency::Call => &self.queues().calls,
            Urgency::Urgent => &self.queues().urgent,
        };
        match queue.try_send(Waiting { command, answer }) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return Err(Lost::Unavailable(Unavailable::Overloaded));
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(stopped("proposer ended")),
        }
        reply
            .await
            .unwrap_or_else(|_closed| Err(stopped("proposer ended")))
    }
}

/// Where the leader is, as far as this node knows.
pub(crate) enum Leader {
    Here,
    /// This node leads, but has not heard from a quorum for longer than an election takes.
    HereAlone,
    There(u64, store::Member),
    Unknown,
}

fn stopped(why: &str) -> Lost {
    Lost::Unavailable(Unavailable::Stopped(why.to_owned()))
}

/// Takes what waits, stamps it once, and proposes it as one entry.
pub(crate) struct Proposer {
    raft: RaftNode,
    clocks: Arc<Clocks>,
    entropy: Arc<dyn Entropy>,
    calls: mpsc::Receiver<Waiting>,
    urgent: mpsc::Receiver<Waiting>,
    in_flight: Arc<Semaphore>,
}

impl Proposer {
    pub fn new(raft: RaftNode, clocks: Arc<Clocks>, entropy: Arc<dyn Entropy>) -> (Queues, Self) {
        let (calls, waiting_calls) = mpsc::channel(CALLS_MAX);
        let (urgent, waiting_urgent) = mpsc::channel(URGENT_MAX);
        let in_flight = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        let proposer = Self {
            raft,
            clocks,
            entropy,
            calls: waiting_calls,
            urgent: waiting_urgent,
            in_flight,
        };
        (Queues { calls, urgent }, proposer)
    }

    pub async fn run(mut self) {
        while let Some(first) = self.select().await {
            let Ok(permit) = self.in_flight.clone().acquire_owned().await else {
                return;
            };
            let (commands, answers) = self.take(first);
            if commands.is_empty() {
                continue;
            }
            let Some(batch) = self.stamp(commands) else {
                refuse_all(answers, || Lost::Unavailable(Unavailable::NoClock));
                continue;
            };
            let payload = Payload::of(&batch);
            let raft = self.raft.clone();
            tokio::spawn(async move {
                let outcome = raft.client_write(payload).await;
                drop(permit);
                match outcome {
                    Ok(response) => answer_all(answers, response.data.replies),
                    Err(error) => refuse_all(answers, || lost(&error)),
                }
            });
        }
    }

    async fn select(&mut self) -> Option<Waiting> {
        tokio::select! {
            biased;
            waiting = self.urgent.recv() => waiting,
            waiting = self.calls.recv() => waiting,
        }
    }

    /// Everything that waits now, operators' commands first, up to a batch; callers that gave up are left out.
    fn take(&mut self, first: Waiting) -> (Vec<Command>, Vec<oneshot::Sender<Result<Reply, Lost>>>) {
        let mut commands = Vec::new();
        let mut answers = Vec::new();
        let mut weight = 0_usize;
        let mut first = Some(first);
        while weight < BATCH_MAX {
            let next = self
                .urgent
                .try_recv()
                .ok()
                .or_else(|| first.take())
                .or_else(|| self.calls.try_recv().ok());
            let Some(Waiting { command, answer }) = next else {
                break;
            };
            if answer.is_closed() {
                continue;
            }
            weight = weight.saturating_add(weight_of(&command));
            commands.push(command);
            answers.push(answer);
        }
        if let Some(Waiting { command, answer }) = first {
            commands.push(command);
            answers.push(answer);
        }
        (commands, answers)
    }

    /// None while nobody can say what time it is: nothing is stamped then.
    fn stamp(&self, commands: Vec<Command>) -> Option<Batch> {
        let proposed = self.clocks.log_time(&Voters::of(&self.raft))?;
        let mut seed = [0; 16];
        self.entropy.fill(&mut seed);
        Some(Batch {
            proposed,
            seed,
            version: machine::VERSION,
            commands,
        })
    }
}

/// Commands of many kilobytes fill a batch alone.
fn weight_of(command: &Command) -> usize {
    match command {
        Command::Seal(_) | Command::Fixture(_) | Command::Seen(_) => BATCH_MAX,
        _ => 1,
    }
}

fn answer_all(answers: Vec<oneshot::Sender<Result<Reply, Lost>>>, replies: Vec<Reply>) {
    let mut replies = replies.into_iter();
    for answer in answers {
        let reply = replies
            .next()
            .ok_or_else(|| stopped("an applied entry answered too few commands"));
        let _gone = answer.send(reply);
    }
}

fn refuse_all(answers: Vec<oneshot::Sender<Result<Reply, Lost>>>, why: impl Fn() -> Lost) {
    for answer in answers {
        // A caller that has gone away needs no answer.
        let _gone = answer.send(Err(why()));
    }
}

fn lost(error: &RaftError<store::Raft, ClientWriteError<store::Raft>>) -> Lost {
    match error {
        RaftError::APIError(
            ClientWriteError::ForwardToLeader(_) | ClientWriteError::LogEntryDiscarded(_),
        ) => Lost::NotLeader,
        RaftError::APIError(other) => stopped(&other.to_string()),
        RaftError::Fatal(fatal) => stopped(&fatal.to_string()),
    }
}
