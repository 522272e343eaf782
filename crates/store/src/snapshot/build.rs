use std::io;

use openraft::storage::RaftSnapshotBuilder;
use sha2::{Digest as _, Sha256};

use crate::config::{Raft, Snapshot};
use crate::disk::{Read, Space};
use crate::error::StoreError;
use crate::home::{Home, Sink};
use crate::live::{Live, read_meta};
use crate::snapshot::{CHUNK_BYTES, Chunk, SnapshotData, SnapshotInfo};

/// Gives openraft a snapshot that was built before it asked. A build that fails (a full disk) would be the end of the
/// node there; here it is an error of whoever wanted it, who tries again later.
#[derive(Debug)]
pub struct SnapshotBuilder(Option<Result<SnapshotData, StoreError>>);

impl SnapshotBuilder {
    pub(crate) fn of(built: Result<SnapshotData, StoreError>) -> Self {
        Self(Some(built))
    }
}

impl RaftSnapshotBuilder<Raft> for SnapshotBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let taken = || io::Error::other("this snapshot was taken before");
        let snapshot = self.0.take().ok_or_else(taken)??;
        Ok(Snapshot {
            meta: snapshot.info().meta(),
            snapshot,
        })
    }
}

/// Builds a snapshot of the state as it is now, and keeps it.
pub(crate) fn build(live: &Live, home: &dyn Home) -> Result<SnapshotData, StoreError> {
    let state = live.state();
    let view = state.disk.view();
    // INVARIANT: what is said of the snapshot is read from the same view as its rows.
    let (applied, membership) = read_meta(view.as_ref())?;
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
