//! Every table: its key, its row, and how a row is read as what it is. One file a table.
//!
//! Nothing here knows what a command does. `Rows` is what the machine reads from: RocksDB, an in-memory map, the
//! script runner.

pub mod account;
pub mod approval;
pub mod call;
pub mod cluster;
pub mod guard;
pub mod halt;
pub mod hold;
pub mod key;
pub mod nonces;
pub mod price;
pub mod recorded;
pub mod reply;
pub mod session;
pub mod tally;
pub mod ticket;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use audit::{KeyRing, Seal};
use decision::{ApprovalId, RequestId, SessionId};
use minicbor::{Decode, Encode};

use crate::scope::{AccountId, GuardScope, Scope};

pub use crate::encoding::bytes;
pub use account::Account;
pub use approval::{Approval, ApprovalStatus, Decided, OPEN_APPROVALS_MAX, Successor};
pub use call::{CALL_JUMP_MAX, CALL_WINDOW, Call, PARTIALS_MAX, Phase};
pub use cluster::{Chain, Cluster};
pub use decision::{HaltMode, Limit};
pub use guard::{BudgetScope, Guard, LatchScope, PauseScope, ToolLimit, TripPolicy, Unsettled, Window};
pub use halt::{HALT_HISTORY_MAX, Halt, HaltChange, ReleaseAsked};
pub use hold::Hold;
pub use key::{DueWork, Key, Requester};
pub use nonces::Nonces;
pub use recorded::{Answer, REQUEST_KEPT, Recorded};
pub use session::{
    LastCall, SESSION_IDLE, SESSION_KEPT, SESSION_TTL, Session, SessionStatus, Trip, WINDOW_TOOLS_MAX,
    Waiting,
};
pub use tally::Tally;
pub use ticket::{Authorization, Ticket};

