//! Names, amounts and reasons: what is accepted, how it is written, and the bytes it rests as.

use decision::digest::Digest;
use decision::id::{AgentId, GuardId, KeyId, OrganizationId, RequestId, RuleId, SessionId, ToolName};
use decision::money::{InvalidMoney, NanoUsd, PerBillion};
use decision::time::{DurationNs, Timestamp};
use decision::verdict::{DenyReason, HaltScope, Reason, Verdict};

#[test]
fn dollars_are_read_and_written_exactly() {
    let rows = [
        ("5.00", Ok(5_000_000_000), "5.00"),
        ("5", Ok(5_000_000_000), "5.00"),
        ("5.1", Ok(5_100_000_000), "5.10"),
        ("05.10", Ok(5_100_000_000), "5.10"),
        ("0.000000001", Ok(1), "0.000000001"),
        ("-0.000000001", Ok(-1), "-0.000000001"),
        ("-0", Ok(0), "0.00"),
        ("0.123", Ok(123_000_000), "0.123"),
        ("9223372036.854775807", Ok(i64::MAX), "9223372036.854775807"),
        ("-9223372036.854775808", Ok(i64::MIN), "-9223372036.854775808"),
        ("9223372036.854775808", Err(InvalidMoney::OutOfRange), ""),
        (
            "99999999999999999999999999999999999999999",
            Err(InvalidMoney::OutOfRange),
            "",
        ),
        ("0.0000000001", Err(InvalidMoney::TooFine), ""),
        ("0.0000000010", Err(InvalidMoney::TooFine), ""),
        ("", Err(InvalidMoney::NotDecimal), ""),
        ("-", Err(InvalidMoney::NotDecimal), ""),
        (".5", Err(InvalidMoney::NotDecimal), ""),
        ("5.", Err(InvalidMoney::NotDecimal), ""),
        ("+5", Err(InvalidMoney::NotDecimal), ""),
        ("--5", Err(InvalidMoney::NotDecimal), ""),
        ("1e3", Err(InvalidMoney::NotDecimal), ""),
        ("1.2.3", Err(InvalidMoney::NotDecimal), ""),
        (" 5", Err(InvalidMoney::NotDecimal), ""),
        ("5 USD", Err(InvalidMoney::NotDecimal), ""),
        ("٥", Err(InvalidMoney::NotDecimal), ""),
        ("NaN", Err(InvalidMoney::NotDecimal), ""),
    ];
    for (text, nanos, written) in rows {
        let read: Result<NanoUsd, InvalidMoney> = text.parse();
        assert_eq!(read.map(NanoUsd::nanos), nanos, "{text:?}");
        if let Ok(amount) = read {
            assert_eq!(amount.to_string(), written, "{text:?}");
        }
    }
}

#[test]
fn sums_that_do_not_fit_are_noticed() {
    let one = NanoUsd::new(1);
    assert_eq!(NanoUsd::MAX.checked_add(one), None);
    assert_eq!(NanoUsd::MIN.checked_sub(one), None);
    assert_eq!(NanoUsd::MAX.saturating_add(one), NanoUsd::MAX);
    assert_eq!(NanoUsd::MIN.saturating_sub(one), NanoUsd::MIN);
    assert_eq!(one.checked_add(one), Some(NanoUsd::new(2)));
    assert_eq!(one.checked_sub(NanoUsd::new(2)), Some(NanoUsd::new(-1)));
}

#[test]
fn ratios_are_compared_without_rounding() {
    let fifteen = PerBillion::from_percent(15).unwrap();
    // part, whole, ratio: at most, below
    let rows = [
        (15, 100, fifteen, true, false),
        (14, 100, fifteen, true, true),
        (16, 100, fifteen, false, false),
        (-1, 100, PerBillion::ZERO, true, true),
        (0, 100, PerBillion::ZERO, true, false),
        (1, i64::MAX, PerBillion::ZERO, false, false),
        (i64::MAX, i64::MAX, PerBillion::ONE, true, false),
        (i64::MIN, i64::MAX, PerBillion::ONE, true, true),
        // Without a whole there is no ratio.
        (0, 0, PerBillion::ONE, false, false),
        (-5, -1, PerBillion::ONE, false, false),
    ];
    for (part, whole, ratio, at_most, below) in rows {
        let (part, whole) = (NanoUsd::new(part), NanoUsd::new(whole));
        assert_eq!(
            part.ratio_at_most(whole, ratio),
            at_most,
            "{part}/{whole} ≤ {ratio:?}"
        );
        assert_eq!(
            part.ratio_below(whole, ratio),
            below,
            "{part}/{whole} < {ratio:?}"
        );
    }
    assert_eq!(PerBillion::new(1_000_000_001), None);
    assert_eq!(PerBillion::from_percent(101), None);
    assert_eq!(PerBillion::from_percent(100), Some(PerBillion::ONE));
}

