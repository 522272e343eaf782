//! I8 over every kind of command: one random log, applied on three disks in different ways, gives one state.

use std::collections::BTreeMap;
use std::ops::Range;

use machine::reply::Reply;
use machine::{Command, check};
use openraft::EntryPayload;
use openraft::RaftSnapshotBuilder;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use proptest::collection::vec;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use store::{Entry, Kept, MemoryNode, Options, Payload, StateHash, Store};

use crate::cast::{Cast, Rows, batch, run};
use crate::fixture::{Dice, Disks, TempDir, apply, entry, log_id, recover};
use crate::seed::seed;
use crate::step::step;

const COMMANDS: usize = 100_000;
/// Of the run whose seed is fresh.
const COMMANDS_FRESH: usize = 10_000;
/// Commands between two looks at the rows.
const LOOK: usize = 1_000;

#[tokio::test]
async fn a_hundred_thousand_random_commands_give_one_state_on_three_disks_and_after_a_replay() {
    let (log, accepted) = draw([7; 32], COMMANDS);
    println!("{accepted:#?}");
    let never: Vec<_> = KINDS
        .iter()
        .filter(|kind| !accepted.contains_key(*kind))
        .collect();
    assert!(never.is_empty(), "never accepted: {never:?}");
    gives_one_state_everywhere(&log).await;
}

#[tokio::test]
async fn commands_of_a_fresh_seed_give_one_state_too() {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed().to_be_bytes());
    let (log, _) = draw(bytes, COMMANDS_FRESH);
    gives_one_state_everywhere(&log).await;
}

async fn gives_one_state_everywhere(log: &[Entry]) {
    let (first, snapshot) = in_long_runs_with_restarts(log).await;
    assert_eq!(first.applied_index, last_of(log));
    assert_eq!(in_short_runs_with_crashes(log).await, first);
    assert_eq!(from_a_snapshot(log, snapshot).await, first);
    assert_eq!(replayed_from_an_empty_directory(log).await, first);
}

/// The log, and how many commands of each kind were accepted.
fn draw(seed: [u8; 32], count: usize) -> (Vec<Entry>, BTreeMap<&'static str, usize>) {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let steps = vec(step(), 1..9);
    let (mut rows, mut cast, mut now) = (Rows::new(), Cast::default(), 1_000_000_000);
    let mut log = vec![entry(0)];
    let mut accepted = BTreeMap::new();
    let mut drawn = 0;
    let mut commands = Cast::form(0);
    while drawn < count {
        let place = log.len() - 1;
        let batch = batch(place, now, commands);
        let applied = run(&mut rows, place, &batch);
        for (command, reply) in batch.commands.iter().zip(&applied.replies) {
            cast.learn(&rows, command, reply);
            if is_accepted(command, reply) {
                *accepted.entry(kind(command)).or_default() += 1;
            }
        }
        let looked_at = drawn / LOOK;
        drawn += batch.commands.len();
        if drawn / LOOK > looked_at || drawn >= count {
            assert_eq!(
                check::broken(&rows),
                Vec::<String>::new(),
                "after {drawn} commands"
            );
        }
        log.push(Entry {
            log_id: log_id(last_of(&log) + 1),
            payload: EntryPayload::Normal(Payload::of(&batch)),
        });
        let next = steps.new_tree(&mut runner).unwrap().current();
        commands = cast.commands(&rows, &mut now, &next);
    }
    (log, accepted)
}

/// RocksDB, many entries at once, opened again now and then; gives a snapshot of half way, too.
async fn in_long_runs_with_restarts(log: &[Entry]) -> (StateHash, store::SnapshotData) {
    let disks = Disks::Rocks(TempDir::new());
    let mut store = disks.open();
    let mut snapshot = None;
    let quarter = log.len() / 4;
    for part in 1..=4 {
        let until = if part == 4 { log.len() } else { part * quarter };
        // Of half way; what builds it is gone long before the store is.
        if part == 3 {
            let mut builder = store.state.try_create_snapshot_builder(true).await.unwrap();
            snapshot = Some(builder.build_snapshot().await.unwrap().snapshot);
        }
        apply_up_to(&mut store, log, until, |_| 500).await;
        assert_eq!(broken_in(&store), Vec::<String>::new());
        drop(store);
        store = disks.open();
    }
    // What was applied before the restart and not written is applied again.
    apply_up_to(&mut store, log, log.len(), |_| 500).await;
    (store.reader.state_hash().await.unwrap(), snapshot.unwrap())
}

