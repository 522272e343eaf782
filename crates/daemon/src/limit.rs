//! How often someone may ask: token buckets, one a key, in maps that never grow past a bound.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Keys that are remembered at once, twice over: some megabytes. Older ones begin anew with a full bucket.
const KEYS_MAX: usize = 65_536;

/// Token buckets of one rate: a second's worth of tokens, refilled evenly.
#[derive(Debug)]
pub struct Limit<K> {
    /// Tokens a second; none switches the limit off.
    rate: Option<u32>,
    keys_max: usize,
    buckets: Mutex<Generations<K>>,
}

/// Two maps: when the young one is full it becomes the old one, and what was old and unused is forgotten.
#[derive(Debug)]
struct Generations<K> {
    young: HashMap<K, Bucket>,
    old: HashMap<K, Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// In billionths of a token.
    tokens: u64,
    filled: Instant,
}

const TOKEN: u64 = 1_000_000_000;

impl<K: Hash + Eq> Limit<K> {
    /// Takes tokens a second; 0 is no limit.
    pub fn new(per_second: u32) -> Self {
        Self::bounded(per_second, KEYS_MAX)
    }

    fn bounded(per_second: u32, keys_max: usize) -> Self {
        let buckets = Generations {
            young: HashMap::new(),
            old: HashMap::new(),
        };
        Self {
            rate: (per_second > 0).then_some(per_second),
            keys_max,
            buckets: Mutex::new(buckets),
        }
    }

    /// Takes one token, or says after how long there will be one.
    pub fn take(&self, key: K, now: Instant) -> Result<(), Duration> {
        let Some(rate) = self.rate else { return Ok(()) };
        let full = u64::from(rate).saturating_mul(TOKEN);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(
            key,
            self.keys_max,
            Bucket {
                tokens: full,
                filled: now,
            },
        );
        let since =
            u64::try_from(now.saturating_duration_since(bucket.filled).as_nanos()).unwrap_or(u64::MAX);
        bucket.tokens = bucket
            .tokens
            .saturating_add(since.saturating_mul(u64::from(rate)))
            .min(full);
        bucket.filled = bucket.filled.max(now);
        match bucket.tokens.checked_sub(TOKEN) {
            Some(left) => {
                bucket.tokens = left;
                Ok(())
            }
            None => {
                let missing = TOKEN.saturating_sub(bucket.tokens);
                Err(Duration::from_nanos(missing.div_ceil(u64::from(rate))))
            }
        }
    }

    /// Keys that are remembered now.
    #[cfg(test)]
    fn keys(&self) -> usize {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.young.len() + buckets.old.len()
    }
}

impl<K: Hash + Eq> Generations<K> {
    fn entry(&mut self, key: K, keys_max: usize, fresh: Bucket) -> &mut Bucket {
        if self.young.len() >= keys_max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        let known = self.old.remove(&key);
        self.young.entry(key).or_insert(known.unwrap_or(fresh))
    }
}

#[cfg(test)]
mod tests {
    use super::Limit;
    use std::time::{Duration, Instant};

    #[test]
    fn a_second_holds_the_rate_and_no_more() {
        let start = Instant::now();
        let limit = Limit::new(10);
        for _ in 0..10 {
            assert_eq!(limit.take("a", start), Ok(()));
        }
        assert_eq!(limit.take("a", start), Err(Duration::from_millis(100)));
        assert_eq!(limit.take("b", start), Ok(()), "another key has its own bucket");
        let later = start + Duration::from_millis(99);
        assert_eq!(limit.take("a", later), Err(Duration::from_millis(1)));
        assert_eq!(limit.take("a", start + Duration::from_millis(100)), Ok(()));
        assert_eq!(
            limit.take("a", start + Duration::from_millis(100)),
            Err(Duration::from_millis(100))
        );
        // However long it was idle, a bucket is never more than full.
        let much_later = start + Duration::from_secs(3600);
        let passed = (0..20).filter(|_| limit.take("a", much_later).is_ok()).count();
        assert_eq!(passed, 10);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let start = Instant::now() + Duration::from_secs(10);
        let limit = Limit::new(1);
        assert_eq!(limit.take("a", start), Ok(()));
        assert!(limit.take("a", start - Duration::from_secs(5)).is_err());
        assert!(limit.take("a", start).is_err());
    }

    #[test]
    fn zero_is_no_limit() {
        let now = Instant::now();
        let limit = Limit::new(0);
        assert!((0..10_000).all(|_| limit.take("a", now).is_ok()));
    }

    #[test]
    fn a_flood_of_keys_pushes_out_only_those_that_are_not_used() {
        let now = Instant::now();
        let limit = Limit::bounded(1, 100);
        assert_eq!(limit.take(0, now), Ok(()));
        for key in 1..10_000 {
            assert_eq!(limit.take(key, now), Ok(()));
            assert!(limit.take(0, now).is_err(), "a key in use keeps its bucket");
            assert!(limit.keys() <= 200);
        }
    }
}
