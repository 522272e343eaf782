//! The shape of a session's last calls: streaks, retry storms, cycles, and what outcomes trip (Q6).
//!
//! Each detector looks at calls that were allowed, oldest first, and at the one that asks now. What it
//! needs of them is bounded, so that a session's state is: never more than `RECENT_MAX`.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};

use crate::digest::Digest;
use crate::id::ToolName;
use crate::money::PerBillion;
use crate::pattern::ToolPattern;

/// A session remembers at most this many calls; `Breakers::recent_needed` says how many are looked at.
pub const RECENT_MAX: usize = 64;
/// A call carries at most this many of its numbers.
pub const NUMBERS_MAX: usize = 8;
/// A guard may look for cycles of 2 to this many calls; those of one call are R6's.
pub const CYCLE_MAX: u32 = 8;
/// A guard exempts at most this many patterns of polling tools.
pub const POLLING_MAX: usize = 64;

/// Holds what is remembered of an allowed call.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq)]
pub struct RecentCall {
    #[n(0)]
    pub tool: ToolName,
    /// Unset where the call came without arguments; such calls of one tool are identical.
    #[n(1)]
    pub digest: Option<Digest>,
    #[n(2)]
    pub outcome: Outcome,
    /// What the outcome gave as its result_hash.
    #[n(3)]
    pub result: Option<Digest>,
    #[n(4)]
    pub numbers: Vec<Number>,
}

/// Says how an allowed call ended.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cbor(index_only)]
pub enum Outcome {
    /// It runs, or nobody said; counts as neither success nor failure.
    #[n(0)]
    Pending,
    #[n(1)]
    Succeeded,
    #[n(2)]
    Failed,
}

/// Holds one number among a call's own arguments, without its name and without the number itself.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number {
    /// The first 8 bytes of the SHA-256 of the argument's name, big-endian.
    #[n(0)]
    pub key: u64,
    /// Orders as the number does, whether it was an integer or not; it has no unit. Integers beyond 2⁵³
    /// that are the same double are the same here.
    #[n(1)]
    pub value: i64,
}

impl Number {
    /// Takes an argument's name and the image of its value.
    pub fn new(name: &str, value: i64) -> Number {
        let digest = Digest::of(name.as_bytes());
        let head = digest.as_bytes().first_chunk().copied().unwrap_or_default();
        Number {
            key: u64::from_be_bytes(head),
            value,
        }
    }
}

/// Holds the call that asks now.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    pub tool: &'a ToolName,
    pub digest: Option<Digest>,
    pub numbers: &'a [Number],
}

impl Candidate<'_> {
    /// Tells whether a call is this one again: same tool, same arguments.
    pub fn is_same(&self, call: &RecentCall) -> bool {
        *self.tool == call.tool && self.digest == call.digest
    }
}

/// Holds a guard's settings for Q6 and for what outcomes trip; unset is off.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq)]
pub struct Breakers {
    /// So many calls in a row may go to one tool, whatever their arguments; off by default, since every
    /// crawler has such a streak.
    #[n(0)]
    pub name_streak: Option<u32>,
    #[n(1)]
    pub storm: Option<Storm>,
    #[n(2)]
    pub cycle: Option<Cycle>,
    #[n(3)]
    pub error_rate: Option<ErrorRate>,
    /// So many denials in a row may be given before the circuit trips; off by default.
    #[n(4)]
    pub denials: Option<u32>,
    /// A call whose result changed since the same call before it is not a repeat.
    #[n(5)]
    pub result_aware: bool,
    /// Tools that are meant to be asked again and again: exempt from R6 and Q6.
    #[n(6)]
    pub polling_tools: Vec<ToolPattern>,
}

/// The shipped defaults: a loop, a storm and A, B, A, B stop; pollers, paginators and crawlers run free.
impl Default for Breakers {
    fn default() -> Self {
        Breakers {
            name_streak: None,
            storm: Some(Storm::default()),
            cycle: Some(Cycle::default()),
            error_rate: None,
            denials: None,
            result_aware: true,
            polling_tools: Vec::new(),
        }
    }
}

