//! Time and randomness, injected: a simulation brings its own.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use decision::{DurationNs, Timestamp};

/// The wall clock that stamps proposals. Log time is what the replicas make of it.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// Where seeds of batches, ids and election timeouts come from.
pub trait Entropy: Send + Sync + 'static {
    fn fill(&self, bytes: &mut [u8]);

    /// Draws one number.
    fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The operating system's clock as it was when the process started, moved on by its monotonic clock: a wall clock
/// that is set under a running leader moves no lease and no window.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    started: Timestamp,
    since: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Timestamp::ZERO.plus(nanos(wall)),
            since: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.started.plus(nanos(self.since.elapsed()))
    }
}

fn nanos(span: Duration) -> DurationNs {
    DurationNs::from_nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// The operating system's random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        #[expect(
            clippy::expect_used,
            reason = "without randomness no id is unguessable: nothing may go on"
        )]
        getrandom::fill(bytes).expect("the operating system's random source");
    }
}
