use std::io;
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::StoreError;
use crate::format::Identity;
use crate::guarded::Guarded;
use crate::held::HeldArguments;
use crate::home::{Home, Sink};
use crate::memory::{Kept, MemoryDisk};
use crate::snapshot::{Chunk, SnapshotData, SnapshotInfo};

/// All that a simulated node has on disk: a cheap handle that survives the node.
#[derive(Debug, Clone)]
pub struct MemoryNode(Arc<Guarded<Disks>>);

#[derive(Debug)]
struct Disks {
    identity: Identity,
    log: MemoryDisk,
    state: MemoryDisk,
    new_state: Option<MemoryDisk>,
    snapshot: Option<SnapshotData>,
    held: HeldArguments,
}

impl MemoryNode {
    /// Makes the empty disks of a node with this Raft id.
    pub fn new(raft_id: u64) -> Self {
        Self(Arc::new(Guarded::new(Disks {
            identity: Identity {
                cluster_id: String::new(),
                raft_id,
                created_at: 0,
            },
            log: MemoryDisk::default(),
            state: MemoryDisk::default(),
            new_state: None,
            snapshot: None,
            held: HeldArguments::in_memory(),
        })))
    }

    /// Loses power: see [`MemoryDisk::crash`]. A state that was being installed goes.
    pub fn crash(&self, kept: Kept) {
        let mut disks = self.0.lock();
        disks.log.crash(kept);
        disks.state.crash(match kept {
            // The two disks are written apart: what one keeps says nothing of the other.
            Kept::Prefix(seed) => Kept::Prefix(seed.rotate_left(32)),
            Kept::Nothing | Kept::Everything => kept,
        });
        disks.new_state = None;
        if kept == Kept::Nothing {
            disks.held = HeldArguments::in_memory();
        }
    }

    /// Another node's worth of disks with what is on these now: what a backup of the data directory is.
    pub fn copy(&self) -> Self {
        let disks = self.0.lock();
        Self(Arc::new(Guarded::new(Disks {
            identity: disks.identity.clone(),
            log: disks.log.copy(),
            state: disks.state.copy(),
            new_state: None,
            snapshot: disks.snapshot.clone(),
            held: HeldArguments::in_memory(),
        })))
    }

    pub fn log(&self) -> MemoryDisk {
        self.0.lock().log.clone()
    }

    /// The disk of the live state; an install puts another in its place.
    pub fn state(&self) -> MemoryDisk {
        self.0.lock().state.clone()
    }
}

impl Home for MemoryNode {
    fn held(&self) -> HeldArguments {
        self.0.lock().held.clone()
    }

    fn identity(&self) -> Identity {
        self.0.lock().identity.clone()
    }

    fn set_cluster_id(&self, cluster_id: &str) -> Result<(), StoreError> {
        let mut disks = self.0.lock();
        disks.identity = disks.identity.joined(cluster_id)?;
        Ok(())
    }

    fn new_state(&self) -> Result<Arc<dyn Disk>, StoreError> {
        let disk = MemoryDisk::default();
        let session = disk.attach();
        self.0.lock().new_state = Some(disk);
        Ok(Arc::new(session))
    }

    fn use_new_state(&self) -> Result<(), StoreError> {
        let mut disks = self.0.lock();
        match disks.new_state.take() {
            Some(state) => {
                disks.state = state;
                Ok(())
            }
            None => Err(StoreError::Damaged("there is no new state".to_owned())),
        }
    }

    fn new_snapshot(&self) -> Result<Box<dyn Sink>, StoreError> {
        Ok(Box::new(MemorySink(Vec::new())))
    }

    fn keep_snapshot(&self, data: &SnapshotData) -> Result<SnapshotData, StoreError> {
        let current = &mut self.0.lock().snapshot;
        match current {
            Some(current) if current.info().applied >= data.info().applied => Ok(current.clone()),
            Some(_) | None => Ok(current.insert(data.kept()).clone()),
        }
    }

    fn snapshot(&self) -> Option<SnapshotData> {
        self.0.lock().snapshot.clone()
    }
}

struct MemorySink(Vec<Chunk>);

impl Sink for MemorySink {
    fn append(&mut self, chunk: Chunk) -> io::Result<()> {
        self.0.push(chunk);
        Ok(())
    }

    fn finish(self: Box<Self>, info: SnapshotInfo) -> io::Result<SnapshotData> {
        Ok(SnapshotData::in_memory(self.0, info))
    }
}
