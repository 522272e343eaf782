use std::io;
use std::path::PathBuf;

use crate::disk::DiskError;

/// Why the store could not do something; each variant says what the caller can do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Stop the other process, or give this one a directory of its own.
    #[error("{} is in use by process {pid}: stop it first, or choose another data directory", .dir.display())]
    InUse { dir: PathBuf, pid: String },
    /// Give the node the directory of its own cluster, or an empty one.
    #[error("this node belongs to cluster {has:?}, not to {given:?}: choose another data directory")]
    OtherCluster { has: String, given: String },
    /// Upgrade the binary.
    #[error("the data directory has format {found}, this binary knows up to {known}: upgrade it")]
    NewerFormat { found: u32, known: u32 },
    /// Nothing was released with it.
    #[error(
        "the data directory has format {found}, of before the first release, this binary knows {known}: use an empty one"
    )]
    OlderFormat { found: u32, known: u32 },
    /// Start a binary that has the version; nothing is wrong with the data.
    #[error("{0}")]
    Version(machine::row::Fault),
    /// Remove the node from the cluster and let it join again with an empty directory.
    #[error(
        "the stored data is damaged: {0}; remove this node and let it join again with an empty directory"
    )]
    Damaged(String),
    /// Try again when what is under way has ended.
    #[error("{0} is under way: try again later")]
    Busy(&'static str),
    /// Ask the sender for this chunk, or for the snapshot, again.
    #[error("the snapshot is refused: {0}; ask for it again")]
    Snapshot(String),
    /// Stop the process: what was written cannot be trusted.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Look at the file system (permissions, space), then start again.
    #[error("{what}: {source}")]
    File { what: String, source: io::Error },
}

impl StoreError {
    /// What a fault of the machine says of the data directory.
    pub(crate) fn of(fault: machine::row::Fault, place: &str) -> Self {
        match fault {
            fault @ machine::row::Fault::Version { .. } => Self::Version(fault),
            fault => Self::Damaged(format!("{place}{fault}")),
        }
    }

    /// Names the file operation that failed, for `map_err`.
    pub(crate) fn file(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::File { what, source }
    }
}

/// What openraft is told: it stops the node.
impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        io::Error::other(error)
    }
}