/// One row, tagged with its table.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Row {
    #[n(0)]
    Cluster(#[n(0)] Cluster),
    #[n(1)]
    Chain(#[n(0)] Chain),
    #[n(2)]
    Guard(#[n(0)] Box<Guard>),
    #[n(3)]
    Halt(#[n(0)] Halt),
    #[n(4)]
    Account(#[n(0)] Account),
    #[n(5)]
    Session(#[n(0)] Box<Session>),
    #[n(6)]
    Call(#[n(0)] Box<Call>),
    #[n(7)]
    Hold(#[n(0)] Hold),
    #[n(8)]
    Nonces(#[n(0)] Nonces),
    #[n(9)]
    Recorded(#[n(0)] Recorded),
    #[n(10)]
    KeyRing(#[n(0)] KeyRing),
    #[n(11)]
    Seal(#[n(0)] Seal),
    /// The key says it all (indexes, due work).
    #[n(12)]
    Mark,
    #[n(13)]
    Approval(#[n(0)] Box<Approval>),
    #[n(14)]
    Tally(#[n(0)] Tally),
}

/// A fault below the rules: the node stops, because going on would split the replicas.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("state could not be read: {0}")]
    Storage(String),
    #[error("row {0:?} is of another table")]
    WrongRow(Key),
    #[error("row {0:?} is missing, though another row says that it exists")]
    Missing(Key),
    /// Nothing is wrong with the data: another binary reads it.
    #[error(
        "the cluster runs version {needs} of the rules, this binary has versions {oldest} to {newest}: start a release \
         that has version {needs}"
    )]
    Version { needs: u32, oldest: u32, newest: u32 },
}

/// Where rows are read from.
pub trait Rows {
    /// Reads one row.
    fn read(&self, key: &Key) -> Result<Option<Row>, Fault>;
    /// Reads the rows with `from <= key < until` of one table, in key order, at most `limit`.
    fn scan(&self, from: &Key, until: &Key, limit: usize) -> Result<Vec<(Key, Row)>, Fault>;
}

/// Rows in memory: for the script runner, for library mode, and under every `Working`.
impl Rows for BTreeMap<Key, Row> {
    fn read(&self, key: &Key) -> Result<Option<Row>, Fault> {
        Ok(self.get(key).cloned())
    }

    fn scan(&self, from: &Key, until: &Key, limit: usize) -> Result<Vec<(Key, Row)>, Fault> {
        Ok(self
            .range(from..until)
            .take(limit)
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect())
    }
}

/// A row that is read by an id of its own.
pub trait Table: Sized {
    type Id: Clone;

    fn key(id: &Self::Id) -> Key;
    fn into_row(self) -> Row;
    fn from_row(row: Row) -> Option<Self>;
}

/// A row together with its id, which stands in its key alone: it is changed in place and saved as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<T: Table> {
    pub id: T::Id,
    pub row: T,
}

impl<T: Table> Record<T> {
    pub fn new(id: T::Id, row: T) -> Self {
        Self { id, row }
    }
}

impl<T: Table> Deref for Record<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.row
    }
}

impl<T: Table> DerefMut for Record<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.row
    }
}

/// Ties each type to its key and its variant; `boxed` ones are large.
macro_rules! tables {
    ($($row:ident($($boxed:ident)?) by $id:ty: |$arg:pat_param| $key:expr;)*) => {$(
        impl Table for $row {
            type Id = $id;

            fn key(id: &$id) -> Key {
                let $arg = id;
                $key
            }

            fn into_row(self) -> Row {
                Row::$row(self.into())
            }

            fn from_row(row: Row) -> Option<Self> {
                match row {
                    Row::$row(row) => Some(tables!(@open row $($boxed)?)),
                    _ => None,
                }
            }
        }
    )*};
    (@open $row:ident boxed) => { *$row };
    (@open $row:ident) => { $row };
}

tables! {
    Cluster() by (): |()| Key::Cluster;
    Chain() by (): |()| Key::Chain;
    KeyRing() by (): |()| Key::Keys;
    Seal() by u64: |to| Key::Seal(*to);
    Guard(boxed) by GuardScope: |scope| Key::Guard(scope.clone());
    Halt() by Scope: |scope| Key::Halt(scope.clone());
    Account() by AccountId: |id| Key::Account(id.clone());
    Tally() by AccountId: |of| Key::Tally(of.clone());
    Session(boxed) by SessionId: |id| Key::Session(id.clone());
    Call(boxed) by (SessionId, u64): |(session, number)| Key::Call(session.clone(), *number);
    Hold() by (SessionId, u64): |(session, number)| Key::Hold(session.clone(), *number);
    Nonces() by (SessionId, u64): |(session, block)| Key::Nonces(session.clone(), *block);
    Recorded() by (Requester, RequestId): |(by, request)| Key::Request(by.clone(), request.clone());
    Approval(boxed) by ApprovalId: |id| Key::Approval(id.clone());
}

/// Rows read as what they are: a row of another table under a key is a fault, not a guess.
pub trait Read: Rows {
    fn get<T: Table>(&self, id: &T::Id) -> Result<Option<T>, Fault> {
        let key = T::key(id);
        match self.read(&key)? {
            None => Ok(None),
            Some(row) => T::from_row(row).map(Some).ok_or(Fault::WrongRow(key)),
        }
    }

    fn cluster(&self) -> Result<Option<Cluster>, Fault> {
        self.get(&())
    }

    fn chain(&self) -> Result<Option<Chain>, Fault> {
        self.get(&())
    }

    fn keys(&self) -> Result<Option<KeyRing>, Fault> {
        self.get(&())
    }

    fn guard(&self, scope: &GuardScope) -> Result<Option<Guard>, Fault> {
        self.get(scope)
    }

    fn halt(&self, scope: &Scope) -> Result<Option<Halt>, Fault> {
        self.get(scope)
    }

    fn account(&self, id: &AccountId) -> Result<Option<Account>, Fault> {
        self.get(id)
    }

    fn tally(&self, of: &AccountId) -> Result<Option<Tally>, Fault> {
        self.get(of)
    }

    fn session(&self, id: &SessionId) -> Result<Option<Session>, Fault> {
        self.get(id)
    }

    fn call(&self, session: &SessionId, number: u64) -> Result<Option<Call>, Fault> {
        self.get(&(session.clone(), number))
    }

    fn hold(&self, session: &SessionId, number: u64) -> Result<Option<Hold>, Fault> {
        self.get(&(session.clone(), number))
    }

    fn approval(&self, id: &ApprovalId) -> Result<Option<Approval>, Fault> {
        self.get(id)
    }
}

impl<R: Rows + ?Sized> Read for R {}
