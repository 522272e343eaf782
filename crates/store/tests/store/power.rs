//! Power loss on the twin in memory: synced writes stay, any prefix of the unsynced ones may.

use openraft::RaftLogReader;
use openraft::storage::{IOFlushed, RaftLogStorage, RaftStateMachine};
use openraft::type_config::TypeConfigExt;
use store::{Kept, MemoryNode, Options, Raft, Store, Vote};

use crate::fixture::{Dice, append, apply, entries, log_id, read, recover, reference};

fn open(node: &MemoryNode) -> Store {
    Store::in_memory(
        node,
        Options {
            log_memory_bytes: 4_000,
            rows_max: 16,
            ..Options::default()
        },
    )
    .unwrap()
}

#[tokio::test]
async fn unsynced_writes_vanish_and_synced_ones_stay() {
    let node = MemoryNode::new(1);
    let mut store = open(&node);
    append(&mut store, 0..5).await;
    store.log.save_vote(&Vote::new(3, 1)).await.unwrap();
    store.log.save_committed(Some(log_id(4))).await.unwrap();
    apply(&mut store, entries(0..5)).await;
    node.log().stall();
    let (done, _flushed) = Raft::oneshot();
    store
        .log
        .append(entries(5..9), IOFlushed::signal(done))
        .await
        .unwrap();

    node.crash(Kept::Nothing);
    let mut store = open(&node);
    assert_eq!(read(&mut store, 0..99).await, entries(0..5));
    assert_eq!(
        store.log.get_log_reader().await.read_vote().await.unwrap(),
        Some(Vote::new(3, 1))
    );
    assert_eq!(store.log.read_committed().await.unwrap(), None);
    assert_eq!(store.state.applied_state().await.unwrap().0, None);
}

#[tokio::test]
async fn a_dead_process_on_a_living_machine_loses_nothing() {
    let node = MemoryNode::new(1);
    let mut store = open(&node);
    append(&mut store, 0..5).await;
    store.log.save_committed(Some(log_id(4))).await.unwrap();
    apply(&mut store, entries(0..5)).await;
    node.crash(Kept::Everything);
    let mut store = open(&node);
    assert_eq!(store.log.read_committed().await.unwrap(), Some(log_id(4)));
    assert_eq!(store.state.applied_state().await.unwrap().0, Some(log_id(4)));
}

#[tokio::test]
async fn a_node_from_before_the_crash_can_write_no_more() {
    let node = MemoryNode::new(1);
    let mut before = open(&node);
    append(&mut before, 0..2).await;
    node.crash(Kept::Nothing);
    let mut after = open(&node);
    append(&mut after, 2..3).await;
    assert!(before.log.save_vote(&Vote::new(9, 9)).await.is_err());
    assert!(before.reader.state_hash().await.is_err());
    assert_eq!(read(&mut after, 0..9).await, entries(0..3));
}

/// What was acknowledged is there, in order; the vote never goes back; applied index and rows agree.
#[tokio::test]
async fn crashes_anywhere_lose_nothing_that_was_acknowledged() {
    let mut expected = Vec::new();
    for applied in 0..160 {
        expected.push(reference(applied).await);
    }
    for seed in 0..150 {
        crash_often(seed, &expected).await;
    }
}

async fn crash_often(seed: u64, expected: &[store::StateHash]) {
    let mut dice = Dice(seed);
    let node = MemoryNode::new(1);
    let mut store = open(&node);
    let (mut appended, mut applied, mut purged, mut term, mut snapshots) = (0, 0, 0, 0, 0);
    let mut crashes = 0;
    while crashes < 6 {
        match dice.roll(12) {
            0..=3 => {
                let until = (appended + 1 + dice.roll(6)).min(160);
                if until > appended {
                    append(&mut store, appended..until).await;
                    appended = until;
                }
            }
            4..=6 => {
                let until = (applied + 1 + dice.roll(9)).min(appended);
                if until > applied {
                    store.log.save_committed(Some(log_id(until - 1))).await.unwrap();
                    let run = read(&mut store, applied..until).await;
                    assert_eq!(run, entries(applied..until), "seed {seed}");
                    apply(&mut store, run).await;
                    applied = until;
                }
            }
            7 => {
                term += 1;
                store.log.save_vote(&Vote::new(term, 1)).await.unwrap();
            }
            8 => {
                // Entries that are not committed may go, and come again.
                let keep = applied + dice.roll(appended - applied + 1);
                if keep > 0 {
                    store.log.truncate_after(Some(log_id(keep - 1))).await.unwrap();
                    appended = keep;
                }
            }
            9 => {
                if applied > purged {
                    purged += 1 + dice.roll(applied - purged);
                    store.log.purge(log_id(purged - 1)).await.unwrap();
                }
            }
            10 => {
                if applied > snapshots && dice.roll(3) == 0 {
                    store.snapshots.build().await.unwrap();
                    snapshots = applied;
                }
            }
            _ => {
                crashes += 1;
                node.crash(Kept::Prefix(dice.roll(u64::MAX)));
                store = open(&node);
                // Whatever is there is one state: rows, chain and applied index of the same moment.
                let found = store.reader.state_hash().await.unwrap();
                let index = usize::try_from(found.applied_index).unwrap();
                if store.state.applied_state().await.unwrap().0.is_some() {
                    assert_eq!(found, expected[index], "seed {seed}");
                    assert_eq!(
                        store.reader.entries(1, 10_000).unwrap().len(),
                        usize::try_from(found.head_sequence).unwrap(),
                        "seed {seed}"
                    );
                }
                assert!(found.applied_index < applied.max(1), "seed {seed}");
                assert_eq!(
                    read(&mut store, 0..999).await,
                    entries(purged..appended),
                    "seed {seed}"
                );
                let vote = store.log.get_log_reader().await.read_vote().await.unwrap();
                assert_eq!(vote.map_or(0, |vote| vote.leader_id.term), term, "seed {seed}");
                recover(&mut store).await;
                let recovered = store
                    .state
                    .applied_state()
                    .await
                    .unwrap()
                    .0
                    .map_or(0, |id| id.index + 1);
                // Nothing that was purged was lost with the state.
                assert!(
                    recovered >= purged && recovered <= applied,
                    "seed {seed}: {recovered}"
                );
                applied = recovered;
            }
        }
    }
    if appended > applied {
        let run = entries(applied..appended);
        apply(&mut store, run).await;
        let last = usize::try_from(appended - 1).unwrap();
        assert_eq!(
            store.reader.state_hash().await.unwrap(),
            expected[last],
            "seed {seed}"
        );
    }
}
