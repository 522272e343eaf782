//! Where commands wait on the leader, and how they become log entries. Commands that wait together travel in one
//! entry; operators' go first, in room of their own. Nothing waits on a timer: an idle pipeline takes what there is.
//!
//! Everything is bounded in bytes as well as in number: an entry that no peer would take would stop the cluster.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use machine::{Batch, Command, Reply};
use openraft::errors::{ClientWriteError, RaftError};
use store::{Payload, Progress};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::clock::Entropy;
use crate::clocks::{Clocks, Voters};
use crate::error::{Lost, Unavailable};
use crate::raft::{Options, RaftNode};

/// Commands in one log entry: more adds latency for the first without fewer fsyncs for the last.
const BATCH_MAX: usize = 256;
/// Batches under way: one being synced, one being replicated, one behind them. An operator's command waits for
/// these, and for nothing else.
const IN_FLIGHT_MAX: usize = 3;
/// Room for agents' calls that wait on the leader: what it decides in a quarter of a second, after which agents
/// have given up. A full queue answers at once; it never grows.
const CALLS_MAX: usize = 1_024;
/// In bytes: so many full entries.
const CALLS_ENTRIES_MAX: usize = 32;
/// Room that only operators' commands may use.
const URGENT_MAX: usize = 256;
const URGENT_ENTRIES_MAX: usize = 16;
/// An order is small. A document (a guard of hundreds of kilobytes) waits with the calls, whoever sends it: it must
/// not stand between an operator and the kill switch.
const ORDER_BYTES_MAX: usize = 64 << 10;

/// Whether a command waits with the agents' calls or goes before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    Call,
    /// Halts, terminations, memberships, and what the cluster needs to go on.
    Urgent,
}

