//! The Raft log: vote, entries, and what was purged. Nothing is reported before it is synced.

use std::fmt;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use futures::{Stream, stream};
use openraft::base::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use tokio::sync::oneshot;

use crate::config::{Entry, LogId, Raft, Vote};
use crate::disk::{Disk, DiskError, Durability, Op, Read, Space};
use crate::error::StoreError;
use crate::guarded::Guarded;
use crate::home::Home;
use crate::keys;
use crate::live::Live;
use crate::record;
use crate::tail::{self, Plan, Tail};
use crate::work::Work;
use crate::writer::Writer;

/// The log as openraft writes it.
#[derive(Debug)]
pub struct LogStore(Arc<Log>);

/// The log as replication and apply read it.
#[derive(Debug, Clone)]
pub struct LogReader(Arc<Log>);

/// Bytes that one limited read gives at most, beyond its first entry: what one message to a peer may hold.
const READ_BYTES_MAX: usize = 1 << 20;

struct Log {
    // Dropped in this order: the writer ends, the database closes, the directory is unlocked.
    writer: Writer,
    disk: Arc<dyn Disk>,
    tail: Arc<Guarded<Tail>>,
    vote: Guarded<Option<Vote>>,
    committed: Guarded<Option<LogId>>,
    live: Arc<Live>,
    work: Work,
    _home: Arc<dyn Home>,
}

impl LogStore {
    /// Opens the log that is on the disk.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        writer: Writer,
        live: Arc<Live>,
        home: Arc<dyn Home>,
        work: Work,
        tail_bytes: usize,
    ) -> Result<Self, StoreError> {
        let meta = |key: &[u8]| disk.get(Space::LogMeta, key);
        let vote = meta(keys::VOTE)?.map(|bytes| record::decode_vote(&bytes));
        let vote = vote
            .transpose()
            .map_err(|what| StoreError::Damaged(format!("the vote: {what}")))?;
        let log_id = |name: &str, bytes: Option<Vec<u8>>| {
            bytes
                .map(|bytes| record::decode_log_id(&bytes))
                .transpose()
                .map_err(|what| StoreError::Damaged(format!("the {name} log id: {what}")))
        };
        let purged = log_id("purged", meta(keys::PURGED)?)?;
        let committed = log_id("committed", meta(keys::COMMITTED)?)?;
        let last = match disk.last(Space::LogEntries)? {
            Some((key, value)) => Some(entry(&key, &value).map_err(StoreError::Damaged)?.log_id),
            None => None,
        };
        let mut first = None;
        disk.visit(Space::LogEntries, &[], None, &mut |key, _| {
            first = Some(keys::read_number(key));
            false
        })?;
        let begin = purged.map_or(0, |id| id.index.saturating_add(1));
        let begin = match first
            .transpose()
            .map_err(|error| StoreError::Damaged(format!("log entry: {error}")))?
        {
            Some(first) if purged.is_some() && first != begin => {
                return Err(StoreError::Damaged(format!(
                    "log entry {begin} is missing: {first} is the first"
                )));
            }
            Some(first) => first,
            None => begin,
        };
        // Of a member, the log is never behind the state, and a vote comes before both.
        if !home.identity().cluster_id.is_empty() {
            let of_snapshot = home.snapshot().and_then(|snapshot| snapshot.info().applied);
            let durable = [&last, &purged, &of_snapshot]
                .into_iter()
                .flatten()
                .map(|id| id.index)
                .max();
            let applied = live.progress().borrow().applied_index;
            if applied > durable.unwrap_or(0) {
                return Err(StoreError::Damaged(format!(
                    "the state has applied entry {applied}, but the log ends at {durable:?}: synced entries are missing"
                )));
            }
            if vote.is_none() && last.is_some() {
                return Err(StoreError::Damaged(
                    "the vote is missing beside a log: it could be given twice".to_owned(),
                ));
            }
        }
        Ok(Self(Arc::new(Log {
            writer,
            tail: Arc::new(Guarded::new(Tail::new(purged, begin, last, tail_bytes))),
            vote: Guarded::new(vote),
            committed: Guarded::new(committed),
            disk,
            live,
            work,
            _home: home,
        })))
    }
}

