//! A small ordered key-value engine, and what a write to it promises.

use std::fmt;
use std::io;

/// Where a key lives; the log's spaces and the state's are on disks of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// Vote, committed and purged log ids.
    LogMeta,
    /// Log entries by index.
    LogEntries,
    /// Applied log id and membership.
    StateMeta,
    /// The machine's rows.
    Rows,
    /// Audit entries by sequence.
    Audit,
}

impl Space {
    pub const LOG: &[Self] = &[Self::LogMeta, Self::LogEntries];
    pub const STATE: &[Self] = &[Self::StateMeta, Self::Rows, Self::Audit];
}

/// One change; a batch of them is written as one.
#[derive(Debug, Clone)]
pub enum Op {
    Put(Space, Vec<u8>, Vec<u8>),
    Delete(Space, Vec<u8>),
    /// Deletes `from <= key < until`.
    DeleteRange(Space, Vec<u8>, Vec<u8>),
}

/// What holds when a write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It, and all before it, survives power loss.
    Synced,
    /// It can be read; a crash may take it back, with all after it.
    Unsynced,
}

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// Called with a key and its value; says whether to go on.
pub type Visitor<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> bool;

/// Reads, from a disk as it is or from a view of it.
pub trait Read {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError>;
    /// Visits `from <= key < until` in order; no `until` means to the end.
    fn visit(
        &self,
        space: Space,
        from: &[u8],
        until: Option<&[u8]>,
        visit: Visitor<'_>,
    ) -> Result<(), DiskError>;
    /// Gives the greatest key and its value.
    fn last(&self, space: Space) -> Result<Option<Record>, DiskError>;
}

/// An ordered key-value engine. Batches are atomic, and a crash keeps a prefix of them in order.
pub trait Disk: Read + fmt::Debug + Send + Sync {
    fn write(&self, batch: &[Op], durability: Durability) -> Result<(), DiskError>;
    /// Makes all that was written survive power loss.
    fn flush(&self) -> Result<(), DiskError>;
    /// A view that later writes do not change.
    fn view(&self) -> Box<dyn Read + '_>;
    /// Says that this disk was replaced: what it holds goes when its last user does.
    fn retire(&self);
}

/// The engine failed. Nothing written since the last sync can be trusted: the process must stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("disk: {0}")]
pub struct DiskError(pub String);

impl From<DiskError> for io::Error {
    fn from(error: DiskError) -> Self {
        io::Error::other(error)
    }
}
