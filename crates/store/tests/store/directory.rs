//! The data directory: one process, one cluster, and refusals that say what to do.

use std::fs;
use std::path::{Path, PathBuf};

use openraft::storage::RaftLogStorage;
use store::{Options, Store, StoreError, Vote};

use crate::fixture::{TempDir, append, apply, entries, read};

fn open(dir: &TempDir) -> Result<Store, StoreError> {
    Store::open(dir.path(), Options::default())
}

#[tokio::test]
async fn a_second_process_is_told_which_one_has_the_directory() {
    let dir = TempDir::new();
    let store = open(&dir).unwrap();
    let refused = open(&dir).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(&format!("process {}", std::process::id())),
        "{refused}"
    );
    // Whatever of the store lives keeps it.
    let Store {
        log,
        state,
        reader,
        snapshots,
        held,
        owner,
    } = store;
    drop((state, reader, snapshots, held, owner));
    assert!(matches!(open(&dir), Err(StoreError::InUse { .. })));
    drop(log);
    open(&dir).unwrap();
}

#[tokio::test]
async fn the_identity_stays_and_the_cluster_is_set_once() {
    let dir = TempDir::new();
    let store = open(&dir).unwrap();
    let minted = store.owner.identity();
    assert_eq!(minted.cluster_id, "");
    assert!(minted.raft_id > 0 && minted.created_at > 0);
    store.owner.set_cluster_id("a").unwrap();
    store.owner.set_cluster_id("a").unwrap();
    drop(store);
    let store = open(&dir).unwrap();
    let refused = store.owner.set_cluster_id("b").unwrap_err();
    assert!(matches!(refused, StoreError::OtherCluster { .. }), "{refused}");
    let kept = store.owner.identity();
    assert_eq!(
        (kept.raft_id, kept.created_at, kept.cluster_id.as_str()),
        (minted.raft_id, minted.created_at, "a")
    );
    assert_ne!(
        open(&TempDir::new()).unwrap().owner.identity().raft_id,
        minted.raft_id
    );
}

#[tokio::test]
async fn data_without_an_identity_is_refused_and_a_start_that_was_cut_off_is_not() {
    let dir = TempDir::new();
    drop(open(&dir).unwrap());
    // Nothing was written yet: it looks like a first start that did not end.
    fs::remove_file(dir.path().join("IDENTITY")).unwrap();
    let mut store = open(&dir).unwrap();
    store.log.save_vote(&Vote::new(1, 1)).await.unwrap();
    drop(store);
    fs::remove_file(dir.path().join("IDENTITY")).unwrap();
    assert!(matches!(open(&dir), Err(StoreError::Damaged(_))));

    let other = TempDir::new();
    fs::write(other.path().join("letters.txt"), "dear").unwrap();
    assert!(matches!(open(&other), Err(StoreError::Damaged(_))));
}

#[tokio::test]
async fn missing_parts_and_newer_formats_are_refused() {
    let dir = TempDir::new();
    drop(open(&dir).unwrap());
    let identity = dir.path().join("IDENTITY");
    let text = fs::read_to_string(&identity).unwrap();
    fs::write(&identity, text.replace("format=3", "format=4")).unwrap();
    assert!(matches!(
        open(&dir),
        Err(StoreError::NewerFormat { found: 4, known: 3 })
    ));
    fs::write(&identity, text.replace("format=3", "format=2")).unwrap();
    assert!(matches!(
        open(&dir),
        Err(StoreError::OlderFormat { found: 2, known: 3 })
    ));
    fs::write(&identity, "format=3\n").unwrap();
    assert!(matches!(open(&dir), Err(StoreError::Damaged(_))));
    fs::write(&identity, &text).unwrap();
    // A log that is gone is not made anew: the node would forget its vote.
    fs::rename(dir.path().join("log"), dir.path().join("elsewhere")).unwrap();
    assert!(open(&dir).is_err());
    fs::remove_dir_all(dir.path().join("log")).unwrap();
    fs::rename(dir.path().join("elsewhere"), dir.path().join("log")).unwrap();
    fs::remove_file(dir.path().join("CURRENT")).unwrap();
    assert!(matches!(open(&dir), Err(StoreError::Damaged(_))));
}

#[tokio::test]
async fn what_a_crash_left_half_made_is_cleared() {
    let dir = TempDir::new();
    let mut store = open(&dir).unwrap();
    append(&mut store, 0..9).await;
    apply(&mut store, entries(0..9)).await;
    let hash = store.reader.state_hash().await.unwrap();
    drop(store);
    let parts = ["state-2/000001.sst", "snapshot/0.part", "IDENTITY.part"].map(|name| dir.path().join(name));
    for part in &parts {
        fs::create_dir_all(part.parent().unwrap()).unwrap();
        fs::write(part, "half").unwrap();
    }
    let store = open(&dir).unwrap();
    assert_eq!(store.reader.state_hash().await.unwrap(), hash);
    assert!(!parts[0].exists() && !parts[1].exists());
}

/// The file that the newest writes of the log are in.
fn write_ahead_log(dir: &Path) -> PathBuf {
    fs::read_dir(dir.join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap()
}

#[tokio::test]
async fn a_damaged_middle_of_the_write_ahead_log_is_refused() {
    let dir = TempDir::new();
    let mut store = open(&dir).unwrap();
    for index in 0..50 {
        append(&mut store, index..index + 1).await;
    }
    drop(store);
    let path = write_ahead_log(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(&path, bytes).unwrap();
    let refused = open(&dir).unwrap_err();
    assert!(matches!(refused, StoreError::Disk(_)), "{refused}");
}

#[tokio::test]
async fn a_record_cut_off_at_the_end_is_a_write_that_never_was() {
    let dir = TempDir::new();
    let mut store = open(&dir).unwrap();
    for index in 0..50 {
        append(&mut store, index..index + 1).await;
    }
    drop(store);
    let path = write_ahead_log(dir.path());
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 7).unwrap();
    let mut store = open(&dir).unwrap();
    assert_eq!(read(&mut store, 0..99).await, entries(0..49));
}
