//! Three nodes under crashes, cuts, a bad clock, lost answers and retries: no overspend, no nonce allowed twice, no ALLOW
//! after a kill's answer, one chain everywhere. A failure prints the seed that repeats it.
//!
//! `HALTGATE_SEEDS=A..B cargo nextest run --workspace --run-ignored only any_seeds` runs others.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what goes wrong in a test's helper fails the test"
)]

#[path = "../../crates/machine/tests/properties/seed.rs"]
mod seed;

use std::collections::BTreeMap;
use std::time::Duration;

use decision::{AgentId, Digest, NanoUsd, OrganizationId, RequestId, SessionId, ToolName, Verdict};
use machine::command::{
    AgentPattern, Engage, Limit, Params, PostExec, PreExec, Principal, Register, Release, Request, SetBudget,
};
use machine::row::HaltMode;
use machine::{AccountId, Command, Reply, Scope};
use rand::{Rng as _, RngExt as _};
use tests::invariants::{self, OneChain};
use tests::sim::{Asker, Sim, SimResult};

const ORGANIZATION: &str = "acme";
const LIMIT: NanoUsd = NanoUsd::new(3_000_000_000);
const PRICE: NanoUsd = NanoUsd::new(50_000_000);
const CLIENTS: usize = 3;
/// Seeds that no run had before.
const FRESH: u64 = 4;
/// Faults happen until then, then everything heals.
const TROUBLE: Duration = Duration::from_secs(40);
const CALM: Duration = Duration::from_secs(25);

#[test]
fn seeds_0_to_9_hold() {
    run_all(0..10);
}

#[test]
fn seeds_10_to_19_hold() {
    run_all(10..20);
}

#[test]
fn seeds_20_to_29_hold() {
    run_all(20..30);
}

#[test]
fn seeds_30_to_39_hold() {
    run_all(30..40);
}

#[test]
fn seeds_40_to_49_hold() {
    run_all(40..50);
}

#[test]
fn fresh_seeds_hold() {
    let first = u64::from(u32::MAX) + seed::seed() % (1 << 40);
    run_each(first..first + FRESH);
}

#[test]
#[ignore = "runs the seeds that HALTGATE_SEEDS names, as A..B"]
fn any_seeds_hold() {
    let named = std::env::var("HALTGATE_SEEDS").expect("HALTGATE_SEEDS");
    let (from, to) = named.split_once("..").expect("A..B");
    run_each(from.parse().unwrap()..to.parse().unwrap());
}

/// A process of its own each time: what one run leaves behind in a process (the runtime counts its tasks) is no
/// part of the seed.
#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [7, 8] {
        let (one, two) = (trace_of(seed), trace_of(seed));
        assert!(one.lines().count() > 100, "a trace of a real run: {one}");
        for (number, (a, b)) in one.lines().zip(two.lines()).enumerate() {
            assert_eq!(a, b, "seed {seed}, line {number}");
        }
        assert_eq!(one.len(), two.len());
    }
}

