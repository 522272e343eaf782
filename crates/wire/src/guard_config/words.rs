//! Enums of a guard as files have them: the protocol's names in lower case, without their common beginning.

use serde::{Deserialize as _, Deserializer, Serializer};

use crate::proto::shackle::v1 as proto;

/// Numbers of an enum that are looked through for its words.
const NUMBERS: std::ops::Range<i32> = 0..32;

/// Declares how one enum is read and written, for `#[serde(with = …)]`.
macro_rules! words {
    ($($module:ident $enum:ident $prefix:literal)*) => {$(
        pub(crate) mod $module {
            use super::*;

            fn values() -> impl Iterator<Item = (i32, String)> {
                NUMBERS.filter_map(|number| {
                    let value = proto::$enum::try_from(number).ok()?;
                    Some((number, word($prefix, value.as_str_name())?))
                })
            }

            pub(crate) fn serialize<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
                write(values(), *number, serializer)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
                read(values(), deserializer)
            }
        }
    )*};
}

words! {
    budget_scope BudgetScope ""
    hitl_mode HitlMode "HITL_"
    unsettled_policy UnsettledPolicy "UNSETTLED_POLICY_"
    trip_policy TripPolicy "TRIP_POLICY_"
    pause_scope PauseScope "PAUSE_SCOPE_"
    guard_mode GuardMode "GUARD_MODE_"
    latch_scope LatchScope "LATCH_SCOPE_"
    rule_effect RuleEffect "RULE_EFFECT_"
    predicate_op PredicateOp "PREDICATE_OP_"
}

/// The word of one value; none for the one that says nothing.
fn word(prefix: &str, name: &str) -> Option<String> {
    let word = name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase();
    (word != "unspecified").then_some(word)
}

fn write<S: Serializer>(
    mut values: impl Iterator<Item = (i32, String)>,
    number: i32,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match values.find(|(value, _)| *value == number) {
        Some((_, word)) => serializer.serialize_str(&word),
        None => Err(serde::ser::Error::custom(format!(
            "{number} is not a value that this version knows"
        ))),
    }
}

fn read<'de, D: Deserializer<'de>>(
    values: impl Iterator<Item = (i32, String)>,
    deserializer: D,
) -> Result<i32, D::Error> {
    let given = String::deserialize(deserializer)?;
    let mut known = Vec::new();
    for (number, word) in values {
        if word == given {
            return Ok(number);
        }
        known.push(word);
    }
    Err(serde::de::Error::custom(format!(
        "{given:?} is not one of {}",
        known.join(", ")
    )))
}

/// Says whether a value is what the protocol has where nothing was said.
pub(crate) fn is_empty<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
