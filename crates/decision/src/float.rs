//! The one place that knows binary floating point: numbers as arguments and fixtures carry them.
//!
//! Nothing here reaches the state or the log but a canonical text and amounts in integers.

use crate::money::NanoUsd;

/// Python writes a float with an exponent from here upwards.
const EXPONENT_FROM: i32 = 16;
/// Python writes a float with an exponent below this.
const EXPONENT_BELOW: i32 = -4;

/// Writes a JSON number with a fraction or an exponent as the reference writes the double it names.
///
/// Answers `None` where the double is infinite.
pub(crate) fn canonical_float(text: &str) -> Option<String> {
    let value: f64 = text.parse().ok()?;
    if !value.is_finite() {
        return None;
    }
    // Rust's `{:e}` has the shortest digits that read back as the same double, as Python's repr has.
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    if (EXPONENT_BELOW..EXPONENT_FROM).contains(&exponent) {
        let plain = format!("{value}");
        return Some(if plain.contains('.') {
            plain
        } else {
            format!("{plain}.0")
        });
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    Some(format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs()))
}

/// Gives an integer that orders a JSON number's double among all others; `None` where it is infinite.
///
/// Integers beyond 2⁵³ that round to the same double give the same image.
pub(crate) fn order_image(text: &str) -> Option<i64> {
    let value: f64 = text.parse().ok()?;
    // A zero has one image, whatever its sign.
    let bits = (value + 0.0).to_bits().cast_signed();
    value
        .is_finite()
        .then_some(if bits < 0 { i64::MIN - bits } else { bits })
}

/// Rounds a JSON number to the nearest billionth (nano-dollars, or parts per billion); saturates.
pub fn billionths(text: &str) -> Option<NanoUsd> {
    let value: f64 = text.parse().ok()?;
    let saturated = if value.is_sign_negative() {
        NanoUsd::MIN
    } else {
        NanoUsd::MAX
    };
    Some(format!("{value:.9}").parse().unwrap_or(saturated))
}
