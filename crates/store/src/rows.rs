//! The machine's rows on a disk, read as the machine reads them, and the newest of them decoded in memory.

use std::collections::HashMap;
use std::sync::Arc;

use machine::Change;
use machine::row::{Fault, Key, Row, Rows};

use crate::disk::{DiskError, Op, Read, Space};
use crate::guarded::Guarded;
use crate::keys;
use crate::live::StateDisk;
use crate::record;

/// Rows read straight from a disk, or from a view of one.
pub(crate) struct DiskRows<'d>(pub &'d dyn Read);

impl Rows for DiskRows<'_> {
    fn read(&self, key: &Key) -> Result<Option<Row>, Fault> {
        read_row(self.0, &keys::encode(key))
    }

    fn scan(&self, from: &Key, until: &Key, limit: usize) -> Result<Vec<(Key, Row)>, Fault> {
        scan_rows(self.0, &keys::encode(from), &keys::encode(until), limit)
    }
}

/// Rows as apply reads them: decoded ones are kept, also that there is none.
///
/// INVARIANT: it holds nothing that is not on the disk; a run's changes are taken in after they are written.
/// So a scan may read the disk alone.
#[derive(Debug)]
pub(crate) struct RowCache {
    state: Arc<StateDisk>,
    rows: Guarded<Generations>,
}

impl RowCache {
    pub fn over(state: Arc<StateDisk>, rows_max: usize) -> Self {
        let rows = Guarded::new(Generations {
            rows_max,
            ..Generations::default()
        });
        Self { state, rows }
    }

    /// Encodes changes for the disk, in their order.
    pub fn ops(changes: &[Change]) -> Vec<Op> {
        changes
            .iter()
            .map(|change| match change {
                Change::Put(key, row) => Op::Put(Space::Rows, keys::encode(key), machine::row::bytes(row)),
                Change::Delete(key) => Op::Delete(Space::Rows, keys::encode(key)),
            })
            .collect()
    }

    /// Takes in changes that were written.
    pub fn take_in(&self, changes: Vec<Change>) {
        self.state.due.lock().take_in(&changes);
        let mut rows = self.rows.lock();
        for change in changes {
            match change {
                Change::Put(key, row) => rows.insert(keys::encode(&key), Some(row)),
                Change::Delete(key) => rows.insert(keys::encode(&key), None),
            }
        }
    }
}

impl Rows for RowCache {
    fn read(&self, key: &Key) -> Result<Option<Row>, Fault> {
        let key = keys::encode(key);
        let mut rows = self.rows.lock();
        if let Some(row) = rows.get(&key) {
            return Ok(row);
        }
        let row = read_row(self.state.disk.as_ref(), &key)?;
        rows.insert(key, row.clone());
        Ok(row)
    }

    fn scan(&self, from: &Key, until: &Key, limit: usize) -> Result<Vec<(Key, Row)>, Fault> {
        let disk = self.state.disk.as_ref();
        let due = matches!(from, Key::Due(..)) && matches!(until, Key::Due(..));
        let (from, until) = (keys::encode(from), keys::encode(until));
        if due {
            self.state.due.lock().scan(disk, &from, &until, limit)
        } else {
            scan_rows(disk, &from, &until, limit)
        }
    }
}

/// Two generations of rows: what was not read while one filled up is let go of when the next has.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Vec<u8>, Option<Row>>,
    old: HashMap<Vec<u8>, Option<Row>>,
    rows_max: usize,
}

impl Generations {
    fn get(&mut self, key: &[u8]) -> Option<Option<Row>> {
        if let Some(row) = self.young.get(key) {
            return Some(row.clone());
        }
        let (key, row) = self.old.remove_entry(key)?;
        self.insert(key, row.clone());
        Some(row)
    }

    fn insert(&mut self, key: Vec<u8>, row: Option<Row>) {
        if self.young.len() >= self.rows_max / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, row);
    }
}

fn read_row(disk: &dyn Read, key: &[u8]) -> Result<Option<Row>, Fault> {
    disk.get(Space::Rows, key)
        .map_err(fault)?
        .map(|bytes| decode(key, &bytes))
        .transpose()
}

pub(crate) fn scan_rows(
    disk: &dyn Read,
    from: &[u8],
    until: &[u8],
    limit: usize,
) -> Result<Vec<(Key, Row)>, Fault> {
    let mut rows = Vec::new();
    let mut broken = None;
    if limit == 0 || from >= until {
        return Ok(rows);
    }
    disk.visit(Space::Rows, from, Some(until), &mut |bytes, value| {
        let row = keys::decode(bytes)
            .map_err(|error| Fault::Storage(error.to_string()))
            .and_then(|key| Ok((key, decode(bytes, value)?)));
        match row {
            Ok(row) => {
                rows.push(row);
                rows.len() < limit
            }
            Err(fault) => {
                broken = Some(fault);
                false
            }
        }
    })
    .map_err(fault)?;
    match broken {
        Some(fault) => Err(fault),
        None => Ok(rows),
    }
}

fn decode(key: &[u8], bytes: &[u8]) -> Result<Row, Fault> {
    record::exact(bytes).map_err(|what| match keys::decode(key) {
        Ok(key) => Fault::Storage(format!("row {key:?}: {what}")),
        Err(_) => Fault::Storage(format!("row {key:02x?}: {what}")),
    })
}

fn fault(error: DiskError) -> Fault {
    Fault::Storage(error.to_string())
}

#[cfg(test)]
mod tests;
