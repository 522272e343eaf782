//! The largest commands, all at once: what an entry may carry is bounded in bytes, or the cluster stops. The same run
//! without the bound stops it, so this is the bound's doing.

use std::time::Duration;

use cluster::Options;
use decision::policy::{CHOICES_MAX, Effect, Predicate, Rule, Scalar, TEXT_MAX, Test};
use decision::{Digest, GuardId, OrganizationId, RequestId, RuleId};
use machine::command::{Engage, Principal, PutGuard, Request};
use machine::row::HaltMode;
use machine::{Command, Guard, GuardScope, Reply, Scope};
use rand::Rng as _;
use tests::sim::{Asker, Sim, SimResult};

/// Each with a guard of 0.85 MB: more in one entry than a peer takes in one message.
const TENANTS: usize = 40;
const RULES: usize = 54;
/// When they begin, once the cluster is formed.
const BEGIN: Duration = Duration::from_secs(8);
const END: Duration = Duration::from_secs(28);

#[test]
fn the_kill_switch_answers_within_a_second_beside_the_largest_guards() {
    let slowest = run(3, &Options::default()).unwrap();
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}

#[test]
fn without_the_bound_in_bytes_it_does_not() {
    let unbounded = Options {
        entry_bytes: usize::MAX,
        command_bytes: usize::MAX,
        ..Options::default()
    };
    // Or none was ever answered.
    let slowest = run(3, &unbounded).unwrap_or(Duration::MAX);
    assert!(
        slowest > Duration::from_secs(1),
        "nothing needed the bound: {slowest:?}"
    );
}

/// The longest that an engagement took, of those made while the guards were put and after.
fn run(seed: u64, options: &Options) -> Result<Duration, String> {
    let mut sim = Sim::with_options(seed, 3, 0, options);
    for number in 0..TENANTS {
        sim.client(seed, number, tenant);
    }
    sim.client(seed, TENANTS, operator);
    while sim.now() < END {
        sim.step().map_err(|error| error.to_string())?;
    }
    let history = sim.shared.history();
    // An order that is sent again counts from when it was sent first.
    let mut slowest = Duration::ZERO;
    let mut since: Option<Duration> = None;
    let mut engaged = 0;
    for attempt in history.attempts.iter() {
        if !matches!(attempt.command, Command::Engage(_)) {
            continue;
        }
        let first = *since.get_or_insert(attempt.invoked);
        slowest = slowest.max(attempt.returned - first);
        if matches!(attempt.reply, Some(Reply::Halt(_))) {
            engaged += 1;
            since = None;
        }
    }
    if engaged == 0 {
        return Err("no engagement was ever answered".to_owned());
    }
    Ok(slowest)
}

fn by(name: &str) -> Principal {
    Principal {
        name: name.to_owned(),
        organization: None,
        agents: Vec::new(),
    }
}

async fn begin() {
    let now = turmoil::sim_elapsed().unwrap_or_default();
    tokio::time::sleep(BEGIN.saturating_sub(now)).await;
}

/// Puts one guard with as many rules of as many choices as it may have.
async fn tenant(mut asker: Asker) -> SimResult {
    begin().await;
    let organization = OrganizationId::parse("acme")?;
    let rules: Result<Vec<Rule>, Box<dyn std::error::Error>> = (0..RULES).map(large_rule).collect();
    let put = Command::PutGuard(PutGuard {
        by: by("cluster/operator/op"),
        scope: GuardScope::Named(organization, GuardId::parse(&format!("large-{}", asker.number))?),
        guard: Guard {
            rules: rules?,
            ..Guard::default()
        },
        request: request(&mut asker)?,
        justification: String::new(),
    });
    let put = asker.ask(&put, END).await;
    assert!(put.is_none_or(|reply| matches!(reply, Reply::Guard(..))));
    Ok(())
}

/// Engages a halt every half second.
async fn operator(mut asker: Asker) -> SimResult {
    begin().await;
    let mut number = 0;
    while turmoil::sim_elapsed().unwrap_or_default() + Duration::from_secs(2) < END {
        number += 1;
        let engage = Command::Engage(Engage {
            by: by("cluster/operator/op"),
            scope: Scope::Organization(OrganizationId::parse(&format!("other-{number}"))?),
            reason: "drill".to_owned(),
            ticket: String::new(),
            request: request(&mut asker)?,
            mode: HaltMode::Halt,
            ttl: None,
            two_person: false,
        });
        asker.ask(&engage, END).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

fn large_rule(number: usize) -> Result<Rule, Box<dyn std::error::Error>> {
    let choices = (0..CHOICES_MAX).map(|choice| Scalar::Text(format!("{choice:0>TEXT_MAX$}")));
    Ok(Rule {
        id: RuleId::parse(&format!("r-{number}"))?,
        tools: Vec::new(),
        tags: Vec::new(),
        when: vec![Predicate {
            path: vec!["to".to_owned()],
            test: Test::OneOf(choices.collect()),
        }],
        effect: Effect::Ask,
    })
}

fn request(asker: &mut Asker) -> Result<Request, Box<dyn std::error::Error>> {
    let id = format!("{:016x}", asker.rng.next_u64());
    Ok(Request {
        payload: Digest::of(id.as_bytes()),
        id: RequestId::parse(&id)?,
    })
}
