//! One bad clock: log time follows the others', nothing expires early, nothing freezes, and the node whose clock
//! it is does not go on leading.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use decision::{AgentId, Digest, NanoUsd, OrganizationId, RequestId, ToolName, Verdict};
use machine::command::{AgentPattern, Limit, Params, PreExec, Principal, Register, Request, SetBudget};
use machine::{AccountId, Command, Reply};
use tests::invariants;
use tests::sim::{Asker, Sim, SimResult};

const HOUR_MS: i64 = 3_600_000;
/// Longer than a session lives without a call, and than a hold lasts.
const RUN: Duration = Duration::from_secs(150);
/// How long an agent is silent between its calls; a session goes stale after 90 s.
const SILENCE: Duration = Duration::from_secs(20);
/// How long a cluster may take to get rid of a leader with a bad clock: asked every second, and one election.
const MOVED: Duration = Duration::from_secs(12);

#[test]
fn a_clock_an_hour_off_from_the_start_expires_nothing_and_freezes_nothing() {
    for (seed, name, ahead_ms) in [
        (1, "n1", HOUR_MS),
        (2, "n2", HOUR_MS),
        (3, "n3", -HOUR_MS),
        (4, "n1", -HOUR_MS),
    ] {
        let mut sim = cluster(seed);
        sim.set_clock(name, ahead_ms);
        run_until(&mut sim, RUN);
        calm(&sim, seed);
        assert_ne!(sim.leader().as_deref(), Some(name), "seed {seed}");
    }
}

#[test]
fn a_leader_whose_clock_jumps_hands_on_and_does_not_lead_again() {
    for (seed, ahead_ms) in [(11, HOUR_MS), (12, -HOUR_MS), (13, 3_000), (14, -3_000)] {
        let mut sim = cluster(seed);
        run_until(&mut sim, Duration::from_secs(20));
        let bad = sim.leader().expect("a leader");
        sim.set_clock(&bad, ahead_ms);
        let jumped = sim.now();
        run_until(&mut sim, jumped + MOVED);
        // Its successors fail one after the other: there is always one other to elect.
        let mut next = sim.now();
        while sim.now() < RUN - MOVED {
            if sim.now() >= next {
                let leader = sim.leader().expect("a leader");
                sim.crash(&leader);
                next += MOVED;
            } else if sim.now() + MOVED / 2 >= next {
                sim.heal_but_clocks();
            }
            step(&mut sim);
            assert_ne!(sim.leader().as_ref(), Some(&bad), "seed {seed}, {:?}", sim.now());
        }
        sim.heal_but_clocks();
        run_until(&mut sim, RUN);
        calm(&sim, seed);
    }
}

#[test]
fn a_clock_within_two_seconds_goes_on_leading_and_is_held_to_one() {
    let mut sim = cluster(21);
    run_until(&mut sim, Duration::from_secs(20));
    let leader = sim.leader().expect("a leader");
    sim.set_clock(&leader, 1_800);
    while sim.now() < Duration::from_secs(60) {
        step(&mut sim);
        assert_eq!(sim.leader().as_ref(), Some(&leader), "{:?}", sim.now());
    }
}

/// Every clock is set back: log time stands until they have caught up, and calls are decided all the while.
#[test]
fn log_time_never_runs_backwards() {
    let mut sim = cluster(31);
    run_until(&mut sim, Duration::from_secs(20));
    let leader = sim.leader().expect("a leader");
    let reader = sim.shared.readers.lock().unwrap()[&leader].clone();
    let before = sim.true_time();
    for name in sim.names.clone() {
        sim.set_clock(&name, -30_000);
    }
    let mut last = reader.progress().borrow().log_time;
    while sim.now() < RUN {
        step(&mut sim);
        let now = reader.progress().borrow().log_time;
        assert!(now >= last, "{now} after {last}");
        last = now;
        // Where a node still remembers what another's clock showed before, for a second.
        if sim.now() < Duration::from_secs(45) {
            assert!(now.since(before).secs() < 3, "it stands: {now} after {before}");
        }
    }
    assert!(last.since(before).secs() > 60, "it went on: {last}");
    calm(&sim, 31);
}

#[test]
fn after_an_outage_the_first_stamp_waits_for_the_others_clocks() {
    let mut sim = cluster(41);
    run_until(&mut sim, Duration::from_secs(20));
    let bad = sim.leader().expect("a leader");
    for name in sim.names.clone() {
        sim.crash(&name);
    }
    sim.set_clock(&bad, HOUR_MS);
    // It comes up first, and the second brings a quorum: nobody else can say what time it is.
    sim.restart(&bad);
    let until = sim.now() + Duration::from_secs(5);
    run_until(&mut sim, until);
    sim.heal_but_clocks();
    run_until(&mut sim, RUN);
    calm(&sim, 41);
    assert_ne!(sim.leader(), Some(bad));
}

