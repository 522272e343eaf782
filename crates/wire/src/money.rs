//! The only floats: dollars and ratios as doubles, to and from the integers that everything else uses.

use decision::{NanoUsd, PerBillion};

use crate::invalid::Invalid;

/// Largest amount that is taken, USD: it fits into an `i64` of nano-dollars with room to spare.
const DOLLARS_MAX: f64 = 9.2e9;
/// The same in nano-dollars.
const NANOS_MAX: i64 = 9_200_000_000_000_000_000;
const NANOS_PER_DOLLAR: f64 = 1e9;
const PARTS_PER_WHOLE: f64 = 1e9;

/// Reads an amount that the wire has twice: as dollars, where 0 says nothing, and as exact nano-dollars.
///
/// # Errors
/// NaN, an infinity, less than 0, more than 9.2e9 USD, an amount that rounds to 0 without being 0, and two
/// fields that disagree (docs/SPEC.md 5).
pub fn amount(
    usd_field: &'static str,
    usd: f64,
    nanos_field: &'static str,
    nanos: Option<i64>,
) -> Result<Option<NanoUsd>, Invalid> {
    let rounded = dollars(usd_field, usd)?;
    let exact = nanos.map(|nanos| exact(nanos_field, nanos)).transpose()?;
    match exact {
        Some(exact) if rounded != NanoUsd::ZERO && rounded != exact => Err(Invalid::new(
            nanos_field,
            format!("is another amount than {usd_field}: set one of them"),
        )),
        Some(exact) => Ok(Some(exact)),
        None => Ok((rounded != NanoUsd::ZERO).then_some(rounded)),
    }
}

/// Reads exact nano-dollars: 0 or more, at most 9.2e9 USD.
pub fn exact(field: &'static str, nanos: i64) -> Result<NanoUsd, Invalid> {
    if (0..=NANOS_MAX).contains(&nanos) {
        Ok(NanoUsd::new(nanos))
    } else {
        Err(Invalid::new(
            field,
            format!("must be 0 to {NANOS_MAX} nano-dollars"),
        ))
    }
}

/// Reads dollars, rounded to the nearest nano-dollar.
///
/// # Errors
/// NaN, an infinity, less than 0, more than 9.2e9 USD, and what rounds to 0 without being 0.
pub fn dollars(field: &'static str, usd: f64) -> Result<NanoUsd, Invalid> {
    if !(0.0..=DOLLARS_MAX).contains(&usd) {
        return Err(Invalid::new(field, "must be a finite amount from 0 to 9.2e9 USD"));
    }
    // Whole and fraction apart: both are exact, so large amounts are rounded no worse than small ones.
    let fraction = integer((usd.fract() * NANOS_PER_DOLLAR).round());
    let nanos = integer(usd.trunc())
        .saturating_mul(integer(NANOS_PER_DOLLAR))
        .saturating_add(fraction);
    if nanos == 0 && usd != 0.0 {
        return Err(Invalid::new(
            field,
            "is above 0 and below half a nano-dollar: send 0 or a real amount",
        ));
    }
    Ok(NanoUsd::new(nanos))
}

/// Gives an amount in dollars: the nearest double.
pub fn to_dollars(amount: NanoUsd) -> f64 {
    double(amount.nanos()) / NANOS_PER_DOLLAR
}

/// Reads a ratio from 0 to 1.
///
/// # Errors
/// NaN, less than 0, more than 1, and what rounds to 0 parts per billion without being 0.
pub fn ratio(field: &'static str, value: f64) -> Result<PerBillion, Invalid> {
    if !(0.0..=1.0).contains(&value) {
        return Err(Invalid::new(field, "must be a ratio from 0.0 to 1.0"));
    }
    let parts = u32::try_from(integer((value * PARTS_PER_WHOLE).round())).unwrap_or(u32::MAX);
    if parts == 0 && value != 0.0 {
        return Err(Invalid::new(
            field,
            "is above 0 and below half a billionth: send 0 or a real ratio",
        ));
    }
    PerBillion::new(parts).ok_or_else(|| Invalid::new(field, "must be a ratio from 0.0 to 1.0"))
}

/// Gives a ratio from 0 to 1.
pub fn to_ratio(ratio: PerBillion) -> f64 {
    f64::from(ratio.parts()) / PARTS_PER_WHOLE
}

#[expect(
    clippy::as_conversions,
    reason = "there is no `TryFrom`; callers pass whole numbers within ±9.2e18"
)]
fn integer(whole: f64) -> i64 {
    whole as i64
}

#[expect(
    clippy::as_conversions,
    reason = "there is no `From`; what a double cannot hold is rounded, for readers only"
)]
fn double(whole: i64) -> f64 {
    whole as f64
}
