//! Numbers compared exactly, digit by digit.

use std::cmp::Ordering;
use std::fmt;

use minicbor::{Decode, Encode};

use crate::json::Value;

/// Holds a decimal number as it was written: `100`, `0.1`, `-2.5e3`.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq)]
#[cbor(transparent)]
pub struct Decimal(#[n(0)] String);

impl Decimal {
    /// The longest number, in characters.
    pub const LEN_MAX: usize = 64;

    /// Reads a JSON number; `None` where it is none, or too long.
    pub fn parse(text: &str) -> Option<Decimal> {
        match Value::parse(text.as_bytes(), 0) {
            Ok(Value::Number(number)) if number.len() <= Self::LEN_MAX => Some(Decimal(number.to_owned())),
            _ => None,
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Orders another number, which is written in JSON, relative to this one.
    pub(crate) fn order_of(&self, number: &str) -> Ordering {
        Magnitude::read(number).cmp(&Magnitude::read(&self.0))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Holds a number as ± 0.d₁d₂d₃… × 10^point, without zeros before d₁ or behind the last digit.
#[derive(PartialEq, Eq)]
struct Magnitude {
    negative: bool,
    /// Unset for zero.
    size: Option<(i64, Vec<u8>)>,
}

/// An exponent beyond this is this: no other digit of a number can make up for it.
const EXPONENT_MAX: i64 = i64::MAX / 4;

impl Magnitude {
    fn read(number: &str) -> Magnitude {
        let (negative, unsigned) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number),
        };
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let significant = digits.trim_start_matches('0');
        let zeros = digits.len().saturating_sub(significant.len());
        let significant = significant.trim_end_matches('0');
        if significant.is_empty() {
            return Magnitude {
                negative: false,
                size: None,
            };
        }
        let length = |count: usize| i64::try_from(count).unwrap_or(EXPONENT_MAX);
        let point = exponent_of(exponent)
            .saturating_add(length(whole.len()))
            .saturating_sub(length(zeros));
        Magnitude {
            negative,
            size: Some((point, significant.as_bytes().to_vec())),
        }
    }
}

/// Reads an exponent of any length.
fn exponent_of(text: &str) -> i64 {
    let furthest = if text.starts_with('-') {
        -EXPONENT_MAX
    } else {
        EXPONENT_MAX
    };
    text.parse().map_or(furthest, |exponent: i64| {
        exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX)
    })
}

impl Ord for Magnitude {
    fn cmp(&self, other: &Magnitude) -> Ordering {
        match (self.negative, other.negative) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.size.cmp(&other.size),
            (true, true) => other.size.cmp(&self.size),
        }
    }
}

impl PartialOrd for Magnitude {
    fn partial_cmp(&self, other: &Magnitude) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
