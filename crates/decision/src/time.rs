//! Log time and spans of it, in nanoseconds. Time is an argument: nothing here reads a clock.

use std::fmt;

use minicbor::{Decode, Encode};

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_MILLISECOND: u64 = 1_000_000;

/// Holds a point in log time: nanoseconds since the Unix epoch.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cbor(transparent)]
pub struct Timestamp(#[n(0)] u64);

impl Timestamp {
    pub const ZERO: Timestamp = Timestamp(0);
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    pub const fn from_nanos(nanos: u64) -> Self {
        Timestamp(nanos)
    }

    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Moves forward, and stays at the last representable time where that would overflow.
    pub const fn plus(self, span: DurationNs) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }

    /// The next instant.
    pub const fn just_after(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Measures the span since an earlier time; zero where `earlier` is later.
    pub const fn since(self, earlier: Timestamp) -> DurationNs {
        DurationNs(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Holds a span of log time in nanoseconds.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cbor(transparent)]
pub struct DurationNs(#[n(0)] u64);

impl DurationNs {
    pub const ZERO: DurationNs = DurationNs(0);

    pub const fn from_nanos(nanos: u64) -> Self {
        DurationNs(nanos)
    }

    /// Takes whole seconds; saturates after some 584 years.
    pub const fn from_secs(seconds: u64) -> Self {
        DurationNs(seconds.saturating_mul(NANOS_PER_SECOND))
    }

    pub const fn from_millis(millis: u64) -> Self {
        DurationNs(millis.saturating_mul(NANOS_PER_MILLISECOND))
    }

    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded down.
    pub const fn secs(self) -> u64 {
        self.0 / NANOS_PER_SECOND
    }

    /// Whole milliseconds, rounded up, so that a client that waits this long has waited enough.
    pub const fn millis_up(self) -> u64 {
        self.0.div_ceil(NANOS_PER_MILLISECOND)
    }
}
