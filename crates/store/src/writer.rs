//! The log's one queue to its disk: all that is written there goes through it, in order.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::disk::{Disk, DiskError, Durability, Op};
use crate::memory::MemorySession;

/// Called once the write is on disk as durably as asked, or has failed.
pub(crate) type Done = Box<dyn FnOnce(Result<(), DiskError>) + Send>;

/// Writes what is submitted, in order, and many requests with one sync.
#[derive(Debug)]
pub(crate) struct Writer {
    lane: Lane,
}

#[derive(Debug)]
enum Lane {
    /// RocksDB: a thread of its own takes all that waits as one synced write.
    Thread {
        queue: Option<Sender<Request>>,
        thread: Option<JoinHandle<()>>,
    },
    /// The twin in memory: in place.
    Inline(MemorySession),
}

struct Request {
    ops: Vec<Op>,
    durability: Durability,
    done: Done,
}

/// Requests that one write takes; 8 MiB are some 30 ms of a slow disk. The queue itself is as long as openraft
/// makes it: a leader has a few batches in flight, a follower awaits each append.
const GROUP_REQUESTS_MAX: usize = 1024;
const GROUP_BYTES_MAX: usize = 8 << 20;

impl Writer {
    pub fn on_thread(disk: Arc<dyn Disk>) -> std::io::Result<Self> {
        let (queue, requests) = channel();
        let thread = thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || write_groups(disk.as_ref(), &requests))?;
        Ok(Self {
            lane: Lane::Thread {
                queue: Some(queue),
                thread: Some(thread),
            },
        })
    }

    pub fn inline(disk: MemorySession) -> Self {
        Self {
            lane: Lane::Inline(disk),
        }
    }

    pub fn submit(&self, ops: Vec<Op>, durability: Durability, done: Done) {
        let request = Request {
            ops,
            durability,
            done,
        };
        match &self.lane {
            Lane::Thread { queue, .. } => {
                let refused = match queue {
                    Some(queue) => queue.send(request).err().map(|unsent| unsent.0),
                    None => Some(request),
                };
                if let Some(request) = refused {
                    (request.done)(Err(DiskError("the log's writer has ended".to_owned())));
                }
            }
            Lane::Inline(disk) => {
                let target = disk.clone();
                disk.run_in_order(Box::new(move || {
                    (request.done)(target.write(&request.ops, request.durability));
                }));
            }
        }
    }
}

fn write_groups(disk: &dyn Disk, requests: &Receiver<Request>) {
    let mut failed = None;
    while let Ok(first) = requests.recv() {
        let mut bytes = size(&first.ops);
        let mut durability = first.durability;
        let mut ops = first.ops;
        let mut done = vec![first.done];
        while done.len() < GROUP_REQUESTS_MAX && bytes < GROUP_BYTES_MAX {
            let Ok(next) = requests.try_recv() else { break };
            bytes = bytes.saturating_add(size(&next.ops));
            if next.durability == Durability::Synced {
                durability = Durability::Synced;
            }
            ops.extend(next.ops);
            done.push(next.done);
        }
        // After a failed sync nothing on this disk can be trusted: all that follows fails like it.
        let result = match &failed {
            None => disk.write(&ops, durability),
            Some(error) => Err(DiskError::clone(error)),
        };
        if let Err(error) = &result {
            failed = Some(error.clone());
        }
        for done in done {
            done(result.clone());
        }
    }
}

fn size(ops: &[Op]) -> usize {
    ops.iter()
        .map(|op| match op {
            Op::Put(_, key, value) => key.len().saturating_add(value.len()),
            Op::Delete(_, key) => key.len(),
            Op::DeleteRange(_, from, until) => from.len().saturating_add(until.len()),
        })
        .fold(0, usize::saturating_add)
}

/// Waits for what was submitted, so that the database is closed when the log is gone.
impl Drop for Writer {
    fn drop(&mut self) {
        if let Lane::Thread { queue, thread } = &mut self.lane {
            *queue = None;
            if let Some(thread) = thread.take()
                && thread.join().is_err()
            {
                tracing::error!("the log's writer panicked");
            }
        }
    }
}
