//! Time and randomness, injected: a simulation brings its own.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use decision::{DurationNs, Timestamp};

/// This node's wall clock. The leader stamps proposals by it, as far as the other voters' bear it out.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Reads the operating system's clock again, where `now` is kept apart from it.
    fn reread(&self) {}
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
/// that is set under a running leader moves no lease and no window. Read again where the others show it to be off.
#[derive(Debug)]
pub struct SystemClock(Mutex<Read>);

/// What the wall clock showed, and when.
#[derive(Debug, Clone, Copy)]
struct Read {
    wall: Timestamp,
    at: Instant,
}

impl Read {
    fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            wall: Timestamp::ZERO.plus(nanos(wall)),
            at: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self(Mutex::new(Read::new()))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let read = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read.wall.plus(nanos(read.at.elapsed()))
    }

    fn reread(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Read::new();
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use decision::Timestamp;

    use super::{Clock, Read, SystemClock};

    #[test]
    fn a_clock_that_is_off_is_right_once_it_was_read_again() {
        let clock = SystemClock(Mutex::new(Read {
            wall: Timestamp::ZERO,
            at: Instant::now(),
        }));
        let behind = || SystemClock::default().now().since(clock.now()).secs();
        assert!(behind() > 3_600, "it counts from 1970");
        clock.reread();
        assert!(behind() < 60);
    }
}
