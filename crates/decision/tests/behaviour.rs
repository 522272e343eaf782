//! Q6 at its edges: streaks, storms, cycles, results that change, and what outcomes trip.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that breaks says where")]

use decision::behaviour::{
    Breakers, Candidate, Cycle, ErrorRate, InvalidBreakers, Number, Outcome, Outcomes, RecentCall, Storm,
};
use decision::digest::Digest;
use decision::id::ToolName;
use decision::money::PerBillion;
use decision::params::Inspected;
use decision::pattern::ToolPattern;
use proptest::prelude::*;

/// Reads one call: `tool/arguments outcome result`, as in `s/q+r1`.
///
/// Arguments `#3` are `{"page":3}`, none are none. `+` succeeded, `~` failed, `?` or nothing is pending.
fn call(text: &str) -> RecentCall {
    let (tool, rest) = text.split_once('/').unwrap();
    let end = rest.find(['+', '~', '?']).unwrap_or(rest.len());
    let (arguments, ending) = rest.split_at(end);
    let params = match arguments.strip_prefix('#') {
        Some(page) => format!(r#"{{"page":{page},"q":"x"}}"#),
        None => format!(r#"{{"q":"{arguments}"}}"#),
    };
    let inspected = Inspected::read(params.as_bytes());
    let result = ending.get(1..).filter(|result| !result.is_empty());
    RecentCall {
        tool: ToolName::parse(tool).unwrap(),
        digest: inspected.facts.digest.filter(|_| !arguments.is_empty()),
        outcome: match ending.get(..1) {
            Some("+") => Outcome::Succeeded,
            Some("~") => Outcome::Failed,
            _ => Outcome::Pending,
        },
        result: result.map(|result| Digest::of(result.as_bytes())),
        numbers: inspected.numbers(),
    }
}

fn calls(text: &str) -> Vec<RecentCall> {
    text.split_whitespace().map(call).collect()
}

fn candidate(call: &RecentCall) -> Candidate<'_> {
    Candidate {
        tool: &call.tool,
        digest: call.digest,
        numbers: &call.numbers,
    }
}

/// Names what Q6 says about the last of some calls, the others having been allowed.
fn flags(breakers: &Breakers, text: &str) -> String {
    let mut recent = calls(text);
    let asking = recent.pop().unwrap();
    let call = candidate(&asking);
    let rows = [
        ("streak", breakers.name_repeat_exceeded(&recent, &call)),
        ("storm", breakers.retry_storm(&recent, &call)),
        ("loop", breakers.loop_detected(&recent, &call)),
    ];
    let set: Vec<_> = rows
        .iter()
        .filter(|(_, set)| *set)
        .map(|(name, _)| *name)
        .collect();
    set.join(" ")
}

fn shipped() -> Breakers {
    Breakers::default()
}

/// As AgentBrake has it: results say nothing, and new calls are progress only where some are known to succeed.
fn strict() -> Breakers {
    Breakers {
        result_aware: false,
        storm: Some(Storm {
            successes: 2,
            ..Storm::default()
        }),
        ..Breakers::default()
    }
}

fn streak(name_streak: u32) -> Breakers {
    Breakers {
        name_streak: Some(name_streak),
        ..Breakers::off()
    }
}

fn storm(change: impl Fn(&mut Storm)) -> Breakers {
    let mut storm = Storm {
        successes: 2,
        ..Storm::default()
    };
    change(&mut storm);
    Breakers {
        storm: Some(storm),
        ..Breakers::off()
    }
}

fn cycle(longest: u32, rounds: u32) -> Breakers {
    Breakers {
        cycle: Some(Cycle { longest, rounds }),
        ..Breakers::off()
    }
}

fn result_aware(breakers: Breakers) -> Breakers {
    Breakers {
        result_aware: true,
        ..breakers
    }
}

fn polling(breakers: Breakers, tool: &str) -> Breakers {
    Breakers {
        polling_tools: vec![ToolPattern::parse(tool).unwrap()],
        ..breakers
    }
}

/// Settings | calls of which the last asks now | what Q6 says | what it shows.
const EDGES: &str = r#"
strict                  | s/a                                           |        | nothing ran yet
off                      | s/a~ s/a~ s/a~ s/a~ s/a~ s/a                  |        | off, nothing is looked for
streak=3                 | s/a s/b s/c                                   |        | as many in a row as may run
streak=3                 | s/a+ s/b+ s/c+ s/d                            | streak | one more of that tool
streak=3                 | s/a s/b r/a s/c s/d                           |        | another tool breaks the streak
streak=3 polling=s*      | s/a s/b s/c s/d                               |        | a polling tool has no streak
strict                  | s/a~ s/b~ s/c~ s/d                            |        | the fourth of its tool
strict                  | s/a~ s/b~ s/c~ s/d~ s/e                       | storm  | the fifth of its tool
strict                  | s/a~ r/a s/b~ r/b s/c~ r/c s/d~ r/d s/e       | storm  | other tools in between
strict                  | s/a~ r/a r/b r/c s/b~ r/d s/c~ r/e r/f s/d~ s/e |        | the first has left the window
storm window=5           | s/a~ s/b~ s/c~ r/a s/d~ s/e                   |        | a narrow window
strict                  | s/a~ s/b~ s/c~ s/d~ s/e~ r/a                  |        | another tool asks
storm count-alone        | s/#1+ s/#2+ s/#3+ s/#4+ s/#5                  | storm  | the fifth, counted alone
strict                  | s/#1 s/#2 s/#3 s/#4 s/#5                      |        | pages forward, not ended
strict                  | s/#2 s/#1 s/#0 s/#-1 s/#-2                    |        | pages backward past zero
strict                  | s/#1 s/#1.5 s/#2 s/#25e-1 s/#3                |        | pages as floats among integers
strict                  | s/#1 s/#2 s/#2 s/#3 s/#4                      | storm  | a page twice
strict                  | s/#1 s/#2 s/#3 s/#4 s/#1                      | storm  | a page back
strict                  | s/#false s/#true s/#2 s/#3 s/#4               | storm  | a page that is a truth
strict                  | s/#1 s/#2 s/#"3" s/#4 s/#5                    | storm  | a page that is a text
strict                  | s/#1 s/#2 s/x s/#3 s/#4                       | storm  | one call without the number
storm calls=2            | s/#1 s/#2                                     | storm  | two calls are no direction
storm calls=2            | s/#1 s/#2 s/#3                                |        | three calls are one
strict                  | s/#1+ s/#2+ s/#3~ s/#4 s/#5                   |        | fewer failures than successes
strict                  | s/#1+ s/#2+ s/#3~ s/#4~ s/#5                  | storm  | as many failures as successes
strict                  | s/#1~ s/#2~ s/#3~ s/#4~ s/#5                  | storm  | a counter in a failing call
storm failing-progress   | s/#1~ s/#2~ s/#3~ s/#4~ s/#5                  |        | a counter in a failing call, where that is progress
strict                  | s/a+ s/b s/c+ s/d s/e                         |        | distinct and two succeeded
strict                  | s/a+ s/b s/c s/d s/e                          | storm  | distinct and one succeeded
strict                  | s/a+ s/b+ s/c+ s/d~ s/e                       | storm  | distinct and one failed
strict                  | s/a+ s/b+ s/c+ s/d+ s/a                       |        | four of five distinct
strict                  | s/a+ s/b+ s/c+ s/a+ s/b                       | storm  | three of five distinct
strict                  | s/+ s/+ s/+ s/+ s/                            | storm  | without arguments all are the same
strict                  | s/a+1 s/a+2 s/a+3 s/a+4 s/a                   | storm  | the same call, results change
strict result-aware     | s/a+1 s/a+2 s/a+3 s/a+4 s/a                   |        | that, result-aware
strict result-aware     | s/a+1 s/a+1 s/a+2 s/a+3 s/a                   |        | two results alike
strict result-aware     | s/a+1 s/a+2 s/a+3 s/a+3 s/a                   | storm  | the last results alike
strict result-aware     | s/a+ s/a+ s/a+ s/a+ s/a                       | storm  | results unknown
strict polling=s        | s/a~ s/a~ s/a~ s/a~ s/a                       |        | a polling tool
strict                  | a/ b/ a/ b/                                   |        | two calls in turn
strict                  | a/ b/ a/ b/ a/                                | loop   | a third round begins
strict                  | a/ b/ a/ b/ c/                                |        | a round leaves the circle
strict                  | a/ b/ a/ b/ a/ b/                             | loop   | and comes to its second call
cycle=2x2                | s/a s/b s/a s/b s/a                           | loop   | arguments in turn
cycle=4x2                | a/1 b/1 a/2 b/2 a/3                           |        | other arguments each round
cycle=4x2                | x/ a/ b/ c/ d/ a/ b/ c/ d/ a/                 | loop   | four in turn
cycle=3x2                | a/ b/ c/ d/ a/ b/ c/ d/ a/                    |        | four in turn, looked at three
cycle=4x2                | a/ b/ c/ d/ e/ a/ b/ c/ d/ e/ a/              |        | five in turn
cycle=4x2                | a/ a/ a/ a/ a/                                |        | one call alone is no circle
cycle=3x2                | a/ a/ b/ a/ a/ b/ a/                          | loop   | a round with one call twice
cycle=2x3                | a/ b/ a/ b/ a/ b/                             |        | three rounds may run
cycle=2x3                | a/ b/ a/ b/ a/ b/ a/                          | loop   | three rounds ran
cycle=2x1                | a/ b/ a/                                      | loop   | one round ran
strict                  | a/+1 b/+1 a/+2 b/+1 a/                        | loop   | results change each round
strict result-aware     | a/+1 b/+1 a/+2 b/+1 a/                        |        | that, result-aware
strict result-aware     | a/+1 b/+1 a/+1 b/+1 a/                        | loop   | results stay, result-aware
strict polling=b        | a/ b/ a/ b/ a/                                |        | a circle through a polling tool
shipped                  | s/a s/b s/c s/d s/e                           |        | distinct, and nobody reports
shipped                  | s/a+ s/b+ s/c~ s/d s/e                        | storm  | one of them failed
shipped                  | s/a s/b s/a s/b s/a                           | storm loop | few distinct, and nobody reports
shipped                  | s/a+1 s/a+2 s/a+3 s/a+4 s/a                   |        | a poller
"#;

/// Reads settings from words; what no word names is off.
fn settings(words: &str) -> Breakers {
    words.split_whitespace().fold(Breakers::off(), |breakers, word| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let storm_with = |change: fn(&mut Storm, u32)| storm(|storm| change(storm, value.parse().unwrap()));
        match name {
            "off" => breakers,
            "shipped" => shipped(),
            "strict" => strict(),
            "streak" => streak(value.parse().unwrap()),
            "storm" => storm(|_| {}),
            "count-alone" => storm(|storm| storm.progress_aware = false),
            "failing-progress" => storm(|storm| storm.failing_progress = true),
            "window" => storm_with(|storm, window| storm.window = window),
            "calls" => storm_with(|storm, calls| storm.calls = calls),
            "cycle" => {
                let (longest, rounds) = value.split_once('x').unwrap();
                cycle(longest.parse().unwrap(), rounds.parse().unwrap())
            }
            "result-aware" => result_aware(breakers),
            "polling" => polling(breakers, value),
            other => panic!("{other}"),
        }
    })
}

