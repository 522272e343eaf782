//! A snapshot: the state at one applied log id as a stream of records, cut into chunks with a hash each.
//!
//! ```text
//!   file:    [ SHA-256 | chunk ] …  all chunks but the last have CHUNK_BYTES
//!            [ info | length of info, 4 bytes | SHA-256 of info | MAGIC ]
//!   stream:  [ space, 1 byte | length of key, 4 | length of value, 4 | key | value ] …  in key order
//! ```
//!
//! The whole is hashed over the hashes of its chunks. It is never in memory at once, but for the twin's.

mod build;
mod install;
mod receive;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minicbor::{Decode, Encode};
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedSemaphorePermit;

use crate::config::{LogId, SnapshotMeta, StoredMembership};
use crate::error::StoreError;
use crate::record::{self, LogIdRecord, StoredMembershipRecord};

pub use build::SnapshotBuilder;
pub(crate) use build::build;
pub use install::Stage;
pub(crate) use install::install;
pub use receive::{Receiving, Snapshots};

/// The size of a chunk: what is in memory of a snapshot, and what one message to a peer carries.
pub const CHUNK_BYTES: usize = 512 << 10;

const MAGIC: &[u8; 8] = b"hgsnap1\n";

/// A piece of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Counted from 0.
    pub number: u64,
    pub sha256: [u8; 32],
    pub bytes: Vec<u8>,
}

impl Chunk {
    pub(crate) fn new(number: u64, bytes: Vec<u8>) -> Self {
        Self {
            number,
            sha256: Sha256::digest(&bytes).into(),
            bytes,
        }
    }

    /// # Errors
    /// The bytes are not those that were hashed.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if <[u8; 32]>::from(Sha256::digest(&self.bytes)) == self.sha256 {
            Ok(())
        } else {
            Err(StoreError::Snapshot(format!("chunk {} is damaged", self.number)))
        }
    }
}

/// What a snapshot is; sent to a peer before its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The cluster whose state it is.
    pub cluster_id: String,
    pub applied: Option<LogId>,
    pub membership: StoredMembership,
    pub chunks: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
    /// SHA-256 over the hashes of the chunks, in order.
    pub sha256: [u8; 32],
}

#[derive(Encode, Decode)]
struct InfoRecord {
    #[n(0)]
    cluster_id: String,
    #[n(1)]
    applied: Option<LogIdRecord>,
    #[n(2)]
    membership: StoredMembershipRecord,
    #[n(3)]
    chunks: u64,
    #[n(4)]
    bytes: u64,
    #[cbor(n(5), with = "minicbor::bytes")]
    sha256: [u8; 32],
}

impl SnapshotInfo {
    /// Encodes it for a peer.
    pub fn encode(&self) -> Vec<u8> {
        machine::row::bytes(&InfoRecord {
            cluster_id: self.cluster_id.clone(),
            applied: self.applied.as_ref().map(LogIdRecord::of),
            membership: StoredMembershipRecord::of(&self.membership),
            chunks: self.chunks,
            bytes: self.bytes,
            sha256: self.sha256,
        })
    }

    /// Reads what `encode` wrote.
    ///
    /// # Errors
    /// The bytes are not that, or describe what no snapshot can be.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let read = || {
            let record: InfoRecord = record::exact(bytes)?;
            let info = Self {
                cluster_id: record.cluster_id,
                applied: record.applied.as_ref().map(LogIdRecord::value),
                membership: record.membership.value()?,
                chunks: record.chunks,
                bytes: record.bytes,
                sha256: record.sha256,
            };
            if info.bytes.div_ceil(chunk_bytes()) == info.chunks {
                Ok(info)
            } else {
                Err(format!("{} bytes are not {} chunks", info.bytes, info.chunks))
            }
        };
        read().map_err(|what| StoreError::Snapshot(format!("its description: {what}")))
    }

    /// What openraft is told of it.
    pub fn meta(&self) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.membership.clone(),
        }
    }

    /// A file name that sorts by age.
    pub(crate) fn name(&self) -> String {
        match self.applied {
            Some(LogId { leader_id, index }) => {
                format!("{index:020}-{}-{}", leader_id.term, leader_id.node_id)
            }
            None => "empty".to_owned(),
        }
    }

    /// The bytes after the last chunk.
    pub(crate) fn footer(&self) -> Vec<u8> {
        let mut footer = self.encode();
        let length = u32::try_from(footer.len()).unwrap_or(u32::MAX).to_be_bytes();
        let hash: [u8; 32] = Sha256::digest(&footer).into();
        footer.extend_from_slice(&length);
        footer.extend_from_slice(&hash);
        footer.extend_from_slice(MAGIC);
        footer
    }

    /// The size of a chunk by its number; none where there is no such chunk.
    pub(crate) fn chunk_size(&self, number: u64) -> Option<usize> {
        let before = number.checked_mul(chunk_bytes())?;
        let left = self.bytes.checked_sub(before).filter(|left| *left > 0)?;
        usize::try_from(left.min(chunk_bytes())).ok()
    }
}