#[test]
fn names_are_checked_where_they_enter() {
    let long = |length| "a".repeat(length);
    type Row = (&'static str, fn(&str) -> bool, Vec<String>, Vec<String>);
    let rows: [Row; 8] = [
        (
            "rule",
            |t| RuleId::parse(t).is_ok(),
            names(&["no-rm", "error"], long(64)),
            no_names(),
        ),
        (
            "organization",
            |t| OrganizationId::parse(t).is_ok(),
            names(&["a", "A-1_b.c"], long(64)),
            no_names(),
        ),
        (
            "agent",
            |t| AgentId::parse(t).is_ok(),
            names(&["0", "_", "-"], long(64)),
            no_names(),
        ),
        (
            "guard",
            |t| GuardId::parse(t).is_ok(),
            names(&["default"], long(64)),
            no_names(),
        ),
        (
            "key",
            |t| KeyId::parse(t).is_ok(),
            names(&["k1"], long(64)),
            no_names(),
        ),
        (
            "session",
            |t| SessionId::parse(t).is_ok(),
            names(&["a:b", ":", ".", "018f-x"], long(64)),
            names(&["", "a b", "a/b", "é", "a\n"], long(65)),
        ),
        (
            "request",
            |t| RequestId::parse(t).is_ok(),
            names(&["!", "~", "a/b:c?"], long(64)),
            names(&["", " ", "a b", "é", "\u{7f}"], long(65)),
        ),
        (
            "tool",
            |t| ToolName::parse(t).is_ok(),
            names(&["click", "a b", "日本", "😀"], "é".repeat(128)),
            names(&["", "a\nb", "\0", "\u{85}"], "é".repeat(129)),
        ),
    ];
    for (kind, accepts, good, bad) in rows {
        good.iter()
            .for_each(|text| assert!(accepts(text), "{kind} {text:?}"));
        bad.iter()
            .for_each(|text| assert!(!accepts(text), "{kind} {text:?}"));
    }
    let refused = AgentId::parse(".hidden").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "agent_id must be 1 to 64 of [A-Za-z0-9._-], not starting with a dot"
    );
    assert_eq!(AgentId::parse("bot").unwrap().as_str(), "bot");
}

fn names(texts: &[&str], long: String) -> Vec<String> {
    texts
        .iter()
        .map(|text| (*text).to_owned())
        .chain([long])
        .collect()
}

fn no_names() -> Vec<String> {
    names(&["", ".", ".a", "a b", "a:b", "a/b", "é", "a\n"], "a".repeat(65))
}

#[test]
fn log_time_never_wraps() {
    let second = DurationNs::from_secs(1);
    assert_eq!(Timestamp::from_nanos(5).plus(second).nanos(), 1_000_000_005);
    assert_eq!(Timestamp::MAX.plus(second), Timestamp::MAX);
    assert_eq!(Timestamp::ZERO.since(Timestamp::MAX), DurationNs::ZERO);
    assert_eq!(
        Timestamp::from_nanos(7).since(Timestamp::from_nanos(5)).nanos(),
        2
    );
    assert_eq!(DurationNs::from_secs(u64::MAX).nanos(), u64::MAX);
    assert_eq!(DurationNs::from_nanos(1).millis_up(), 1);
    assert_eq!(DurationNs::from_millis(1500).secs(), 1);
}

