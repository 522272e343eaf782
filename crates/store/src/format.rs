//! The files of a data directory, other than the databases and snapshots.
//!
//! ```text
//!   LOCK        held while a process uses the directory; says which
//!   IDENTITY    format version, cluster id, Raft id, when it was made; written last when it is made
//!   CURRENT     which state directory is live
//!   log/  state-1/  snapshot/
//!   held/       arguments of calls that wait for people, a file each
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::StoreError;

/// The version of everything in the directory; raised when an older binary could not read it.
const FORMAT: u32 = 3;

/// Whose the directory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The cluster it belongs to; empty until that is known.
    pub cluster_id: String,
    /// The node's id in Raft, drawn when the directory was made: a new directory is a new node.
    pub raft_id: u64,
    /// Nanoseconds since 1970, for people.
    pub created_at: u64,
}

/// Raft ids stay below this, so that a JSON reader keeps them whole.
const RAFT_ID_BITS: u32 = 53;

impl Identity {
    /// Draws a new one.
    pub(crate) fn mint() -> Result<Self, StoreError> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)
            .map_err(|error| StoreError::file("drawing a Raft id")(io::Error::other(error)))?;
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            cluster_id: String::new(),
            raft_id: (u64::from_be_bytes(bytes) >> (u64::BITS - RAFT_ID_BITS)).max(1),
            created_at: u64::try_from(created.as_nanos()).unwrap_or(u64::MAX),
        })
    }

    /// The same identity as a member of this cluster.
    ///
    /// # Errors
    /// It belongs to another one already.
    pub(crate) fn joined(&self, cluster_id: &str) -> Result<Self, StoreError> {
        if self.cluster_id.is_empty() || self.cluster_id == cluster_id {
            Ok(Self {
                cluster_id: cluster_id.to_owned(),
                ..self.clone()
            })
        } else {
            Err(StoreError::OtherCluster {
                has: self.cluster_id.clone(),
                given: cluster_id.to_owned(),
            })
        }
    }

    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, StoreError> {
        let Some(text) = read_file(dir, "IDENTITY")? else {
            return Ok(None);
        };
        let value = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                .ok_or_else(|| StoreError::Damaged(format!("IDENTITY says no {name}")))
        };
        let number = |name: &str| {
            value(name)?
                .parse::<u64>()
                .map_err(|error| StoreError::Damaged(format!("IDENTITY: {name}: {error}")))
        };
        let found = u32::try_from(number("format")?).unwrap_or(u32::MAX);
        if found > FORMAT {
            return Err(StoreError::NewerFormat { found, known: FORMAT });
        }
        if found < FORMAT {
            return Err(StoreError::OlderFormat { found, known: FORMAT });
        }
        Ok(Some(Self {
            cluster_id: value("cluster_id")?.to_owned(),
            raft_id: number("raft_id")?,
            created_at: number("created_at")?,
        }))
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<(), StoreError> {
        let Self {
            cluster_id,
            raft_id,
            created_at,
        } = self;
        let text =
            format!("format={FORMAT}\ncluster_id={cluster_id}\nraft_id={raft_id}\ncreated_at={created_at}\n");
        write_file(dir, "IDENTITY", &text)
    }
}

/// Which state directory is live, by number.
pub(crate) fn read_current(dir: &Path) -> Result<Option<u64>, StoreError> {
    let Some(text) = read_file(dir, "CURRENT")? else {
        return Ok(None);
    };
    let number = text
        .trim_end()
        .strip_prefix("state-")
        .and_then(|number| number.parse().ok());
    number
        .map(Some)
        .ok_or_else(|| StoreError::Damaged(format!("CURRENT says {text:?}")))
}

pub(crate) fn write_current(dir: &Path, number: u64) -> Result<(), StoreError> {
    write_file(dir, "CURRENT", &format!("state-{number}\n"))
}

/// Holds the directory for this process until it is dropped, or the process ends however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub fn take(dir: &Path) -> Result<Self, StoreError> {
        let what = || StoreError::file(format!("locking {}", dir.display()));
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(dir.join("LOCK"))
            .map_err(what())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(what())?;
                return Err(StoreError::InUse {
                    dir: dir.to_owned(),
                    pid: pid.trim_end().to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(what()(error)),
        }
        file.set_len(0).map_err(what())?;
        file.rewind().map_err(what())?;
        writeln!(file, "{}", std::process::id()).map_err(what())?;
        Ok(Self { _file: file })
    }
}

/// Makes a directory's entries durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(StoreError::file(format!("syncing {}", dir.display())))
}

fn read_file(dir: &Path, name: &str) -> Result<Option<String>, StoreError> {
    match fs::read_to_string(dir.join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::file(format!("reading {name}"))(error)),
    }
}

/// Writes a file that only this user may read; a crash may cut it off.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

/// Replaces a file as a whole: after a crash it is the old one or the new one.
fn write_file(dir: &Path, name: &str, text: &str) -> Result<(), StoreError> {
    let part = dir.join(format!("{name}.part"));
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, dir.join(name))
    };
    write().map_err(StoreError::file(format!("writing {name}")))?;
    sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::Identity;
    use crate::error::StoreError;

    #[test]
    fn an_identity_joins_one_cluster_once() {
        let fresh = Identity {
            cluster_id: String::new(),
            raft_id: 7,
            created_at: 1,
        };
        let joined = fresh.joined("a").unwrap();
        assert_eq!((joined.cluster_id.as_str(), joined.raft_id), ("a", 7));
        assert_eq!(joined.joined("a").unwrap(), joined);
        assert!(matches!(joined.joined("b"), Err(StoreError::OtherCluster { .. })));
    }

    #[test]
    fn drawn_raft_ids_differ_and_fit_a_json_number() {
        let (a, b) = (Identity::mint().unwrap(), Identity::mint().unwrap());
        assert_ne!(a.raft_id, b.raft_id);
        assert!(a.raft_id > 0 && a.raft_id < 1 << 53);
    }
}