/// Says when many calls of one tool are a retry storm, and when they are progress.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storm {
    /// The call that is the so-manieth of its tool among the last `window` is denied.
    #[n(0)]
    pub calls: u32,
    /// Calls that are looked at, the one that asks included; at most `RECENT_MAX`.
    #[n(1)]
    pub window: u32,
    /// Calls that make progress are no storm.
    #[n(2)]
    pub progress_aware: bool,
    /// Progress: a number moves strictly one way over all of them, at least this many.
    #[n(3)]
    pub progress_calls: u32,
    /// Such a number is progress also where the calls fail as often as they succeed. Off by default: a
    /// counter in the arguments of a failing call is not progress.
    #[n(4)]
    pub failing_progress: bool,
    /// Progress: at least this part of them is distinct, none failed, and `successes` succeeded.
    #[n(5)]
    pub distinct: PerBillion,
    #[n(6)]
    pub successes: u32,
}

/// Four fifths.
const MOSTLY: PerBillion = match PerBillion::from_percent(80) {
    Some(ratio) => ratio,
    None => PerBillion::ONE,
};

impl Default for Storm {
    fn default() -> Self {
        Storm {
            calls: 5,
            window: 10,
            progress_aware: true,
            progress_calls: 3,
            failing_progress: false,
            distinct: MOSTLY,
            successes: 0,
        }
    }
}

impl Storm {
    fn tightened(self, other: Storm) -> Storm {
        Storm {
            calls: self.calls.min(other.calls),
            window: self.window.max(other.window),
            progress_aware: self.progress_aware && other.progress_aware,
            progress_calls: self.progress_calls.max(other.progress_calls),
            failing_progress: self.failing_progress && other.failing_progress,
            distinct: self.distinct.max(other.distinct),
            successes: self.successes.max(other.successes),
        }
    }
}

/// Says when the last calls go round in a circle.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    /// Circles of 2 to so many calls are looked for.
    #[n(0)]
    pub longest: u32,
    /// So many full rounds may run; the call that begins or continues another is denied.
    #[n(1)]
    pub rounds: u32,
}

/// After A, B, A, B the next A is denied; four calls are as long as circles seen in the field get.
impl Default for Cycle {
    fn default() -> Self {
        Cycle {
            longest: 4,
            rounds: 2,
        }
    }
}

/// Says how many failures among the last outcomes trip the circuit.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorRate {
    /// The last so many outcomes of executed calls; fewer never trip. At most `RECENT_MAX`.
    #[n(0)]
    pub outcomes: u32,
    /// Trips from this part of them upwards.
    #[n(1)]
    pub ratio: PerBillion,
}

impl Breakers {
    /// Gives the settings under which nothing is looked for.
    pub const fn off() -> Breakers {
        Breakers {
            name_streak: None,
            storm: None,
            cycle: None,
            error_rate: None,
            denials: None,
            result_aware: false,
            polling_tools: Vec::new(),
        }
    }

    /// Refuses what could never trip within `RECENT_MAX` calls, or would trip on the first.
    pub fn check(&self) -> Result<(), InvalidBreakers> {
        let recent = u32::try_from(RECENT_MAX).unwrap_or(u32::MAX);
        let within = |number: u32, least: u32, most: u32| (least..=most).contains(&number);
        let rows = [
            (
                "name_streak",
                self.name_streak.is_none_or(|streak| within(streak, 1, recent)),
            ),
            (
                "storm.window",
                self.storm.is_none_or(|storm| within(storm.window, 2, recent)),
            ),
            (
                "storm.calls",
                self.storm
                    .is_none_or(|storm| within(storm.calls, 2, storm.window)),
            ),
            (
                "storm.progress_calls",
                self.storm
                    .is_none_or(|storm| within(storm.progress_calls, 2, recent)),
            ),
            (
                "cycle.longest",
                self.cycle.is_none_or(|cycle| within(cycle.longest, 2, CYCLE_MAX)),
            ),
            (
                "cycle.rounds",
                self.cycle.is_none_or(|cycle| {
                    cycle.rounds >= 1 && cycle.longest.saturating_mul(cycle.rounds) <= recent
                }),
            ),
            (
                "error_rate.outcomes",
                self.error_rate
                    .is_none_or(|rate| within(rate.outcomes, 1, recent)),
            ),
            (
                "error_rate.ratio",
                self.error_rate.is_none_or(|rate| rate.ratio > PerBillion::ZERO),
            ),
            ("denials", self.denials.is_none_or(|denials| denials >= 1)),
            ("polling_tools", self.polling_tools.len() <= POLLING_MAX),
        ];
        match rows.into_iter().find(|(_, holds)| !holds) {
            Some((field, _)) => Err(InvalidBreakers { field }),
            None => Ok(()),
        }
    }

