//! One question about a call's arguments: hit, missed, or not to be judged.

use std::cmp::Ordering;

use minicbor::{Decode, Encode};

use crate::json::Value;
use crate::params::canonical_number;
use crate::pattern::Pattern;
use crate::policy::decimal::Decimal;

/// A path has at most this many keys.
pub const PATH_MAX: usize = 8;
/// A list of choices has at most this many.
pub const CHOICES_MAX: usize = 64;
/// A key, a text or a pattern of a rule has at most this many bytes.
pub const TEXT_MAX: usize = 256;

/// Asks about one value among the arguments.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq)]
pub struct Predicate {
    /// Keys from the arguments' object inwards; through objects only.
    #[n(0)]
    pub path: Vec<String>,
    #[n(1)]
    pub test: Test,
}

/// Says what must hold of the value; all but the first two need one.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// The key is there, even if its value is null.
    #[n(0)]
    Exists,
    #[n(1)]
    Absent,
    #[n(2)]
    Equals(#[n(0)] Scalar),
    #[n(3)]
    NotEquals(#[n(0)] Scalar),
    #[n(4)]
    OneOf(#[n(0)] Vec<Scalar>),
    #[n(5)]
    NoneOf(#[n(0)] Vec<Scalar>),
    #[n(6)]
    Less(#[n(0)] Decimal),
    #[n(7)]
    AtMost(#[n(0)] Decimal),
    #[n(8)]
    More(#[n(0)] Decimal),
    #[n(9)]
    AtLeast(#[n(0)] Decimal),
    /// The whole text fits.
    #[n(10)]
    Matches(#[n(0)] Pattern),
    #[n(11)]
    NotMatches(#[n(0)] Pattern),
    /// A text has more characters (Unicode scalar values), or a list more items.
    #[n(12)]
    LongerThan(#[n(0)] u32),
}

/// Holds what a value is compared with. Numbers are equal as numbers: 1 is 1.0.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq)]
pub enum Scalar {
    #[n(0)]
    Text(#[n(0)] String),
    #[n(1)]
    Number(#[n(0)] Decimal),
    #[n(2)]
    Bool(#[n(0)] bool),
    #[n(3)]
    Null,
}

/// Says that a predicate has no answer: the value is missing, or of another type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unjudged;

impl Predicate {
    pub(crate) fn holds(&self, params: &Value<'_>) -> Result<bool, Unjudged> {
        let found = self.find(params)?;
        match &self.test {
            Test::Exists => return Ok(found.is_some()),
            Test::Absent => return Ok(found.is_none()),
            _ => {}
        }
        let value = found.ok_or(Unjudged)?;
        match &self.test {
            Test::Exists => Ok(true),
            Test::Absent => Ok(false),
            Test::Equals(scalar) => scalar.equals(value),
            Test::NotEquals(scalar) => scalar.equals(value).map(|equal| !equal),
            Test::OneOf(choices) => is_one_of(choices, value),
            Test::NoneOf(choices) => is_one_of(choices, value).map(|one| !one),
            Test::Less(limit) => order(value, limit).map(Ordering::is_lt),
            Test::AtMost(limit) => order(value, limit).map(Ordering::is_le),
            Test::More(limit) => order(value, limit).map(Ordering::is_gt),
            Test::AtLeast(limit) => order(value, limit).map(Ordering::is_ge),
            Test::Matches(pattern) => text(value).map(|text| pattern.matches(text)),
            Test::NotMatches(pattern) => text(value).map(|text| !pattern.matches(text)),
            Test::LongerThan(length) => is_longer(value, *length),
        }
    }

    /// Follows the path; nothing is in a null, and what is in a list or a plain value nobody can say.
    fn find<'v, 'a>(&self, params: &'v Value<'a>) -> Result<Option<&'v Value<'a>>, Unjudged> {
        let mut at = params;
        for key in &self.path {
            match at {
                Value::Object(_) => match at.field(key) {
                    Some(inner) => at = inner,
                    None => return Ok(None),
                },
                Value::Null => return Ok(None),
                _ => return Err(Unjudged),
            }
        }
        Ok(Some(at))
    }

    /// Names the part of the predicate that is out of its bounds.
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if !(1..=PATH_MAX).contains(&self.path.len()) {
            return Err(("path", "has 1 to 8 keys"));
        }
        if self.path.iter().any(|key| key.len() > TEXT_MAX) {
            return Err(("path", "has keys of at most 256 bytes"));
        }
        match &self.test {
            Test::Equals(scalar) | Test::NotEquals(scalar) if scalar.is_too_long() => {
                Err(("test", "has a text of at most 256 bytes"))
            }
            Test::OneOf(choices) | Test::NoneOf(choices) if !(1..=CHOICES_MAX).contains(&choices.len()) => {
                Err(("test", "has 1 to 64 choices"))
            }
            Test::OneOf(choices) | Test::NoneOf(choices) if choices.iter().any(Scalar::is_too_long) => {
                Err(("test", "has texts of at most 256 bytes"))
            }
            _ => Ok(()),
        }
    }
}

impl Scalar {
    /// Compares with a value of the same type; whether a value is null can be said of every value.
    fn equals(&self, value: &Value<'_>) -> Result<bool, Unjudged> {
        match (self, value) {
            (Scalar::Null, _) => Ok(*value == Value::Null),
            (Scalar::Text(text), Value::String(other)) => Ok(text == other),
            (Scalar::Bool(truth), Value::Bool(other)) => Ok(truth == other),
            (Scalar::Number(number), _) => order(value, number).map(Ordering::is_eq),
            (Scalar::Text(_) | Scalar::Bool(_), _) => Err(Unjudged),
        }
    }

    fn is_too_long(&self) -> bool {
        matches!(self, Scalar::Text(text) if text.len() > TEXT_MAX)
    }
}

/// Tells whether the value is one of the choices; unjudged where it is of none of their types.
fn is_one_of(choices: &[Scalar], value: &Value<'_>) -> Result<bool, Unjudged> {
    let mut judged = Err(Unjudged);
    for choice in choices {
        match choice.equals(value) {
            Ok(true) => return Ok(true),
            // That a value is not null says nothing of what it is.
            Ok(false) if *choice != Scalar::Null => judged = Ok(false),
            Ok(false) | Err(Unjudged) => {}
        }
    }
    judged
}

/// Orders a number relative to a limit, as the tool will read it: a fraction or exponent as its double,
/// so that digits too fine for a double do not slip a value past a limit.
fn order(value: &Value<'_>, limit: &Decimal) -> Result<Ordering, Unjudged> {
    match value {
        Value::Number(written) => canonical_number(written)
            .map(|number| limit.order_of(&number))
            .ok_or(Unjudged),
        _ => Err(Unjudged),
    }
}

fn text<'v>(value: &'v Value<'_>) -> Result<&'v str, Unjudged> {
    value.as_str().ok_or(Unjudged)
}

fn is_longer(value: &Value<'_>, length: u32) -> Result<bool, Unjudged> {
    let counted = match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        _ => return Err(Unjudged),
    };
    Ok(u32::try_from(counted).unwrap_or(u32::MAX) > length)
}