#[test]
fn each_detector_at_its_edges() {
    let mut rows = 0;
    for row in EDGES.lines().filter(|row| !row.is_empty()) {
        let fields: Vec<_> = row.split('|').map(str::trim).collect();
        let [words, calls, expected, shows] = fields[..] else {
            panic!("{row}")
        };
        let breakers = settings(words);
        assert_eq!(breakers.check(), Ok(()), "{shows}");
        assert_eq!(flags(&breakers, calls), expected, "{shows}: {calls}");
        rows += 1;
    }
    assert_eq!(rows, 61);
}

#[test]
fn repeats_count_from_the_last_result_that_changed() {
    let aware = || result_aware(shipped());
    // name, settings, the calls, the plain count of identical calls before the last, what counts of it
    let rows = [
        ("counted plainly", strict(), "s/a+1 s/a+2 s/a", 2, 2),
        ("the result stays", aware(), "s/a+1 s/a+1 s/a+1 s/a", 3, 3),
        ("the last result is new", aware(), "s/a+1 s/a+1 s/a+2 s/a", 3, 1),
        ("it stayed since", aware(), "s/a+1 s/a+2 s/a+2 s/a", 3, 2),
        ("it is not known yet", aware(), "s/a+1 s/a+2 s/a? s/a", 3, 2),
        ("no result is known", aware(), "s/a+ s/a+ s/a", 2, 2),
        ("more than is remembered", aware(), "s/a+1 s/a+1 s/a", 100, 100),
        ("another call between", aware(), "s/a+1 s/b+2 s/a", 0, 0),
        (
            "a change before another call",
            aware(),
            "s/a+1 s/a+2 s/b+1 s/a+2 s/a",
            1,
            1,
        ),
        (
            "a polling tool never repeats",
            polling(shipped(), "s"),
            "s/a+1 s/a+1 s/a",
            2,
            0,
        ),
    ];
    for (name, breakers, text, counted, expected) in rows {
        let mut recent = calls(text);
        let asking = recent.pop().unwrap();
        assert_eq!(
            breakers.repeats(counted, &recent, &candidate(&asking)),
            expected,
            "{name}: {text}"
        );
    }
}

