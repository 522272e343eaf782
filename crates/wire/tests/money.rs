//! Money and ratios at the edge: docs/SPEC.md 5, one row an edge.

use decision::{NanoUsd, PerBillion};
use proptest::prelude::{prop_assert_eq, proptest};
use wire::money;

#[test]
fn dollars_are_rounded_to_the_nearest_nano_or_refused() {
    let rows = [
        (0.0, Some(0)),
        (-0.0, Some(0)),
        (0.001, Some(1_000_000)),
        (0.1, Some(100_000_000)),
        (0.1 + 0.2, Some(300_000_000)),
        (1e-9, Some(1)),
        (5e-10, Some(1)),
        (1.4e-9, Some(1)),
        (1.6e-9, Some(2)),
        (5.0, Some(5_000_000_000)),
        (123.456_789_012, Some(123_456_789_012)),
        (9_000_000.000_000_002, Some(9_000_000_000_000_002)),
        (9.2e9, Some(9_200_000_000_000_000_000)),
        (9.200_000_001e9, None),
        (1e308, None),
        (f64::MAX, None),
        (1e-10, None),
        (4.9e-10, None),
        (f64::MIN_POSITIVE, None),
        (5e-324, None),
        (-1e-9, None),
        (-1e-10, None),
        (-1.0, None),
        (-1e308, None),
        (f64::INFINITY, None),
        (f64::NEG_INFINITY, None),
        (f64::NAN, None),
        (-f64::NAN, None),
    ];
    for (usd, expected) in rows {
        let read = money::dollars("usd", usd).ok().map(NanoUsd::nanos);
        assert_eq!(read, expected, "{usd:e}");
    }
}

#[test]
fn an_amount_that_stands_twice_must_be_one_amount() {
    let rows = [
        (0.0, None, Ok(None)),
        (0.25, None, Ok(Some(250_000_000))),
        (0.0, Some(0), Ok(Some(0))),
        (0.0, Some(7), Ok(Some(7))),
        (0.25, Some(250_000_000), Ok(Some(250_000_000))),
        (0.25, Some(250_000_001), Err("nanos")),
        (0.25, Some(0), Err("nanos")),
        (0.0, Some(-1), Err("nanos")),
        (0.0, Some(i64::MIN), Err("nanos")),
        (
            0.0,
            Some(9_200_000_000_000_000_000),
            Ok(Some(9_200_000_000_000_000_000)),
        ),
        (0.0, Some(9_200_000_000_000_000_001), Err("nanos")),
        (0.0, Some(i64::MAX), Err("nanos")),
        (f64::NAN, Some(7), Err("usd")),
        (1e-10, Some(0), Err("usd")),
    ];
    for (usd, nanos, expected) in rows {
        let read = money::amount("usd", usd, "nanos", nanos)
            .map(|amount| amount.map(NanoUsd::nanos))
            .map_err(|invalid| invalid.field.into_owned());
        assert_eq!(read, expected.map_err(str::to_owned), "{usd:e} {nanos:?}");
    }
}

#[test]
fn ratios_are_parts_per_billion_from_0_to_1() {
    let rows = [
        (0.0, Some(0)),
        (0.1, Some(100_000_000)),
        (1.0, Some(1_000_000_000)),
        (0.999_999_999_9, Some(1_000_000_000)),
        (1e-9, Some(1)),
        (1e-10, None),
        (1.000_000_001, None),
        (-1e-9, None),
        (1e308, None),
        (f64::INFINITY, None),
        (f64::NEG_INFINITY, None),
        (f64::NAN, None),
    ];
    for (value, expected) in rows {
        assert_eq!(
            money::ratio("ratio", value).ok().map(PerBillion::parts),
            expected,
            "{value:e}"
        );
    }
}

proptest! {
    #[test]
    fn amounts_below_eight_million_dollars_read_back_exactly(nanos in 0_i64..8_388_608_000_000_000) {
        let usd = money::to_dollars(NanoUsd::new(nanos));
        prop_assert_eq!(money::dollars("usd", usd).unwrap().nanos(), nanos);
    }

    #[test]
    fn any_double_is_read_or_refused(bits: u64) {
        let usd = f64::from_bits(bits);
        if let Ok(amount) = money::dollars("usd", usd) {
            prop_assert_eq!(amount == NanoUsd::ZERO, usd == 0.0);
            prop_assert_eq!((0.0..=9.2e9).contains(&usd), true);
        }
    }

    #[test]
    fn ratios_read_back_exactly(parts in 0_u32..=1_000_000_000) {
        let ratio = PerBillion::new(parts).unwrap();
        prop_assert_eq!(money::ratio("ratio", money::to_ratio(ratio)).unwrap(), ratio);
    }
}
