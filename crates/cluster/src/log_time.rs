//! How far a leader may move log time: as far as the voters' clocks bear it out, whatever its own one shows. One
//! bad clock can then neither expire everything nor freeze every window.

use decision::{DurationNs, Timestamp};

/// How far log time may run ahead of the voters' clocks: more than clocks that are kept together differ by, and
/// little beside the shortest span that is measured in log time.
const AHEAD_MAX: DurationNs = DurationNs::from_secs(1);
/// How far a leader's clock may be from the others'. Twice the bound: a clock at its edge is no reason for an
/// election.
const OFF_MAX_NANOS: i64 = 2_000_000_000;

/// What a voter's clock shows now, as closely as its answer's round trip tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    pub earliest: Timestamp,
    pub latest: Timestamp,
}

impl Reading {
    /// A clock that was read here, just now.
    pub fn exact(now: Timestamp) -> Self {
        Self {
            earliest: now,
            latest: now,
        }
    }
}

/// Between what times the median of all voters' clocks is, those that were not heard from included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Median {
    earliest: Timestamp,
    latest: Timestamp,
}

impl Median {
    /// None where less than a majority was heard from: it could be anywhere.
    pub fn of(voters: usize, readings: &[Reading]) -> Option<Self> {
        let majority = voters / 2 + 1;
        let silent_may_be_slow = readings.len().checked_sub(majority)?;
        let silent_may_be_fast = majority.checked_sub(1)?;
        let sorted = |time: fn(&Reading) -> Timestamp| {
            let mut times: Vec<Timestamp> = readings.iter().map(time).collect();
            times.sort_unstable();
            times
        };
        Some(Self {
            // INVARIANT: a majority's clocks have reached it, so one of them at least is right.
            earliest: *sorted(|reading| reading.earliest).get(silent_may_be_slow)?,
            latest: *sorted(|reading| reading.latest).get(silent_may_be_fast)?,
        })
    }

    /// The time that a leader stamps whose own clock shows `own`.
    pub fn stamp(self, own: Timestamp) -> Timestamp {
        own.clamp(self.earliest, self.earliest.plus(AHEAD_MAX))
    }

    /// How far a clock is from the median for sure, in nanoseconds: above 0 it is ahead, below 0 behind.
    pub fn skew(self, clock: Reading) -> i64 {
        let nanos = |span: DurationNs| i64::try_from(span.nanos()).unwrap_or(i64::MAX);
        nanos(clock.earliest.since(self.latest)).saturating_sub(nanos(self.earliest.since(clock.latest)))
    }
}

/// Whether a clock this far from the median is one to lead with.
pub(crate) fn is_off(skew: i64) -> bool {
    !(-OFF_MAX_NANOS..=OFF_MAX_NANOS).contains(&skew)
}

#[cfg(test)]
mod tests {
    use decision::Timestamp;

    use super::{Median, Reading, is_off};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    /// Clocks in milliseconds.
    fn exact(clocks: &[u64]) -> Vec<Reading> {
        clocks.iter().map(|clock| Reading::exact(at(*clock))).collect()
    }

    #[test]
    fn the_median_lies_where_any_answer_of_the_silent_would_leave_it() {
        // voters, the clocks heard from, the median's earliest and latest
        type Row = (usize, &'static [u64], Option<(u64, u64)>);
        let rows: [Row; 16] = [
            (0, &[], None),
            (1, &[], None),
            (1, &[100], Some((100, 100))),
            (2, &[100], None),
            (2, &[100, 300], Some((100, 300))),
            (3, &[100], None),
            (3, &[300, 100], Some((100, 300))),
            (3, &[100, 200, 300], Some((200, 200))),
            (3, &[100, 101, 3_600_100], Some((101, 101))),
            (3, &[3_600_000, 3_600_001, 0], Some((3_600_000, 3_600_000))),
            (4, &[100, 200], None),
            (4, &[100, 200, 300], Some((100, 300))),
            (4, &[100, 200, 300, 400], Some((200, 300))),
            (5, &[100, 200], None),
            (5, &[300, 200, 100], Some((100, 300))),
            (5, &[500, 100, 300, 200, 400], Some((300, 300))),
        ];
        for (voters, clocks, expected) in rows {
            let expected = expected.map(|(earliest, latest)| Median {
                earliest: at(earliest),
                latest: at(latest),
            });
            assert_eq!(
                Median::of(voters, &exact(clocks)),
                expected,
                "{voters} voters, {clocks:?}"
            );
        }
    }

    #[test]
    fn a_slow_answer_widens_the_median() {
        let slow = Reading {
            earliest: at(100),
            latest: at(900),
        };
        let median = Median::of(3, &[Reading::exact(at(500)), slow, slow]).unwrap();
        assert_eq!((median.earliest, median.latest), (at(100), at(900)));
    }

    #[test]
    fn a_stamp_stays_within_a_second_after_the_median() {
        // the leader's clock, the two others', what is stamped
        let rows = [
            (10_000, [10_000, 10_000], 10_000),
            (10_400, [10_000, 10_000], 10_400),
            (11_000, [10_000, 10_000], 11_000),
            (11_001, [10_000, 10_000], 11_000),
            (3_610_000, [10_000, 10_000], 11_000),
            (9_999, [10_000, 10_000], 10_000),
            (0, [10_000, 10_000], 10_000),
            (10_000, [10_000, 3_610_000], 10_000),
            (10_000, [0, 10_000], 10_000),
            (10_000, [0, 3_610_000], 10_000),
        ];
        for (own, [two, three], expected) in rows {
            let median = Median::of(3, &exact(&[own, two, three])).unwrap();
            assert_eq!(median.stamp(at(own)), at(expected), "{own} beside {two}, {three}");
        }
    }

    #[test]
    fn a_clock_is_off_beyond_two_seconds_for_sure() {
        // voters, clocks, this one among them: its skew in milliseconds, and whether it is off
        let rows: [(usize, &[u64], i64, bool); 9] = [
            (1, &[10_000], 0, false),
            (3, &[10_000, 10_000, 10_000], 0, false),
            (3, &[12_000, 10_000, 10_000], 2_000, false),
            (3, &[12_001, 10_000, 10_000], 2_001, true),
            (3, &[8_000, 10_000, 10_000], -2_000, false),
            (3, &[7_999, 10_000, 10_000], -2_001, true),
            (3, &[10_000, 0, 20_000], 0, false),
            // Of two, nobody can say which one is right.
            (3, &[3_610_000, 10_000], 0, false),
            (5, &[3_610_000, 10_000, 10_000, 10_000], 3_600_000, true),
        ];
        for (voters, clocks, millis, off) in rows {
            let median = Median::of(voters, &exact(clocks)).unwrap();
            let skew = median.skew(Reading::exact(at(clocks[0])));
            assert_eq!(
                (skew, is_off(skew)),
                (millis * 1_000_000, off),
                "{voters} voters, {clocks:?}"
            );
        }
    }

    #[test]
    fn an_answer_that_took_long_proves_no_clock_off() {
        let median = Median::of(3, &exact(&[10_000, 10_000, 10_000])).unwrap();
        let vague = Reading {
            earliest: at(7_000),
            latest: at(9_500),
        };
        assert_eq!(median.skew(vague), -500_000_000);
        let unknown = Reading {
            earliest: at(7_000),
            latest: at(13_000),
        };
        assert_eq!(median.skew(unknown), 0);
    }
}
