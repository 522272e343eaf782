use std::fmt;
use std::io;
use std::sync::Arc;

use audit::{Entry, KeyRing, Seal};
use decision::{Digest, Timestamp};
use machine::Event;
use machine::row::{Chain, Cluster, Fault, Key, Read as _, Row, Rows};
use sha2::{Digest as _, Sha256};
use tokio::sync::{broadcast, watch};

use crate::config::{LogId, StoredMembership};
use crate::disk::{Read, Space};
use crate::error::StoreError;
use crate::home::Home;
use crate::keys;
use crate::live::{Live, Progress, read_meta};
use crate::record;
use crate::rows::DiskRows;
use crate::work::Work;

/// Reads the state, beside the one that applies to it.
#[derive(Debug, Clone)]
pub struct StateReader {
    // Dropped in this order: the database closes, the directory is unlocked.
    live: Arc<Live>,
    _home: Arc<dyn Home>,
    work: Work,
}

/// The state at one applied index; it is the machine's `Rows`.
pub struct StateView<'v> {
    view: &'v dyn Read,
    applied: Option<LogId>,
    membership: StoredMembership,
    /// What time it is, where the reader knows better than the last entry.
    now: Timestamp,
}

/// What two replicas agree on where they applied the same entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateHash {
    /// SHA-256 over every row's key and value, each with its length, in key order.
    pub hash: Digest,
    pub applied_index: u64,
    pub head_sequence: u64,
}

impl StateReader {
    pub(crate) fn new(live: Arc<Live>, home: Arc<dyn Home>, work: Work) -> Self {
        Self {
            live,
            _home: home,
            work,
        }
    }

    /// Reads from a view that what is applied meanwhile does not change.
    ///
    /// A view ends with the call: one that is held keeps every overwritten row on disk.
    ///
    /// # Errors
    /// The disk fails, or what it holds is damaged.
    pub fn at<T>(&self, read: impl FnOnce(&StateView<'_>) -> T) -> Result<T, StoreError> {
        self.at_time(Timestamp::ZERO, read)
    }

    /// As `at`, and log time has moved on to `now` where the last entry is older: what is over by then is over.
    ///
    /// # Errors
    /// As `at`.
    pub fn at_time<T>(
        &self,
        now: Timestamp,
        read: impl FnOnce(&StateView<'_>) -> T,
    ) -> Result<T, StoreError> {
        let state = self.live.state();
        let view = state.disk.view();
        let (applied, membership) = read_meta(view.as_ref())?;
        Ok(read(&StateView {
            view: view.as_ref(),
            applied,
            membership,
            now,
        }))
    }

    /// How far the state is applied; changes are seen by waiting on it.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.live.progress()
    }

    /// What the head of the audit chain was once this log entry was applied. Two nodes that differ at one position
    /// have different histories from there on.
    pub fn digest_at(&self, log_index: u64) -> Option<[u8; 32]> {
        self.live.digest_at(log_index)
    }

    /// What happens from now on. A watcher that lags, and every watcher after a jump of `applied_index` (a
    /// snapshot was installed), reads the state again.
    pub fn events(&self) -> broadcast::Receiver<Arc<Vec<Event>>> {
        self.live.events()
    }

    /// Reads one audit entry.
    pub fn entry(&self, sequence: u64) -> Result<Option<Entry>, StoreError> {
        self.at(|view| view.entry(sequence))?
    }

    /// Reads audit entries in order, at most `max`, from this sequence on.
    pub fn entries(&self, from: u64, max: usize) -> Result<Vec<Entry>, StoreError> {
        self.at(|view| view.entries(from, max))?
    }

    /// Reads seals in order, at most `max`, from the one that covers this sequence on.
    pub fn seals_from(&self, sequence: u64, max: usize) -> Result<Vec<Seal>, StoreError> {
        self.at(|view| view.seals_from(sequence, max))?
    }

    /// Reads the keys that may sign the chain.
    pub fn keys(&self) -> Result<KeyRing, StoreError> {
        self.at(|view| view.keys().map(Option::unwrap_or_default).map_err(damaged))?
    }

    /// Reads where the audit chain stands; none before the cluster was initialised.
    pub fn chain(&self) -> Result<Option<Chain>, StoreError> {
        self.at(|view| view.chain().map_err(damaged))?
    }

    /// Says whether any work is due at this time; cheap, where a view would step over all that was done.
    pub fn is_due(&self, now: Timestamp) -> Result<bool, StoreError> {
        let state = self.live.state();
        let due = state.due.lock().is_due(state.disk.as_ref(), now);
        due.map_err(damaged)
    }

    /// Makes all that was applied survive power loss.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let live = Arc::clone(&self.live);
        Ok(self.run(move || live.flush()).await??)
    }

