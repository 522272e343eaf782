//! I8: the log from nothing, or a snapshot and the rest of the log, give the same state on any node.

use openraft::storage::RaftLogStorage;
use store::Options;

use crate::fixture::{Dice, Disks, append, apply, entries, log_id, recover, reference};

#[tokio::test]
async fn a_replay_from_nothing_gives_the_same_state_on_both_disks_and_in_any_runs() {
    let expected = reference(299).await;
    assert_eq!(expected.applied_index, 299);
    for (seed, disks) in Disks::both().into_iter().enumerate() {
        // Few rows in memory, so that most are read from disk.
        let mut store = disks.open_with(Options {
            rows_max: 16,
            ..Options::default()
        });
        let mut dice = Dice(seed.try_into().unwrap());
        let mut next = 0;
        while next < 300 {
            let until = (next + 1 + dice.roll(90)).min(300);
            apply(&mut store, entries(next..until)).await;
            next = until;
        }
        assert_eq!(store.reader.state_hash().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn the_log_is_replayed_from_what_the_state_says() {
    for disks in Disks::both() {
        let mut store = disks.open();
        append(&mut store, 0..100).await;
        apply(&mut store, entries(0..40)).await;
        store.log.save_committed(Some(log_id(79))).await.unwrap();
        drop(store);
        let mut store = disks.open();
        assert_eq!(store.reader.progress().borrow().applied_index, 39);
        recover(&mut store).await;
        assert_eq!(store.reader.state_hash().await.unwrap(), reference(79).await);
    }
}
