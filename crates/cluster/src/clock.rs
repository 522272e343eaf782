//! Time and randomness, injected: a simulation brings its own.

use std::time::{SystemTime, UNIX_EPOCH};

use decision::Timestamp;

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

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
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
