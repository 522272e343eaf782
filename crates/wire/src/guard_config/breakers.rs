//! `shackle.v1.Breakers` ⇄ what is looked for in the last calls of a session.

use decision::Breakers;
use decision::behaviour::{Cycle, ErrorRate, Storm};

use super::{above_zero, tools};
use crate::invalid::Invalid;
use crate::money;
use crate::proto::shackle::v1 as proto;

pub(super) fn read(breakers: &proto::Breakers) -> Result<Breakers, Invalid> {
    let ratio = money::ratio("error_ratio", breakers.error_ratio)?;
    let read = Breakers {
        name_streak: above_zero(breakers.name_streak),
        storm: above_zero(breakers.storm_calls).map(|calls| Storm {
            calls,
            window: breakers.storm_window,
            progress_aware: !breakers.storm_ignores_progress,
            successes: breakers.storm_successes,
            ..Storm::default()
        }),
        cycle: above_zero(breakers.cycle_longest).map(|longest| Cycle {
            longest,
            rounds: breakers.cycle_rounds,
        }),
        error_rate: above_zero(breakers.error_outcomes).map(|outcomes| ErrorRate { outcomes, ratio }),
        denials: above_zero(breakers.denials),
        result_aware: !breakers.ignore_results,
        polling_tools: tools("polling_tools", &breakers.polling_tools)?,
    };
    match read.check() {
        Ok(()) => Ok(read),
        Err(out) => Err(refused(out.field)),
    }
}

/// Names the wire's field, and its range.
fn refused(field: &str) -> Invalid {
    let (field, must) = match field {
        "name_streak" => ("name_streak", "must be at most 64"),
        "storm.window" => ("storm_window", "must be 2 to 64 when storm_calls is set"),
        "storm.calls" => ("storm_calls", "must be 2 to storm_window, or 0"),
        "cycle.longest" => ("cycle_longest", "must be 2 to 8, or 0"),
        "cycle.rounds" => (
            "cycle_rounds",
            "must be at least 1 when cycle_longest is set, and with it span at most 64 calls",
        ),
        "error_rate.outcomes" => ("error_outcomes", "must be at most 64"),
        "error_rate.ratio" => ("error_ratio", "must be above 0.0 when error_outcomes is set"),
        "polling_tools" => ("polling_tools", "must be at most 64"),
        _ => ("breakers", "are out of their range"),
    };
    Invalid::new(field, must)
}

pub(super) fn write(breakers: &Breakers) -> proto::Breakers {
    let storm = breakers.storm;
    let cycle = breakers.cycle;
    let errors = breakers.error_rate;
    proto::Breakers {
        name_streak: breakers.name_streak.unwrap_or(0),
        storm_calls: storm.map_or(0, |storm| storm.calls),
        storm_window: storm.map_or(0, |storm| storm.window),
        storm_ignores_progress: storm.is_some_and(|storm| !storm.progress_aware),
        storm_successes: storm.map_or(0, |storm| storm.successes),
        cycle_longest: cycle.map_or(0, |cycle| cycle.longest),
        cycle_rounds: cycle.map_or(0, |cycle| cycle.rounds),
        error_outcomes: errors.map_or(0, |errors| errors.outcomes),
        error_ratio: errors.map_or(0.0, |errors| money::to_ratio(errors.ratio)),
        denials: breakers.denials.unwrap_or(0),
        ignore_results: !breakers.result_aware,
        polling_tools: breakers
            .polling_tools
            .iter()
            .map(|tool| tool.as_str().to_owned())
            .collect(),
    }
}
