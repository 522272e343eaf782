//! Changes of a run of commands, laid over the rows they began with: a command sees what the one before it did.

use std::collections::{BTreeMap, BTreeSet};

use decision::Digest;

use crate::row::{Fault, Key, Row, Rows, bytes};

/// One changed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put(Key, Row),
    Delete(Key),
}

/// Rows that can be changed.
pub trait Rewrite: Rows {
    fn put(&mut self, key: Key, row: Row);
    fn delete(&mut self, key: Key);
    /// Folds what was changed since the last call into a digest.
    fn fold_changes(&mut self, so_far: Digest) -> Digest;
}

/// Changes laid over rows.
#[derive(Debug)]
pub struct Working<'a, R> {
    base: &'a R,
    changed: BTreeMap<Key, Option<Row>>,
    /// What the batch at work has changed.
    fresh: BTreeSet<Key>,
}

impl<R: Rows> Rows for Working<'_, R> {
    fn read(&self, key: &Key) -> Result<Option<Row>, Fault> {
        match self.changed.get(key) {
            Some(row) => Ok(row.clone()),
            None => self.base.read(key),
        }
    }

    fn scan(&self, from: &Key, until: &Key, limit: usize) -> Result<Vec<(Key, Row)>, Fault> {
        // Deleted rows may hide some of what the base gives: ask for as many more.
        let laid_over = self.changed.range(from..until);
        let hidden = laid_over.clone().count();
        let mut rows: BTreeMap<Key, Row> = self
            .base
            .scan(from, until, limit.saturating_add(hidden))?
            .into_iter()
            .collect();
        for (key, row) in laid_over {
            match row {
                Some(row) => rows.insert(key.clone(), row.clone()),
                None => rows.remove(key),
            };
        }
        Ok(rows.into_iter().take(limit).collect())
    }
}

impl<'a, R: Rows> Working<'a, R> {
    pub fn over(base: &'a R) -> Self {
        Self {
            base,
            changed: BTreeMap::new(),
            fresh: BTreeSet::new(),
        }
    }

    /// The changes, in key order.
    pub fn into_changes(self) -> Vec<Change> {
        self.changed
            .into_iter()
            .map(|(key, row)| match row {
                Some(row) => Change::Put(key, row),
                None => Change::Delete(key),
            })
            .collect()
    }
}

impl<R: Rows> Rewrite for Working<'_, R> {
    fn put(&mut self, key: Key, row: Row) {
        self.fresh.insert(key.clone());
        self.changed.insert(key, Some(row));
    }

    fn delete(&mut self, key: Key) {
        self.fresh.insert(key.clone());
        self.changed.insert(key, None);
    }

    fn fold_changes(&mut self, so_far: Digest) -> Digest {
        let mut folded = so_far.as_bytes().to_vec();
        // The chain's own row holds the digest.
        let fresh = std::mem::take(&mut self.fresh);
        for key in fresh.into_iter().filter(|key| *key != Key::Chain) {
            let row = self.changed.get(&key).and_then(Option::as_ref);
            folded.extend(bytes(&(&key, row)));
        }
        Digest::of(&folded)
    }
}
