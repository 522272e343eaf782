use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use decision::Timestamp;
use machine::Event;
use machine::row::{Fault, Read as _, Rows};
use tokio::sync::{broadcast, watch};

use crate::config::{LogId, StoredMembership};
use crate::disk::{Disk, DiskError, Read, Space};
use crate::due::NextDue;
use crate::error::StoreError;
use crate::guarded::Guarded;
use crate::keys;
use crate::record;

/// The state in use: which disk it is on, how far it is applied, and who is told.
#[derive(Debug)]
pub(crate) struct Live {
    /// Replaced as a whole when a snapshot is installed.
    state: RwLock<Arc<StateDisk>>,
    applied: Guarded<Applied>,
    progress: watch::Sender<Progress>,
    events: broadcast::Sender<Arc<Vec<Event>>>,
    positions: Guarded<Positions>,
}

/// What the state was after each of the newest log entries, so that nodes can compare theirs at one position.
#[derive(Debug, Default)]
struct Positions(VecDeque<(u64, [u8; 32])>);

/// Positions kept: some seconds of full load, while a peer's answer is a second old.
const POSITIONS_MAX: usize = 8_192;

/// A state's disk, and what is kept in memory for all who read it.
#[derive(Debug)]
pub(crate) struct StateDisk {
    pub disk: Arc<dyn Disk>,
    pub due: Guarded<NextDue>,
}

impl StateDisk {
    pub fn new(disk: Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(Self {
            disk,
            due: Guarded::default(),
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Applied {
    to: Option<LogId>,
    /// As far as it survives power loss.
    durable: Option<LogId>,
}

/// How far the state is; published after every run of entries, and after a snapshot was installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// The log index applied last; 0 before any.
    pub applied_index: u64,
    pub halt_epoch: u64,
    /// The sequence of the newest audit entry; 0 before the first.
    pub head_sequence: u64,
    pub head_hash: [u8; 32],
    /// Of the chain and all changes of rows so far: nodes at one log index have the same one.
    pub fingerprint: [u8; 32],
    pub log_time: Timestamp,
    /// The version of the rules that is active; 0 before the cluster is initialised.
    pub version: u32,
}

/// Event lists a slow watcher may lag behind before it misses some and must read the state again.
const EVENTS_WAITING_MAX: usize = 1024;

impl Live {
    pub fn over(state: Arc<StateDisk>, applied: Option<LogId>, progress: Progress) -> Self {
        Self {
            state: RwLock::new(state),
            applied: Guarded::new(Applied {
                to: applied,
                durable: None,
            }),
            positions: Guarded::new(Positions(VecDeque::from([(
                progress.applied_index,
                progress.fingerprint,
            )]))),
            progress: watch::Sender::new(progress),
            events: broadcast::Sender::new(EVENTS_WAITING_MAX),
        }
    }

    pub fn state(&self) -> Arc<StateDisk> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another disk in the place of this one, which is then retired.
    pub fn replace(&self, state: Arc<StateDisk>, applied: Option<LogId>, progress: Progress) {
        let mut slot = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // Its directory goes when its last reader does.
        slot.disk.retire();
        *slot = state;
        *self.applied.lock() = Applied {
            to: applied,
            durable: applied,
        };
        self.positions.lock().0 = VecDeque::from([(progress.applied_index, progress.fingerprint)]);
        self.progress.send_replace(progress);
    }

    /// Makes all that was applied durable.
    pub fn flush(&self) -> Result<(), DiskError> {
        // Held over the flush, so that the disk is not replaced under it.
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let to = self.applied.lock().to;
        state.disk.flush()?;
        let mut applied = self.applied.lock();
        applied.durable = applied.durable.max(to);
        Ok(())
    }

    /// How far the state is durable, as far as is known without a flush.
    pub fn durable(&self) -> Option<LogId> {
        self.applied.lock().durable
    }

    /// Tells everyone what a run of entries did, after its write.
    pub fn publish(
        &self,
        to: Option<LogId>,
        progress: Progress,
        passed: Vec<(u64, [u8; 32])>,
        events: Vec<Event>,
    ) {
        self.applied.lock().to = to;
        {
            let mut positions = self.positions.lock();
            positions.0.extend(passed);
            let over = positions.0.len().saturating_sub(POSITIONS_MAX);
            positions.0.drain(..over);
        }
        self.progress.send_replace(progress);
        if !events.is_empty() {
            // Without receivers there is nobody to tell.
            let _ = self.events.send(Arc::new(events));
        }
    }

    /// What the audit chain's head was once this log entry was applied; none where that is not known any more, or
    /// not yet.
    pub fn digest_at(&self, index: u64) -> Option<[u8; 32]> {
        let positions = self.positions.lock();
        let found = positions
            .0
            .binary_search_by_key(&index, |(index, _)| *index)
            .ok()?;
        positions.0.get(found).map(|(_, digest)| *digest)
    }

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub fn events(&self) -> broadcast::Receiver<Arc<Vec<Event>>> {
        self.events.subscribe()
    }
}

impl Progress {
    /// Reads it from the rows as they are at this index.
    pub fn of(rows: &impl Rows, applied: Option<LogId>) -> Result<Self, Fault> {
        let mut progress = Self {
            applied_index: applied.map_or(0, |id| id.index),
            ..Self::default()
        };
        if let Some(cluster) = rows.cluster()? {
            progress.halt_epoch = cluster.halt_epoch;
            progress.log_time = cluster.now;
            progress.version = cluster.version;
        }
        if let Some(chain) = rows.chain()? {
            progress.head_sequence = chain.head.sequence;
            progress.head_hash = chain.head.hash;
            progress.fingerprint = chain.fingerprint();
        }
        Ok(progress)
    }
}

/// Reads the applied log id and the membership from one view.
pub(crate) fn read_meta(view: &dyn Read) -> Result<(Option<LogId>, StoredMembership), StoreError> {
    let damaged = |what: &str| {
        let what = what.to_owned();
        move |error: String| StoreError::Damaged(format!("{what}: {error}"))
    };
    let applied = match view.get(Space::StateMeta, keys::APPLIED)? {
        Some(bytes) => Some(record::decode_log_id(&bytes).map_err(damaged("the applied log id"))?),
        None => None,
    };
    let membership = match view.get(Space::StateMeta, keys::MEMBERSHIP)? {
        Some(bytes) => record::decode_membership(&bytes).map_err(damaged("the membership"))?,
        None => StoredMembership::default(),
    };
    Ok((applied, membership))
}
