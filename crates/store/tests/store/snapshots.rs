//! Snapshots: built, carried over in chunks, installed as a whole or not at all.

use std::fs;
use std::os::unix::fs::FileExt;

use openraft::RaftSnapshotBuilder;
use openraft::storage::RaftStateMachine;
use store::{CHUNK_BYTES, Kept, Options, Snapshot, SnapshotData, SnapshotInfo, Stage, Store, StoreError};

use crate::fixture::{Disks, TempDir, append, apply, bulk, entries, entry, log_id, recover, reference};

async fn build(store: &mut Store) -> SnapshotData {
    store.snapshots.build().await.unwrap()
}

/// Carries a snapshot over as `cluster` does.
async fn carry(from: &SnapshotData, to: &Store) -> Result<SnapshotData, StoreError> {
    let mut receiving = to
        .snapshots
        .receive(SnapshotInfo::decode(&from.info().encode())?)?;
    while receiving.next() < from.info().chunks {
        receiving.chunk(from.chunk(receiving.next())?)?;
    }
    receiving.finish().await
}

async fn install(store: &mut Store, data: SnapshotData) -> Result<(), std::io::Error> {
    let meta = data.info().meta();
    store.state.install_snapshot(&meta, data).await
}

/// A state of many chunks, and then some.
async fn fill(store: &mut Store) {
    apply(store, entries(0..50)).await;
    for step in 0..8 {
        apply(
            store,
            vec![bulk(50 + step, 1_000 + step * 500..1_500 + step * 500)],
        )
        .await;
    }
}

#[tokio::test]
async fn a_snapshot_of_many_chunks_carries_the_whole_state_over() {
    for disks in Disks::both() {
        let mut from = disks.open();
        from.owner.set_cluster_id("cluster-a").unwrap();
        fill(&mut from).await;
        let data = build(&mut from).await;
        assert!(data.info().chunks >= 5, "{} chunks", data.info().chunks);
        assert_eq!(data.info().applied, Some(log_id(57)));

        let others = disks.another();
        let mut to = others.open();
        apply(&mut to, entries(0..20)).await;
        let received = carry(&data, &to).await.unwrap();
        assert!(matches!(
            to.snapshots.receive(data.info().clone()),
            Err(StoreError::Busy(_))
        ));
        install(&mut to, received).await.unwrap();

        let expected = from.reader.state_hash().await.unwrap();
        assert_eq!(to.reader.state_hash().await.unwrap(), expected);
        assert_eq!(*to.reader.progress().borrow(), *from.reader.progress().borrow());
        assert_eq!(to.reader.durable_applied(), Some(log_id(57)));
        assert_eq!(
            to.state.applied_state().await.unwrap(),
            from.state.applied_state().await.unwrap()
        );
        assert_eq!(
            to.reader.entries(1, 10_000).unwrap(),
            from.reader.entries(1, 10_000).unwrap()
        );
        assert_eq!(to.snapshots.current().unwrap().info(), data.info());
        // It joined the cluster whose state it now has; another's is refused from now on.
        assert_eq!(to.owner.identity().cluster_id, "cluster-a");
        drop(to);
        // Both go on alike, the one that installed also after a restart.
        let mut to = others.open();
        assert_eq!(to.reader.state_hash().await.unwrap(), expected);
        for store in [&mut from, &mut to] {
            apply(store, entries(58..90)).await;
        }
        assert_eq!(
            to.reader.state_hash().await.unwrap(),
            from.reader.state_hash().await.unwrap()
        );
        if let Disks::Rocks(dir) = &others {
            let states = fs::read_dir(dir.path()).unwrap().filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .starts_with("state-")
            });
            assert_eq!(states.count(), 1, "the old state goes");
        }
    }
}

#[tokio::test]
async fn an_empty_state_has_a_snapshot_too() {
    for disks in Disks::both() {
        let mut from = disks.open();
        apply(&mut from, entries(0..2)).await;
        let data = build(&mut from).await;
        assert_eq!((data.info().chunks, data.info().bytes), (0, 0));
        let others = disks.another();
        let mut to = others.open();
        let received = carry(&data, &to).await.unwrap();
        install(&mut to, received).await.unwrap();
        assert_eq!(
            to.state.applied_state().await.unwrap(),
            from.state.applied_state().await.unwrap()
        );
    }
}