impl RaftLogStorage<Raft> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<Raft>, io::Error> {
        let tail = self.0.tail.lock();
        Ok(LogState {
            last_purged_log_id: tail.purged(),
            last_log_id: tail.last(),
        })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        LogReader(Arc::clone(&self.0))
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let put = Op::Put(Space::LogMeta, keys::VOTE.to_vec(), record::encode_vote(vote));
        self.0.written(vec![put]).await?;
        *self.0.vote.lock() = Some(*vote);
        Ok(())
    }

    /// Not synced: a crash may take it back to an earlier one, never to one that was not committed.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        let op = match &committed {
            Some(id) => Op::Put(
                Space::LogMeta,
                keys::COMMITTED.to_vec(),
                record::encode_log_id(id),
            ),
            None => Op::Delete(Space::LogMeta, keys::COMMITTED.to_vec()),
        };
        // A failure shows at the next write, which the writer fails too.
        self.0
            .writer
            .submit(vec![op], Durability::Unsynced, Box::new(|_| {}));
        *self.0.committed.lock() = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(*self.0.committed.lock())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Raft>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let ops = entries
            .iter()
            .map(|entry| {
                let key = keys::number(entry.log_id.index).to_vec();
                Op::Put(Space::LogEntries, key, record::encode_entry(entry))
            })
            .collect();
        let until = entries
            .last()
            .map_or(0, |entry| entry.log_id.index.saturating_add(1));
        self.0.tail.lock().append(&entries)?;
        // The tail alone: were the writer's thread the last to hold the log, nobody would wait for it to end.
        let tail = Arc::clone(&self.0.tail);
        let done = move |result: Result<(), DiskError>| {
            if result.is_ok() {
                tail.lock().written(until);
            }
            callback.io_completed(result.map_err(io::Error::from));
        };
        self.0.writer.submit(ops, Durability::Synced, Box::new(done));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let from = last.map_or(0, |id| id.index.saturating_add(1));
        // Readers stop seeing them at once.
        self.0.tail.lock().truncate_after(last);
        self.0.written(vec![delete_entries(from, u64::MAX)]).await?;
        // INVARIANT: the writes of the removed entries are over, so that what follows is not taken for written.
        self.0.tail.lock().truncate_after(last);
        Ok(())
    }

    /// Purges the log up to here, after making the state durable that the entries made.
    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        if self.0.tail.lock().purged() >= Some(upto) {
            return Ok(());
        }
        if self.0.live.durable() < Some(upto) {
            let live = Arc::clone(&self.0.live);
            self.0.work.run(move || live.flush()).await??;
        }
        self.0.tail.lock().purge(upto);
        self.0
            .written(vec![
                Op::Put(
                    Space::LogMeta,
                    keys::PURGED.to_vec(),
                    record::encode_log_id(&upto),
                ),
                delete_entries(0, upto.index.saturating_add(1)),
            ])
            .await
    }
}

impl RaftLogReader<Raft> for LogReader {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend,
    {
        let (from, until) = bounds(&range);
        self.0.read(from, until, usize::MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(*self.0.vote.lock())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.0.read(start, end, READ_BYTES_MAX)
    }

