use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::StoreError;
use crate::home::{Home, Sink};
use crate::live::Live;
use crate::snapshot::{self, Chunk, SnapshotData, SnapshotInfo};
use crate::work::Work;

/// The snapshots of a node: the current one, to be sent, and one that is being received.
#[derive(Debug, Clone)]
pub struct Snapshots {
    home: Arc<dyn Home>,
    live: Arc<Live>,
    receiving: Arc<Semaphore>,
    building: Arc<Semaphore>,
    work: Work,
}

impl Snapshots {
    pub(crate) fn new(home: Arc<dyn Home>, live: Arc<Live>, work: Work) -> Self {
        Self {
            home,
            live,
            receiving: Arc::new(Semaphore::new(1)),
            building: Arc::new(Semaphore::new(1)),
            work,
        }
    }

    /// Builds a snapshot of the state as it is when this begins, and makes it the current one.
    ///
    /// # Errors
    /// The disk is full or fails, or one is being built. The snapshot before it stays.
    pub async fn build(&self) -> Result<SnapshotData, StoreError> {
        let permit = Arc::clone(&self.building).try_acquire_owned();
        let permit = permit.map_err(|_| StoreError::Busy("building another snapshot"))?;
        let (live, home) = (Arc::clone(&self.live), Arc::clone(&self.home));
        let building = move || {
            let built = snapshot::build(&live, home.as_ref());
            drop(permit);
            built
        };
        let built = self.work.run(building).await;
        built.map_err(StoreError::file("building a snapshot"))?
    }

    /// The current snapshot; none before the first was built or installed.
    pub fn current(&self) -> Option<SnapshotData> {
        self.home.snapshot()
    }

    /// Begins to receive the snapshot that a peer describes.
    ///
    /// # Errors
    /// It is another cluster's, or one is being received or waits to be installed.
    pub fn receive(&self, info: SnapshotInfo) -> Result<Receiving, StoreError> {
        self.home.identity().joined(&info.cluster_id)?;
        let permit = Arc::clone(&self.receiving).try_acquire_owned();
        let permit = permit.map_err(|_| StoreError::Busy("receiving another snapshot"))?;
        let sink = self.home.new_snapshot()?;
        Ok(Receiving {
            info,
            sink,
            next: 0,
            whole: Sha256::new(),
            permit,
            work: self.work,
        })
    }
}

/// A snapshot that comes in chunk by chunk. Dropped, it leaves nothing behind.
pub struct Receiving {
    info: SnapshotInfo,
    sink: Box<dyn Sink>,
    next: u64,
    whole: Sha256,
    permit: OwnedSemaphorePermit,
    work: Work,
}

impl Receiving {
    pub fn info(&self) -> &SnapshotInfo {
        &self.info
    }

    /// The number of the chunk that comes next: where an interrupted transfer goes on.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Takes in the next chunk.
    ///
    /// # Errors
    /// It is not the next one, not as long as it must be, or damaged; the one asked for can be sent again.
    pub fn chunk(&mut self, chunk: Chunk) -> Result<(), StoreError> {
        let next = self.next;
        if chunk.number != next {
            return Err(StoreError::Snapshot(format!(
                "chunk {} came, {next} is next",
                chunk.number
            )));
        }
        if self.info.chunk_size(next) != Some(chunk.bytes.len()) {
            return Err(StoreError::Snapshot(format!(
                "chunk {next} has {} bytes",
                chunk.bytes.len()
            )));
        }
        chunk.check()?;
        let sha256 = chunk.sha256;
        self.sink
            .append(chunk)
            .map_err(StoreError::file("receiving a snapshot"))?;
        self.whole.update(sha256);
        self.next = next.saturating_add(1);
        Ok(())
    }

    /// Checks the whole and makes it durable; then it can be installed.
    ///
    /// # Errors
    /// Chunks are missing, or the whole is not what was described.
    pub async fn finish(self) -> Result<SnapshotData, StoreError> {
        let Self {
            info,
            sink,
            next,
            whole,
            permit,
            work,
        } = self;
        if next != info.chunks {
            return Err(StoreError::Snapshot(format!(
                "{next} of {} chunks came",
                info.chunks
            )));
        }
        if <[u8; 32]>::from(whole.finalize()) != info.sha256 {
            return Err(StoreError::Snapshot(
                "the whole is not what was described".to_owned(),
            ));
        }
        let file = || StoreError::file("receiving a snapshot");
        let data = work
            .run(move || sink.finish(info))
            .await
            .map_err(file())?
            .map_err(file())?;
        Ok(data.holding(permit))
    }
}

impl fmt::Debug for Receiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiving")
            .field("info", &self.info)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
