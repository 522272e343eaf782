use std::borrow::Cow;

/// A message that says something no domain type can hold; answered as INVALID_REQUEST, nothing written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Invalid {
    /// Path of the field, such as `config.budget_usd`.
    pub field: Cow<'static, str>,
    /// What the field must be. Never what it was: messages may hold what nobody else should read.
    pub why: String,
}

impl Invalid {
    pub fn new(field: &'static str, why: impl Into<String>) -> Self {
        Self {
            field: Cow::Borrowed(field),
            why: why.into(),
        }
    }

    /// The same of a message that is itself a field.
    #[must_use]
    pub fn within(self, parent: &str) -> Self {
        Self {
            field: Cow::Owned(format!("{parent}.{}", self.field)),
            why: self.why,
        }
    }
}

/// Refuses text that is longer than `max` bytes, or empty where `min` is 1.
pub(crate) fn bounded(field: &'static str, text: &str, min: usize, max: usize) -> Result<(), Invalid> {
    if (min..=max).contains(&text.len()) {
        Ok(())
    } else {
        Err(Invalid::new(field, format!("must be {min} to {max} bytes")))
    }
}

/// Most pairs of a map (tags, metadata): labels, not a data channel.
pub const PAIRS_MAX: usize = 32;
/// Longest key of a pair, bytes.
pub const PAIR_KEY_BYTES_MAX: usize = 64;
/// Longest value of a pair, bytes.
pub const PAIR_VALUE_BYTES_MAX: usize = 256;

/// Refuses maps that are too large for what they are for (docs/SPEC.md 18).
pub(crate) fn bounded_pairs<'a>(
    field: &'static str,
    pairs: impl ExactSizeIterator<Item = (&'a String, &'a String)>,
) -> Result<(), Invalid> {
    if pairs.len() > PAIRS_MAX {
        return Err(Invalid::new(field, format!("at most {PAIRS_MAX} pairs")));
    }
    for (key, value) in pairs {
        if !(1..=PAIR_KEY_BYTES_MAX).contains(&key.len()) {
            return Err(Invalid::new(
                field,
                format!("a key must be 1 to {PAIR_KEY_BYTES_MAX} bytes"),
            ));
        }
        if value.len() > PAIR_VALUE_BYTES_MAX {
            return Err(Invalid::new(
                field,
                format!("a value must be at most {PAIR_VALUE_BYTES_MAX} bytes"),
            ));
        }
    }
    Ok(())
}

/// Reads an enum; a number that this version does not know is refused, not taken for 0.
pub(crate) fn known<E: TryFrom<i32>>(field: &'static str, value: i32) -> Result<E, Invalid> {
    E::try_from(value).map_err(|_| Invalid::new(field, "is not a value that this version knows"))
}

/// Reads an id, under the name of its field.
pub(crate) fn id<T>(field: &'static str, parsed: Result<T, decision::InvalidId>) -> Result<T, Invalid> {
    parsed.map_err(|error| Invalid::new(field, format!("must be {}", error.rule)))
}
