use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Disk, Read, Space};
use crate::error::StoreError;
use crate::format::{self, Identity, Lock};
use crate::guarded::Guarded;
use crate::held::HeldArguments;
use crate::home::{Home, Sink};
use crate::rocks::{Kind, Missing, RocksDisk};
use crate::snapshot::{Chunk, Part, SnapshotData, SnapshotInfo};

/// A data directory, held by this process.
#[derive(Debug)]
pub(crate) struct DirectoryHome {
    dir: PathBuf,
    cache_bytes: usize,
    identity: Guarded<Identity>,
    state: Guarded<u64>,
    snapshot: Guarded<Option<SnapshotData>>,
    held: HeldArguments,
    parts: AtomicU64,
    _lock: Lock,
}

const LOG: &str = "log";
const SNAPSHOTS: &str = "snapshot";
const HELD: &str = "held";
/// Ends the name of a snapshot; whatever else is in their directory was not finished.
const SNAPSHOT_SUFFIX: &str = ".snapshot";

impl DirectoryHome {
    /// Opens the directory, or makes it: locks it, clears what a crash left, and finds the current snapshot.
    pub fn open(dir: &Path, cache_bytes: usize) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(StoreError::file(format!("making {}", dir.display())))?;
        let lock = Lock::take(dir)?;
        let identity = match Identity::read(dir)? {
            Some(identity) => identity,
            None => make(dir, cache_bytes)?,
        };
        let state =
            format::read_current(dir)?.ok_or_else(|| StoreError::Damaged("CURRENT is missing".to_owned()))?;
        let home = Self {
            dir: dir.to_owned(),
            cache_bytes,
            identity: Guarded::new(identity),
            state: Guarded::new(state),
            snapshot: Guarded::new(None),
            held: HeldArguments::in_directory(dir.join(HELD))?,
            parts: AtomicU64::new(0),
            _lock: lock,
        };
        home.clear_replaced_states(state)?;
        *home.snapshot.lock() = home.find_snapshot()?;
        Ok(home)
    }

    pub fn open_log(&self) -> Result<Arc<dyn Disk>, StoreError> {
        Ok(Arc::new(RocksDisk::open(
            &self.dir.join(LOG),
            Kind::Log,
            Missing::Refuse,
            self.cache_bytes / 8,
        )?))
    }

    pub fn open_state(&self) -> Result<Arc<dyn Disk>, StoreError> {
        let path = self.state_path(*self.state.lock());
        Ok(Arc::new(RocksDisk::open(
            &path,
            Kind::State,
            Missing::Refuse,
            self.cache_bytes,
        )?))
    }

    fn state_path(&self, number: u64) -> PathBuf {
        self.dir.join(state_name(number))
    }

    fn clear_replaced_states(&self, live: u64) -> Result<(), StoreError> {
        for name in names(&self.dir)? {
            if name.starts_with("state-") && name != state_name(live) {
                remove_dir(&self.dir.join(name))?;
            }
        }
        Ok(())
    }

    /// Opens the newest snapshot, and removes all other files beside it.
    fn find_snapshot(&self) -> Result<Option<SnapshotData>, StoreError> {
        let dir = self.dir.join(SNAPSHOTS);
        let mut found: Option<(PathBuf, SnapshotData)> = None;
        for name in names(&dir)? {
            let path = dir.join(&name);
            let data = match SnapshotData::open(&path) {
                Ok(data) if name.ends_with(SNAPSHOT_SUFFIX) => Some(data),
                // The state does not need it, and another is built when one is asked for.
                Err(error) if name.ends_with(SNAPSHOT_SUFFIX) => {
                    tracing::error!(%error, "a damaged snapshot is removed");
                    None
                }
                Ok(_) | Err(_) => None,
            };
            let newest = found.as_ref().map(|(_, found)| found.info().applied);
            match data {
                Some(data) if newest.is_none_or(|newest| newest < data.info().applied) => {
                    if let Some((older, _)) = found.replace((path, data)) {
                        remove_file(&older)?;
                    }
                }
                Some(_) | None => remove_file(&path)?,
            }
        }
        Ok(found.map(|(_, data)| data))
    }
}

impl Home for DirectoryHome {
    fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    fn set_cluster_id(&self, cluster_id: &str) -> Result<(), StoreError> {
        let mut identity = self.identity.lock();
        let joined = identity.joined(cluster_id)?;
        if joined != *identity {
            joined.write(&self.dir)?;
            *identity = joined;
        }
        Ok(())
    }