/// The bytes of a command as it travels.
pub(crate) fn encoded_bytes(command: &Command) -> usize {
    struct Count(usize);
    impl minicbor::encode::Write for Count {
        type Error = Infallible;
        fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting fails nowhere; a command that could not be encoded is as large as any.
    minicbor::encode(command, &mut count).map_or(usize::MAX, |()| count.0)
}

struct Waiting {
    command: Command,
    vouched_by: String,
    bytes: usize,
    answer: oneshot::Sender<Result<Reply, Lost>>,
    /// Its part of the queue's room.
    _room: OwnedSemaphorePermit,
}

/// A queue of so many commands and so many bytes.
struct Queue {
    commands: mpsc::Sender<Waiting>,
    bytes: Arc<Semaphore>,
}

impl Queue {
    fn new(most: usize, bytes: usize) -> (Self, mpsc::Receiver<Waiting>) {
        let (commands, waiting) = mpsc::channel(most);
        let bytes = Arc::new(Semaphore::new(bytes));
        (Self { commands, bytes }, waiting)
    }

    fn put(
        &self,
        vouched_by: String,
        command: Command,
        bytes: usize,
    ) -> Result<oneshot::Receiver<Result<Reply, Lost>>, Lost> {
        let overloaded = || Lost::Unavailable(Unavailable::Overloaded);
        let permits = u32::try_from(bytes).map_err(|_| overloaded())?;
        let room = self.bytes.clone().try_acquire_many_owned(permits);
        let (answer, reply) = oneshot::channel();
        let waiting = Waiting {
            command,
            vouched_by,
            bytes,
            answer,
            _room: room.map_err(|_full| overloaded())?,
        };
        match self.commands.try_send(waiting) {
            Ok(()) => Ok(reply),
            Err(mpsc::error::TrySendError::Full(_)) => Err(overloaded()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(stopped("proposer ended")),
        }
    }
}

/// Where commands wait on the leader.
pub(crate) struct Queues {
    calls: Queue,
    urgent: Queue,
    command_bytes: usize,
}

impl Queues {
    /// Refuses what no entry could carry, before it waits anywhere.
    pub fn measure(&self, command: &Command) -> Result<usize, Unavailable> {
        let (bytes, most) = (encoded_bytes(command), self.command_bytes);
        if bytes > most {
            return Err(Unavailable::TooLarge { bytes, most });
        }
        Ok(bytes)
    }

    /// Queues a command; its reply comes once it was applied.
    pub fn put(
        &self,
        vouched_by: String,
        command: Command,
        urgency: Urgency,
    ) -> Result<impl Future<Output = Result<Reply, Lost>>, Lost> {
        let bytes = self.measure(&command).map_err(Lost::Unavailable)?;
        let queue = match urgency {
            Urgency::Urgent if bytes <= ORDER_BYTES_MAX => &self.urgent,
            Urgency::Urgent | Urgency::Call => &self.calls,
        };
        let reply = queue.put(vouched_by, command, bytes)?;
        Ok(async move {
            reply
                .await
                .unwrap_or_else(|_closed| Err(stopped("proposer ended")))
        })
    }
}

fn stopped(why: &str) -> Lost {
    Lost::Unavailable(Unavailable::Stopped(why.to_owned()))
}

/// Takes what waits, stamps it once, and proposes it as one entry.
pub(crate) struct Proposer {
    raft: RaftNode,
    clocks: Arc<Clocks>,
    entropy: Arc<dyn Entropy>,
    progress: watch::Receiver<Progress>,
    calls: mpsc::Receiver<Waiting>,
    urgent: mpsc::Receiver<Waiting>,
    /// What did not fit into the last entry; it goes before all that waits.
    held_back: VecDeque<Waiting>,
    in_flight: Arc<Semaphore>,
    entry_bytes: usize,
}

impl Proposer {
    pub fn new(
        raft: RaftNode,
        clocks: Arc<Clocks>,
        entropy: Arc<dyn Entropy>,
        progress: watch::Receiver<Progress>,
        options: &Options,
    ) -> (Queues, Self) {
        let room = |entries: usize| {
            let bytes = entries.saturating_mul(options.entry_bytes);
            bytes.min(Semaphore::MAX_PERMITS)
        };
        let (calls, waiting_calls) = Queue::new(CALLS_MAX, room(CALLS_ENTRIES_MAX));
        let (urgent, waiting_urgent) = Queue::new(URGENT_MAX, room(URGENT_ENTRIES_MAX));
        let proposer = Self {
            raft,
            clocks,
            entropy,
            progress,
            calls: waiting_calls,
            urgent: waiting_urgent,
            held_back: VecDeque::new(),
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            entry_bytes: options.entry_bytes,
        };
        let queues = Queues {
            calls,
            urgent,
            command_bytes: options.command_bytes,
        };
        (queues, proposer)
    }

    pub async fn run(mut self) {
        while let Some(first) = self.next().await {
            let Ok(permit) = self.in_flight.clone().acquire_owned().await else {
                return;
            };
            self.held_back.push_front(first);
            let (mut commands, mut vouched_by, mut answers) = (Vec::new(), Vec::new(), Vec::new());
            for waiting in self.take() {
                commands.push(waiting.command);
                vouched_by.push(Some(waiting.vouched_by));
                answers.push(waiting.answer);
            }
            if commands.is_empty() {
                continue;
            }
            let Some(batch) = self.stamp(commands, vouched_by) else {
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

    async fn next(&mut self) -> Option<Waiting> {
        if let Some(waiting) = self.held_back.pop_front() {
            return Some(waiting);
        }
        tokio::select! {
            biased;
            waiting = self.urgent.recv() => waiting,
            waiting = self.calls.recv() => waiting,
        }
    }

    /// What waits now, operators' commands first, as much as one entry holds; callers that gave up are left out.
    fn take(&mut self) -> Vec<Waiting> {
        let mut taken = Vec::new();
        let mut bytes = 0_usize;
        while taken.len() < BATCH_MAX {
            let next = self
                .urgent
                .try_recv()
                .ok()
                .or_else(|| self.held_back.pop_front())
                .or_else(|| self.calls.try_recv().ok());
            let Some(next) = next else { break };
            if next.answer.is_closed() {
                continue;
            }
            let with_it = bytes.saturating_add(next.bytes);
            if with_it > self.entry_bytes && !taken.is_empty() {
                self.held_back.push_front(next);
                break;
            }
            bytes = with_it;
            taken.push(next);
        }
        taken
    }

    /// None while nobody can say what time it is: nothing is stamped then.
    fn stamp(&self, commands: Vec<Command>, vouched_by: Vec<Option<String>>) -> Option<Batch> {
        let proposed = self.clocks.log_time(&Voters::of(&self.raft))?;
        let mut seed = [0; 16];
        self.entropy.fill(&mut seed);
        Some(Batch {
            proposed,
            seed,
            // Of a cluster that is not founded yet, its founder's newest.
            version: match self.progress.borrow().version {
                0 => machine::VERSION,
                active => active,
            },
            vouched_by,
            commands,
        })
    }
}

fn answer_all(answers: Vec<oneshot::Sender<Result<Reply, Lost>>>, replies: Vec<Reply>) {
    let mut replies = replies.into_iter();
    for answer in answers {
        let reply = match replies.next() {
            // Another version was activated while this was on its way: nothing was decided, and it is proposed again.
            Some(Reply::OtherVersion(_)) => Err(Lost::NotLeader),
            Some(reply) => Ok(reply),
            None => Err(stopped("an applied entry answered too few commands")),
        };
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
        ) => Lost::Moved,
        RaftError::APIError(other) => stopped(&other.to_string()),
        RaftError::Fatal(fatal) => stopped(&fatal.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use decision::SessionId;
    use machine::Command;
    use machine::command::Seen;

    use super::{ORDER_BYTES_MAX, Queue, encoded_bytes};
    use crate::error::{Lost, Unavailable};

    fn command(sessions: usize) -> Command {
        let sessions = (0..sessions)
            .map(|number| SessionId::parse(&format!("session-{number:032}")).unwrap())
            .collect();
        Command::Seen(Seen { sessions })
    }

    #[test]
    fn bytes_are_those_that_travel() {
        for sessions in [0, 1, 100, 2_048] {
            let command = command(sessions);
            assert_eq!(
                encoded_bytes(&command),
                machine::row::bytes(&command).len(),
                "{sessions} sessions"
            );
        }
    }

    #[tokio::test]
    async fn a_queue_is_full_in_bytes_before_it_is_in_number() {
        let (queue, mut waiting) = Queue::new(1_000, 3 * ORDER_BYTES_MAX);
        let put = || queue.put(String::new(), command(0), ORDER_BYTES_MAX);
        let kept: Vec<_> = (0..3).map(|_| put().unwrap()).collect();
        assert!(matches!(put(), Err(Lost::Unavailable(Unavailable::Overloaded))));
        drop(waiting.recv().await);
        assert!(put().is_ok(), "room comes back with the command that had it");
        assert_eq!(kept.len(), 3);
    }
}
