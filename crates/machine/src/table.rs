//! Every table: its key, its row, and how rows are read and changed.
//!
//! `Rows` is what the machine reads from (RocksDB, an in-memory map, the script runner). `Working` lays
//! the changes of a run of commands over it, so that a command sees what the one before it did.

use std::collections::BTreeMap;

use audit::{ChainHead, Frontier, KeyRing, Seal};
use decision::limits::{self, RateWindow};
use decision::{
    AgentId, ApprovalId, Digest, DurationNs, GuardId, NanoUsd, OrganizationId, Outcomes, Reason, RecentCall,
    RequestId, SessionId, Timestamp, ToolName,
};
use minicbor::{Decode, Encode};

use crate::approval::Approval;
use crate::command::Limit;
use crate::guard::{Guard, Unsettled};
use crate::reply::{Reply, VerdictReply};
use crate::scope::{AccountId, GuardScope, Scope};
use crate::tally::Tally;
use crate::ticket::Ticket;

/// Names one row. The order of the variants and of their parts is the order of the bytes on disk
/// (`store::keys`), so that a scan gives the same rows from a map and from RocksDB.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Cluster,
    Chain,
    Guard(GuardScope),
    Halt(Scope),
    Account(AccountId),
    Session(SessionId),
    SessionOf(OrganizationId, AgentId, SessionId),
    Call(SessionId, u64),
    Hold(SessionId, u64),
    /// A block of 256 nonces: `nonce >> 8`.
    Nonces(SessionId, u64),
    Request(Requester, RequestId),
    Due(Timestamp, DueWork),
    Keys,
    /// Signatures over the entries up to this sequence.
    Seal(u64),
    Approval(ApprovalId),
    ApprovalOf(OrganizationId, ApprovalId),
    /// Sessions of an organization, an agent, or directly under a guard.
    Tally(AccountId),
}

