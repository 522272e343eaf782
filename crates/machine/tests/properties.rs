//! What holds whatever is asked, in any order, with few names so that they collide.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that breaks says where"
)]

#[path = "properties/cast.rs"]
mod cast;
#[path = "properties/found.rs"]
mod found;
#[path = "properties/names.rs"]
mod names;
#[path = "properties/promises.rs"]
mod promises;
#[path = "properties/seed.rs"]
mod seed;
#[path = "properties/step.rs"]
mod step;
#[path = "properties/world.rs"]
mod world;

use names::GUARDS;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::RngSeed;
use seed::seed;
use step::{Step, step};
use world::World;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(seed()), ..ProptestConfig::default() })]

    #[test]
    fn every_command_keeps_every_promise(guard in 0..GUARDS, steps in vec(step(), 1..150)) {
        let mut world = World::formed(guard);
        for step in &steps {
            world.take(std::slice::from_ref(step)).map_err(TestCaseError::fail)?;
        }
        world.wind_up().map_err(TestCaseError::fail)?;
    }

    #[test]
    fn commands_that_travel_together_keep_them_too(guard in 0..GUARDS, batches in vec(vec(step(), 1..12), 1..12)) {
        let mut world = World::formed(guard);
        for batch in &batches {
            world.take(batch).map_err(TestCaseError::fail)?;
        }
        world.wind_up().map_err(TestCaseError::fail)?;
    }

    #[test]
    fn the_same_log_gives_the_same_rows_and_entries(guard in 0..GUARDS, batches in vec(vec(step(), 1..6), 1..12)) {
        let mut world = World::formed(guard);
        for batch in &batches {
            world.take(batch).map_err(TestCaseError::fail)?;
        }
        let (rows, entries) = world.replayed();
        prop_assert_eq!(&world.rows, &rows);
        prop_assert_eq!(&world.entries, &entries);
    }
}

/// A script that a person wrote: it touches all kinds, so that the properties above are about something.
#[test]
fn the_steps_reach_every_kind_of_answer() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = vec(step(), 100..150);
    let mut seen = std::collections::BTreeSet::new();
    for guard in (0..GUARDS).cycle().take(1_000) {
        let steps: Vec<Step> = steps.new_tree(&mut runner).unwrap().current();
        let mut world = World::formed(guard);
        for step in &steps {
            world.take(std::slice::from_ref(step)).unwrap();
        }
        seen.extend(world.entries.iter().map(|entry| match entry.verdict {
            Some(_) => entry.reason.split(':').next().unwrap_or_default().to_owned(),
            None => format!(
                "{} {}",
                entry.kind,
                if entry.kind == audit::Kind::Settlement {
                    &entry.reason
                } else {
                    ""
                }
            ),
        }));
    }
    for expected in [
        "within_thresholds",
        "run_halted",
        "session_terminated",
        "session_stale",
        "circuit_open",
        "policy_violation",
        "session_paused",
        "hitl_all_calls",
        "hitl_transition",
        "budget_exhausted",
        "budget_overrun",
        "parent_guard_denied",
        "organization_quota_exceeded",
        "max_repeat_exceeded",
        "window_exceeded",
        "global_limit",
        "settlement settled",
        "settlement partial",
        "settlement late",
        "hold_expired ",
        "session_resumed ",
        "session_ended ",
        "circuit_reset ",
        "refused ",
        "session_ended ",
        "session_unpaused ",
        "fail_closed",
        "budget_threshold",
        "rate_exceeded",
        "timeout",
        "name_repeat_exceeded",
        "retry_storm",
        "loop_detected",
        "delegation",
        "escalation",
        "policy",
        "observe",
        "probabilistic",
        "hitl_pending",
        "approval_decided ",
        "approval_expired ",
        "halt_engaged ",
        "release_asked ",
        "halt_released ",
        "halt_expired ",
        "ticket_redeemed ",
        "correction ",
        "key_registered ",
        "fixture ",
    ] {
        assert!(seen.contains(expected), "{expected} not among {seen:?}");
    }
}
