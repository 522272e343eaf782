use std::collections::BTreeMap;
use std::sync::Arc;

use decision::{SessionId, Timestamp};
use machine::Change;
use machine::row::{DueWork, Key, Nonces, Row, Rows};
use proptest::prelude::*;

use super::{DiskRows, RowCache};
use crate::disk::{Disk, Durability};
use crate::live::StateDisk;
use crate::memory::MemoryDisk;

fn session(number: u8) -> SessionId {
    SessionId::parse(&format!("s{number}")).unwrap()
}

/// Apart enough that the horizon of due work moves many times.
fn seconds(at: u64) -> Timestamp {
    Timestamp::from_nanos(at * 4_000_000_000)
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        (0..4_u8, 0..6_u64).prop_map(|(id, block)| Key::Nonces(session(id), block)),
        (0..20_u64, 0..3_u8).prop_map(|(at, id)| Key::Due(seconds(at), DueWork::SessionIdle(session(id)))),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<(Key, Option<u64>)>),
    Read(Key),
    Due { from: u64, until: u64, limit: usize },
    Nonces { from: u64, until: u64, limit: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        proptest::collection::vec((key(), proptest::option::of(0..9_u64)), 1..6).prop_map(Step::Write),
        key().prop_map(Step::Read),
        (0..5_u64, 0..22_u64, 0..6_usize).prop_map(|(from, until, limit)| Step::Due { from, until, limit }),
        (0..6_u64, 0..8_u64, 0..6_usize).prop_map(|(from, until, limit)| Step::Nonces { from, until, limit }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// However little it keeps, the cache reads as a map does.
    #[test]
    fn a_cache_over_a_disk_reads_as_a_map_does(steps in proptest::collection::vec(step(), 1..60), rows_max in 0..8_usize) {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default().attach());
        let cache = RowCache::over(StateDisk::new(Arc::clone(&disk)), rows_max);
        let mut model: BTreeMap<Key, Row> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Write(writes) => {
                    let changes: BTreeMap<Key, Option<u64>> = writes.into_iter().collect();
                    let changes: Vec<Change> = changes
                        .into_iter()
                        .map(|(key, bits)| match bits {
                            Some(bits) => Change::Put(key, Row::Nonces(Nonces { bits: [bits, 0, 0, 0] })),
                            None => Change::Delete(key),
                        })
                        .collect();
                    disk.write(&RowCache::ops(&changes), Durability::Unsynced).unwrap();
                    for change in &changes {
                        match change {
                            Change::Put(key, row) => drop(model.insert(key.clone(), row.clone())),
                            Change::Delete(key) => drop(model.remove(key)),
                        }
                    }
                    cache.take_in(changes);
                }
                Step::Read(key) => prop_assert_eq!(cache.read(&key), Ok(model.get(&key).cloned())),
                Step::Due { from, until, limit } => {
                    let at = |at| Key::Due(seconds(at), DueWork::HoldExpiry(session(0), 0));
                    scans_alike(&cache, disk.as_ref(), &model, [at(from), at(until)], limit)?;
                }
                Step::Nonces { from, until, limit } => {
                    let at = |block| Key::Nonces(session(1), block);
                    scans_alike(&cache, disk.as_ref(), &model, [at(from), at(until)], limit)?;
                }
            }
        }
    }
}

fn scans_alike(
    cache: &RowCache,
    disk: &dyn Disk,
    model: &BTreeMap<Key, Row>,
    [from, until]: [Key; 2],
    limit: usize,
) -> Result<(), TestCaseError> {
    let expected = if from < until {
        model.scan(&from, &until, limit)
    } else {
        Ok(Vec::new())
    };
    let view = disk.view();
    prop_assert_eq!(
        DiskRows(view.as_ref()).scan(&from, &until, limit),
        expected.clone()
    );
    prop_assert_eq!(cache.scan(&from, &until, limit), expected);
    Ok(())
}

#[test]
fn more_may_be_due_at_once_than_is_read_at_once() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default().attach());
    let at = |number: u64| Key::Due(Timestamp::from_nanos(5), DueWork::HoldExpiry(session(0), number));
    let mark = Row::Nonces(Nonces::default());
    let changes: Vec<Change> = (0..10_000)
        .map(|number| Change::Put(at(number), mark.clone()))
        .collect();
    disk.write(&RowCache::ops(&changes), Durability::Unsynced)
        .unwrap();
    let cache = RowCache::over(StateDisk::new(Arc::clone(&disk)), 16);
    for (limit, expected) in [(1, 1), (4_096, 4_096), (5_000, 5_000), (20_000, 10_000)] {
        let found = cache.scan(&at(0), &at(u64::MAX), limit).unwrap();
        let keys: Vec<Key> = found.into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, (0..expected).map(at).collect::<Vec<_>>());
    }
    let gone: Vec<Change> = (0..9_999).map(|number| Change::Delete(at(number))).collect();
    disk.write(&RowCache::ops(&gone), Durability::Unsynced).unwrap();
    cache.take_in(gone);
    assert_eq!(cache.scan(&at(0), &at(u64::MAX), 9), Ok(vec![(at(9_999), mark)]));
}