/// Whose request ids are told apart: tenants cannot collide.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Requester {
    #[n(0)]
    Session(#[n(0)] SessionId),
    #[n(1)]
    Identity(#[n(0)] String),
}

/// What log time makes due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum DueWork {
    #[n(0)]
    HoldExpiry(#[n(0)] SessionId, #[n(1)] u64),
    /// Looks whether the session was heard from; re-arms itself when it was.
    #[n(1)]
    SessionIdle(#[n(0)] SessionId),
    /// Settles what an ended session still holds.
    #[n(2)]
    SessionEnd(#[n(0)] SessionId),
    /// Removes an ended session's rows.
    #[n(3)]
    SessionRemoval(#[n(0)] SessionId),
    #[n(4)]
    RequestExpiry(#[n(0)] Requester, #[n(1)] RequestId),
    #[n(5)]
    ApprovalExpiry(#[n(0)] ApprovalId),
    /// Forgets an approval that is over.
    #[n(6)]
    ApprovalRemoval(#[n(0)] ApprovalId),
    /// A drain is over by itself.
    #[n(7)]
    DrainEnd(#[n(0)] Scope),
}

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
    Request(#[n(0)] Recorded),
    #[n(10)]
    Keys(#[n(0)] KeyRing),
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

/// What the whole cluster agrees on.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Cluster {
    #[n(0)]
    pub chain_id: String,
    /// The newest log time.
    #[n(1)]
    pub now: Timestamp,
    /// Counts engagements and releases.
    #[n(2)]
    pub halt_epoch: u64,
    #[n(3)]
    pub unfunded_organizations: bool,
    #[n(4)]
    pub fixtures: bool,
}

/// Where the audit chain stands.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Chain {
    #[n(0)]
    pub head: ChainHead,
    /// The Merkle tree over the entries.
    #[n(1)]
    pub frontier: Frontier,
    /// Entries up to this sequence carry signatures.
    #[n(2)]
    pub sealed_to: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Session {
    #[n(0)]
    pub organization: OrganizationId,
    #[n(1)]
    pub agent: AgentId,
    #[n(2)]
    pub status: SessionStatus,
    #[n(3)]
    pub opened_at: Timestamp,
    #[n(4)]
    pub last_activity: Timestamp,
    #[n(5)]
    pub metadata: BTreeMap<String, String>,
    /// Calls that were allowed.
    #[n(6)]
    pub total_calls: u64,
    /// `total_calls` when a reset last cleared that limit.
    #[n(7)]
    pub total_calls_base: u64,
    /// When the first call since the session's start, or since a reset, was allowed.
    #[n(8)]
    pub first_call_at: Option<Timestamp>,
    #[n(9)]
    pub last_call: Option<LastCall>,
    #[n(10)]
    /// Calls a tool in its current window; at most `WINDOW_TOOLS_MAX` tools.
    pub windows: BTreeMap<ToolName, limits::Window>,
    #[n(11)]
    pub trip: Option<Trip>,
    /// The highest call number seen; 0 before the first.
    #[n(12)]
    pub highest_call: u64,
    /// The calls that wait for people: one where the session pauses, at most `OPEN_APPROVALS_MAX`.
    #[n(13)]
    pub waiting: Vec<Waiting>,
    /// When it was ended; its rows go an hour later.
    #[n(14)]
    pub ended_at: Option<Timestamp>,
    /// Paused by an operator too: no approval's end lifts that.
    #[n(15)]
    pub paused_by_operator: bool,
    /// The named guard it runs under.
    #[n(16)]
    pub guard: Option<GuardId>,
    /// Its last allowed calls, as many as its guard's breakers look at.
    #[n(17)]
    pub recent: Vec<RecentCall>,
    /// Allowed calls within the sliding rate's span.
    #[n(18)]
    pub rate: RateWindow,
    #[n(19)]
    pub outcomes: Outcomes,
    /// Denials in a row.
    #[n(20)]
    pub denials: u32,
    /// Tokens reported, in and out.
    #[n(21)]
    pub tokens: u64,
    /// What its settled calls cost in all.
    #[n(22)]
    pub cost: NanoUsd,
    /// The numbers of the calls in `recent`.
    #[n(23)]
    pub recent_numbers: Vec<u64>,
    /// Tickets that came with audit entries up to this sequence are void.
    #[n(24)]
    pub tickets_void_to: u64,
}

impl Session {
    /// A session with nothing done in it.
    pub fn opened(
        organization: OrganizationId,
        agent: AgentId,
        metadata: BTreeMap<String, String>,
        now: Timestamp,
    ) -> Self {
        Self {
            organization,
            agent,
            status: SessionStatus::Active,
            opened_at: now,
            last_activity: now,
            metadata,
            total_calls: 0,
            total_calls_base: 0,
            first_call_at: None,
            last_call: None,
            windows: BTreeMap::new(),
            trip: None,
            highest_call: 0,
            waiting: Vec::new(),
            ended_at: None,
            paused_by_operator: false,
            guard: None,
            recent: Vec::new(),
            recent_numbers: Vec::new(),
            tickets_void_to: 0,
            rate: RateWindow::default(),
            outcomes: Outcomes::default(),
            denials: 0,
            tokens: 0,
            cost: NanoUsd::ZERO,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SessionStatus {
    #[n(0)]
    Active,
    #[n(1)]
    Paused,
    #[n(2)]
    Terminated,
    #[n(3)]
    Stale,
}

/// The last call that was allowed, and how often it ran in a row.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LastCall {
    #[n(0)]
    pub call_number: u64,
    #[n(1)]
    pub tool: ToolName,
    #[n(2)]
    pub digest: Option<Digest>,
    #[n(3)]
    pub repeats: u32,
    /// It ended with `success = false`, or its error text held a known signal.
    #[n(4)]
    pub failed: bool,
}

/// Tools whose windows are counted apart. An agent that invents names faster is counted as at its limit.
pub const WINDOW_TOOLS_MAX: usize = 256;

/// The circuit's latch: the first reason sticks.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Trip {
    #[n(0)]
    pub reason: Reason,
    #[n(1)]
    pub at: Timestamp,
    #[n(2)]
    pub call_number: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Waiting {
    #[n(0)]
    pub call_number: u64,
    #[n(1)]
    pub approval_id: ApprovalId,
}

/// One account. Available is granted − spent − held, and may be below zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Account {
    #[n(0)]
    pub limit: Limit,
    #[n(1)]
    pub spent: NanoUsd,
    #[n(2)]
    pub held: NanoUsd,
}

impl Account {
    /// An account with a limit and nothing drawn on it.
    pub fn opened(limit: Limit) -> Self {
        Self {
            limit,
            spent: NanoUsd::ZERO,
            held: NanoUsd::ZERO,
        }
    }

    /// What it was given: none where it is unlimited, zero where it is suspended.
    pub fn granted(&self) -> Option<NanoUsd> {
        match self.limit {
            Limit::Amount(amount) => Some(amount),
            Limit::Suspended => Some(NanoUsd::ZERO),
            Limit::Unlimited => None,
        }
    }

    /// What may still be held; below zero in overdraft, none where it is unlimited.
    pub fn available(&self) -> Option<NanoUsd> {
        let used = self.spent.saturating_add(self.held);
        match self.limit {
            Limit::Amount(amount) => Some(amount.saturating_sub(used)),
            Limit::Suspended => Some(NanoUsd::ZERO.saturating_sub(used)),
            Limit::Unlimited => None,
        }
    }

    /// How far it is below zero.
    pub fn overdraft(&self) -> NanoUsd {
        match self.available() {
            Some(left) if left < NanoUsd::ZERO => NanoUsd::ZERO.saturating_sub(left),
            Some(_) | None => NanoUsd::ZERO,
        }
    }
}

/// What is remembered of a call that was decided.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Call {
    #[n(0)]
    pub request: Option<RequestId>,
    #[n(1)]
    pub nonce: u64,
    #[n(2)]
    pub phase: Phase,
    /// The answer as it was given; given again to a retry.
    #[n(3)]
    pub answer: VerdictReply,
    #[n(4)]
    pub tool: ToolName,
    #[n(5)]
    pub digest: Option<Digest>,
    /// The requests of its settlements; forgotten with it. At most `PARTIALS_MAX` partial ones.
    #[n(6)]
    pub reports: Vec<RequestId>,
    /// What people were asked about it.
    #[n(7)]
    pub approval: Option<ApprovalId>,
    #[n(8)]
    pub ticket: Option<Ticket>,
}

/// Partial settlements of one call: they rest in its row, which each of them writes again.
pub const PARTIALS_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Phase {
    #[n(0)]
    Denied,
    /// Waits for a human.
    #[n(1)]
    Waiting,
    /// Waited, and never runs: rejected, expired, cancelled, or another ran in its place.
    #[n(2)]
    Cancelled,
    /// Allowed; its hold is open.
    #[n(3)]
    Held,
    /// Closed by its agent: charged so much in all, on this last report (none: cost unknown).
    #[n(4)]
    Settled {
        #[n(0)]
        charged: NanoUsd,
        #[n(1)]
        reported: Option<NanoUsd>,
    },
    /// Closed by time or by the session's end, which charged so much on top of what partial reports
    /// had; one late report may put its own amount in the place of that.
    #[n(5)]
    Expired(#[n(0)] NanoUsd),
}

/// Money set aside for a call that runs. The row outlives its expiry, for a late settlement.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Hold {
    /// What was held when the call was allowed.
    #[n(0)]
    pub amount: NanoUsd,
    /// What of it is still in the accounts' `held`.
    #[n(1)]
    pub open: NanoUsd,
    /// What the accounts' `spent` has of it.
    #[n(6)]
    pub charged: NanoUsd,
    /// The accounts it was taken from, innermost first.
    #[n(2)]
    pub accounts: Vec<AccountId>,
    #[n(3)]
    pub expires_at: Timestamp,
    #[n(4)]
    pub unsettled: Unsettled,
    #[n(5)]
    pub at_least: bool,
}

/// 256 nonces, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Nonces {
    #[n(0)]
    pub bits: [u64; 4],
}

/// An answer kept for a retry.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Recorded {
    #[n(0)]
    pub payload: Digest,
    #[n(1)]
    pub answer: Answer,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Answer {
    /// The verdict stands in the call's row.
    #[n(0)]
    Call(#[n(0)] u64),
    #[n(1)]
    Reply(#[n(0)] Box<Reply>),
}

/// The kill switch at one scope, engaged or released.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Halt {
    #[n(0)]
    pub engaged: bool,
    /// The first engagement's; later ones join the history.
    #[n(1)]
    pub reason: String,
    #[n(2)]
    pub ticket: String,
    #[n(3)]
    pub by: String,
    #[n(4)]
    pub at: Timestamp,
    /// The halt epoch of the newest change.
    #[n(5)]
    pub epoch: u64,
    /// The newest `HALT_HISTORY_MAX` changes; the audit log has all.
    #[n(6)]
    pub history: Vec<HaltChange>,
    #[n(7)]
    pub mode: HaltMode,
    /// When a drain ends by itself.
    #[n(8)]
    pub until: Option<Timestamp>,
    /// Its release needs two people.
    #[n(9)]
    pub two_person: bool,
    /// The first of the two.
    #[n(10)]
    pub release_asked: Option<ReleaseAsked>,
    /// A drain was engaged as well: below a pause it goes on.
    #[n(11)]
    pub drains: bool,
}

/// How hard a halt stops; a stronger one takes the place of a weaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum HaltMode {
    /// No new sessions.
    #[n(0)]
    Drain,
    /// Whatever would be allowed is asked for.
    #[n(1)]
    Pause,
    /// Nothing is allowed.
    #[n(2)]
    Halt,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReleaseAsked {
    #[n(0)]
    pub by: String,
    #[n(1)]
    pub at: Timestamp,
}

/// Changes of a halt that its row keeps.
pub const HALT_HISTORY_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct HaltChange {
    #[n(0)]
    pub engaged: bool,
    #[n(1)]
    pub reason: String,
    #[n(2)]
    pub by: String,
    #[n(3)]
    pub at: Timestamp,
    #[n(4)]
    pub epoch: u64,
    #[n(5)]
    pub ticket: String,
}

/// Sessions not heard from for three heartbeats of 30 s are stale (SP/1.0 §4.5).
pub const SESSION_IDLE: DurationNs = DurationNs::from_secs(90);
/// A stale session ends after this long.
pub const SESSION_TTL: DurationNs = DurationNs::from_secs(24 * 3600);
/// An ended session's rows are kept this long for late settlements and questions.
pub const SESSION_KEPT: DurationNs = DurationNs::from_secs(3600);
/// An answer to a registration or an operator's write is kept this long for retries.
pub const REQUEST_KEPT: DurationNs = DurationNs::from_secs(24 * 3600);
/// Calls further behind the highest number than this are forgotten, and their numbers refused.
pub const CALL_WINDOW: u64 = 4_096;
/// A call number may not jump further ahead than this.
pub const CALL_JUMP_MAX: u64 = 1_000_000;

/// One changed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put(Key, Row),
    Delete(Key),
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
    #[error("batch needs machine version {needs}, this is {has}: upgrade this node")]
    Version { needs: u32, has: u32 },
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

/// Changes laid over rows.
#[derive(Debug)]
pub struct Working<'a, R> {
    base: &'a R,
    changed: BTreeMap<Key, Option<Row>>,
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
        }
    }

    pub fn put(&mut self, key: Key, row: Row) {
        self.changed.insert(key, Some(row));
    }

    pub fn delete(&mut self, key: Key) {
        self.changed.insert(key, None);
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

/// Typed reads: a row of another table under a key is a fault, not a guess.
macro_rules! typed_reads {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $row:ident($out:ty) at $key:expr;)*) => {
        /// Rows read as what they are.
        pub trait Read: Rows {
            $($(#[$doc])* fn $name(&self, $($arg: $ty),*) -> Result<Option<$out>, Fault> {
                let key = $key;
                match self.read(&key)? {
                    None => Ok(None),
                    Some(Row::$row(row)) => Ok(Some(row.into())),
                    Some(_) => Err(Fault::WrongRow(key)),
                }
            })*
        }
        impl<R: Rows> Read for R {}
    };
}

typed_reads! {
    cluster() -> Cluster(Cluster) at Key::Cluster;
    chain() -> Chain(Chain) at Key::Chain;
    guard(scope: &GuardScope) -> Guard(Box<Guard>) at Key::Guard(scope.clone());
    halt(scope: &Scope) -> Halt(Halt) at Key::Halt(scope.clone());
    account(id: &AccountId) -> Account(Account) at Key::Account(id.clone());
    session(id: &SessionId) -> Session(Box<Session>) at Key::Session(id.clone());
    call(id: &SessionId, number: u64) -> Call(Box<Call>) at Key::Call(id.clone(), number);
    hold(id: &SessionId, number: u64) -> Hold(Hold) at Key::Hold(id.clone(), number);
    nonces(id: &SessionId, block: u64) -> Nonces(Nonces) at Key::Nonces(id.clone(), block);
    recorded(by: &Requester, id: &RequestId) -> Request(Recorded) at Key::Request(by.clone(), id.clone());
    keys() -> Keys(KeyRing) at Key::Keys;
    tally(of: &AccountId) -> Tally(Tally) at Key::Tally(of.clone());
    approval(id: &ApprovalId) -> Approval(Box<Approval>) at Key::Approval(id.clone());
}

/// Encodes a value as it rests on disk.
pub fn bytes<T: Encode<()>>(value: &T) -> Vec<u8> {
    #[expect(
        clippy::expect_used,
        reason = "derived encoders fail only where the writer does, a Vec never does"
    )]
    minicbor::to_vec(value).expect("encoding into memory")
}
