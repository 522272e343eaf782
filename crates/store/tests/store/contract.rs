//! What openraft asks of a store, and what we promise beyond it.

use decision::DurationNs;
use openraft::storage::{IOFlushed, RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::{EntryPayload, RaftLogReader, StorageError};
use store::{Entry, LogStore, MemoryNode, Options, Payload, Raft, StateMachine, Store, Vote};

use crate::fixture::{Disks, TempDir, append, apply, entries, entry, log_id, read};

struct OnRocks;

impl StoreBuilder<Raft, LogStore, StateMachine, TempDir> for OnRocks {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<Raft>> {
        let dir = TempDir::new();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        Ok((dir, store.log, store.state))
    }
}

struct InMemory;

impl StoreBuilder<Raft, LogStore, StateMachine> for InMemory {
    async fn build(&self) -> Result<((), LogStore, StateMachine), StorageError<Raft>> {
        let store = Store::in_memory(&MemoryNode::new(1), Options::default()).unwrap();
        Ok(((), store.log, store.state))
    }
}

#[tokio::test]
async fn openrafts_suite_passes_on_rocksdb() {
    Suite::test_all(OnRocks).await.unwrap();
}

#[tokio::test]
async fn openrafts_suite_passes_in_memory() {
    Suite::test_all(InMemory).await.unwrap();
}

#[tokio::test]
async fn an_entry_is_readable_at_once_and_reported_when_it_is_synced() {
    let node = MemoryNode::new(1);
    let mut store = Store::in_memory(&node, Options::default()).unwrap();
    node.log().stall();
    let syncs = node.log().syncs();
    let (done, mut flushed) = Raft::oneshot();
    store
        .log
        .append(entries(0..3), IOFlushed::signal(done))
        .await
        .unwrap();
    assert_eq!(read(&mut store, 0..9).await, entries(0..3));
    assert!(flushed.try_recv().is_err(), "reported before it was synced");
    assert_eq!((node.log().waiting(), node.log().syncs()), (1, syncs));
    node.log().resume();
    flushed.await.unwrap().unwrap();
    assert_eq!(node.log().syncs(), syncs + 1);
}

#[tokio::test]
async fn vote_truncate_and_purge_are_one_sync_each() {
    let node = MemoryNode::new(1);
    let mut store = Store::in_memory(&node, Options::default()).unwrap();
    append(&mut store, 0..5).await;
    apply(&mut store, entries(0..3)).await;
    let mut syncs = node.log().syncs();
    let mut one_more = || {
        syncs += 1;
        assert_eq!(node.log().syncs(), syncs);
    };
    store.log.save_vote(&Vote::new(1, 1)).await.unwrap();
    one_more();
    store.log.truncate_after(Some(log_id(3))).await.unwrap();
    one_more();
    store.log.purge(log_id(1)).await.unwrap();
    one_more();
    assert_eq!(read(&mut store, 0..9).await, entries(2..4));
}

#[tokio::test]
async fn a_failed_sync_is_reported_and_nothing_succeeds_after_it() {
    let node = MemoryNode::new(1);
    let mut store = Store::in_memory(&node, Options::default()).unwrap();
    append(&mut store, 0..2).await;
    node.log().fail_next_sync();
    assert!(store.log.blocking_append(entries(2..3)).await.is_err());
    assert!(store.log.blocking_append(entries(3..4)).await.is_err());
    assert!(store.log.save_vote(&Vote::new(2, 2)).await.is_err());
    assert!(store.log.purge(log_id(0)).await.is_err());
}

#[tokio::test]
async fn purging_makes_the_state_durable_first() {
    let node = MemoryNode::new(1);
    let mut store = Store::in_memory(&node, Options::default()).unwrap();
    append(&mut store, 0..9).await;
    apply(&mut store, entries(0..9)).await;
    assert_eq!((store.reader.durable_applied(), node.state().syncs()), (None, 0));
    store.log.purge(log_id(5)).await.unwrap();
    assert_eq!(
        (store.reader.durable_applied(), node.state().syncs()),
        (Some(log_id(8)), 1)
    );
    // No second sync where the state is durable already.
    store.log.purge(log_id(7)).await.unwrap();
    assert_eq!(node.state().syncs(), 1);
}

#[tokio::test]
async fn a_log_that_would_have_a_hole_is_refused() {
    for disks in Disks::both() {
        let mut store = disks.open();
        append(&mut store, 0..3).await;
        assert!(store.log.blocking_append(entries(4..5)).await.is_err());
        assert!(store.log.blocking_append(entries(2..3)).await.is_err());
        append(&mut store, 3..4).await;
    }
}

#[tokio::test]
async fn a_limited_read_gives_a_mebibyte_and_at_least_one_entry() {
    for disks in Disks::both() {
        // With and without the entries in memory.
        for log_memory_bytes in [64 << 20, 0] {
            let disks = disks.another();
            let mut store = disks.open_with(Options {
                log_memory_bytes,
                ..Options::default()
            });
            let large = |index, size| Entry {
                payload: EntryPayload::Normal(Payload::from_bytes(vec![0; size])),
                ..entry(index)
            };
            let written = vec![
                large(0, 400 << 10),
                large(1, 400 << 10),
                large(2, 400 << 10),
                large(3, 2 << 20),
            ];
            store.log.blocking_append(written.clone()).await.unwrap();
            let mut reader = store.log.get_log_reader().await;
            let mut limited = async |from, until| {
                let read = reader.limited_get_log_entries(from, until).await.unwrap();
                assert!(read.iter().all(|entry| written.contains(entry)));
                read.iter().map(|entry| entry.log_id.index).collect::<Vec<_>>()
            };
            assert_eq!(limited(0, 4).await, [0, 1]);
            assert_eq!(limited(1, 2).await, [1]);
            assert_eq!(limited(2, 4).await, [2]);
            assert_eq!(limited(3, 4).await, [3]);
            assert_eq!(limited(3, 9).await, [3]);
            let all = reader.try_get_log_entries(0..9).await.unwrap();
            assert_eq!(all, written);
        }
    }
}

#[tokio::test]
async fn a_range_is_the_same_from_memory_from_disk_and_from_both() {
    for disks in Disks::both() {
        for log_memory_bytes in [0, 2_000, 1 << 20] {
            let disks = disks.another();
            let mut store = disks.open_with(Options {
                log_memory_bytes,
                ..Options::default()
            });
            append(&mut store, 0..20).await;
            append(&mut store, 20..40).await;
            store.log.truncate_after(Some(log_id(29))).await.unwrap();
            append(&mut store, 30..35).await;
            store.log.purge(log_id(4)).await.unwrap();
            assert_eq!(read(&mut store, 0..99).await, entries(5..35));
            assert_eq!(read(&mut store, 10..12).await, entries(10..12));
            assert_eq!(read(&mut store, 28..31).await, entries(28..31));
            assert_eq!(read(&mut store, 35..99).await, []);
            drop(store);
            let mut store = disks.open();
            assert_eq!(read(&mut store, 0..99).await, entries(5..35));
        }
    }
}

#[tokio::test]
async fn progress_and_events_follow_each_apply() {
    for disks in Disks::both() {
        let mut store = disks.open();
        let (mut progress, mut events) = (store.reader.progress(), store.reader.events());
        apply(&mut store, entries(0..11)).await;
        assert!(progress.has_changed().unwrap());
        let now = *progress.borrow_and_update();
        assert_eq!((now.applied_index, now.halt_epoch), (10, 1));
        let chain = store.reader.chain().unwrap().unwrap();
        assert_eq!(
            (now.head_sequence, now.head_hash),
            (chain.head.sequence, chain.head.hash)
        );
        let seen = events.try_recv().unwrap();
        assert!(
            seen.iter()
                .any(|event| matches!(event, machine::Event::Engaged { epoch: 1, .. }))
        );

        let audit = store.reader.entries(1, 1_000).unwrap();
        let sequences: Vec<u64> = audit.iter().map(|entry| entry.sequence).collect();
        assert_eq!(sequences, (1..=now.head_sequence).collect::<Vec<_>>());
        assert_eq!(store.reader.entry(3).unwrap().as_ref(), audit.get(2));
        assert_eq!(store.reader.entry(now.head_sequence + 1).unwrap(), None);
        assert_eq!(store.reader.entries(2, 3).unwrap(), audit[1..4]);
        // What another node would publish when it starts is the same.
        drop(store);
        assert_eq!(*disks.open().reader.progress().borrow(), now);
    }
}

#[tokio::test]
async fn an_entry_that_cannot_be_applied_stops_the_node_and_changes_nothing() {
    for disks in Disks::both() {
        let mut store = disks.open();
        apply(&mut store, entries(0..5)).await;
        let before = store.reader.state_hash().await.unwrap();
        let broken = Entry {
            payload: EntryPayload::Normal(Payload::from_bytes(vec![0xff])),
            ..entry(6)
        };
        for run in [vec![entry(5), broken], vec![entry(4)]] {
            let items = run.into_iter().map(|entry| Ok((entry, None)));
            assert!(store.state.apply(futures::stream::iter(items)).await.is_err());
            assert_eq!(store.reader.state_hash().await.unwrap(), before);
        }
        assert_eq!(store.state.applied_state().await.unwrap().0, Some(log_id(4)));
    }
}

#[tokio::test]
async fn what_is_due_is_known_without_a_scan_of_what_was_done() {
    for disks in Disks::both() {
        let mut store = disks.open();
        apply(&mut store, entries(0..200)).await;
        let now = store.reader.progress().borrow().log_time;
        for seconds in [0, 1, 30, 90, 599, 601, 10_000] {
            let time = now.plus(DurationNs::from_secs(seconds));
            let scanned = store
                .reader
                .at(|view| machine::is_due(view, time))
                .unwrap()
                .unwrap();
            assert_eq!(store.reader.is_due(time).unwrap(), scanned, "{seconds} s later");
        }
    }
}