#[test]
fn every_reason_has_its_word_its_wire_reason_and_comes_back_from_both_forms() {
    use DenyReason as D;
    let guard = || HaltScope::Guard("g1".to_owned());
    let rows = [
        (
            Reason::RunHalted(HaltScope::Global),
            "run_halted:global",
            D::RunHalted,
        ),
        (
            Reason::RunHalted(HaltScope::Organization),
            "run_halted:organization",
            D::RunHalted,
        ),
        (
            Reason::RunHalted(HaltScope::Agent),
            "run_halted:agent",
            D::RunHalted,
        ),
        (Reason::RunHalted(guard()), "run_halted:guard:g1", D::RunHalted),
        (
            Reason::RunHalted(HaltScope::Session),
            "run_halted:session",
            D::RunHalted,
        ),
        (
            Reason::SessionTerminated,
            "session_terminated",
            D::PolicyViolation,
        ),
        (Reason::SessionStale, "session_stale", D::PolicyViolation),
        (
            Reason::MalformedInput,
            "policy_violation:malformed_input",
            D::PolicyViolation,
        ),
        (Reason::CircuitOpen, "circuit_open", D::CircuitOpen),
        (
            Reason::DuplicateNonce,
            "policy_violation:duplicate_nonce",
            D::PolicyViolation,
        ),
        (
            Reason::DuplicateResumeNoEffect,
            "policy_violation:duplicate_resume_no_effect",
            D::PolicyViolation,
        ),
        (Reason::HitlPending, "hitl_pending", D::Unspecified),
        (Reason::SessionPaused, "session_paused", D::PolicyViolation),
        (
            Reason::UnknownDecision,
            "hitl_transition:unknown_decision",
            D::PolicyViolation,
        ),
        (Reason::Rejected, "hitl_transition:reject", D::PolicyViolation),
        (
            Reason::DeferredOrEscalated,
            "hitl_transition:defer_escalate",
            D::Unspecified,
        ),
        (
            Reason::SupersededOriginal,
            "hitl_transition:superseded_original",
            D::PolicyViolation,
        ),
        (
            Reason::TerminalNoEffect,
            "hitl_transition:terminal_no_effect",
            D::PolicyViolation,
        ),
        (
            Reason::UnboundAuthorization,
            "hitl_transition:unbound_authorization",
            D::PolicyViolation,
        ),
        (
            Reason::NonceMismatch,
            "hitl_transition:nonce_mismatch",
            D::PolicyViolation,
        ),
        (
            Reason::DigestMismatch,
            "hitl_transition:digest_mismatch",
            D::PolicyViolation,
        ),
        (Reason::Approved, "hitl_transition:approve", D::Unspecified),
        (
            Reason::ModifiedSuccessor,
            "hitl_transition:modify_successor",
            D::Unspecified,
        ),
        (
            Reason::Delegation("expired".to_owned()),
            "delegation:expired",
            D::AuthFailed,
        ),
        (
            Reason::ToolNotAllowed,
            "escalation:tool_not_allowed",
            D::PolicyViolation,
        ),
        (
            Reason::Policy("big:one".to_owned()),
            "policy:big:one",
            D::PolicyViolation,
        ),
        (
            Reason::ParamsRequired,
            "policy_violation:params_required",
            D::PolicyViolation,
        ),
        (Reason::BudgetExhausted, "budget_exhausted", D::BudgetExhausted),
        (Reason::BudgetOverrun, "budget_overrun", D::BudgetOverrun),
        (
            Reason::ParentGuardDenied("g0".to_owned()),
            "parent_guard_denied:g0",
            D::ParentGuardDenied,
        ),
        (
            Reason::OrganizationQuotaExceeded,
            "organization_quota_exceeded",
            D::OrganizationQuotaExceeded,
        ),
        (Reason::Timeout, "timeout", D::GlobalLimit),
        (Reason::RateExceeded, "rate_exceeded", D::WindowExceeded),
        (Reason::WindowExceeded, "window_exceeded", D::WindowExceeded),
        (Reason::GlobalLimit, "global_limit", D::GlobalLimit),
        (
            Reason::MaxRepeatExceeded,
            "max_repeat_exceeded",
            D::MaxRepeatExceeded,
        ),
        (
            Reason::NameRepeatExceeded,
            "name_repeat_exceeded",
            D::MaxRepeatExceeded,
        ),
        (Reason::RetryStorm, "retry_storm", D::MaxRepeatExceeded),
        (Reason::LoopDetected, "loop_detected", D::MaxRepeatExceeded),
        (Reason::HitlAllCalls, "hitl_all_calls", D::Unspecified),
        (Reason::BudgetThreshold, "budget_threshold", D::Unspecified),
        (
            Reason::OpaqueContext,
            "fail_closed:opaque_context",
            D::Unspecified,
        ),
        (Reason::Probabilistic, "probabilistic", D::BudgetExhausted),
        (Reason::WithinThresholds, "within_thresholds", D::Unspecified),
        (Reason::ErrorRateExceeded, "error_rate_exceeded", D::CircuitOpen),
        (Reason::TokenCeiling, "token_ceiling_reached", D::BudgetExhausted),
        (Reason::CostCeiling, "cost_ceiling_reached", D::BudgetExhausted),
        (Reason::ConsecutiveDenials, "consecutive_denials", D::CircuitOpen),
        (
            Reason::Observed(Box::new(Reason::RetryStorm)),
            "observe:retry_storm",
            D::Unspecified,
        ),
        (
            Reason::DryRun(Box::new(Reason::WithinThresholds)),
            "dry_run:within_thresholds",
            D::PolicyViolation,
        ),
        (
            Reason::DryRun(Box::new(Reason::CircuitOpen)),
            "dry_run:circuit_open",
            D::CircuitOpen,
        ),
        (
            Reason::DryRun(Box::new(Reason::Observed(Box::new(Reason::Policy(
                "p".to_owned(),
            ))))),
            "dry_run:observe:policy:p",
            D::PolicyViolation,
        ),
    ];
    for (reason, word, wire) in rows {
        assert_eq!(reason.word(), word);
        assert_eq!(reason.deny_reason(), wire, "{word}");
        assert_eq!(Reason::parse(word).as_ref(), Some(&reason), "{word}");
        assert!(reason.text().ends_with('.'), "{word}");
        let bytes = minicbor::to_vec(&reason).unwrap();
        assert_eq!(minicbor::decode::<Reason>(&bytes).unwrap(), reason, "{word}");
    }
    for word in [
        "",
        "no_such_reason",
        "run_halted:",
        "run_halted:moon",
        "hitl_transition:",
        "observe:observe:timeout",
    ] {
        assert_eq!(Reason::parse(word), None, "{word}");
    }
}

