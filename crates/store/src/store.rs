use std::path::Path;
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::StoreError;
use crate::format::Identity;
use crate::held::HeldArguments;
use crate::home::{DirectoryHome, Home};
use crate::live::{Live, Progress, StateDisk, read_meta};
use crate::log::LogStore;
use crate::memory::MemoryNode;
use crate::reader::StateReader;
use crate::rows::DiskRows;
use crate::snapshot::{Snapshots, Stage};
use crate::state::StateMachine;
use crate::work::Work;
use crate::writer::Writer;

/// Everything a node keeps: what openraft takes (`log`, `state`), and what everyone else uses.
#[derive(Debug)]
pub struct Store {
    pub log: LogStore,
    pub state: StateMachine,
    pub reader: StateReader,
    pub snapshots: Snapshots,
    pub held: HeldArguments,
    pub owner: Owner,
}

/// How much memory the store may use.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Log entries kept in memory: what followers that keep up, and apply, read.
    pub log_memory_bytes: usize,
    /// Rows kept decoded; some 1 KiB each.
    pub rows_max: usize,
    /// RocksDB's cache of blocks of the state.
    pub cache_bytes: usize,
    /// Stops an install there, as a crash would; for tests.
    pub stop_install_at: Option<Stage>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            // A second or two at full rate.
            log_memory_bytes: 64 << 20,
            rows_max: 1 << 17,
            cache_bytes: 128 << 20,
            stop_install_at: None,
        }
    }
}

/// Whose the data is.
#[derive(Debug, Clone)]
pub struct Owner(Arc<dyn Home>);

impl Owner {
    pub fn identity(&self) -> Identity {
        self.0.identity()
    }

    /// Joins a cluster, once and durably; the same id again changes nothing.
    ///
    /// # Errors
    /// The data belongs to another cluster.
    pub fn set_cluster_id(&self, cluster_id: &str) -> Result<(), StoreError> {
        self.0.set_cluster_id(cluster_id)
    }
}

impl Store {
    /// Opens a data directory, or makes one where there is none.
    ///
    /// # Errors
    /// Another process uses it, it is damaged, or a newer version wrote it.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let home = Arc::new(DirectoryHome::open(dir, options.cache_bytes)?);
        let log = home.open_log()?;
        let state = home.open_state()?;
        let writer =
            Writer::on_thread(Arc::clone(&log)).map_err(StoreError::file("starting the log's writer"))?;
        Self::over(home, [log, state], writer, Work::Threads, options)
    }

    /// Opens a simulated node: no threads, no clock, no runtime of its own.
    ///
    /// # Errors
    /// What is on its disks is damaged.
    pub fn in_memory(node: &MemoryNode, options: Options) -> Result<Self, StoreError> {
        let log = node.log().attach();
        let writer = Writer::inline(log.clone());
        let disks: [Arc<dyn Disk>; 2] = [Arc::new(log), Arc::new(node.state().attach())];
        Self::over(Arc::new(node.clone()), disks, writer, Work::Inline, options)
    }

    fn over(
        home: Arc<dyn Home>,
        [log, state]: [Arc<dyn Disk>; 2],
        writer: Writer,
        work: Work,
        options: Options,
    ) -> Result<Self, StoreError> {
        let (applied, _) = read_meta(state.view().as_ref())?;
        let progress = Progress::of(&DiskRows(state.view().as_ref()), applied)
            .map_err(|fault| StoreError::Damaged(fault.to_string()))?;
        let live = Arc::new(Live::over(StateDisk::new(state), applied, progress));
        let Options {
            log_memory_bytes,
            rows_max,
            stop_install_at,
            ..
        } = options;
        Ok(Self {
            log: LogStore::open(
                log,
                writer,
                Arc::clone(&live),
                Arc::clone(&home),
                work,
                log_memory_bytes,
            )?,
            state: StateMachine::open(
                Arc::clone(&live),
                Arc::clone(&home),
                work,
                rows_max,
                stop_install_at,
            )?,
            snapshots: Snapshots::new(Arc::clone(&home), Arc::clone(&live), work),
            reader: StateReader::new(live, Arc::clone(&home), work),
            held: home.held(),
            owner: Owner(home),
        })
    }
}
