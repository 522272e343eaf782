//! Everything a node keeps on disk, and the only place that knows RocksDB.
//!
//! ```text
//!   openraft ── append, vote, truncate, purge ──► log::LogStore ──► writer (one queue, one synced write) ──► Disk "log"
//!      │                                             └ tail: the newest entries, in memory
//!      └─ apply(entries) ──► state::StateMachine ── machine::apply over rows::RowCache
//!                               │ ONE batch: rows + audit entries + applied log id (+ membership) ──────────► Disk "state"
//!                               ├ replies to the responders, then progress and events to the watchers
//!                               └ snapshot::{build, receive, install}: chunks with hashes, swapped in as a whole
//!   held: arguments of calls that wait for people ── files of their own, in no log and no snapshot
//!   everyone else ── reads ──► reader::StateReader: one view at one applied index
//! ```
//!
//! 1. A proposal is appended: it can be read at once, and is reported only when it is synced.
//! 2. Committed entries are applied a run at a time; the batch of a run is written unsynced, because the
//!    synced log is its durable copy: after a crash the state is an earlier one, and the log brings it forward.
//! 3. Purging the log first makes the state durable, so that the two never leave a gap between them.
//!
//! A `Disk` is RocksDB, or the twin in memory that keeps synced and unsynced writes apart (simulations).

mod config;
mod disk;
mod due;
mod error;
mod format;
mod guarded;
mod held;
mod home;
mod keys;
mod live;
mod log;
mod memory;
mod reader;
mod record;
mod rocks;
mod rows;
mod snapshot;
mod state;
mod store;
mod tail;
mod work;
mod writer;

pub use config::{
    Answers, Entry, LogId, Member, Membership, Payload, Raft, Snapshot, SnapshotMeta, StoredMembership, Vote,
};
pub use error::StoreError;
pub use format::Identity;
pub use held::{HELD_BYTES_MAX, HeldArguments, HeldPart};
pub use live::Progress;
pub use log::{LogReader, LogStore};
pub use memory::{Kept, MemoryDisk, MemoryNode};
pub use reader::{StateHash, StateReader, StateView};
pub use snapshot::{
    CHUNK_BYTES, Chunk, Receiving, SnapshotBuilder, SnapshotData, SnapshotInfo, Snapshots, Stage,
};
pub use state::StateMachine;
pub use store::{Options, Owner, Store};
