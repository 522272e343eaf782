//! Who belongs to the cluster, and how far each of them is: a learner that must catch up first, a member that was
//! away while the cluster changed, a follower that was put back to an older copy of itself.

#![expect(
    clippy::unwrap_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::Role;
use decision::{Digest, RequestId};
use machine::command::{Engage, Principal, Release, Request};
use machine::{Command, Scope};
use tests::invariants::{self, OneChain};
use tests::sim::{Asker, Sim, SimResult, member};

const SPARE: &str = "n4";
/// The Raft id of the spare node: ids are given in order.
const SPARE_ID: u64 = 4;
const RUN: Duration = Duration::from_secs(120);
/// How long anything that must happen may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_learner_votes_only_when_it_has_caught_up() {
    let mut sim = cluster(1);
    let leader = wait_for(&mut sim, "a leader that works", Sim::leader);
    // It takes the log's messages and never gets them to its disk.
    sim.disk(SPARE).log().stall();
    let added = Arc::new(AtomicBool::new(false));
    take_in(&mut sim, &leader, &added);
    let until = sim.now() + Duration::from_secs(10);
    while sim.now() < until {
        step(&mut sim);
        assert!(!added.load(Ordering::Relaxed), "{:?}", sim.now());
    }
    let learner = known(&sim, &leader, SPARE_ID).expect("a member");
    assert!(!learner.voter);
    assert_eq!(learner.matched, 0, "it has nothing yet");
    sim.disk(SPARE).log().resume();
    wait_for(&mut sim, "a fourth voter", |sim| {
        (added.load(Ordering::Relaxed) && known(sim, &leader, SPARE_ID)?.voter).then_some(())
    });
    // The leader alone knows how far the others are.
    wait_for(&mut sim, "the leader sees them caught up", |sim| {
        let status = sim.status(&leader)?;
        let even = status
            .members
            .iter()
            .all(|member| member.matched == status.last_log);
        (status.leads() && even).then_some(())
    });
    let follower = sim.status(SPARE).expect("it runs");
    assert!(follower.members.iter().all(|member| member.matched == 0));
}

/// `n1` knows three members and lists them; the one that leads when it comes back is another.
#[test]
fn a_member_that_was_away_follows_a_leader_that_it_does_not_know() {
    let mut sim = cluster(2);
    let leader = wait_for(&mut sim, "a leader that works", Sim::leader);
    let away = sim
        .names
        .iter()
        .find(|name| **name != leader)
        .expect("a follower")
        .clone();
    sim.crash(&away);
    let added = Arc::new(AtomicBool::new(false));
    take_in(&mut sim, &leader, &added);
    wait_for(&mut sim, "a fourth voter", |sim| {
        added.load(Ordering::Relaxed).then(|| sim.status(SPARE))
    });
    sim.on(&leader, |node| async move {
        // Somebody else took over in between: the test sees who leads.
        let _moved = node.transfer_leader(Some(SPARE_ID), PATIENCE).await;
    });
    wait_for(&mut sim, "the new node leads", |sim| {
        (sim.leader()? == SPARE).then_some(())
    });
    sim.restart(&away);
    wait_for(&mut sim, "it follows the new node", |sim| {
        let (back, leads) = (sim.status(&away)?, sim.status(SPARE)?);
        let follows = back.leader.as_ref().is_some_and(|(id, _)| *id == SPARE_ID);
        (leads.leads() && follows && back.applied == leads.applied).then_some(())
    });
}