#[test]
fn bytes_at_rest_are_what_they_were() {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let agent = AgentId::parse("bot").unwrap();
    let rows = [
        (hex(minicbor::to_vec(NanoUsd::new(-1)).unwrap()), "20"),
        (hex(minicbor::to_vec(PerBillion::ONE).unwrap()), "1a3b9aca00"),
        (hex(minicbor::to_vec(Timestamp::from_nanos(24)).unwrap()), "1818"),
        (
            hex(minicbor::to_vec(DurationNs::from_secs(1)).unwrap()),
            "1a3b9aca00",
        ),
        (hex(minicbor::to_vec(&agent).unwrap()), "63626f74"),
        (hex(minicbor::to_vec(Verdict::Hitl).unwrap()), "03"),
        (hex(minicbor::to_vec(DenyReason::BudgetOverrun).unwrap()), "0b"),
        (
            hex(minicbor::to_vec(Reason::WithinThresholds).unwrap()),
            "82182780",
        ),
        (
            hex(minicbor::to_vec(Reason::ConsecutiveDenials).unwrap()),
            "82182d80",
        ),
        (
            hex(minicbor::to_vec(Reason::Policy("p".to_owned())).unwrap()),
            "8215816170",
        ),
        (
            hex(minicbor::to_vec(Reason::RunHalted(HaltScope::Session)).unwrap()),
            "820081820480",
        ),
    ];
    for (bytes, golden) in rows {
        assert_eq!(bytes, golden);
    }
    let digest = Digest::of(b"{}");
    assert_eq!(hex(minicbor::to_vec(digest).unwrap()), format!("5820{digest}"));
}

#[test]
fn digests_are_read_from_lower_case_hex_alone() {
    let digest = Digest::of(b"");
    let text = digest.to_string();
    assert_eq!(
        text,
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    assert_eq!(Digest::from_hex(&text), Some(digest));
    assert_eq!(Digest::from_hex(&text.to_uppercase()), None);
    assert_eq!(Digest::from_hex(&text[1..]), None);
    assert_eq!(Digest::from_hex(&text.replace('e', "g")), None);
    assert_eq!(Digest::from_slice(digest.as_bytes()), Some(digest));
    assert_eq!(Digest::from_slice(&[0; 31]), None);
}
