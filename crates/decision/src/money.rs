//! Money in integer nano-dollars, and ratios in parts per billion.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};

const NANOS_PER_DOLLAR: u64 = 1_000_000_000;
/// Decimal places of one nano-dollar.
const DECIMALS_MAX: usize = 9;

/// Holds a signed amount of money in nano-USD (1e-9 dollars); docs/SPEC.md 11.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cbor(transparent)]
pub struct NanoUsd(#[n(0)] i64);

impl NanoUsd {
    pub const ZERO: NanoUsd = NanoUsd(0);
    pub const MAX: NanoUsd = NanoUsd(i64::MAX);
    pub const MIN: NanoUsd = NanoUsd(i64::MIN);

    pub const fn new(nanos: i64) -> Self {
        NanoUsd(nanos)
    }

    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Adds, or answers `None` where the sum leaves the range of an `i64`.
    pub fn checked_add(self, other: NanoUsd) -> Option<NanoUsd> {
        self.0.checked_add(other.0).map(NanoUsd)
    }

    /// Subtracts, or answers `None` where the difference leaves the range of an `i64`.
    pub fn checked_sub(self, other: NanoUsd) -> Option<NanoUsd> {
        self.0.checked_sub(other.0).map(NanoUsd)
    }

    pub fn saturating_add(self, other: NanoUsd) -> NanoUsd {
        NanoUsd(self.0.saturating_add(other.0))
    }

    pub fn saturating_sub(self, other: NanoUsd) -> NanoUsd {
        NanoUsd(self.0.saturating_sub(other.0))
    }

    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Tells whether `self / whole ≤ ratio`, by cross-multiplying in `i128`; false where `whole ≤ 0`.
    pub fn ratio_at_most(self, whole: NanoUsd, ratio: PerBillion) -> bool {
        whole.0 > 0 && self.scaled() <= whole.times(ratio)
    }

    /// Tells whether `self / whole < ratio`, by cross-multiplying in `i128`; false where `whole ≤ 0`.
    pub fn ratio_below(self, whole: NanoUsd, ratio: PerBillion) -> bool {
        whole.0 > 0 && self.scaled() < whole.times(ratio)
    }

    fn scaled(self) -> i128 {
        i128::from(self.0) * i128::from(PerBillion::ONE.0)
    }

    fn times(self, ratio: PerBillion) -> i128 {
        i128::from(self.0) * i128::from(ratio.0)
    }
}

/// Writes exact decimal dollars with at least two decimals: `5.00`, `0.000000001`.
impl fmt::Display for NanoUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let digits = format!("{:09}", magnitude % NANOS_PER_DOLLAR);
        let significant = digits.trim_end_matches('0');
        write!(f, "{sign}{}.{significant:0<2}", magnitude / NANOS_PER_DOLLAR)
    }
}

/// Reads decimal dollars exactly: an optional `-`, digits, and at most nine decimals.
impl FromStr for NanoUsd {
    type Err = InvalidMoney;

    fn from_str(text: &str) -> Result<Self, InvalidMoney> {
        let (negative, amount) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = match amount.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return Err(InvalidMoney::NotDecimal),
            None => (amount, ""),
        };
        if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
            return Err(InvalidMoney::NotDecimal);
        }
        if fraction.len() > DECIMALS_MAX {
            return Err(InvalidMoney::TooFine);
        }
        let nanos: i128 = format!("{whole}{fraction:0<9}")
            .parse()
            .map_err(|_| InvalidMoney::OutOfRange)?;
        let signed = if negative { -nanos } else { nanos };
        i64::try_from(signed)
            .map(NanoUsd)
            .map_err(|_| InvalidMoney::OutOfRange)
    }
}

/// Says why a text is not an amount of money; the caller fixes the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMoney {
    #[error("an amount is decimal dollars such as 5.00")]
    NotDecimal,
    #[error("an amount has at most nine decimals")]
    TooFine,
    #[error("an amount is at most 9223372036.854775807 dollars")]
    OutOfRange,
}

/// Holds a ratio from 0 to 1 in parts per billion (hitl_budget_threshold, deny_jitter_ratio).
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cbor(transparent)]
pub struct PerBillion(#[n(0)] u32);

impl PerBillion {
    pub const ZERO: PerBillion = PerBillion(0);
    pub const ONE: PerBillion = PerBillion(1_000_000_000);

    /// Takes parts per billion, or answers `None` above one whole.
    pub const fn new(parts: u32) -> Option<PerBillion> {
        if parts <= Self::ONE.0 {
            Some(PerBillion(parts))
        } else {
            None
        }
    }

    pub const fn from_percent(percent: u8) -> Option<PerBillion> {
        match percent {
            0..=100 => Some(PerBillion(Self::ONE.0 / 100 * u32_of(percent))),
            _ => None,
        }
    }

    pub const fn parts(self) -> u32 {
        self.0
    }
}

#[expect(clippy::as_conversions, reason = "widening; `u32::from` is not const")]
const fn u32_of(small: u8) -> u32 {
    small as u32
}

/// An account's ceiling. Zero is not one of them: say `Suspended`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Limit {
    #[n(0)]
    Amount(#[n(0)] NanoUsd),
    #[n(1)]
    Unlimited,
    #[n(2)]
    Suspended,
}

/// Writes the amount, `unlimited` or `suspended`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Amount(amount) => amount.fmt(f),
            Limit::Unlimited => f.write_str("unlimited"),
            Limit::Suspended => f.write_str("suspended"),
        }
    }
}
