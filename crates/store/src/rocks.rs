use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRawIterator,
    DBRecoveryMode, LogLevel, Options, ReadOptions, SnapshotWithThreadMode, WriteBatch, WriteOptions,
};

use crate::disk::{Disk, DiskError, Durability, Op, Read, Record, Space, Visitor};

/// A disk in RocksDB, one database a disk: the log's syncs do not wait for the state's writes.
pub(crate) struct RocksDisk {
    // Dropped in this order: a directory is removed only after its database is closed.
    db: DB,
    directory: Directory,
}

/// Which of a node's two databases; they differ in what recovery may forgive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Log,
    State,
}

/// Whether a database may be made where none is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

/// Memory for writes not yet in a table file; small for the log, whose newest entries are in memory anyway.
const LOG_WRITE_BUFFER_BYTES: usize = 32 << 20;
const STATE_WRITE_BUFFER_BYTES: usize = 64 << 20;
/// Bounds what has to be read again when the database is opened.
const WAL_BYTES_MAX: u64 = 256 << 20;
/// Table files kept open; each costs a file handle and its index in memory.
const OPEN_FILES_MAX: i32 = 512;

impl RocksDisk {
    pub fn open(path: &Path, kind: Kind, missing: Missing, cache_bytes: usize) -> Result<Self, DiskError> {
        let mut options = Options::default();
        options.create_if_missing(missing == Missing::Create);
        options.create_missing_column_families(true);
        options.set_paranoid_checks(true);
        options.set_max_open_files(OPEN_FILES_MAX);
        options.set_max_total_wal_size(WAL_BYTES_MAX);
        options.set_keep_log_file_num(4);
        options.set_log_level(LogLevel::Warn);
        let spaces = match kind {
            Kind::Log => {
                // What was acknowledged was synced: only a record cut off at the very end may be missing,
                // a damaged one is refused. Forgiving more would forget votes and entries silently.
                options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
                options.set_track_and_verify_wals_in_manifest(true);
                Space::LOG
            }
            Kind::State => {
                // Unsynced: power loss may leave any prefix, and the log brings it forward again. All
                // column families are flushed as one, so that a prefix is one for all of them.
                options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
                options.set_atomic_flush(true);
                Space::STATE
            }
        };
        let cache = Cache::new_lru_cache(cache_bytes);
        let families = spaces
            .iter()
            .map(|space| ColumnFamilyDescriptor::new(name(*space), tables(*space, &cache)));
        let db = DB::open_cf_descriptors(&options, path, families).map_err(failed)?;
        Ok(Self {
            db,
            directory: Directory {
                path: path.to_owned(),
                retired: AtomicBool::new(false),
            },
        })
    }

    fn family(&self, space: Space) -> Result<&ColumnFamily, DiskError> {
        self.db
            .cf_handle(name(space))
            .ok_or_else(|| DiskError(format!("{space:?} is not on this disk")))
    }
}

impl Read for RocksDisk {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
        self.db.get_cf(self.family(space)?, key).map_err(failed)
    }

    fn visit(
        &self,
        space: Space,
        from: &[u8],
        until: Option<&[u8]>,
        visit: Visitor<'_>,
    ) -> Result<(), DiskError> {
        walk(
            self.db.raw_iterator_cf_opt(self.family(space)?, bounded(until)),
            from,
            visit,
        )
    }

    fn last(&self, space: Space) -> Result<Option<Record>, DiskError> {
        end(self.db.raw_iterator_cf(self.family(space)?))
    }
}

impl Disk for RocksDisk {
    fn write(&self, batch: &[Op], durability: Durability) -> Result<(), DiskError> {
        let mut written = WriteBatch::default();
        for op in batch {
            match op {
                Op::Put(space, key, value) => written.put_cf(self.family(*space)?, key, value),
                Op::Delete(space, key) => written.delete_cf(self.family(*space)?, key),
                Op::DeleteRange(space, from, until) => {
                    written.delete_range_cf(self.family(*space)?, from, until);
                }
            }
        }
        let mut options = WriteOptions::default();
        // RocksDB does not sync unless it is told to.
        options.set_sync(durability == Durability::Synced);
        self.db.write_opt(written, &options).map_err(failed)
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.db.flush_wal(true).map_err(failed)
    }

    fn view(&self) -> Box<dyn Read + '_> {
        Box::new(RocksView {
            disk: self,
            snapshot: self.db.snapshot(),
        })
    }

    fn retire(&self) {
        self.directory.retired.store(true, Ordering::Release);
    }
}

impl fmt::Debug for RocksDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RocksDisk").field(&self.directory.path).finish()
    }
}

struct RocksView<'a> {
    disk: &'a RocksDisk,
    snapshot: SnapshotWithThreadMode<'a, DB>,
}

impl Read for RocksView<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
        self.snapshot
            .get_cf(self.disk.family(space)?, key)
            .map_err(failed)
    }

    fn visit(
        &self,
        space: Space,
        from: &[u8],
        until: Option<&[u8]>,
        visit: Visitor<'_>,
    ) -> Result<(), DiskError> {
        walk(
            self.snapshot
                .raw_iterator_cf_opt(self.disk.family(space)?, bounded(until)),
            from,
            visit,
        )
    }

    fn last(&self, space: Space) -> Result<Option<Record>, DiskError> {
        end(self.snapshot.raw_iterator_cf(self.disk.family(space)?))
    }
}

fn bounded(until: Option<&[u8]>) -> ReadOptions {
    let mut options = ReadOptions::default();
    if let Some(until) = until {
        options.set_iterate_upper_bound(until);
    }
    options
}

fn walk(mut iterator: DBRawIterator<'_>, from: &[u8], visit: Visitor<'_>) -> Result<(), DiskError> {
    iterator.seek(from);
    while let Some((key, value)) = iterator.item() {
        if !visit(key, value) {
            return Ok(());
        }
        iterator.next();
    }
    iterator.status().map_err(failed)
}

fn end(mut iterator: DBRawIterator<'_>) -> Result<Option<Record>, DiskError> {
    iterator.seek_to_last();
    let last = iterator.item().map(|(key, value)| (key.to_vec(), value.to_vec()));
    iterator.status().map_err(failed)?;
    Ok(last)
}

/// Column families' names; one once given is never reused for something else.
fn name(space: Space) -> &'static str {
    match space {
        Space::LogMeta => "log_meta",
        Space::LogEntries => "log_entries",
        Space::StateMeta => "state_meta",
        Space::Rows => "rows",
        Space::Audit => "audit",
    }
}

fn tables(space: Space, cache: &Cache) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.set_compression_type(DBCompressionType::Lz4);
    match space {
        Space::LogMeta | Space::LogEntries => options.set_write_buffer_size(LOG_WRITE_BUFFER_BYTES),
        Space::StateMeta | Space::Audit => options.set_write_buffer_size(STATE_WRITE_BUFFER_BYTES),
        Space::Rows => {
            // Most reads of rows are of rows that are not there: new nonces, new request ids.
            blocks.set_bloom_filter(10.0, false);
            options.set_write_buffer_size(STATE_WRITE_BUFFER_BYTES);
        }
    }
    options.set_block_based_table_factory(&blocks);
    options
}

/// Removes the directory of a retired database when the last user is gone.
struct Directory {
    path: PathBuf,
    retired: AtomicBool,
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.retired.load(Ordering::Acquire)
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            // Removed at the next start.
            tracing::warn!(path = %self.path.display(), %error, "a replaced state was not removed");
        }
    }
}

fn failed(error: rocksdb::Error) -> DiskError {
    DiskError(error.into_string())
}