    /// Reads piece by piece, so that a long range is never in memory at once.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend,
    {
        let (from, until) = bounds(&range);
        let pieces = Pieces {
            log: Arc::clone(&self.0),
            next: from,
            until,
            read: Vec::new().into_iter(),
        };
        stream::unfold(pieces, |mut pieces| async move {
            pieces.next().map(|entry| (entry, pieces))
        })
    }
}

/// A range of the log, read a piece at a time.
struct Pieces {
    log: Arc<Log>,
    next: u64,
    until: u64,
    read: std::vec::IntoIter<Entry>,
}

impl Pieces {
    fn next(&mut self) -> Option<Result<Entry, io::Error>> {
        if let Some(entry) = self.read.next() {
            return Some(Ok(entry));
        }
        if self.next >= self.until {
            return None;
        }
        match self.log.read(self.next, self.until, READ_BYTES_MAX) {
            Err(error) => {
                self.next = self.until;
                Some(Err(error))
            }
            Ok(entries) => {
                self.next = entries
                    .last()
                    .map_or(self.until, |last| last.log_id.index.saturating_add(1));
                self.read = entries.into_iter();
                self.read.next().map(Ok)
            }
        }
    }
}

impl Log {
    /// Writes and waits until it is synced.
    async fn written(&self, ops: Vec<Op>) -> io::Result<()> {
        let (done, written) = oneshot::channel();
        self.writer.submit(
            ops,
            Durability::Synced,
            Box::new(move |result| {
                // Whoever waited may be gone: the node is shutting down.
                let _ = done.send(result);
            }),
        );
        written.await.map_err(io::Error::other)?.map_err(io::Error::from)
    }

    /// Reads `from..until` as far as the log has it, as of now, and stops beyond the limit.
    fn read(&self, from: u64, until: u64, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let tail = self.tail.lock();
        let Plan { disk, memory } = tail.plan(from, until, bytes_max);
        if disk.is_empty() {
            return Ok(memory);
        }
        // The view is taken under the lock: what is purged or truncated afterwards does not show in it.
        let view = self.disk.view();
        drop(tail);
        let mut entries = read_entries(view.as_ref(), disk.clone(), bytes_max)?;
        let whole = entries.last().map(|last| last.log_id.index.saturating_add(1)) == Some(disk.end);
        if whole {
            let mut bytes = entries.iter().map(tail::size).fold(0, usize::saturating_add);
            entries.extend(memory.into_iter().take_while(|entry| {
                bytes = bytes.saturating_add(tail::size(entry));
                bytes <= bytes_max
            }));
        }
        Ok(entries)
    }
}

/// Reads entries that must all be there, until the limit is passed.
fn read_entries(
    view: &(impl Read + ?Sized),
    range: std::ops::Range<u64>,
    bytes_max: usize,
) -> io::Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut broken = None;
    let mut expected = range.start;
    let mut bytes = 0_usize;
    let (from, until) = (keys::number(range.start), keys::number(range.end));
    view.visit(
        Space::LogEntries,
        &from,
        Some(&until),
        &mut |key, value| match entry(key, value) {
            Ok(read) if read.log_id.index == expected => {
                bytes = bytes.saturating_add(tail::size(&read));
                if !entries.is_empty() && bytes > bytes_max {
                    return false;
                }
                expected = expected.saturating_add(1);
                entries.push(read);
                true
            }
            Ok(read) => {
                broken = Some(format!(
                    "log entry {expected} is missing: {} follows",
                    read.log_id.index
                ));
                false
            }
            Err(what) => {
                broken = Some(what);
                false
            }
        },
    )?;
    if broken.is_none() && bytes <= bytes_max && expected < range.end {
        broken = Some(format!("log entry {expected} is missing"));
    }
    match broken {
        Some(what) => Err(io::Error::other(StoreError::Damaged(what))),
        None => Ok(entries),
    }
}

/// Decodes an entry and holds it against its key; the error names the index.
fn entry(key: &[u8], value: &[u8]) -> Result<Entry, String> {
    let index = keys::read_number(key).map_err(|error| format!("log entry: {error}"))?;
    let entry = record::decode_entry(value).map_err(|what| format!("log entry {index}: {what}"))?;
    if entry.log_id.index == index {
        Ok(entry)
    } else {
        Err(format!(
            "log entry {index} says that it is {}",
            entry.log_id.index
        ))
    }
}

fn delete_entries(from: u64, until: u64) -> Op {
    Op::DeleteRange(
        Space::LogEntries,
        keys::number(from).to_vec(),
        keys::number(until).to_vec(),
    )
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let until = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(until) => *until,
        Bound::Unbounded => u64::MAX,
    };
    (from, until)
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("disk", &self.disk)
            .field("last", &self.tail.lock().last())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