    /// Gives settings that trip wherever one of the two would; an exemption holds only where both have it.
    #[must_use]
    pub fn tightened(&self, other: &Breakers) -> Breakers {
        Breakers {
            name_streak: least(self.name_streak, other.name_streak),
            storm: both(self.storm, other.storm, Storm::tightened),
            cycle: both(self.cycle, other.cycle, |one, two| Cycle {
                longest: one.longest.max(two.longest),
                rounds: one.rounds.min(two.rounds),
            }),
            error_rate: both(self.error_rate, other.error_rate, |one, two| ErrorRate {
                outcomes: one.outcomes.min(two.outcomes),
                ratio: one.ratio.min(two.ratio),
            }),
            denials: least(self.denials, other.denials),
            result_aware: self.result_aware && other.result_aware,
            polling_tools: self
                .polling_tools
                .iter()
                .filter(|pattern| other.polling_tools.contains(pattern))
                .cloned()
                .collect(),
        }
    }

    /// Gives how many of the last allowed calls have to be remembered for these settings.
    pub fn recent_needed(&self) -> usize {
        let streak = self.name_streak.unwrap_or(0);
        let storm = self.storm.map_or(0, |storm| storm.window.saturating_sub(1));
        let cycle = self
            .cycle
            .map_or(0, |cycle| cycle.longest.saturating_mul(cycle.rounds));
        let results = if self.result_aware { 2 } else { 0 };
        let needed = streak.max(storm).max(cycle).max(results);
        usize::try_from(needed).unwrap_or(RECENT_MAX).min(RECENT_MAX)
    }

    /// Tells whether a tool is meant to be asked again and again.
    pub fn is_polling(&self, tool: &ToolName) -> bool {
        self.polling_tools.iter().any(|pattern| pattern.matches(tool))
    }

    /// R6: gives how many identical calls count as repeats, of `counted` in a row before this one.
    ///
    /// Result-aware, they count from the last one whose result differed from the one before it; a result
    /// that is not known yet is no difference. `counted` is what this gave for the call before, and one more:
    /// so the last two calls are enough to see.
    pub fn repeats(&self, counted: u32, recent: &[RecentCall], call: &Candidate<'_>) -> u32 {
        if self.is_polling(call.tool) {
            return 0;
        }
        if !self.result_aware {
            return counted;
        }
        let streak: Vec<_> = recent
            .iter()
            .rev()
            .take_while(|earlier| call.is_same(earlier))
            .collect();
        let since_change = streak
            .iter()
            .zip(streak.iter().skip(1))
            .position(|(later, earlier)| result_changed(earlier, later));
        match since_change.and_then(|position| u32::try_from(position).ok()) {
            Some(position) => counted.min(position.saturating_add(1)),
            None => counted,
        }
    }

    /// Q6: tells whether the tool was called too often in a row; needs `name_streak` calls.
    pub fn name_repeat_exceeded(&self, recent: &[RecentCall], call: &Candidate<'_>) -> bool {
        let Some(streak) = self.name_streak else {
            return false;
        };
        let same = recent
            .iter()
            .rev()
            .take_while(|earlier| earlier.tool == *call.tool);
        !self.is_polling(call.tool) && at_least(same.count(), streak)
    }