#[tokio::test]
async fn openraft_gets_each_built_snapshot_once_and_waits_for_none() {
    for disks in Disks::both() {
        let mut store = disks.open();
        apply(&mut store, entries(0..30)).await;
        assert!(
            store.state.try_create_snapshot_builder(false).await.is_none(),
            "none was built"
        );
        let built = build(&mut store).await;
        apply(&mut store, entries(30..60)).await;
        let mut builder = store.state.try_create_snapshot_builder(false).await.unwrap();
        let Snapshot { meta, snapshot } = builder.build_snapshot().await.unwrap();
        assert_eq!(meta.last_log_id, Some(log_id(29)));
        assert_eq!(snapshot.info(), built.info());
        assert!(
            store.state.try_create_snapshot_builder(false).await.is_none(),
            "taken"
        );
        let others = disks.another();
        let mut to = others.open();
        let received = carry(&snapshot, &to).await.unwrap();
        install(&mut to, received).await.unwrap();
        assert_eq!(to.reader.state_hash().await.unwrap(), reference(29).await);
    }
}

#[tokio::test]
async fn an_older_snapshot_does_not_replace_a_newer_one_and_an_open_one_stays_readable() {
    for disks in Disks::both() {
        let mut store = disks.open();
        fill(&mut store).await;
        let first = build(&mut store).await;
        apply(&mut store, entries(58..70)).await;
        let second = build(&mut store).await;
        assert_eq!(store.snapshots.current().unwrap().info(), second.info());
        for number in 0..first.info().chunks {
            first.chunk(number).unwrap();
        }
        // Again the same: the current one is kept, and nothing is left over.
        assert_eq!(build(&mut store).await.info(), second.info());
        if let Disks::Rocks(dir) = &disks {
            assert_eq!(fs::read_dir(dir.path().join("snapshot")).unwrap().count(), 1);
        }
        drop((first, store));
        assert_eq!(disks.open().snapshots.current().unwrap().info(), second.info());
    }
}

#[tokio::test]
async fn chunks_that_are_wrong_are_refused_and_can_be_sent_again() {
    for disks in Disks::both() {
        let mut from = disks.open();
        fill(&mut from).await;
        let data = build(&mut from).await;
        let others = disks.another();
        let to = others.open();
        let refused = |result: Result<(), StoreError>| {
            assert!(matches!(result, Err(StoreError::Snapshot(_))), "{result:?}");
        };
        let mut receiving = to.snapshots.receive(data.info().clone()).unwrap();
        refused(receiving.chunk(data.chunk(1).unwrap()));
        let mut damaged = data.chunk(0).unwrap();
        damaged.bytes[CHUNK_BYTES / 2] ^= 1;
        refused(receiving.chunk(damaged));
        let mut short = data.chunk(0).unwrap();
        short.bytes.pop();
        refused(receiving.chunk(short));
        assert_eq!(receiving.next(), 0);
        receiving.chunk(data.chunk(0).unwrap()).unwrap();
        assert!(matches!(receiving.finish().await, Err(StoreError::Snapshot(_))));

        // Whole chunks of another snapshot: each is right, the whole is not.
        let info = SnapshotInfo {
            sha256: [7; 32],
            ..data.info().clone()
        };
        let mut receiving = to.snapshots.receive(info).unwrap();
        for number in 0..data.info().chunks {
            receiving.chunk(data.chunk(number).unwrap()).unwrap();
        }
        assert!(matches!(receiving.finish().await, Err(StoreError::Snapshot(_))));
        assert!(to.snapshots.current().is_none());
        // What was begun and let go of is no hindrance.
        carry(&data, &to).await.unwrap();
    }
}

#[tokio::test]
async fn another_clusters_snapshot_is_refused() {
    for disks in Disks::both() {
        let mut from = disks.open();
        from.owner.set_cluster_id("cluster-a").unwrap();
        fill(&mut from).await;
        let data = build(&mut from).await;
        let others = disks.another();
        let mut to = others.open();
        to.owner.set_cluster_id("cluster-b").unwrap();
        assert!(matches!(
            to.snapshots.receive(data.info().clone()),
            Err(StoreError::OtherCluster { .. })
        ));
        apply(&mut to, entries(0..20)).await;
        assert!(install(&mut to, data).await.is_err());
        assert_eq!(to.reader.state_hash().await.unwrap(), reference(19).await);
    }
}

