//! Facts the tables start from.

use decision::decide::Rule;
use decision::digest::Digest;
use decision::facts::{BudgetFacts, Facts, HitlRule, HumanDecision, ProbabilisticDraw, Status, Transition};
use decision::money::{NanoUsd, PerBillion};
use decision::verdict::Verdict;

/// What is tried, the facts, and the verdict, reason and rule expected.
pub type Row<'a> = (&'a str, Facts<'a>, Verdict, &'a str, Rule);

pub fn budget(initial: i64, available: i64, estimate: i64) -> Facts<'static> {
    Facts {
        budget: Some(BudgetFacts {
            initial: NanoUsd::new(initial),
            available: NanoUsd::new(available),
        }),
        estimate: NanoUsd::new(estimate),
        ..Facts::core()
    }
}

pub fn repeated(max: u32, repeats: u32) -> Facts<'static> {
    Facts {
        max_repeat: Some(max),
        repeats,
        same_tool: true,
        ..Facts::core()
    }
}

pub fn amplified(max: u32, repeats: u32) -> Facts<'static> {
    Facts {
        error_amplification: true,
        last_error_signal: true,
        ..repeated(max, repeats)
    }
}

pub fn drawn(initial: i64, available: i64, drawn: u32) -> Facts<'static> {
    Facts {
        draw: Some(ProbabilisticDraw {
            drawn,
            jitter: PerBillion::ONE,
        }),
        ..budget(initial, available, 0)
    }
}

pub fn paused(held: bool, decided: bool) -> Facts<'static> {
    Facts {
        status: Status::Paused { held, decided },
        ..Facts::core()
    }
}

/// Sets everything that the session's own guard would stop a call for.
pub fn with_own_ceilings(facts: Facts<'_>) -> Facts<'_> {
    Facts {
        budget: Some(BudgetFacts {
            initial: NanoUsd::new(100),
            available: NanoUsd::ZERO,
        }),
        timed_out: true,
        rate_exceeded: true,
        window_exceeded: true,
        total_calls_reached: true,
        max_repeat: Some(0),
        same_tool: true,
        name_repeat_exceeded: true,
        retry_storm: true,
        loop_detected: true,
        hitl: HitlRule::Always,
        opaque: true,
        ..facts
    }
}

pub fn digest() -> Digest {
    Digest::of(b"arguments")
}

pub fn called() -> Facts<'static> {
    Facts {
        nonce: Some(1),
        digest: Some(digest()),
        ..Facts::core()
    }
}

pub fn transition(decision: HumanDecision) -> Transition {
    Transition {
        decision,
        original_nonce: None,
        original_digest: None,
        successor_nonce: None,
        successor_digest: None,
        terminal: None,
        resume_attempt: false,
    }
}

pub fn approval() -> Transition {
    Transition {
        original_nonce: Some(1),
        original_digest: Some(digest()),
        ..transition(HumanDecision::Approve)
    }
}

pub fn released(approval: &Transition) -> Facts<'_> {
    Facts {
        status: Status::Paused {
            held: true,
            decided: true,
        },
        transition: Some(approval),
        ..called()
    }
}