/// Makes calls until one is denied by R6 (3 identical ones may run) or Q6, as a session does.
fn run(breakers: &Breakers, calls: impl Iterator<Item = String>) -> Option<usize> {
    let mut recent: Vec<RecentCall> = Vec::new();
    let mut counted = 0;
    for (at, text) in calls.enumerate() {
        let asking = call(&text);
        let candidate = candidate(&asking);
        if !recent.last().is_some_and(|last| candidate.is_same(last)) {
            counted = 0;
        }
        let repeats = breakers.repeats(counted, &recent, &candidate);
        let denied = repeats >= 3
            || breakers.name_repeat_exceeded(&recent, &candidate)
            || breakers.retry_storm(&recent, &candidate)
            || breakers.loop_detected(&recent, &candidate);
        if denied {
            return Some(at + 1);
        }
        counted = repeats + 1;
        recent.push(asking);
        let keep = recent.len().saturating_sub(breakers.recent_needed());
        recent.drain(..keep);
    }
    None
}

/// A name, settings, what the n-th call is, and which call is denied, counted from 1.
type Scenario = (&'static str, Breakers, fn(u32) -> String, Option<usize>);

#[test]
fn work_runs_free_and_what_turns_in_place_stops() {
    let poll = |at: u32| format!("status/job+{at}");
    let rows: [Scenario; 16] = [
        ("a poller, not declared", strict(), poll, Some(4)),
        ("a poller", shipped(), poll, None),
        ("a poller, declared", polling(shipped(), "stat*"), poll, None),
        ("a poller, result-aware", result_aware(shipped()), poll, None),
        (
            "a poller whose job stands still",
            result_aware(shipped()),
            |_| "status/job+7".to_owned(),
            Some(4),
        ),
        (
            "a poller that waits in between",
            result_aware(shipped()),
            |at| {
                if at % 2 == 0 {
                    format!("status/job+{at}")
                } else {
                    "wait/+".to_owned()
                }
            },
            Some(10),
        ),
        (
            "that, both declared",
            polling(shipped(), "*"),
            |at| {
                if at % 2 == 0 {
                    format!("status/job+{at}")
                } else {
                    "wait/+".to_owned()
                }
            },
            None,
        ),
        ("a paginator", shipped(), |at| format!("list/#{at}+"), None),
        (
            "a paginator whose outcomes nobody tells",
            shipped(),
            |at| format!("list/#{at}"),
            None,
        ),
        (
            "a paginator backward",
            shipped(),
            |at| format!("list/#{}+", 50 - i64::from(at)),
            None,
        ),
        (
            "a paginator that fails now and then",
            shipped(),
            |at| format!("list/#{at}{}", if at % 4 == 3 { "~" } else { "+" }),
            None,
        ),
        ("a crawler", shipped(), |at| format!("fetch/page{at}+"), None),
        (
            "a crawler that meets failures",
            shipped(),
            |at| format!("fetch/page{at}~"),
            Some(5),
        ),
        (
            "the loop of death",
            shipped(),
            |_| "search/latest~".to_owned(),
            Some(4),
        ),
        (
            "a retry storm",
            shipped(),
            |at| format!("search/attempt{at}~"),
            Some(5),
        ),
        (
            "A, B, A, B",
            shipped(),
            |at| {
                if at % 2 == 0 {
                    "a/+".to_owned()
                } else {
                    "b/+".to_owned()
                }
            },
            Some(5),
        ),
    ];
    for (name, breakers, text, stopped) in rows {
        assert_eq!(run(&breakers, (0..50).map(text)), stopped, "{name}");
    }
}

#[test]
fn error_rate_trips_once_enough_outcomes_were_seen() {
    // outcomes in order, the last so many, percent, trips
    let rows = [
        ("", 1, 100, false),
        ("~", 1, 100, true),
        ("~~", 3, 50, false),
        ("~~+", 3, 50, true),
        ("+~+~", 4, 50, true),
        ("+~++", 4, 50, false),
        ("~~~~++++", 4, 1, false),
        ("++++~~~~", 4, 100, true),
        ("~.~..", 2, 100, true),
        ("~.", 2, 100, false),
        ("+++++~", 6, 17, false),
        ("+++++~", 6, 16, true),
    ];
    for (text, outcomes, percent, expected) in rows {
        let breakers = error_rate(outcomes, percent);
        assert_eq!(
            breakers.error_rate_exceeded(&outcomes_of(text)),
            expected,
            "{text} {outcomes} {percent} %"
        );
        assert!(!shipped().error_rate_exceeded(&outcomes_of(text)));
    }
    let long = "+".repeat(30) + &"~".repeat(64);
    assert!(error_rate(64, 100).error_rate_exceeded(&outcomes_of(&long)));
    assert!(!error_rate(64, 100).error_rate_exceeded(&outcomes_of(&"~".repeat(63))));
    assert!(!error_rate(0, 0).error_rate_exceeded(&outcomes_of("~")));
}

fn error_rate(outcomes: u32, percent: u8) -> Breakers {
    Breakers {
        error_rate: Some(ErrorRate {
            outcomes,
            ratio: PerBillion::from_percent(percent).unwrap(),
        }),
        ..Breakers::off()
    }
}

fn outcomes_of(text: &str) -> Outcomes {
    text.chars().fold(Outcomes::default(), |outcomes, ending| {
        outcomes.with(match ending {
            '+' => Outcome::Succeeded,
            '~' => Outcome::Failed,
            _ => Outcome::Pending,
        })
    })
}

#[test]
fn denials_in_a_row_trip_at_their_number() {
    let breakers = Breakers {
        denials: Some(3),
        ..Breakers::off()
    };
    assert!(!breakers.denials_exceeded(2));
    assert!(breakers.denials_exceeded(3));
    assert!(!Breakers::default().denials_exceeded(u32::MAX));
}

#[test]
fn settings_out_of_range_are_named() {
    let rows = [
        ("name_streak", streak(0)),
        ("name_streak", streak(65)),
        ("storm.window", storm(|storm| storm.window = 65)),
        ("storm.window", storm(|storm| storm.window = 1)),
        ("storm.calls", storm(|storm| storm.calls = 1)),
        ("storm.calls", storm(|storm| storm.calls = 11)),
        ("storm.progress_calls", storm(|storm| storm.progress_calls = 1)),
        ("cycle.longest", cycle(1, 2)),
        ("cycle.longest", cycle(9, 2)),
        ("cycle.rounds", cycle(4, 0)),
        ("cycle.rounds", cycle(4, 17)),
        ("error_rate.outcomes", error_rate(0, 50)),
        ("error_rate.outcomes", error_rate(65, 50)),
        ("error_rate.ratio", error_rate(5, 0)),
        (
            "denials",
            Breakers {
                denials: Some(0),
                ..Breakers::off()
            },
        ),
        (
            "polling_tools",
            Breakers {
                polling_tools: vec![ToolPattern::parse("*").unwrap(); 65],
                ..Breakers::off()
            },
        ),
    ];
    for (field, breakers) in rows {
        assert_eq!(breakers.check(), Err(InvalidBreakers { field }), "{breakers:?}");
    }
    assert_eq!(cycle(4, 16).check(), Ok(()));
    assert_eq!(Breakers::default().check(), Ok(()));
}

#[test]
fn as_many_calls_are_remembered_as_are_looked_at() {
    assert_eq!(Breakers::off().recent_needed(), 0);
    assert_eq!(Breakers::default().recent_needed(), 9);
    assert_eq!(streak(20).recent_needed(), 20);
    assert_eq!(cycle(8, 8).recent_needed(), 64);
    assert_eq!(result_aware(Breakers::off()).recent_needed(), 2);
}

#[test]
fn numbers_order_as_they_are_and_carry_no_name() {
    let image = |text: &str| {
        let params = format!(r#"{{"n":{text}}}"#);
        Inspected::read(params.as_bytes()).numbers()
    };
    let ascending = [
        "-1e308",
        "-9223372036854775808",
        "-3",
        "-2.5",
        "-1e-300",
        "0",
        "5e-324",
        "0.5",
        "1",
        "1.5",
        "2",
        "9007199254740991",
        "9007199254740993.5",
        "1e300",
    ];
    for pair in ascending.windows(2) {
        let values: Vec<_> = pair.iter().map(|text| image(text)[0].value).collect();
        assert!(values[0] < values[1], "{pair:?} {values:?}");
    }
    assert_eq!(image("1"), image("1.0"));
    assert_eq!(image("-0.0"), image("0"));
    for none in [r#""3""#, "true", "null", "[1]", r#"{"n":1}"#] {
        assert_eq!(image(none), [], "{none}");
    }
    // An integer beyond every double has no image; it is still an argument.
    assert_eq!(image(&"9".repeat(400)), []);

    let many =
        Inspected::read(br#"{"j":1,"i":1,"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"b":1,"a":true}"#).numbers();
    assert_eq!(many.len(), 8);
    assert_eq!(many.first(), Some(&Number::new("b", many[0].value)));
    assert_eq!(Number::new("page", 0).key, 0x3660_315a_9af3_df25);
    assert_eq!(Inspected::read(b"[1]").numbers(), []);
}

#[test]
fn bytes_at_rest_are_what_they_were() {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let one = RecentCall {
        tool: ToolName::parse("s").unwrap(),
        digest: None,
        outcome: Outcome::Failed,
        result: None,
        numbers: vec![Number { key: 1, value: -1 }],
    };
    let bytes = minicbor::to_vec(&one).unwrap();
    assert_eq!(minicbor::decode::<RecentCall>(&bytes).unwrap(), one);
    assert_eq!(hex(bytes), "856173f602f681820120");
    let bytes = minicbor::to_vec(Breakers::default()).unwrap();
    assert_eq!(minicbor::decode::<Breakers>(&bytes).unwrap(), Breakers::default());
    assert_eq!(hex(bytes), "87f687050af503f41a2faf080000820402f6f6f580");
    assert_eq!(hex(minicbor::to_vec(outcomes_of("~+~")).unwrap()), "820503");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_settings_answer_about_any_calls(
        breakers in any_settings(),
        recent in proptest::collection::vec(any_call(), 0..80),
        asking in any_call(),
        counted: u32,
    ) {
        let call = candidate(&asking);
        // A guard that looks for nothing stops nothing, one that exempts every tool neither.
        for quiet in [Breakers::off(), polling(breakers.clone(), "*")] {
            prop_assert!(!quiet.name_repeat_exceeded(&recent, &call));
            prop_assert!(!quiet.retry_storm(&recent, &call));
            prop_assert!(!quiet.loop_detected(&recent, &call));
        }
        prop_assert!(breakers.repeats(counted, &recent, &call) <= counted);
        // What is said depends on no more calls than are said to be needed.
        if breakers.check().is_ok() {
            let needed = &recent[recent.len().saturating_sub(breakers.recent_needed())..];
            prop_assert_eq!(
                breakers.name_repeat_exceeded(&recent, &call),
                breakers.name_repeat_exceeded(needed, &call)
            );
            prop_assert_eq!(breakers.retry_storm(&recent, &call), breakers.retry_storm(needed, &call));
            prop_assert_eq!(breakers.loop_detected(&recent, &call), breakers.loop_detected(needed, &call));
        }
        // Progress only ever excuses a storm, results only ever a repeat.
        let counting = Breakers {
            storm: breakers.storm.map(|storm| Storm { progress_aware: false, ..storm }),
            ..breakers.clone()
        };
        prop_assert!(counting.retry_storm(&recent, &call) >= breakers.retry_storm(&recent, &call));
        let aware = result_aware(breakers.clone());
        prop_assert!(breakers.retry_storm(&recent, &call) >= aware.retry_storm(&recent, &call));
        prop_assert!(breakers.loop_detected(&recent, &call) >= aware.loop_detected(&recent, &call));
    }
}

fn any_call() -> impl Strategy<Value = RecentCall> {
    "[ab]/(#[0-3]|[xy])?([+~][1-3]?)?".prop_map(|text| call(&text))
}

fn any_settings() -> impl Strategy<Value = Breakers> {
    let number = || prop_oneof![4 => 0_u32..12, 1 => any::<u32>()];
    let part = (0_u8..=100).prop_map(|percent| PerBillion::from_percent(percent).unwrap());
    let storm = (
        number(),
        number(),
        any::<(bool, bool)>(),
        number(),
        number(),
        part,
    )
        .prop_map(
            |(calls, window, (progress_aware, failing_progress), progress_calls, successes, distinct)| {
                Storm {
                    calls,
                    window,
                    progress_aware,
                    progress_calls,
                    failing_progress,
                    distinct,
                    successes,
                }
            },
        );
    let cycle = (number(), number()).prop_map(|(longest, rounds)| Cycle { longest, rounds });
    (
        proptest::option::of(number()),
        proptest::option::of(storm),
        proptest::option::of(cycle),
        any::<bool>(),
    )
        .prop_map(|(name_streak, storm, cycle, result_aware)| Breakers {
            name_streak,
            storm,
            cycle,
            result_aware,
            ..Breakers::off()
        })
}