fn trace_of(seed: u64) -> String {
    let ran = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_trace_can_be_printed", "--nocapture"])
        .env(PRINTED_SEED, seed.to_string())
        .output()
        .unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    printed
        .lines()
        .filter(|line| line.starts_with("trace "))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The seed whose trace `a_trace_can_be_printed` prints.
const PRINTED_SEED: &str = "HALTGATE_PRINT_TRACE";

#[test]
fn a_trace_can_be_printed() {
    let seed = std::env::var(PRINTED_SEED).map_or(3, |text| text.parse().unwrap());
    let ran = run(seed).unwrap();
    assert!(ran.verdicts > 0);
    for line in ran.trace.lines() {
        println!("trace {line}");
    }
}

fn run_all(seeds: std::ops::Range<u64>) {
    let ran = run_each(seeds);
    assert!(
        ran.verdicts > 100 && ran.retried > 0 && ran.engaged > 0 && ran.allowed > 10,
        "the run met its faults"
    );
}

fn run_each(seeds: std::ops::Range<u64>) -> Ran {
    let mut ran = Ran::default();
    for seed in seeds {
        match run(seed) {
            Ok(one) => ran.add(&one),
            Err(why) => panic!("HALTGATE_SEEDS={seed}..{} fails: {why}", seed + 1),
        }
    }
    println!(
        "{} verdicts, {} retried, {} engagements, {} allowed",
        ran.verdicts, ran.retried, ran.engaged, ran.allowed
    );
    ran
}

/// What a run has met: one that met nothing shows nothing.
#[derive(Default)]
struct Ran {
    verdicts: usize,
    retried: usize,
    engaged: usize,
    allowed: usize,
    trace: String,
}

impl Ran {
    fn add(&mut self, other: &Self) {
        self.verdicts += other.verdicts;
        self.retried += other.retried;
        self.engaged += other.engaged;
        self.allowed += other.allowed;
    }
}

fn run(seed: u64) -> Result<Ran, String> {
    let mut sim = Sim::new(seed, 3);
    for number in 0..CLIENTS {
        sim.client(seed, number, agent);
    }
    sim.client(seed, CLIENTS, operator);
    let mut one_chain = OneChain::default();
    let mut next_fault = Duration::from_secs(4);
    let words = |error: Box<dyn std::error::Error>| error.to_string();
    while sim.now() < TROUBLE {
        sim.step().map_err(words)?;
        observe(&sim, &mut one_chain)?;
        if sim.now() >= next_fault {
            sim.disturb();
            next_fault += Duration::from_millis(700);
        }
    }
    sim.heal();
    let healed = sim.now();
    while sim.now() < healed + CALM {
        sim.step().map_err(words)?;
        observe(&sim, &mut one_chain)?;
        if *sim.shared.finished.lock().unwrap() == CLIENTS + 1 && is_even(&sim) {
            break;
        }
    }

    let readers = sim.shared.readers.lock().unwrap().clone();
    if readers.len() != 3 {
        return Err(format!("only {:?} came back", readers.keys()));
    }
    let mut chains = BTreeMap::new();
    for (name, reader) in &readers {
        chains.insert(name.clone(), invariants::chain(reader)?);
        invariants::nobody_overspent(reader, LIMIT, ORGANIZATION)?;
        invariants::chain_verifies(reader)?;
    }
    let longest = chains
        .values()
        .max_by_key(|chain| chain.len())
        .ok_or("no chain")?;
    for (name, chain) in &chains {
        if chain != longest {
            let heads: Vec<_> = readers
                .iter()
                .map(|(name, reader)| (name, *reader.progress().borrow()))
                .collect();
            return Err(format!(
                "{name} has {} of {} entries {:?} after healing: {heads:?}",
                chain.len(),
                longest.len(),
                CALM
            ));
        }
    }
    let history = sim.shared.history();
    let ran = Ran {
        verdicts: invariants::answers_stand_in_the_chain(&history, longest)?,
        retried: invariants::retries_agree(&history)?,
        engaged: invariants::no_allow_after_engage_returned(&history, ORGANIZATION)?,
        allowed: invariants::allows_fit_the_limit(longest, LIMIT, ORGANIZATION, PRICE)?,
        trace: history.trace().to_owned(),
    };
    invariants::no_nonce_is_allowed_twice(longest)?;
    invariants::no_allow_while_engaged_in_the_chain(longest, ORGANIZATION)?;
    Ok(ran)
}

fn observe(sim: &Sim, one_chain: &mut OneChain) -> Result<(), String> {
    for (name, reader) in sim.shared.readers.lock().unwrap().iter() {
        one_chain.observe(name, reader)?;
        invariants::log_time_is_bounded(name, reader, sim.true_time())?;
    }
    Ok(())
}

/// All nodes are up and have applied the same.
fn is_even(sim: &Sim) -> bool {
    let readers = sim.shared.readers.lock().unwrap();
    let applied: Vec<u64> = readers
        .values()
        .map(|reader| reader.progress().borrow().applied_index)
        .collect();
    applied.len() == 3 && applied.windows(2).all(|pair| pair[0] == pair[1])
}

/// An agent that registers, calls, reports, and asks again when it heard nothing.
async fn agent(mut asker: Asker) -> SimResult {
    let organization = OrganizationId::parse(ORGANIZATION)?;
    let agent = AgentId::parse(&format!("bot-{}", asker.number))?;
    let by = Principal {
        name: format!("org/{organization}/agent/{agent}"),
        organization: Some(organization.clone()),
        agents: vec![AgentPattern::Exact(agent.clone())],
    };
    let mut number = 0;
    'sessions: while turmoil::sim_elapsed().unwrap_or_default() < TROUBLE {
        let register = Command::Register(Register {
            by: by.clone(),
            organization: organization.clone(),
            agent: agent.clone(),
            resume: None,
            request: Some(request(&mut asker)?),
            metadata: BTreeMap::new(),
            guard: None,
        });
        let Some(Reply::Registered(registered)) = asker.ask(&register, TROUBLE).await else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        for _ in 0..40 {
            if turmoil::sim_elapsed().unwrap_or_default() >= TROUBLE {
                break 'sessions;
            }
            number += 1;
            let call = PreExec {
                by: by.clone(),
                session: registered.session.clone(),
                call_number: number,
                tool: ToolName::parse("search")?,
                // Few different ones, so that loops are met too.
                digest: Some(Digest::of(&[asker.rng.random_range(0..4)])),
                params: Params::Clear,
                estimate: Some(PRICE),
                nonce: u64::from(asker.rng.next_u32()).max(1),
                request: Some(request(&mut asker)?),
                parent_guard: None,
                approval: None,
                numbers: Vec::new(),
                rules: None,
            };
            let command = Command::PreExec(call);
            let answer = asker.ask(&command, TROUBLE).await;
            // Now and then the answer "was lost": the same request again.
            if asker.rng.random_bool(0.3) {
                asker.attempt(&command).await;
            }
            let Some(Reply::Verdict(answer)) = answer else {
                continue;
            };
            if answer.verdict == Verdict::Allow && asker.rng.random_bool(0.7) {
                settle(&mut asker, &by, &registered.session, number).await?;
                if asker.rng.random_bool(0.3) {
                    asker.attempt(&command).await;
                }
            }
            if answer.reason == decision::Reason::CircuitOpen {
                continue 'sessions;
            }
            tokio::time::sleep(Duration::from_millis(asker.rng.random_range(10..400))).await;
        }
    }
    Ok(())
}

