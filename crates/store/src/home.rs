//! Where a node's databases and snapshots rest: a directory, or memory in a simulation.

mod directory;

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::StoreError;
use crate::format::Identity;
use crate::held::HeldArguments;
use crate::snapshot::{Chunk, SnapshotData, SnapshotInfo};

pub(crate) use directory::DirectoryHome;

pub(crate) trait Home: fmt::Debug + Send + Sync {
    fn identity(&self) -> Identity;
    /// Joins the cluster, durably.
    fn set_cluster_id(&self, cluster_id: &str) -> Result<(), StoreError>;

    /// Makes an empty state beside the live one, in the place of any that was not finished.
    fn new_state(&self) -> Result<Arc<dyn Disk>, StoreError>;
    /// Makes the new state, which is durable, the one that the next start opens.
    fn use_new_state(&self) -> Result<(), StoreError>;

    /// Begins a snapshot file; it is not a snapshot before it is kept.
    fn new_snapshot(&self) -> Result<Box<dyn Sink>, StoreError>;
    /// Makes a finished snapshot the current one, durably, unless a newer one is; gives the current one.
    fn keep_snapshot(&self, data: &SnapshotData) -> Result<SnapshotData, StoreError>;
    fn snapshot(&self) -> Option<SnapshotData>;

    /// Where the arguments of held calls are.
    fn held(&self) -> HeldArguments;
}

/// A snapshot file that is being written.
pub(crate) trait Sink: Send {
    /// Appends the next chunk: all but the last are full.
    fn append(&mut self, chunk: Chunk) -> io::Result<()>;
    /// Makes it durable.
    fn finish(self: Box<Self>, info: SnapshotInfo) -> io::Result<SnapshotData>;
}

#[cfg(test)]
mod tests;
