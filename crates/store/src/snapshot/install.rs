use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::disk::{Disk, Durability, Op, Space};
use crate::error::StoreError;
use crate::home::Home;
use crate::keys;
use crate::record;
use crate::snapshot::build::recorded;
use crate::snapshot::{Chunk, SnapshotData};

/// How far an install has come. Tests stop it there, as a crash would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The new state holds a part of the rows. The next start removes it.
    Loading,
    /// The new state is whole and durable, beside the live one. The next start removes it.
    Loaded,
    /// The snapshot is the current one, the state is the old one. The next start installs it again.
    Kept,
    /// The new state is the one that the next start opens.
    Switched,
}

/// Loads a snapshot into a new state beside the live one and makes that the one the next start opens.
///
/// Whatever stops it, the directory opens: with the old state, or with the new one.
///
/// # Errors
/// The snapshot is damaged or another cluster's: the live state stays.
pub(crate) fn install(
    home: &dyn Home,
    data: &SnapshotData,
    stop_at: Option<Stage>,
) -> Result<Arc<dyn Disk>, StoreError> {
    let joined = home.identity().joined(&data.info().cluster_id)?;
    let reached = |stage| {
        if stop_at == Some(stage) {
            Err(StoreError::Snapshot(format!("stopped at {stage:?}")))
        } else {
            Ok(())
        }
    };
    let disk = home.new_state()?;
    load(disk.as_ref(), data, &reached)?;
    disk.flush()?;
    reached(Stage::Loaded)?;
    if !joined.cluster_id.is_empty() {
        home.set_cluster_id(&joined.cluster_id)?;
    }
    home.keep_snapshot(data)?;
    reached(Stage::Kept)?;
    home.use_new_state()?;
    reached(Stage::Switched)?;
    Ok(disk)
}

/// Writes the records of all chunks, each checked against its hash and the whole against the description.
fn load(
    disk: &dyn Disk,
    data: &SnapshotData,
    reached: &impl Fn(Stage) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let info = data.info();
    let mut whole = Sha256::new();
    let mut unread = Vec::new();
    for number in 0..info.chunks {
        let Chunk { sha256, bytes, .. } = data.chunk(number)?;
        whole.update(sha256);
        unread.extend_from_slice(&bytes);
        let (ops, read) = records(&unread)?;
        unread.drain(..read.min(unread.len()));
        disk.write(&ops, Durability::Unsynced)?;
        reached(Stage::Loading)?;
    }
    if !unread.is_empty() {
        return Err(StoreError::Snapshot("it ends within a record".to_owned()));
    }
    if <[u8; 32]>::from(whole.finalize()) != info.sha256 {
        return Err(StoreError::Snapshot(
            "the whole is not what was described".to_owned(),
        ));
    }
    let mut meta = vec![Op::Put(
        Space::StateMeta,
        keys::MEMBERSHIP.to_vec(),
        record::encode_membership(&info.membership),
    )];
    if let Some(applied) = &info.applied {
        meta.push(Op::Put(
            Space::StateMeta,
            keys::APPLIED.to_vec(),
            record::encode_log_id(applied),
        ));
    }
    Ok(disk.write(&meta, Durability::Unsynced)?)
}

/// Reads the whole records at the beginning of the bytes; gives also how many bytes they are.
fn records(bytes: &[u8]) -> Result<(Vec<Op>, usize), StoreError> {
    let mut ops = Vec::new();
    let mut rest = bytes;
    while let Some(Record {
        tag,
        key,
        value,
        after,
    }) = record(rest)
    {
        let space = recorded(tag)
            .ok_or_else(|| StoreError::Snapshot(format!("a record of the unknown kind {tag}")))?;
        ops.push(Op::Put(space, key.to_vec(), value.to_vec()));
        rest = after;
    }
    Ok((ops, bytes.len().saturating_sub(rest.len())))
}

struct Record<'b> {
    tag: u8,
    key: &'b [u8],
    value: &'b [u8],
    after: &'b [u8],
}

/// Reads one record; none where the bytes end within it.
fn record(bytes: &[u8]) -> Option<Record<'_>> {
    let (tag, after) = bytes.split_first()?;
    let (key_length, after) = after.split_first_chunk::<4>()?;
    let (value_length, after) = after.split_first_chunk::<4>()?;
    let (key, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*key_length)).ok()?)?;
    let (value, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*value_length)).ok()?)?;
    Some(Record {
        tag: *tag,
        key,
        value,
        after,
    })
}
