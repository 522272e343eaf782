//! The twin in memory: like a disk, it forgets what was not synced. No threads, no clock.

mod node;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use crate::disk::{Disk, DiskError, Durability, Op, Read, Record, Space, Visitor};
use crate::guarded::Guarded;

pub use node::MemoryNode;

/// A simulated disk: a cheap handle that survives the node that uses it.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(Arc<Guarded<Platter>>);

/// What of the unsynced writes a crash keeps; always a prefix, batches whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Nothing,
    /// As many as the seed says, none and all included.
    Prefix(u64),
    /// The process died, the machine did not.
    Everything,
}

type Spaces = BTreeMap<Space, BTreeMap<Vec<u8>, Arc<[u8]>>>;

#[derive(Default)]
struct Platter {
    /// What is read: the synced writes and the unsynced ones.
    live: Arc<Spaces>,
    durable: Spaces,
    /// Batches since the last sync.
    unsynced: Vec<Vec<Op>>,
    /// Raised by a crash: a node from before it can no longer read or write.
    generation: u64,
    syncs: u64,
    /// Syncs to succeed before one fails.
    fail_after: Option<u64>,
    broken: bool,
    stalled: bool,
    waiting: VecDeque<Deferred>,
}

pub(crate) type Deferred = Box<dyn FnOnce() + Send>;

impl MemoryDisk {
    /// Loses power: what was not synced goes, but for what is kept, and whoever used the disk is cut off.
    pub fn crash(&self, kept: Kept) {
        let mut platter = self.0.lock();
        let kept = match kept {
            Kept::Nothing => 0,
            Kept::Everything => platter.unsynced.len(),
            Kept::Prefix(seed) => {
                let choices = u64::try_from(platter.unsynced.len())
                    .unwrap_or(u64::MAX)
                    .saturating_add(1);
                usize::try_from(seed % choices).unwrap_or(0)
            }
        };
        for batch in std::mem::take(&mut platter.unsynced).into_iter().take(kept) {
            carry_out(&mut platter.durable, batch);
        }
        *platter = Platter {
            live: Arc::new(platter.durable.clone()),
            durable: std::mem::take(&mut platter.durable),
            generation: platter.generation.saturating_add(1),
            syncs: platter.syncs,
            ..Platter::default()
        };
    }

    /// What is on the disk now, as a backup copies it.
    fn copy(&self) -> Self {
        let live = Arc::clone(&self.0.lock().live);
        Self(Arc::new(Guarded::new(Platter {
            durable: Spaces::clone(&live),
            live,
            ..Platter::default()
        })))
    }

    /// Lets the next sync fail, and with it everything until a crash.
    pub fn fail_next_sync(&self) {
        self.fail_sync_after(0);
    }

    /// Lets a later sync fail: so many succeed first.
    pub fn fail_sync_after(&self, syncs: u64) {
        self.0.lock().fail_after = Some(syncs);
    }

    /// Counts the syncs that succeeded.
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// Holds the log's writes back, as a disk that hangs does; `resume` lets them through, in order.
    pub fn stall(&self) {
        self.0.lock().stalled = true;
    }

    /// Counts the writes that a stall holds back.
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    pub fn resume(&self) {
        while self.let_one_through() {}
        self.0.lock().stalled = false;
    }

    /// Lets the oldest write that a stall holds back through, as a slow disk does; says whether there was one.
    pub fn let_one_through(&self) -> bool {
        let Some(next) = self.0.lock().waiting.pop_front() else {
            return false;
        };
        next();
        true
    }

    /// Opens the disk for one life of a node.
    pub(crate) fn attach(&self) -> MemorySession {
        let generation = self.0.lock().generation;
        MemorySession {
            disk: self.clone(),
            generation,
        }
    }
}

/// The disk as one life of a node sees it.
#[derive(Debug, Clone)]
pub(crate) struct MemorySession {
    disk: MemoryDisk,
    generation: u64,
}

impl MemorySession {
    /// Runs work now, or when the stall ends; never out of order.
    pub fn run_in_order(&self, work: Deferred) {
        let mut platter = self.disk.0.lock();
        if platter.generation == self.generation && platter.stalled {
            platter.waiting.push_back(work);
            return;
        }
        drop(platter);
        work();
    }

    fn spaces(&self) -> Result<Arc<Spaces>, DiskError> {
        let platter = self.disk.0.lock();
        self.alive(&platter)?;
        Ok(Arc::clone(&platter.live))
    }

