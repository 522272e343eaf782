use openraft::RaftLogReader;
use openraft::storage::{IOFlushed, RaftLogStorage, RaftLogStorageExt};

use super::READ_BYTES_MAX;
use crate::config::{Entry, LogId, Payload};
use crate::disk::{Disk, Durability, Op, Space};
use crate::error::StoreError;
use crate::memory::{Kept, MemoryNode};
use crate::store::{Options, Store};
use crate::{keys, record};
use openraft::EntryPayload;
use openraft::impls::leader_id_adv::LeaderId;

fn entry(index: u64, byte: u8) -> Entry {
    let log_id = LogId {
        leader_id: LeaderId { term: 1, node_id: 1 },
        index,
    };
    Entry {
        log_id,
        payload: EntryPayload::Normal(Payload::from_bytes(vec![byte; 8])),
    }
}

/// A log of entries 0 to 9 that are on disk only, with one of the disk's records changed.
async fn changed(op: Op) -> Result<Store, StoreError> {
    let node = MemoryNode::new(1);
    let mut store = Store::in_memory(&node, Options::default()).unwrap();
    store
        .log
        .blocking_append((0..10).map(|index| entry(index, 0)))
        .await
        .unwrap();
    node.log().attach().write(&[op], Durability::Synced).unwrap();
    Store::in_memory(&node, Options::default())
}

fn key(index: u64) -> Vec<u8> {
    keys::number(index).to_vec()
}

#[tokio::test]
async fn a_record_that_is_broken_or_missing_is_refused_by_its_index() {
    let put = |index, value: Vec<u8>| Op::Put(Space::LogEntries, key(index), value);
    let cases = [
        put(4, vec![0xff]),
        put(4, record::encode_entry(&entry(5, 0))),
        put(4, [record::encode_entry(&entry(4, 0)), vec![0]].concat()),
        Op::Delete(Space::LogEntries, key(4)),
    ];
    for op in cases {
        let mut store = changed(op).await.unwrap();
        let mut reader = store.log.get_log_reader().await;
        for refused in [
            reader.try_get_log_entries(0..10).await,
            reader.limited_get_log_entries(4, 10).await,
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("log entry 4"), "{refused}");
        }
        assert_eq!(reader.try_get_log_entries(0..4).await.unwrap().len(), 4);
    }
    // The last one is read when the log is opened, and the first one is held against what was purged.
    assert!(
        changed(put(9, vec![0xff]))
            .await
            .unwrap_err()
            .to_string()
            .contains("log entry 9")
    );
    let purged = record::encode_log_id(&entry(3, 0).log_id);
    let refused = changed(Op::Put(Space::LogMeta, keys::PURGED.to_vec(), purged))
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("log entry 4 is missing: 0 is the first"),
        "{refused}"
    );
}

/// An entry that took the place of a truncated one is not taken for written when the old one's write ends.
#[tokio::test]
async fn memory_lets_go_of_an_entry_only_when_that_entry_is_on_disk() {
    let node = MemoryNode::new(1);
    let options = Options {
        log_memory_bytes: 0,
        ..Options::default()
    };
    let mut store = Store::in_memory(&node, options).unwrap();
    store
        .log
        .blocking_append((0..5).map(|index| entry(index, 0)))
        .await
        .unwrap();
    store.log.truncate_after(Some(entry(2, 0).log_id)).await.unwrap();
    node.log().stall();
    for index in 3..5 {
        store
            .log
            .append([entry(index, 1)], IOFlushed::noop())
            .await
            .unwrap();
    }
    let mut reader = store.log.get_log_reader().await;
    let read = reader.try_get_log_entries(2..9).await.unwrap();
    assert_eq!(read, [entry(2, 0), entry(3, 1), entry(4, 1)]);
    assert!(node.log().let_one_through());
    assert_eq!(reader.try_get_log_entries(2..9).await.unwrap(), read);
    node.log().resume();
    assert_eq!(reader.try_get_log_entries(2..9).await.unwrap(), read);

    node.crash(Kept::Nothing);
    let mut store = Store::in_memory(&node, options).unwrap();
    let mut reader = store.log.get_log_reader().await;
    assert_eq!(reader.try_get_log_entries(2..9).await.unwrap(), read);
}

#[tokio::test]
async fn a_stream_reads_a_range_larger_than_one_piece_in_order() {
    use futures::StreamExt;
    let node = MemoryNode::new(1);
    let mut store = Store::in_memory(
        &node,
        Options {
            log_memory_bytes: 0,
            ..Options::default()
        },
    )
    .unwrap();
    let large = |index| Entry {
        payload: EntryPayload::Normal(Payload::from_bytes(vec![7; READ_BYTES_MAX / 3])),
        ..entry(index, 0)
    };
    store.log.blocking_append((0..10).map(large)).await.unwrap();
    let mut reader = store.log.get_log_reader().await;
    let read: Vec<_> = reader
        .entries_stream(1..=8)
        .await
        .map(Result::unwrap)
        .collect()
        .await;
    assert_eq!(read, (1..9).map(large).collect::<Vec<_>>());
}
