use std::collections::VecDeque;
use std::io;

use openraft::EntryPayload;

use crate::config::{Entry, LogId};

/// The newest entries, in memory: an entry can be read as soon as it is appended, before it is written, and
/// entries are applied and replicated without a read from disk.
#[derive(Debug)]
pub(crate) struct Tail {
    entries: VecDeque<Entry>,
    /// The index of the first of `entries`, or of the next one where there are none.
    first: u64,
    bytes: usize,
    bytes_max: usize,
    /// Entries below this index are on disk.
    written: u64,
    purged: Option<LogId>,
    /// The index of the first entry, in memory or on disk: after the purged one, where any was purged.
    begin: u64,
    /// The last entry, in memory or on disk.
    last: Option<LogId>,
}

/// Where the entries of a range are.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Those on disk: `from..until`, empty where all are in memory.
    pub disk: std::ops::Range<u64>,
    /// Those after them, cut off by the limit.
    pub memory: Vec<Entry>,
}

impl Tail {
    /// Knows a log on disk: what was purged, the first index that is there, and the last entry.
    pub fn new(purged: Option<LogId>, begin: u64, last: Option<LogId>, bytes_max: usize) -> Self {
        let next = last.or(purged).map_or(0, |id| id.index.saturating_add(1));
        Self {
            entries: VecDeque::new(),
            first: next,
            bytes: 0,
            bytes_max,
            written: next,
            purged,
            begin,
            last,
        }
    }

    /// The last entry's id, or the purged one's where there is no entry.
    pub fn last(&self) -> Option<LogId> {
        self.last.or(self.purged)
    }

    pub fn purged(&self) -> Option<LogId> {
        self.purged
    }

    /// Takes in entries that follow the last one.
    ///
    /// # Errors
    /// They do not: a hole in the log would be taken for a whole one.
    pub fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            let index = entry.log_id.index;
            match self.last() {
                Some(last) if last.index.checked_add(1) != Some(index) => {
                    return Err(io::Error::other(format!(
                        "entry {index} does not follow the last log index {}",
                        last.index
                    )));
                }
                Some(_) => {}
                None => {
                    self.begin = index;
                    self.first = index;
                    self.written = index;
                }
            }
            self.bytes = self.bytes.saturating_add(size(entry));
            self.last = Some(entry.log_id);
            self.entries.push_back(entry.clone());
        }
        Ok(())
    }

    /// Notes that entries below this index are on disk, and lets go of what memory need not hold.
    pub fn written(&mut self, until: u64) {
        self.written = self.written.max(until);
        while self.bytes > self.bytes_max && self.first < self.written {
            let Some(entry) = self.entries.pop_front() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(size(&entry));
            self.first = self.first.saturating_add(1);
        }
    }

    /// Removes the entries after this one; `last` is its id.
    pub fn truncate_after(&mut self, last: Option<LogId>) {
        let next = last.or(self.purged).map_or(0, |id| id.index.saturating_add(1));
        // INVARIANT: what is appended at these indexes from now on is not on disk yet.
        self.written = self.written.min(next);
        if self.last.is_none_or(|own| own.index < next) {
            return;
        }
        while self.next() > next.max(self.first) {
            let Some(entry) = self.entries.pop_back() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(size(&entry));
        }
        if self.entries.is_empty() {
            self.first = next;
        }
        self.last = if last > self.purged { last } else { None };
    }

    /// Removes the entries up to this one.
    pub fn purge(&mut self, upto: LogId) {
        let next = upto.index.saturating_add(1);
        while self.first < next {
            let Some(entry) = self.entries.pop_front() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(size(&entry));
            self.first = self.first.saturating_add(1);
        }
        if self.entries.is_empty() && self.first < next {
            self.first = next;
        }
        if self.last.is_some_and(|last| last.index <= upto.index) {
            self.last = None;
            self.first = next;
        }
        self.written = self.written.max(next);
        self.purged = self.purged.max(Some(upto));
        self.begin = self.begin.max(next);
    }

    /// Plans a read of `from..until`, as far as the log has it.
    pub fn plan(&self, from: u64, until: u64, bytes_max: usize) -> Plan {
        let end = self.last.map_or(self.begin, |id| id.index.saturating_add(1));
        let (from, until) = (from.max(self.begin), until.min(end));
        if from >= until {
            return Plan {
                disk: 0..0,
                memory: Vec::new(),
            };
        }
        let disk = from..until.min(self.first).max(from);
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut bytes = 0_usize;
        let memory = self
            .entries
            .iter()
            .skip(skip)
            .take_while(|entry| {
                let fits = bytes == 0 || bytes.saturating_add(size(entry)) <= bytes_max;
                bytes = bytes.saturating_add(size(entry));
                entry.log_id.index < until && fits
            })
            .cloned()
            .collect();
        Plan { disk, memory }
    }

    fn next(&self) -> u64 {
        self.first
            .saturating_add(u64::try_from(self.entries.len()).unwrap_or(u64::MAX))
    }
}

/// Bytes an entry counts for; the rest of it is small.
pub(crate) fn size(entry: &Entry) -> usize {
    const OVERHEAD: usize = 128;
    match &entry.payload {
        EntryPayload::Blank => OVERHEAD,
        EntryPayload::Normal(payload) => payload.bytes().len().saturating_add(OVERHEAD),
        EntryPayload::Membership(membership) => membership
            .nodes()
            .count()
            .saturating_add(1)
            .saturating_mul(OVERHEAD),
    }
}
