use std::collections::BTreeMap;
use std::ops::Bound;

use decision::{DurationNs, Timestamp};
use machine::Change;
use machine::row::{Fault, Key, Row};

use crate::disk::Read;
use crate::keys;
use crate::rows::scan_rows;

/// The due work that comes next, in memory: every row of its table below a horizon.
///
/// Due work is deleted where every scan begins, and most of it (the holds of calls that were settled) before
/// its time. A disk keeps what was deleted for a while, and a scan steps over it each time; here it is stepped
/// over once, when the horizon passes it.
#[derive(Debug)]
pub(crate) struct NextDue {
    rows: BTreeMap<Vec<u8>, Row>,
    /// INVARIANT: a row of the table with a key below this is in `rows`, and no other is.
    horizon: Vec<u8>,
}

/// How far ahead of what is asked for the horizon is moved: the disk is read so often at most.
const AHEAD: DurationNs = DurationNs::from_secs(10);
/// Rows read at once when it is moved; after a long standstill much is due at once.
const ROWS_READ_MAX: usize = 4096;

impl Default for NextDue {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            horizon: vec![keys::table::DUE],
        }
    }
}

impl NextDue {
    /// Takes in changes that were written to the disk, in their order.
    pub fn take_in(&mut self, changes: &[Change]) {
        for change in changes {
            let (key, row) = match change {
                Change::Put(key @ Key::Due(..), row) => (keys::encode(key), Some(row)),
                Change::Delete(key @ Key::Due(..)) => (keys::encode(key), None),
                Change::Put(..) | Change::Delete(_) => continue,
            };
            if key < self.horizon {
                match row {
                    Some(row) => self.rows.insert(key, row.clone()),
                    None => self.rows.remove(&key),
                };
            }
        }
    }

    /// Gives the rows with `from <= key < until`, in order, at most `limit`.
    pub fn scan(
        &mut self,
        disk: &dyn Read,
        from: &[u8],
        until: &[u8],
        limit: usize,
    ) -> Result<Vec<(Key, Row)>, Fault> {
        if from >= until || limit == 0 {
            return Ok(Vec::new());
        }
        while self.horizon.as_slice() < until && self.within(from, until).take(limit).count() < limit {
            self.move_horizon(disk, until)?;
        }
        self.within(from, until)
            .take(limit)
            .map(|(key, row)| {
                let key = keys::decode(key).map_err(|error| Fault::Storage(error.to_string()))?;
                Ok((key, row.clone()))
            })
            .collect()
    }

    /// Says whether anything is due at this time.
    pub fn is_due(&mut self, disk: &dyn Read, now: Timestamp) -> Result<bool, Fault> {
        let after = keys::due_at(now.plus(DurationNs::from_nanos(1)));
        Ok(!self.scan(disk, &[keys::table::DUE], &after, 1)?.is_empty())
    }

    fn within(&self, from: &[u8], until: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &Row)> {
        self.rows
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(until)))
    }

    /// Moves the horizon beyond `until`, or as far as so many rows reach.
    fn move_horizon(&mut self, disk: &dyn Read, until: &[u8]) -> Result<(), Fault> {
        let ahead = keys::due_time(until).map(|time| keys::due_at(time.plus(AHEAD)));
        let horizon = ahead.unwrap_or_default().max(until.to_vec());
        let rows = scan_rows(disk, &self.horizon, &horizon, ROWS_READ_MAX)?;
        let all = rows.len() < ROWS_READ_MAX;
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(key, row)| (keys::encode(&key), row))
            .collect();
        self.horizon = match rows.last() {
            // The least key after the last one.
            Some((last, _)) if !all => [last.as_slice(), &[0]].concat(),
            Some(_) | None => horizon,
        };
        self.rows.extend(rows);
        Ok(())
    }
}
