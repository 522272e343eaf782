//! Rules of SP/1.0 outside its certified core, as functions over plain values (docs/SPEC.md 9).

use minicbor::{Decode, Encode};

use crate::facts::ProbabilisticDraw;
use crate::money::{NanoUsd, PerBillion};
use crate::time::{DurationNs, Timestamp};

/// Below this part of the initial budget rule X may deny (SP/1.0 §3.7).
const PROBABILISTIC_BELOW: PerBillion = match PerBillion::from_percent(20) {
    Some(ratio) => ratio,
    None => PerBillion::ZERO,
};

/// Texts that mark a failed call, in lower case (SP/1.0 §3.6).
const ERROR_SIGNALS: [&str; 19] = [
    "401",
    "unauthorized",
    "403",
    "forbidden",
    "500",
    "502",
    "503",
    "504",
    "timeout",
    "connection refused",
    "connection reset",
    "permission denied",
    "rate limit",
    "quota exceeded",
    "invalid api key",
    "token expired",
    "model not found",
    "resource exhausted",
    "deadline exceeded",
];

/// Q3: tells whether the time since the first call has reached the limit.
pub fn timed_out(first_call: Option<Timestamp>, now: Timestamp, limit: DurationNs) -> bool {
    first_call.is_some_and(|first| now.since(first) >= limit)
}

/// Q4: tells whether `max` of the last calls lie within `span` before `now`.
///
/// `last_calls` are the times of allowed calls in any order; at least the latest `max` of them.
pub fn rate_exceeded(last_calls: &[Timestamp], now: Timestamp, span: DurationNs, max: u32) -> bool {
    let recent = last_calls.iter().filter(|call| now.since(**call) < span).count();
    u32::try_from(recent).unwrap_or(u32::MAX) >= max
}

/// Q4: a sliding rate: at most so many allowed calls within any span of log time.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    #[n(0)]
    pub calls: u32,
    #[n(1)]
    pub span: DurationNs,
}

/// Holds the calls of the last span, those close together as one slot.
///
/// Calls at least a 64th of the span apart are counted exactly; those of one slot are forgotten together,
/// when the last of them is a span ago. So a burst may be held against a session a little longer, and
/// never more calls run than the rate allows. At most 66 slots.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq, Default)]
#[cbor(transparent)]
pub struct RateWindow(#[n(0)] Vec<RateSlot>);

#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq)]
struct RateSlot {
    #[n(0)]
    first: Timestamp,
    #[n(1)]
    last: Timestamp,
    #[n(2)]
    calls: u32,
}

/// A span has this many slots: the state of the fastest session stays below 2 KiB.
const RATE_SLOTS: u64 = 64;

impl RateWindow {
    /// Q4: tells whether no further call may run now.
    pub fn is_full(&self, now: Timestamp, rate: Rate) -> bool {
        let recent = self.0.iter().filter(|slot| slot.within(now, rate));
        let calls = recent.fold(0_u32, |sum, slot| sum.saturating_add(slot.calls));
        calls >= rate.calls
    }

    /// Counts one allowed call, and forgets those a span ago.
    pub fn count(&mut self, now: Timestamp, rate: Rate) {
        self.0.retain(|slot| slot.within(now, rate));
        let width = rate.span.nanos().div_ceil(RATE_SLOTS);
        match self.0.last_mut() {
            Some(slot) if now.since(slot.first).nanos() < width || now <= slot.last => {
                slot.last = slot.last.max(now);
                slot.calls = slot.calls.saturating_add(1);
            }
            _ => self.0.push(RateSlot {
                first: now,
                last: now,
                calls: 1,
            }),
        }
    }

    /// Gives the time until one more call may run (retry_after_ms); zero where one may.
    pub fn opens_in(&self, now: Timestamp, rate: Rate) -> DurationNs {
        let mut left = self.0.clone();
        left.retain(|slot| slot.within(now, rate));
        let mut over = left
            .iter()
            .fold(0_u32, |sum, slot| sum.saturating_add(slot.calls));
        let mut wait = DurationNs::ZERO;
        for slot in left {
            if over < rate.calls {
                break;
            }
            over = over.saturating_sub(slot.calls);
            wait = slot.last.plus(rate.span).since(now);
        }
        wait
    }
}

impl RateSlot {
    fn within(&self, now: Timestamp, rate: Rate) -> bool {
        now.since(self.last) < rate.span
    }
}

/// Counts the calls of one tool in a window that opens with its first call (window_start_ns).
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    #[n(0)]
    pub start: Timestamp,
    #[n(1)]
    pub calls: u32,
}

impl Window {
    /// Gives the window that holds `now`: this one, or a fresh one once `duration` has passed.
    #[must_use]
    pub fn at(self, now: Timestamp, duration: DurationNs) -> Window {
        if self.calls == 0 || now.since(self.start) >= duration {
            Window { start: now, calls: 0 }
        } else {
            self
        }
    }

    /// Q4: tells whether a window that holds now has no room for another call.
    pub const fn is_full(self, max: u32) -> bool {
        self.calls >= max
    }

    /// Counts one allowed call.
    #[must_use]
    pub const fn counted(self) -> Window {
        Window {
            start: self.start,
            calls: self.calls.saturating_add(1),
        }
    }

    /// Gives the time until this window makes room again (retry_after_ms).
    pub const fn opens_in(self, now: Timestamp, duration: DurationNs) -> DurationNs {
        self.start.plus(duration).since(now)
    }
}

/// Q5: tells whether a session has made all the calls it may.
pub fn total_calls_reached(calls: u64, max: u32) -> bool {
    calls >= u64::from(max)
}

/// R6: gives how many identical calls may run: one less after an error, but never less than one.
pub const fn repeat_limit(max: u32, amplified: bool) -> u32 {
    if amplified && max > 1 { max - 1 } else { max }
}

/// R6: tells whether an error text has a known signal; a plain search, no pattern to backtrack.
pub fn has_error_signal(error_text: &str) -> bool {
    let folded = error_text.to_lowercase();
    ERROR_SIGNALS.iter().any(|signal| folded.contains(signal))
}

/// X: denies with probability jitter × (1 − available / initial) below a fifth of the budget.
///
/// In integers: drawn / 2³² < (jitter / 10⁹) × (initial − available) / initial, all below 2¹²⁷.
pub fn probabilistic_denial(available: NanoUsd, initial: NanoUsd, draw: ProbabilisticDraw) -> bool {
    let left = available.max(NanoUsd::ZERO);
    if !left.ratio_below(initial, PROBABILISTIC_BELOW) {
        return false;
    }
    let (left, initial) = (i128::from(left.nanos()), i128::from(initial.nanos()));
    let drawn = i128::from(draw.drawn) * i128::from(PerBillion::ONE.parts()) * initial;
    let odds = i128::from(draw.jitter.parts()) * (initial - left) * (1_i128 << 32);
    drawn < odds
}