    /// Q6: tells whether most of the last calls retry this call's tool; needs `window` − 1 calls.
    pub fn retry_storm(&self, recent: &[RecentCall], call: &Candidate<'_>) -> bool {
        let Some(storm) = self.storm else {
            return false;
        };
        let before = usize::try_from(storm.window.saturating_sub(1)).unwrap_or(RECENT_MAX);
        let same: Vec<_> = last(recent, before)
            .iter()
            .filter(|earlier| earlier.tool == *call.tool)
            .collect();
        let many = at_least(same.len().saturating_add(1), storm.calls);
        many && !self.is_polling(call.tool) && !(storm.progress_aware && self.progresses(storm, &same, call))
    }

    /// Tells whether calls of one tool look like work: pages walked through, or new calls that succeed.
    fn progresses(&self, storm: Storm, same: &[&RecentCall], call: &Candidate<'_>) -> bool {
        let ended = |outcome| same.iter().filter(|earlier| earlier.outcome == outcome).count();
        let (succeeded, failed) = (ended(Outcome::Succeeded), ended(Outcome::Failed));
        let calls = same.len().saturating_add(1);

        let failing = failed > 0 && succeeded <= failed;
        let walks = at_least(calls, storm.progress_calls)
            && (storm.failing_progress || !failing)
            && moves_one_way(same, call);
        let explores = failed == 0
            && at_least(succeeded, storm.successes)
            && is_part(self.distinct(same, call), calls, storm.distinct);
        walks || explores
    }

    /// Counts the distinct calls among some of one tool and the one that asks.
    ///
    /// Result-aware, the same call is another one where its result is, and the one that asks is another
    /// where the last two of its kind differed.
    fn distinct(&self, same: &[&RecentCall], call: &Candidate<'_>) -> usize {
        let seen: BTreeSet<_> = same
            .iter()
            .map(|earlier| (earlier.digest, earlier.result.filter(|_| self.result_aware)))
            .collect();
        let mut identical = same.iter().rev().filter(|earlier| earlier.digest == call.digest);
        let new = match (identical.next(), identical.next()) {
            (None, _) => true,
            (Some(later), Some(earlier)) => self.result_aware && result_changed(earlier, later),
            (Some(_), None) => false,
        };
        seen.len().saturating_add(usize::from(new))
    }

    /// Q6: tells whether the last calls went round in a circle that this call begins or continues; needs
    /// `longest` × `rounds` calls.
    ///
    /// A circle has at least two different calls (one call alone is R6's), and no polling tool.
    /// Result-aware, a round that brought other results is another round.
    pub fn loop_detected(&self, recent: &[RecentCall], call: &Candidate<'_>) -> bool {
        let Some(cycle) = self.cycle else {
            return false;
        };
        (2..=cycle.longest.min(CYCLE_MAX))
            .filter_map(|period| usize::try_from(period).ok())
            .any(|period| self.goes_round(recent, call, period, cycle.rounds))
    }

    fn goes_round(&self, recent: &[RecentCall], call: &Candidate<'_>, period: usize, rounds: u32) -> bool {
        let length = usize::try_from(rounds)
            .unwrap_or(RECENT_MAX)
            .saturating_mul(period);
        let seen = last(recent, length);
        let round = last(seen, period);
        let [first, others @ ..] = round else {
            return false;
        };
        seen.len() == length
            && call.is_same(first)
            && others.iter().any(|other| !call.is_same(other))
            && !round.iter().any(|one| self.is_polling(&one.tool))
            && seen
                .iter()
                .zip(seen.iter().skip(period))
                .all(|(earlier, later)| self.is_repeated(earlier, later))
    }

    fn is_repeated(&self, earlier: &RecentCall, later: &RecentCall) -> bool {
        earlier.tool == later.tool
            && earlier.digest == later.digest
            && !(self.result_aware && result_changed(earlier, later))
    }

