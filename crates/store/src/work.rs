use std::io;

use tokio::task::spawn_blocking;

/// Where long work runs: RocksDB's on the blocking threads, the memory twin's in place (a simulation has
/// one thread).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Threads,
    Inline,
}

impl Work {
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        match self {
            Self::Threads => spawn_blocking(work).await.map_err(io::Error::other),
            Self::Inline => Ok(work()),
        }
    }
}