    /// How far the state survives power loss, as far as is known without a flush.
    pub fn durable_applied(&self) -> Option<LogId> {
        self.live.durable()
    }

    /// Hashes all rows of one view; RocksDB's on a blocking thread.
    pub async fn state_hash(&self) -> Result<StateHash, StoreError> {
        let reader = self.clone();
        self.run(move || reader.at(|view| view.hash())?).await?
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = |error: io::Error| StoreError::File {
            what: "reading the state".to_owned(),
            source: error,
        };
        self.work.run(work).await.map_err(ended)
    }
}

impl StateView<'_> {
    /// The log entry that was applied last.
    pub fn applied(&self) -> Option<LogId> {
        self.applied
    }

    /// The membership that was applied last.
    pub fn membership(&self) -> &StoredMembership {
        &self.membership
    }

    pub fn entry(&self, sequence: u64) -> Result<Option<Entry>, StoreError> {
        self.view
            .get(Space::Audit, &keys::number(sequence))?
            .map(|bytes| decode_entry(sequence, &bytes))
            .transpose()
    }

    pub fn entries(&self, from: u64, max: usize) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        let mut broken = None;
        if max == 0 {
            return Ok(entries);
        }
        self.view
            .visit(Space::Audit, &keys::number(from), None, &mut |key, bytes| {
                let entry = keys::read_number(key)
                    .map_err(|error| StoreError::Damaged(error.to_string()))
                    .and_then(|sequence| decode_entry(sequence, bytes));
                match entry {
                    Ok(entry) => entries.push(entry),
                    Err(error) => broken = Some(error),
                }
                broken.is_none() && entries.len() < max
            })?;
        match broken {
            Some(error) => Err(error),
            None => Ok(entries),
        }
    }

    pub fn seals_from(&self, sequence: u64, max: usize) -> Result<Vec<Seal>, StoreError> {
        // A seal's key is the last sequence it covers.
        let rows = self
            .scan(&Key::Seal(sequence), &Key::Seal(u64::MAX), max)
            .map_err(damaged)?;
        rows.into_iter()
            .map(|(key, row)| match row {
                Row::Seal(seal) => Ok(seal),
                _ => Err(damaged(Fault::WrongRow(key))),
            })
            .collect()
    }

    fn hash(&self) -> Result<StateHash, StoreError> {
        let mut hash = Sha256::new();
        let mut update = |bytes: &[u8]| {
            hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(bytes);
        };
        self.view.visit(Space::Rows, &[], None, &mut |key, value| {
            update(key);
            update(value);
            true
        })?;
        Ok(StateHash {
            hash: Digest::new(hash.finalize().into()),
            applied_index: self.applied.map_or(0, |id| id.index),
            head_sequence: self
                .chain()
                .map_err(damaged)?
                .map_or(0, |chain| chain.head.sequence),
        })
    }
}

impl Rows for StateView<'_> {
    fn read(&self, key: &Key) -> Result<Option<Row>, Fault> {
        let row = DiskRows(self.view).read(key)?;
        Ok(row.map(|row| match row {
            Row::Cluster(cluster) => Row::Cluster(Cluster {
                now: cluster.now.max(self.now),
                ..cluster
            }),
            other => other,
        }))
    }

    fn scan(&self, from: &Key, until: &Key, limit: usize) -> Result<Vec<(Key, Row)>, Fault> {
        DiskRows(self.view).scan(from, until, limit)
    }
}

impl fmt::Debug for StateView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateView")
            .field("applied", &self.applied)
            .finish_non_exhaustive()
    }
}

fn decode_entry(sequence: u64, bytes: &[u8]) -> Result<Entry, StoreError> {
    record::exact(bytes).map_err(|what| StoreError::Damaged(format!("audit entry {sequence}: {what}")))
}

fn damaged(fault: Fault) -> StoreError {
    StoreError::Damaged(fault.to_string())
}