    /// Tells whether the last outcomes trip the circuit (`error_rate_exceeded`).
    pub fn error_rate_exceeded(&self, outcomes: &Outcomes) -> bool {
        self.error_rate.is_some_and(|rate| outcomes.fail_at(rate))
    }

    /// Tells whether so many denials in a row trip the circuit (`consecutive_denials`).
    pub fn denials_exceeded(&self, in_a_row: u32) -> bool {
        self.denials.is_some_and(|denials| in_a_row >= denials)
    }
}

/// Holds how the last executed calls ended, the latest in the lowest bit.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// A set bit is a failure.
    #[n(0)]
    failed: u64,
    /// How many were seen, at most 64.
    #[n(1)]
    seen: u32,
}

impl Outcomes {
    /// Counts the outcome of one executed call; a pending one is none.
    #[must_use]
    pub fn with(self, outcome: Outcome) -> Outcomes {
        let failed = match outcome {
            Outcome::Pending => return self,
            Outcome::Succeeded => 0,
            Outcome::Failed => 1,
        };
        Outcomes {
            failed: self.failed << 1 | failed,
            seen: self.seen.saturating_add(1).min(u64::BITS),
        }
    }

    fn fail_at(self, rate: ErrorRate) -> bool {
        if rate.outcomes == 0 || self.seen < rate.outcomes {
            return false;
        }
        let last = u64::MAX >> u64::BITS.saturating_sub(rate.outcomes);
        let failed = u64::from((self.failed & last).count_ones());
        let parts = |count: u64, ratio: PerBillion| count.saturating_mul(u64::from(ratio.parts()));
        parts(failed, PerBillion::ONE) >= parts(u64::from(rate.outcomes), rate.ratio)
    }
}

/// Names the setting that is out of range; the caller fixes the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("breakers.{field} is out of its range")]
pub struct InvalidBreakers {
    pub field: &'static str,
}

/// Unset limits nothing.
fn least(one: Option<u32>, two: Option<u32>) -> Option<u32> {
    both(one, two, u32::min)
}

fn both<T>(one: Option<T>, two: Option<T>, tighten: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, two) {
        (Some(one), Some(two)) => Some(tighten(one, two)),
        (one, two) => one.or(two),
    }
}

/// Tells whether one of the call's numbers rises through all the calls, or falls through all.
fn moves_one_way(same: &[&RecentCall], call: &Candidate<'_>) -> bool {
    call.numbers.iter().any(|number| {
        let values: Option<Vec<_>> = same
            .iter()
            .map(|earlier| value_of(&earlier.numbers, number.key))
            .collect();
        values.is_some_and(|mut values| {
            values.push(number.value);
            values.is_sorted_by(|left, right| left < right) || values.is_sorted_by(|left, right| left > right)
        })
    })
}

fn value_of(numbers: &[Number], key: u64) -> Option<i64> {
    numbers
        .iter()
        .find(|number| number.key == key)
        .map(|number| number.value)
}

/// Tells whether both results are known, and differ.
fn result_changed(earlier: &RecentCall, later: &RecentCall) -> bool {
    match (earlier.result, later.result) {
        (Some(before), Some(after)) => before != after,
        _ => false,
    }
}

/// Tells whether `part / whole ≥ ratio`.
fn is_part(part: usize, whole: usize, ratio: PerBillion) -> bool {
    let parts = |count: usize, ratio: PerBillion| {
        u64::try_from(count)
            .unwrap_or(u64::MAX)
            .saturating_mul(u64::from(ratio.parts()))
    };
    parts(part, PerBillion::ONE) >= parts(whole, ratio)
}

fn at_least(count: usize, number: u32) -> bool {
    u32::try_from(count).unwrap_or(u32::MAX) >= number
}

fn last(calls: &[RecentCall], count: usize) -> &[RecentCall] {
    calls.get(calls.len().saturating_sub(count)..).unwrap_or_default()
}
