use openraft::impls::leader_id_adv::LeaderId;

use super::{DirectoryHome, Home};
use crate::config::{LogId, StoredMembership};
use crate::memory::MemoryNode;
use crate::snapshot::{SnapshotData, SnapshotInfo};

fn finished(home: &dyn Home, index: u64) -> SnapshotData {
    let applied = Some(LogId {
        leader_id: LeaderId { term: 1, node_id: 1 },
        index,
    });
    let (cluster_id, membership) = (String::new(), StoredMembership::default());
    let info = SnapshotInfo {
        cluster_id,
        applied,
        membership,
        chunks: 0,
        bytes: 0,
        sha256: [0; 32],
    };
    home.new_snapshot().unwrap().finish(info).unwrap()
}

/// A build may end after a newer snapshot was installed.
#[test]
fn the_newest_snapshot_is_kept_whichever_comes_last() {
    let index_of = |data: &SnapshotData| data.info().applied.map(|id| id.index);
    let dir = std::env::temp_dir().join(format!("haltgate-home-{}", std::process::id()));
    let directory = DirectoryHome::open(&dir, 1 << 20).unwrap();
    let node = MemoryNode::new(1);
    let homes: [&dyn Home; 2] = [&directory, &node];
    for home in homes {
        let ended = [5, 3, 7, 6].map(|index| finished(home, index));
        for (data, expected) in ended.into_iter().zip([5, 5, 7, 7]) {
            let kept = home.keep_snapshot(&data).unwrap();
            assert_eq!(index_of(&kept), Some(expected));
            assert_eq!(home.snapshot().as_ref().and_then(index_of), Some(expected));
        }
    }
    assert_eq!(std::fs::read_dir(dir.join("snapshot")).unwrap().count(), 1);
    drop(directory);
    let reopened = DirectoryHome::open(&dir, 1 << 20).unwrap();
    assert_eq!(reopened.snapshot().as_ref().and_then(index_of), Some(7));
    drop(reopened);
    std::fs::remove_dir_all(dir).unwrap();
}