/// The only node that has all that was committed leads, whatever its clock; then it hands on.
#[test]
fn a_bad_clock_leads_where_nobody_else_can() {
    let mut sim = cluster(51);
    run_until(&mut sim, Duration::from_secs(20));
    let leader = sim.leader().expect("a leader");
    let others: Vec<String> = sim
        .names
        .iter()
        .filter(|name| **name != leader)
        .cloned()
        .collect();
    let (bad, behind) = (&others[0], &others[1]);
    sim.cut(&leader, behind, false);
    sim.cut(bad, behind, false);
    sim.set_clock(bad, HOUR_MS);
    run_until(&mut sim, Duration::from_secs(45));
    sim.crash(&leader);
    sim.repair_all();
    let mut led = false;
    while sim.now() < RUN && !led {
        step(&mut sim);
        led = sim.leader().as_ref() == Some(bad);
    }
    assert!(led, "somebody must lead");
    let until = sim.now() + MOVED;
    run_until(&mut sim, until);
    assert_eq!(
        sim.leader().as_ref(),
        Some(behind),
        "it has caught up, and its clock is right"
    );
    run_until(&mut sim, RUN);
    calm(&sim, 51);
}

/// Three nodes and an agent that is silent most of the time.
fn cluster(seed: u64) -> Sim {
    let mut sim = Sim::new(seed, 3);
    sim.client(seed, 0, agent);
    sim
}

fn run_until(sim: &mut Sim, until: Duration) {
    while sim.now() < until {
        step(sim);
    }
}

fn step(sim: &mut Sim) {
    sim.step().unwrap();
    let readers = sim.shared.readers.lock().unwrap();
    for (name, reader) in readers.iter() {
        invariants::log_time_is_bounded(name, reader, sim.true_time()).unwrap();
    }
}

/// Every call was allowed, some were made all the time, and log time went on.
fn calm(sim: &Sim, seed: u64) {
    let history = sim.shared.history();
    let mut times = Vec::new();
    for (attempt, reply) in history.answered() {
        let (Command::PreExec(_), Reply::Verdict(answer)) = (&attempt.command, reply) else {
            continue;
        };
        assert_eq!(answer.verdict, Verdict::Allow, "seed {seed}: {:?}", answer.reason);
        times.push(attempt.returned);
    }
    assert!(times.len() >= 6, "seed {seed}: {times:?}");
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] < SILENCE * 2, "seed {seed}: {times:?}");
    }
    let truth = sim.true_time();
    for (name, reader) in sim.shared.readers.lock().unwrap().iter() {
        let log_time = reader.progress().borrow().log_time;
        let behind = truth.since(log_time).secs();
        assert!(
            behind < 2 * SILENCE.as_secs(),
            "seed {seed}: {name} is {behind} s behind"
        );
    }
}

async fn agent(mut asker: Asker) -> SimResult {
    let organization = OrganizationId::parse("acme")?;
    let agent = AgentId::parse("bot-1")?;
    let by = Principal {
        name: "org/acme/agent/bot-1".to_owned(),
        organization: Some(organization.clone()),
        agents: vec![AgentPattern::Exact(agent.clone())],
    };
    let fund = Command::SetBudget(SetBudget {
        by: Principal {
            name: "cluster/admin/op".to_owned(),
            organization: None,
            agents: Vec::new(),
        },
        account: AccountId::Organization(organization.clone()),
        limit: Limit::Amount(NanoUsd::new(3_000_000_000)),
        request: request("fund")?,
        justification: String::new(),
    });
    while !matches!(asker.ask(&fund, RUN).await, Some(Reply::Account(..)) | None) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let register = Command::Register(Register {
        by: by.clone(),
        organization,
        agent,
        resume: None,
        request: Some(request("register")?),
        metadata: BTreeMap::new(),
        guard: None,
    });
    let Some(Reply::Registered(registered)) = asker.ask(&register, RUN).await else {
        return Err("no session".into());
    };
    for number in 1.. {
        if turmoil::sim_elapsed().unwrap_or_default() > RUN {
            break;
        }
        let call = Command::PreExec(PreExec {
            by: by.clone(),
            session: registered.session.clone(),
            call_number: number,
            tool: ToolName::parse("search")?,
            digest: Some(Digest::of(&number.to_be_bytes())),
            params: Params::Clear,
            estimate: Some(NanoUsd::new(1_000)),
            nonce: number,
            request: Some(request(&format!("call-{number}"))?),
            parent_guard: None,
            approval: None,
            numbers: Vec::new(),
            rules: None,
        });
        asker.ask(&call, RUN).await;
        tokio::time::sleep(SILENCE).await;
    }
    Ok(())
}

fn request(id: &str) -> Result<Request, Box<dyn std::error::Error>> {
    Ok(Request {
        payload: Digest::of(id.as_bytes()),
        id: RequestId::parse(id)?,
    })
}