#[tokio::test]
async fn a_flipped_byte_on_disk_is_refused_and_the_old_state_stays() {
    let disks = Disks::both().into_iter().next().unwrap();
    let mut from = disks.open();
    fill(&mut from).await;
    let data = build(&mut from).await;
    let others = disks.another();
    let mut to = others.open();
    apply(&mut to, entries(0..20)).await;
    let received = carry(&data, &to).await.unwrap();
    let Disks::Rocks(dir) = &others else {
        unreachable!()
    };
    let part = fs::read_dir(dir.path().join("snapshot"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let file = fs::File::options().read(true).write(true).open(part).unwrap();
    let at = u64::try_from(3 * CHUNK_BYTES).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();

    assert!(matches!(received.chunk(2), Err(StoreError::Snapshot(_))));
    assert!(install(&mut to, received).await.is_err());
    assert_eq!(to.reader.state_hash().await.unwrap(), reference(19).await);
    apply(&mut to, entries(20..40)).await;
    drop(to);
    let mut to = others.open();
    assert_eq!(to.reader.state_hash().await.unwrap(), reference(39).await);
    // The state that was begun is no hindrance to the next install.
    let received = carry(&data, &to).await.unwrap();
    install(&mut to, received).await.unwrap();
    assert_eq!(
        to.reader.state_hash().await.unwrap(),
        from.reader.state_hash().await.unwrap()
    );
}

#[tokio::test]
async fn a_damaged_snapshot_file_is_removed_and_the_state_stays() {
    let dir = TempDir::new();
    let disks = Disks::Rocks(dir);
    let mut store = disks.open();
    fill(&mut store).await;
    let hash = store.reader.state_hash().await.unwrap();
    build(&mut store).await;
    drop(store);
    let Disks::Rocks(dir) = &disks else { unreachable!() };
    let path = fs::read_dir(dir.path().join("snapshot"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let mut store = disks.open();
    assert!(store.snapshots.current().is_none());
    assert_eq!(store.reader.state_hash().await.unwrap(), hash);
    build(&mut store).await;
}

#[tokio::test]
async fn a_crash_at_any_stage_of_an_install_leaves_the_old_state_or_the_new_one() {
    for disks in Disks::both() {
        let mut from = disks.open();
        fill(&mut from).await;
        let data = build(&mut from).await;
        let new = from.reader.state_hash().await.unwrap();
        let old = reference(19).await;
        let stages = [
            (Stage::Loading, old, old),
            (Stage::Loaded, old, old),
            // The snapshot is there: openraft installs it when the node starts.
            (Stage::Kept, old, new),
            (Stage::Switched, new, new),
        ];
        for (stage, opened, recovered) in stages {
            let others = disks.another();
            let options = Options {
                stop_install_at: Some(stage),
                ..Options::default()
            };
            let mut to = others.open_with(options);
            append(&mut to, 0..20).await;
            apply(&mut to, entries(0..20)).await;
            to.reader.flush().await.unwrap();
            let received = carry(&data, &to).await.unwrap();
            assert!(install(&mut to, received).await.is_err());
            // It goes on with what it has until it stops.
            assert_eq!(to.reader.state_hash().await.unwrap(), old, "{stage:?}");
            drop(to);
            if let Disks::Memory(node) = &others {
                node.crash(Kept::Nothing);
            }
            let mut to = others.open();
            assert_eq!(to.reader.state_hash().await.unwrap(), opened, "{stage:?}");
            recover(&mut to).await;
            assert_eq!(to.reader.state_hash().await.unwrap(), recovered, "{stage:?}");
            let next = recovered.applied_index + 1;
            apply(&mut to, vec![entry(next)]).await;
            if recovered == old {
                let received = carry(&data, &to).await.unwrap();
                install(&mut to, received).await.unwrap();
                assert_eq!(to.reader.state_hash().await.unwrap(), new, "{stage:?}");
            }
        }
    }
}

#[tokio::test]
async fn one_snapshot_is_built_at_a_time() {
    let disks = Disks::both().into_iter().next().unwrap();
    let mut store = disks.open();
    fill(&mut store).await;
    let (first, second) = tokio::join!(store.snapshots.build(), store.snapshots.build());
    // The first may have ended by now; if not, the second is refused, and asked for later it is not.
    first.unwrap();
    assert!(second.is_ok() || matches!(second, Err(StoreError::Busy(_))));
    assert_eq!(build(&mut store).await.info().applied, Some(log_id(57)));
}
