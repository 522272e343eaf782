//! What the store costs on this machine: `cargo nextest run -p store --run-ignored only --no-capture measure`.

use std::time::Instant;

use openraft::storage::RaftLogStorageExt;

use crate::fixture::{Disks, apply, entries};

const ENTRIES: u32 = 20_000;

#[tokio::test]
#[ignore = "prints times; it asserts nothing"]
async fn measure() {
    for disks in Disks::both() {
        let name = if matches!(disks, Disks::Rocks(_)) {
            "rocksdb"
        } else {
            "memory"
        };
        let mut store = disks.open();
        let all = entries(0..u64::from(ENTRIES));
        let start = Instant::now();
        for sixteen in all.chunks(16) {
            store.log.blocking_append(sixteen.to_vec()).await.unwrap();
        }
        println!(
            "{name}: append, 16 entries a sync: {:?} an entry",
            start.elapsed() / ENTRIES
        );
        let start = Instant::now();
        for eight in all.chunks(8) {
            apply(&mut store, eight.to_vec()).await;
        }
        println!(
            "{name}: apply, 8 entries of 4 commands a run: {:?} an entry",
            start.elapsed() / ENTRIES
        );
        let start = Instant::now();
        store.reader.state_hash().await.unwrap();
        println!("{name}: state hash: {:?}", start.elapsed());
    }
}