/// What was lost from a follower's disk is sent again: the leader goes on, and one chain stays.
#[test]
fn a_follower_put_back_to_an_older_copy_catches_up_and_ends_nobody() {
    for seed in [3, 4, 5] {
        let mut sim = cluster(seed);
        let leader = wait_for(&mut sim, "a leader that works", Sim::leader);
        let follower = sim
            .names
            .iter()
            .find(|name| **name != leader)
            .expect("a follower")
            .clone();
        let copy = sim.disk(&follower).copy();
        let (copied, term) = (
            applied(&sim, &follower),
            sim.status(&leader).expect("it runs").term,
        );
        wait_for(&mut sim, "entries that the copy lacks", |sim| {
            (applied(sim, &follower) > copied + 50).then_some(())
        });
        sim.crash(&follower);
        sim.put_disk(&follower, copy);
        sim.restart(&follower);
        wait_for(&mut sim, "it caught up", |sim| {
            let (back, leads) = (sim.status(&follower)?, sim.status(&leader)?);
            (back.role == Role::Follower && back.applied == leads.applied && back.applied > copied + 50)
                .then_some(())
        });
        let leads = sim.status(&leader).expect("it runs");
        assert!(leads.leads() && leads.stopped.is_none(), "seed {seed}");
        assert_eq!(leads.term, term, "seed {seed}: no election was needed");
        let readers = sim.shared.readers.lock().unwrap().clone();
        let mut one_chain = OneChain::default();
        for (name, reader) in readers.into_iter().filter(|(name, _)| name != SPARE) {
            one_chain.observe(&name, &reader).unwrap();
            invariants::chain_verifies(&reader).unwrap();
        }
    }
}

/// Three nodes that have something to do, and a spare one; an operator halts and releases without end.
fn cluster(seed: u64) -> Sim {
    let mut sim = Sim::with_spares(seed, 3, 1);
    sim.client(seed, 0, operator);
    wait_for(&mut sim, "the first halts", |sim| {
        (sim.shared.history().answered().count() > 20).then_some(())
    });
    sim
}

/// Has the leader add the spare node: as a learner, then as a voter.
fn take_in(sim: &mut Sim, leader: &str, added: &Arc<AtomicBool>) {
    let added = added.clone();
    sim.on(leader, move |node| async move {
        let by = principal();
        node.add_learner(&by, SPARE_ID, member(SPARE)).await.unwrap();
        added.store(true, Ordering::Relaxed);
        node.promote(&by, SPARE_ID).await.unwrap();
    });
}

fn step(sim: &mut Sim) {
    sim.step().unwrap();
}

fn wait_for<T>(sim: &mut Sim, what: &str, look: impl Fn(&Sim) -> Option<T>) -> T {
    let until = sim.now() + PATIENCE;
    loop {
        if let Some(found) = look(sim) {
            return found;
        }
        assert!(sim.now() < until, "{what}: not within {PATIENCE:?}");
        step(sim);
    }
}

fn known(sim: &Sim, leader: &str, raft_id: u64) -> Option<cluster::MemberStatus> {
    let members = sim.status(leader)?.members;
    members.into_iter().find(|member| member.raft_id == raft_id)
}

fn applied(sim: &Sim, name: &str) -> u64 {
    sim.status(name).map_or(0, |status| status.applied)
}

fn principal() -> Principal {
    Principal {
        name: "cluster/admin/op".to_owned(),
        organization: None,
        agents: Vec::new(),
    }
}

async fn operator(mut asker: Asker) -> SimResult {
    let scope: Scope = "org/acme".parse()?;
    for number in 0.. {
        if turmoil::sim_elapsed().unwrap_or_default() > RUN {
            break;
        }
        let request = Request {
            id: RequestId::parse(&format!("halt-{number}"))?,
            payload: Digest::of(b"halt"),
        };
        let command = match number % 2 {
            0 => Command::Engage(Engage {
                by: principal(),
                scope: scope.clone(),
                reason: "drill".to_owned(),
                ticket: String::new(),
                request,
                mode: machine::row::HaltMode::Halt,
                ttl: None,
                two_person: false,
            }),
            _ => Command::Release(Release {
                by: principal(),
                scope: scope.clone(),
                justification: "drill over".to_owned(),
                request,
                ticket: String::new(),
            }),
        };
        asker.ask(&command, RUN).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