    fn alive(&self, platter: &Platter) -> Result<(), DiskError> {
        if platter.generation != self.generation {
            return Err(DiskError("used after the crash".to_owned()));
        }
        if platter.broken {
            return Err(DiskError("an earlier sync failed".to_owned()));
        }
        Ok(())
    }
}

impl Read for MemorySession {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
        self.spaces()?.get(space, key)
    }

    fn visit(
        &self,
        space: Space,
        from: &[u8],
        until: Option<&[u8]>,
        visit: Visitor<'_>,
    ) -> Result<(), DiskError> {
        self.spaces()?.visit(space, from, until, visit)
    }

    fn last(&self, space: Space) -> Result<Option<Record>, DiskError> {
        self.spaces()?.last(space)
    }
}

impl Disk for MemorySession {
    fn write(&self, batch: &[Op], durability: Durability) -> Result<(), DiskError> {
        let mut platter = self.disk.0.lock();
        self.alive(&platter)?;
        carry_out(Arc::make_mut(&mut platter.live), batch.to_vec());
        platter.unsynced.push(batch.to_vec());
        match durability {
            Durability::Synced => platter.sync(),
            Durability::Unsynced => Ok(()),
        }
    }

    fn flush(&self) -> Result<(), DiskError> {
        let mut platter = self.disk.0.lock();
        self.alive(&platter)?;
        platter.sync()
    }

    fn view(&self) -> Box<dyn Read + '_> {
        match self.spaces() {
            Ok(spaces) => Box::new(spaces),
            Err(error) => Box::new(Broken(error)),
        }
    }

    fn retire(&self) {}
}

impl Platter {
    fn sync(&mut self) -> Result<(), DiskError> {
        match self.fail_after {
            Some(0) => {
                self.broken = true;
                return Err(DiskError("the sync failed".to_owned()));
            }
            Some(left) => self.fail_after = Some(left.saturating_sub(1)),
            None => {}
        }
        self.syncs = self.syncs.saturating_add(1);
        for batch in std::mem::take(&mut self.unsynced) {
            carry_out(&mut self.durable, batch);
        }
        Ok(())
    }
}

fn carry_out(spaces: &mut Spaces, batch: Vec<Op>) {
    for op in batch {
        match op {
            Op::Put(space, key, value) => {
                spaces.entry(space).or_default().insert(key, value.into());
            }
            Op::Delete(space, key) => {
                spaces.entry(space).or_default().remove(&key);
            }
            Op::DeleteRange(space, from, until) => {
                spaces
                    .entry(space)
                    .or_default()
                    .retain(|key, _| *key < from || *key >= until);
            }
        }
    }
}

impl Read for Arc<Spaces> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
        Ok(self
            .as_ref()
            .get(&space)
            .and_then(|keys| keys.get(key))
            .map(|value| value.to_vec()))
    }

    fn visit(
        &self,
        space: Space,
        from: &[u8],
        until: Option<&[u8]>,
        visit: Visitor<'_>,
    ) -> Result<(), DiskError> {
        if until.is_some_and(|until| until <= from) {
            return Ok(());
        }
        let until = until.map_or(Bound::Unbounded, Bound::Excluded);
        let Some(keys) = self.as_ref().get(&space) else {
            return Ok(());
        };
        for (key, value) in keys.range::<[u8], _>((Bound::Included(from), until)) {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, space: Space) -> Result<Option<Record>, DiskError> {
        let last = self.as_ref().get(&space).and_then(BTreeMap::last_key_value);
        Ok(last.map(|(key, value)| (key.clone(), value.to_vec())))
    }
}

/// A view of a disk that cannot be read.
struct Broken(DiskError);

impl Read for Broken {
    fn get(&self, _: Space, _: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
        Err(self.0.clone())
    }

    fn visit(&self, _: Space, _: &[u8], _: Option<&[u8]>, _: Visitor<'_>) -> Result<(), DiskError> {
        Err(self.0.clone())
    }

    fn last(&self, _: Space) -> Result<Option<Record>, DiskError> {
        Err(self.0.clone())
    }
}

impl fmt::Debug for Platter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platter")
            .field("generation", &self.generation)
            .field("syncs", &self.syncs)
            .field("unsynced", &self.unsynced.len())
            .field("stalled", &self.stalled)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