/// The twin in memory, with few rows decoded, short runs, and power lost now and then.
async fn in_short_runs_with_crashes(log: &[Entry]) -> StateHash {
    let node = MemoryNode::new(1);
    let options = Options {
        rows_max: 16,
        ..Options::default()
    };
    let mut dice = Dice(7);
    let mut store = Store::in_memory(&node, options).unwrap();
    for life in 1..=8 {
        let until = if life == 8 {
            log.len()
        } else {
            log.len() / 8 * life
        };
        apply_up_to(&mut store, log, until, |_| 1 + dice.roll(40)).await;
        if life % 2 == 0 {
            store.reader.flush().await.unwrap();
        }
        if life < 8 {
            drop(store);
            node.crash(Kept::Prefix(dice.roll(1_000)));
            store = Store::in_memory(&node, options).unwrap();
        }
    }
    store.reader.state_hash().await.unwrap()
}

/// RocksDB, installed from another's snapshot; the rest of the log on top.
async fn from_a_snapshot(log: &[Entry], from: store::SnapshotData) -> StateHash {
    let disks = Disks::Rocks(TempDir::new());
    let mut store = disks.open();
    let mut receiving = store.snapshots.receive(from.info().clone()).unwrap();
    while receiving.next() < from.info().chunks {
        receiving.chunk(from.chunk(receiving.next()).unwrap()).unwrap();
    }
    let received = receiving.finish().await.unwrap();
    let meta = received.info().meta();
    store.state.install_snapshot(&meta, received).await.unwrap();
    let installed = store.reader.progress().borrow().applied_index;
    assert!(installed > 0 && installed < last_of(log));
    apply_up_to(&mut store, log, log.len(), |_| 100).await;
    assert_eq!(broken_in(&store), Vec::<String>::new());
    store.reader.state_hash().await.unwrap()
}

/// A directory with nothing but the log, opened as a node opens it when it starts.
async fn replayed_from_an_empty_directory(log: &[Entry]) -> StateHash {
    let disks = Disks::Rocks(TempDir::new());
    let mut store = disks.open();
    for part in log.chunks(1_000) {
        store.log.blocking_append(part.to_vec()).await.unwrap();
    }
    store
        .log
        .save_committed(Some(log_id(last_of(log))))
        .await
        .unwrap();
    drop(store);
    let mut store = disks.open();
    recover(&mut store).await;
    store.reader.state_hash().await.unwrap()
}

/// Applies what is not applied yet, so many entries at a time.
async fn apply_up_to(store: &mut Store, log: &[Entry], until: usize, mut size: impl FnMut(usize) -> u64) {
    let mut next = next_of(store);
    while next < until {
        let end = (next + usize::try_from(size(next)).unwrap()).min(until);
        apply(store, part_of(log, next..end)).await;
        next = end;
    }
}

fn last_of(log: &[Entry]) -> u64 {
    log.last().map_or(0, |entry| entry.log_id.index)
}

fn part_of(log: &[Entry], range: Range<usize>) -> Vec<Entry> {
    log[range].to_vec()
}

fn next_of(store: &Store) -> usize {
    let applied = store.reader.at(|view| view.applied()).unwrap();
    applied.map_or(0, |id| usize::try_from(id.index).unwrap() + 1)
}

fn broken_in(store: &Store) -> Vec<String> {
    store.reader.at(|view| check::broken_in(view)).unwrap().unwrap()
}

/// What the edge refused is recorded, and never answered otherwise.
fn is_accepted(command: &Command, reply: &Reply) -> bool {
    matches!(command, Command::Refused(_)) || !matches!(reply, Reply::Refused(_) | Reply::Reevaluate(_))
}

const KINDS: [&str; 21] = [
    "Init",
    "Register",
    "PreExec",
    "PostExec",
    "Seen",
    "EndSession",
    "Due",
    "SetBudget",
    "GrantBudget",
    "PutGuard",
    "Engage",
    "Release",
    "Session",
    "RegisterKey",
    "Seal",
    "Members",
    "Refused",
    "Fixture",
    "Decide",
    "Correct",
    "Redeem",
];

fn kind(command: &Command) -> &'static str {
    match command {
        Command::Init(_) => "Init",
        Command::Register(_) => "Register",
        Command::PreExec(_) => "PreExec",
        Command::PostExec(_) => "PostExec",
        Command::Seen(_) => "Seen",
        Command::EndSession(_) => "EndSession",
        Command::Due => "Due",
        Command::SetBudget(_) => "SetBudget",
        Command::GrantBudget(_) => "GrantBudget",
        Command::PutGuard(_) => "PutGuard",
        Command::Engage(_) => "Engage",
        Command::Release(_) => "Release",
        Command::Session(_) => "Session",
        Command::RegisterKey(_) => "RegisterKey",
        Command::Seal(_) => "Seal",
        Command::Members(_) => "Members",
        Command::Refused(_) => "Refused",
        Command::Fixture(_) => "Fixture",
        Command::Decide(_) => "Decide",
        Command::Correct(_) => "Correct",
        Command::Redeem(_) => "Redeem",
        Command::ActivateVersion(_) => "ActivateVersion",
    }
}