    fn new_state(&self) -> Result<Arc<dyn Disk>, StoreError> {
        let path = self.state_path(self.state.lock().saturating_add(1));
        if path.exists() {
            remove_dir(&path)?;
        }
        Ok(Arc::new(RocksDisk::open(
            &path,
            Kind::State,
            Missing::Create,
            self.cache_bytes,
        )?))
    }

    fn use_new_state(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let next = state.saturating_add(1);
        format::sync_dir(&self.dir)?;
        format::write_current(&self.dir, next)?;
        *state = next;
        Ok(())
    }

    fn new_snapshot(&self) -> Result<Box<dyn Sink>, StoreError> {
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(SNAPSHOTS).join(format!("{number}.part"));
        let file = File::create(&path).map_err(StoreError::file("making a snapshot file"))?;
        Ok(Box::new(FileSink {
            file: BufWriter::new(file),
            part: Part::new(path),
        }))
    }

    fn keep_snapshot(&self, data: &SnapshotData) -> Result<SnapshotData, StoreError> {
        let mut current = self.snapshot.lock();
        if let Some(current) = current.as_ref()
            && current.info().applied >= data.info().applied
        {
            return Ok(current.clone());
        }
        let Some(part) = data.path() else {
            return Err(StoreError::Snapshot("it is not in this directory".to_owned()));
        };
        let dir = self.dir.join(SNAPSHOTS);
        let path = dir.join(format!("{}{SNAPSHOT_SUFFIX}", data.info().name()));
        fs::rename(part, &path).map_err(StoreError::file("keeping a snapshot"))?;
        format::sync_dir(&dir)?;
        let kept = SnapshotData::open(&path)?;
        if let Some(older) = current.replace(kept.clone())
            && let Some(older) = older.path()
            && older != path
        {
            // Whoever reads it has it open.
            remove_file(older)?;
        }
        Ok(kept)
    }

    fn snapshot(&self) -> Option<SnapshotData> {
        self.snapshot.lock().clone()
    }

    fn held(&self) -> HeldArguments {
        self.held.clone()
    }
}

struct FileSink {
    file: BufWriter<File>,
    part: Part,
}

impl Sink for FileSink {
    fn append(&mut self, chunk: Chunk) -> io::Result<()> {
        self.file.write_all(&chunk.sha256)?;
        self.file.write_all(&chunk.bytes)
    }

    fn finish(mut self: Box<Self>, info: SnapshotInfo) -> io::Result<SnapshotData> {
        self.file.write_all(&info.footer())?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        SnapshotData::of_part(self.part, info)
    }
}

/// Makes the directory's content. IDENTITY comes last: without it, the directory was not finished.
fn make(dir: &Path, cache_bytes: usize) -> Result<Identity, StoreError> {
    let known = [
        "LOCK",
        "IDENTITY.part",
        "CURRENT",
        "CURRENT.part",
        LOG,
        SNAPSHOTS,
        HELD,
        "state-1",
    ];
    if let Some(other) = names(dir)?
        .into_iter()
        .find(|name| !known.contains(&name.as_str()))
    {
        return Err(StoreError::Damaged(format!(
            "there is {other:?} in the data directory, but no IDENTITY"
        )));
    }
    let log = RocksDisk::open(&dir.join(LOG), Kind::Log, Missing::Create, cache_bytes / 8)?;
    let state = RocksDisk::open(
        &dir.join(state_name(1)),
        Kind::State,
        Missing::Create,
        cache_bytes,
    )?;
    // A node that forgot its vote would vote twice.
    if log.last(Space::LogMeta)?.is_some()
        || log.last(Space::LogEntries)?.is_some()
        || state.last(Space::StateMeta)?.is_some()
    {
        return Err(StoreError::Damaged(
            "there is data in the data directory, but no IDENTITY".to_owned(),
        ));
    }
    let snapshots = dir.join(SNAPSHOTS);
    fs::create_dir_all(&snapshots).map_err(StoreError::file("making the snapshot directory"))?;
    format::write_current(dir, 1)?;
    let identity = Identity::mint()?;
    identity.write(dir)?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        format::sync_dir(parent)?;
    }
    Ok(identity)
}

fn state_name(number: u64) -> String {
    format!("state-{number}")
}

fn names(dir: &Path) -> Result<Vec<String>, StoreError> {
    let list = || {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    };
    list().map_err(StoreError::file(format!("listing {}", dir.display())))
}

fn remove_dir(path: &Path) -> Result<(), StoreError> {
    fs::remove_dir_all(path).map_err(StoreError::file(format!("removing {}", path.display())))
}

fn remove_file(path: &Path) -> Result<(), StoreError> {
    fs::remove_file(path).map_err(StoreError::file(format!("removing {}", path.display())))
}
