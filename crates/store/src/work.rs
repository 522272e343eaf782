use std::io;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, spawn_blocking};

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

    /// Runs what takes milliseconds in its place, with the runtime's other tasks moved to another thread: a heartbeat
    /// is answered meanwhile.
    pub fn in_place<T>(self, work: impl FnOnce() -> T) -> T {
        let many =
            Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        match self {
            Self::Threads if many => block_in_place(work),
            Self::Threads | Self::Inline => work(),
        }
    }

    /// How long work has taken so far; in a simulation no time passes meanwhile.
    pub fn stopwatch(self) -> impl Fn() -> Duration {
        let started = (self == Self::Threads).then(Instant::now);
        move || started.map_or(Duration::ZERO, |started| started.elapsed())
    }
}
