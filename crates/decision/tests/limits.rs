//! The rules outside the certified core at their edges.

use decision::facts::ProbabilisticDraw;
use decision::limits::{
    Rate, RateWindow, Window, has_error_signal, probabilistic_denial, rate_exceeded, repeat_limit, timed_out,
    total_calls_reached,
};
use decision::money::{NanoUsd, PerBillion};
use decision::time::{DurationNs, Timestamp};

#[test]
fn timeout_counts_from_the_first_call() {
    let limit = DurationNs::from_nanos(10);
    let rows = [
        (None, 1_000, false),
        (Some(5), 14, false),
        (Some(5), 15, true),
        (Some(5), 4, false),
    ];
    for (first, now, expected) in rows {
        let first = first.map(Timestamp::from_nanos);
        assert_eq!(
            timed_out(first, Timestamp::from_nanos(now), limit),
            expected,
            "{first:?} {now}"
        );
    }
}

#[test]
fn rate_slides_with_every_call() {
    let span = DurationNs::from_nanos(10);
    // times of calls, now, max, exceeded
    let rows: [(&[u64], u64, u32, bool); 6] = [
        (&[], 0, 1, false),
        (&[], 0, 0, true),
        (&[1, 2, 3], 10, 3, true),
        (&[1, 2, 3], 11, 3, false),
        (&[1, 2, 3], 11, 2, true),
        (&[3, 2, 1], 12, 2, false),
    ];
    for (calls, now, max, expected) in rows {
        let times: Vec<_> = calls.iter().copied().map(Timestamp::from_nanos).collect();
        assert_eq!(
            rate_exceeded(&times, Timestamp::from_nanos(now), span, max),
            expected,
            "{calls:?} {now}"
        );
    }
}

#[test]
fn window_opens_with_its_first_call_and_closes_after_its_duration() {
    let duration = DurationNs::from_nanos(10);
    let mut window = Window::default();
    // time of a call, full at max 2, calls after it where it ran
    let rows = [
        (100, false, 1),
        (105, false, 2),
        (109, true, 2),
        (110, false, 1),
        (119, false, 2),
        (119, true, 2),
    ];
    for (at, full, calls) in rows {
        window = window.at(Timestamp::from_nanos(at), duration);
        assert_eq!(window.is_full(2), full, "{at}");
        if !full {
            window = window.counted();
        }
        assert_eq!(window.calls, calls, "{at}");
    }
    assert_eq!(window.opens_in(Timestamp::from_nanos(119), duration).nanos(), 1);
    assert!(Window::default().is_full(0));
}

#[test]
fn total_is_reached_with_the_last_call_it_allows() {
    assert!(!total_calls_reached(2, 3));
    assert!(total_calls_reached(3, 3));
    assert!(total_calls_reached(u64::MAX, u32::MAX));
}

#[test]
fn error_lowers_the_repeat_limit_by_one_and_not_below_one() {
    let rows = [
        (3, false, 3),
        (3, true, 2),
        (2, true, 1),
        (1, true, 1),
        (0, true, 0),
        (0, false, 0),
    ];
    for (max, amplified, limit) in rows {
        assert_eq!(repeat_limit(max, amplified), limit, "{max} {amplified}");
    }
}

#[test]
fn known_error_signals_are_found_in_any_case() {
    let signals = [
        "401",
        "unauthorized",
        "403",
        "forbidden",
        "500",
        "502",
        "503",
        "504",
        "timeout",
        "connection refused",
        "connection reset",
        "permission denied",
        "rate limit",
        "quota exceeded",
        "invalid api key",
        "token expired",
        "model not found",
        "resource exhausted",
        "deadline exceeded",
    ];
    for signal in signals {
        assert!(
            has_error_signal(&format!("Error: {}!", signal.to_uppercase())),
            "{signal}"
        );
    }
    for text in ["", "ok", "error", "404 not found", "time out", "rate-limit"] {
        assert!(!has_error_signal(text), "{text}");
    }
}

#[test]
fn odds_grow_as_the_budget_shrinks() {
    const QUARTER: u32 = 1 << 30;
    // initial, available, jitter in percent, drawn, denied
    let rows = [
        (100, 20, 100, 0, false),
        (100, 19, 100, 0, true),
        (100, 19, 0, 0, false),
        // jitter 50 % at 0 left: half of all draws
        (100, 0, 50, 2 * QUARTER - 1, true),
        (100, 0, 50, 2 * QUARTER, false),
        // jitter 50 % at 10 % left: 45 %
        (100, 10, 50, 1_932_735_283, true),
        (100, 10, 50, 1_932_735_284, false),
        (100, 0, 100, u32::MAX, true),
        // An overdraft counts as nothing left.
        (100, -1_000, 50, 2 * QUARTER, false),
        (0, 0, 100, 0, false),
        (-5, -6, 100, 0, false),
        (i64::MAX, 0, 100, u32::MAX, true),
        (i64::MAX, i64::MIN, 100, u32::MAX, true),
    ];
    for (initial, available, jitter, drawn, denied) in rows {
        let draw = ProbabilisticDraw {
            drawn,
            jitter: PerBillion::from_percent(jitter).unwrap(),
        };
        let answer = probabilistic_denial(NanoUsd::new(available), NanoUsd::new(initial), draw);
        assert_eq!(answer, denied, "{available} of {initial}, {jitter} %, {drawn}");
    }
}

#[test]
fn sliding_rate_never_lets_more_calls_into_any_span() {
    let rate = Rate {
        calls: 3,
        span: DurationNs::from_nanos(640),
    };
    let mut window = RateWindow::default();
    // time of a call, denied, time until one may run
    let rows = [
        (100, false, 0),
        (105, false, 0),
        (700, false, 0),
        // Three lie within a span; those of one slot leave with its last, at 105.
        (739, true, 6),
        (740, true, 5),
        (745, false, 0),
        (746, false, 0),
        (747, true, 593),
        (1339, true, 1),
        (1340, false, 0),
    ];
    for (at, denied, wait) in rows {
        let now = Timestamp::from_nanos(at);
        assert_eq!(window.is_full(now, rate), denied, "{at}");
        assert_eq!(window.opens_in(now, rate).nanos(), wait, "{at}");
        if !denied {
            window.count(now, rate);
        }
    }
    let none = Rate { calls: 0, ..rate };
    assert!(RateWindow::default().is_full(Timestamp::ZERO, none));
}

#[test]
fn sliding_rate_is_kept_in_bounded_state() {
    let rows = [
        (1_u64, 1_u64),
        (63, 1),
        (127, 1),
        (6_400, 100),
        (1_000_000, 1),
        (1_000_000, 20_000),
    ];
    for (span, gap) in rows {
        let rate = Rate {
            calls: 1_000,
            span: DurationNs::from_nanos(span),
        };
        let mut window = RateWindow::default();
        let mut times: Vec<u64> = Vec::new();
        for call in 0..5_000 {
            let now = Timestamp::from_nanos(call * gap);
            if !window.is_full(now, rate) {
                window.count(now, rate);
                times.push(call * gap);
            }
            let within = times.iter().filter(|time| call * gap - **time < span).count();
            assert!(within <= 1_000, "{span} {gap}");
            if call % 500 == 0 {
                let bytes = minicbor::to_vec(&window).unwrap().len();
                assert!(bytes < 2_048, "{span} {gap}: {bytes}");
            }
        }
        assert!(times.len() >= 1_000, "{span} {gap}: {}", times.len());
    }
}