/// A snapshot that can be read; it stays readable when a newer one takes its place.
#[derive(Debug, Clone)]
pub struct SnapshotData {
    info: Arc<SnapshotInfo>,
    content: Content,
    /// Held by one that was received until it is installed or let go of: one at a time.
    _received: Option<Arc<OwnedSemaphorePermit>>,
}

#[derive(Debug, Clone)]
enum Content {
    File {
        file: Arc<File>,
        path: PathBuf,
        _part: Option<Arc<Part>>,
    },
    Memory(Arc<Vec<Chunk>>),
}

impl SnapshotData {
    pub fn info(&self) -> &SnapshotInfo {
        &self.info
    }

    /// Reads one chunk and checks its hash.
    ///
    /// # Errors
    /// There is no such chunk, or it is damaged.
    pub fn chunk(&self, number: u64) -> Result<Chunk, StoreError> {
        let none = || StoreError::Snapshot(format!("there is no chunk {number}"));
        let chunk = match &self.content {
            Content::Memory(chunks) => {
                let number = usize::try_from(number).map_err(|_| none())?;
                chunks.get(number).cloned().ok_or_else(none)?
            }
            Content::File { file, .. } => {
                let size = self.info.chunk_size(number).ok_or_else(none)?;
                let mut sha256 = [0; 32];
                let mut bytes = vec![0; size];
                let at = number.saturating_mul(frame_bytes());
                file.read_exact_at(&mut sha256, at)
                    .and_then(|()| file.read_exact_at(&mut bytes, at.saturating_add(HASH_BYTES)))
                    .map_err(StoreError::file("reading a snapshot"))?;
                Chunk {
                    number,
                    sha256,
                    bytes,
                }
            }
        };
        chunk.check()?;
        Ok(chunk)
    }

    /// Opens a snapshot file and reads its description.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(StoreError::file(format!("opening {}", path.display())))?;
        let info = read_footer(&file)
            .map_err(StoreError::file(format!("reading {}", path.display())))?
            .ok_or_else(|| StoreError::Damaged(format!("the snapshot {}", path.display())))?;
        let content = Content::File {
            file: Arc::new(file),
            path: path.to_owned(),
            _part: None,
        };
        Ok(Self {
            info: Arc::new(info),
            content,
            _received: None,
        })
    }

    /// A file that is whole and not kept yet.
    pub(crate) fn of_part(part: Part, info: SnapshotInfo) -> io::Result<Self> {
        let file = Arc::new(File::open(&part.0)?);
        let content = Content::File {
            file,
            path: part.0.clone(),
            _part: Some(Arc::new(part)),
        };
        Ok(Self {
            info: Arc::new(info),
            content,
            _received: None,
        })
    }

    pub(crate) fn in_memory(chunks: Vec<Chunk>, info: SnapshotInfo) -> Self {
        Self {
            info: Arc::new(info),
            content: Content::Memory(Arc::new(chunks)),
            _received: None,
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.content {
            Content::File { path, .. } => Some(path),
            Content::Memory(_) => None,
        }
    }

    /// The same, free of what it held while it waited to be installed.
    pub(crate) fn kept(&self) -> Self {
        Self {
            _received: None,
            ..self.clone()
        }
    }

    pub(crate) fn holding(self, permit: OwnedSemaphorePermit) -> Self {
        Self {
            _received: Some(Arc::new(permit)),
            ..self
        }
    }
}

/// A snapshot file under a name that is not a snapshot's; removed unless it was kept under another.
#[derive(Debug)]
pub(crate) struct Part(PathBuf);

impl Part {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // Removed at the next start.
                tracing::warn!(path = %self.0.display(), %error, "an unfinished snapshot was not removed");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

const HASH_BYTES: u64 = 32;
/// Length, hash and magic at the end of a file.
const ENDING_BYTES: usize = 4 + 32 + 8;
/// A description is small: members and their addresses.
const INFO_BYTES_MAX: u64 = 1 << 20;

fn chunk_bytes() -> u64 {
    u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX)
}

fn frame_bytes() -> u64 {
    chunk_bytes().saturating_add(HASH_BYTES)
}

/// Reads the description at the end; none where the file is not a whole snapshot.
fn read_footer(file: &File) -> io::Result<Option<SnapshotInfo>> {
    let size = file.metadata()?.len();
    let mut ending = [0; ENDING_BYTES];
    let Some(at) = size.checked_sub(u64::try_from(ENDING_BYTES).unwrap_or(u64::MAX)) else {
        return Ok(None);
    };
    file.read_exact_at(&mut ending, at)?;
    let Some((length, rest)) = ending.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let Some((hash, magic)) = rest.split_first_chunk::<32>() else {
        return Ok(None);
    };
    let length = u64::from(u32::from_be_bytes(*length));
    let Some(begin) = at
        .checked_sub(length)
        .filter(|_| magic == MAGIC && length <= INFO_BYTES_MAX)
    else {
        return Ok(None);
    };
    let mut info = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut info, begin)?;
    if <[u8; 32]>::from(Sha256::digest(&info)) != *hash {
        return Ok(None);
    }
    let Ok(info) = SnapshotInfo::decode(&info) else {
        return Ok(None);
    };
    let chunks = info.chunks.saturating_mul(HASH_BYTES).saturating_add(info.bytes);
    Ok((chunks == begin).then_some(info))
}