async fn settle(asker: &mut Asker, by: &Principal, session: &SessionId, number: u64) -> SimResult {
    let report = Command::PostExec(PostExec {
        by: by.clone(),
        session: session.clone(),
        call_number: number,
        actual: Some(NanoUsd::new(asker.rng.random_range(0..=PRICE.nanos()))),
        success: asker.rng.random_bool(0.8),
        error_signal: false,
        partial: false,
        request: None,
        tokens_in: 0,
        tokens_out: 0,
        model: None,
        result: None,
    });
    asker.ask(&report, TROUBLE).await;
    if asker.rng.random_bool(0.2) {
        asker.attempt(&report).await;
    }
    Ok(())
}

/// An operator who funds the organization, and stops and releases it.
async fn operator(mut asker: Asker) -> SimResult {
    let by = Principal {
        name: "cluster/admin/op".to_owned(),
        organization: None,
        agents: Vec::new(),
    };
    let organization = OrganizationId::parse(ORGANIZATION)?;
    let fund = Command::SetBudget(SetBudget {
        by: by.clone(),
        account: AccountId::Organization(organization.clone()),
        limit: Limit::Amount(LIMIT),
        request: request(&mut asker)?,
        justification: String::new(),
    });
    while !matches!(asker.ask(&fund, TROUBLE).await, Some(Reply::Account(..)) | None) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let scope = Scope::Organization(organization);
    while turmoil::sim_elapsed().unwrap_or_default() + Duration::from_secs(6) < TROUBLE {
        let pause = asker.rng.random_range(1_000..6_000);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let engage = Command::Engage(Engage {
            by: by.clone(),
            scope: scope.clone(),
            reason: "drill".to_owned(),
            ticket: String::new(),
            request: request(&mut asker)?,
            mode: HaltMode::Halt,
            ttl: None,
            two_person: false,
        });
        asker.ask(&engage, TROUBLE).await;
        tokio::time::sleep(Duration::from_millis(asker.rng.random_range(200..2_000))).await;
        let release = Command::Release(Release {
            by: by.clone(),
            scope: scope.clone(),
            justification: "drill over".to_owned(),
            request: request(&mut asker)?,
            ticket: String::new(),
        });
        asker.ask(&release, TROUBLE).await;
    }
    Ok(())
}

fn request(asker: &mut Asker) -> Result<Request, Box<dyn std::error::Error>> {
    let id = format!("{:016x}", asker.rng.next_u64());
    Ok(Request {
        payload: Digest::of(id.as_bytes()),
        id: RequestId::parse(&id)?,
    })
}
