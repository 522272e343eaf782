use std::io;
use std::sync::Arc;

use openraft::storage::RaftSnapshotBuilder;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::config::{Raft, Snapshot};
use crate::disk::{Read, Space};
use crate::error::StoreError;
use crate::home::{Home, Sink};
use crate::live::{Live, read_meta};
use crate::snapshot::{CHUNK_BYTES, Chunk, SnapshotData, SnapshotInfo};
use crate::work::Work;

/// A snapshot being built; its view of the state was taken when it was asked for.
#[derive(Debug, Default)]
pub struct SnapshotBuilder(Option<Building>);

#[derive(Debug)]
enum Building {
    Done(Result<SnapshotData, StoreError>),
    OnThread(oneshot::Receiver<Result<SnapshotData, StoreError>>),
}

impl RaftSnapshotBuilder<Raft> for SnapshotBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let data = match self.0.take() {
            Some(Building::Done(data)) => data?,
            Some(Building::OnThread(data)) => data.await.map_err(io::Error::other)??,
            None => return Err(io::Error::other("this snapshot was built before")),
        };
        Ok(Snapshot {
            meta: data.info().meta(),
            snapshot: data,
        })
    }
}

/// Begins to build a snapshot of the state as it is when this returns.
///
/// The permit is held until the snapshot is kept: one is built at a time.
pub(crate) async fn build(
    live: &Arc<Live>,
    home: &Arc<dyn Home>,
    permit: OwnedSemaphorePermit,
    work: Work,
) -> SnapshotBuilder {
    let (live, home) = (Arc::clone(live), Arc::clone(home));
    match work {
        Work::Inline => SnapshotBuilder(Some(Building::Done(write(&live, home.as_ref(), || {})))),
        Work::Threads => {
            let (tell, viewed) = oneshot::channel();
            let (give, data) = oneshot::channel();
            tokio::task::spawn_blocking(move || {
                let built = write(&live, home.as_ref(), || {
                    let _ = tell.send(());
                });
                drop(permit);
                // Whoever asked may be gone: the snapshot is kept all the same.
                let _ = give.send(built);
            });
            // An error means that the view could not be taken; building says why.
            let _ = viewed.await;
            SnapshotBuilder(Some(Building::OnThread(data)))
        }
    }
}

fn write(live: &Live, home: &dyn Home, viewed: impl FnOnce()) -> Result<SnapshotData, StoreError> {
    let state = live.state();
    let view = state.disk.view();
    // INVARIANT: what is said of the snapshot is read from the same view as its rows.
    let (applied, membership) = read_meta(view.as_ref())?;
    viewed();
    let mut chunks = Chunks::into_sink(home.new_snapshot()?);
    for space in RECORDED {
        chunks.record_all(view.as_ref(), *space)?;
    }
    let data = chunks.finish(SnapshotInfo {
        cluster_id: home.identity().cluster_id,
        applied,
        membership,
        chunks: 0,
        bytes: 0,
        sha256: [0; 32],
    })?;
    // A snapshot that is newer than the durable state would have to be installed after power loss.
    live.flush()?;
    home.keep_snapshot(&data)
}

/// What is in a snapshot, and the byte that says so in its records. Never reuse a byte.
const RECORDED: &[(Space, u8)] = &[(Space::Rows, 1), (Space::Audit, 2)];

/// The space of a record's first byte.
pub(crate) fn recorded(byte: u8) -> Option<Space> {
    RECORDED
        .iter()
        .find(|(_, tag)| *tag == byte)
        .map(|(space, _)| *space)
}

const WRITING: &str = "writing a snapshot";

/// Cuts a stream of records into chunks.
struct Chunks {
    sink: Box<dyn Sink>,
    chunk: Vec<u8>,
    number: u64,
    bytes: u64,
    whole: Sha256,
}

impl Chunks {
    fn into_sink(sink: Box<dyn Sink>) -> Self {
        Self {
            sink,
            chunk: Vec::with_capacity(CHUNK_BYTES),
            number: 0,
            bytes: 0,
            whole: Sha256::new(),
        }
    }

    fn record_all(&mut self, view: &dyn Read, (space, tag): (Space, u8)) -> Result<(), StoreError> {
        let mut failed = None;
        view.visit(space, &[], None, &mut |key, value| {
            let written = self
                .write(&[tag])
                .and_then(|()| self.write(&length(key)))
                .and_then(|()| self.write(&length(value)))
                .and_then(|()| self.write(key))
                .and_then(|()| self.write(value));
            failed = written.err();
            failed.is_none()
        })?;
        match failed {
            Some(error) => Err(StoreError::file(WRITING)(error)),
            None => Ok(()),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = CHUNK_BYTES.saturating_sub(self.chunk.len());
            let (now, later) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            self.chunk.extend_from_slice(now);
            if self.chunk.len() == CHUNK_BYTES {
                self.end_chunk()?;
            }
            bytes = later;
        }
        Ok(())
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        let bytes = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        self.bytes = self
            .bytes
            .saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let chunk = Chunk::new(self.number, bytes);
        self.number = self.number.saturating_add(1);
        self.whole.update(chunk.sha256);
        self.sink.append(chunk)
    }

    /// Ends the stream; fills in what the description says of the chunks.
    fn finish(mut self, info: SnapshotInfo) -> Result<SnapshotData, StoreError> {
        if !self.chunk.is_empty() {
            self.end_chunk().map_err(StoreError::file(WRITING))?;
        }
        let Self {
            sink,
            number,
            bytes,
            whole,
            ..
        } = self;
        let info = SnapshotInfo {
            chunks: number,
            bytes,
            sha256: whole.finalize().into(),
            ..info
        };
        sink.finish(info).map_err(StoreError::file(WRITING))
    }
}

fn length(bytes: &[u8]) -> [u8; 4] {
    // INVARIANT: keys are short and rows are bounded by what one log entry holds, far below 4 GiB.
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes()
}
