//! One workload for all tests: the entry at an index is always the same one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use decision::{AgentId, Digest, NanoUsd, OrganizationId, RequestId, SessionId, Timestamp, ToolName};
use machine::command::{
    AgentPattern, Engage, Fixture, FixtureSession, Init, Limit, Params, PostExec, PreExec, Principal,
    Release, Request, SetBudget,
};
use machine::row::HaltMode;
use machine::{AccountId, Batch, Command, Guard, Scope};
use openraft::impls::leader_id_adv::LeaderId;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine, StorageHelper};
use openraft::{EntryPayload, RaftLogReader};
use store::{Entry, LogId, Member, Membership, MemoryNode, Options, Payload, StateHash, Store};

/// A directory that goes with the test.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("haltgate-store-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // openraft's suite drops a store whose snapshot is still being built, and this folder after it: the build goes
        // on until it sees that, and may yet write here.
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Err(error) = std::fs::remove_dir_all(&self.0) {
            if error.kind() == std::io::ErrorKind::NotFound {
                return;
            }
            assert!(Instant::now() < deadline, "{}: {error}", self.0.display());
            std::thread::yield_now();
        }
    }
}

/// A node's disks, of either kind.
pub enum Disks {
    Rocks(TempDir),
    Memory(MemoryNode),
}

impl Disks {
    pub fn both() -> [Self; 2] {
        [Self::Rocks(TempDir::new()), Self::Memory(MemoryNode::new(1))]
    }

    /// Empty disks of the same kind.
    pub fn another(&self) -> Self {
        match self {
            Self::Rocks(_) => Self::Rocks(TempDir::new()),
            Self::Memory(_) => Self::Memory(MemoryNode::new(2)),
        }
    }

    pub fn open(&self) -> Store {
        self.open_with(Options::default())
    }

    pub fn open_with(&self, options: Options) -> Store {
        match self {
            Self::Rocks(dir) => Store::open(dir.path(), options).unwrap(),
            Self::Memory(node) => Store::in_memory(node, options).unwrap(),
        }
    }
}

pub const SESSIONS: u64 = 40;

pub fn log_id(index: u64) -> LogId {
    LogId {
        leader_id: LeaderId { term: 1, node_id: 1 },
        index,
    }
}

pub fn member(name: &str) -> Member {
    Member {
        name: name.to_owned(),
        peer: format!("{name}:1"),
        ..Member::default()
    }
}

pub fn entry(index: u64) -> Entry {
    let payload = match index {
        0 => EntryPayload::Membership(
            Membership::new(vec![BTreeSet::from([1])], BTreeMap::from([(1, member("a"))])).unwrap(),
        ),
        1 => EntryPayload::Blank,
        _ => EntryPayload::Normal(Payload::of(&batch(index))),
    };
    Entry {
        log_id: log_id(index),
        payload,
    }
}

pub fn entries(range: std::ops::Range<u64>) -> Vec<Entry> {
    range.map(entry).collect()
}

fn batch(index: u64) -> Batch {
    let commands = match index {
        2 => vec![init(), fixture(0..SESSIONS, 1)],
        _ => vec![pre_exec(index), post_exec(index), operator(index), Command::Due],
    };
    let mut seed = [0; 16];
    seed[..8].copy_from_slice(&index.to_be_bytes());
    Batch {
        proposed: Timestamp::from_nanos(1_700_000_000_000_000_000 + index * 1_000_000_000),
        seed,
        version: machine::VERSION,
        vouched_by: Vec::new(),
        commands,
    }
}

/// A batch that opens many sessions, for large states.
pub fn bulk(index: u64, sessions: std::ops::Range<u64>) -> Entry {
    let batch = Batch {
        commands: vec![fixture(sessions, 20)],
        ..batch(index)
    };
    Entry {
        log_id: log_id(index),
        payload: EntryPayload::Normal(Payload::of(&batch)),
    }
}

fn init() -> Command {
    Command::Init(Init {
        chain_id: "cluster-a".to_owned(),
        by: operator_identity(),
        default_guard: Guard::default(),
        unfunded_organizations: true,
        fixtures: true,
    })
}

fn fixture(sessions: std::ops::Range<u64>, nonces: u64) -> Command {
    let sessions = sessions
        .map(|number| FixtureSession {
            session: session(number),
            organization: organization(),
            agent: agent(),
            granted: NanoUsd::new(1_000_000_000_000),
            spent: NanoUsd::ZERO,
            tripped: false,
            nonces: (0..nonces).map(|nonce| number + (nonce << 40)).collect(),
        })
        .collect();
    Command::Fixture(Fixture { sessions })
}

fn pre_exec(index: u64) -> Command {
    Command::PreExec(PreExec {
        by: agent_identity(),
        session: session(index % SESSIONS),
        call_number: index / SESSIONS + 1,
        tool: ToolName::parse(&format!("tool-{index}")).unwrap(),
        digest: Some(Digest::of(&index.to_be_bytes())),
        params: Params::HashOnly,
        estimate: Some(NanoUsd::new(1_000_000)),
        nonce: index << 8,
        request: Some(request(index)),
        parent_guard: None,
        approval: None,
        numbers: Vec::new(),
        rules: None,
    })
}

/// Settles the call of some entries before; a third stay open until log time closes them.
fn post_exec(index: u64) -> Command {
    let of = index.saturating_sub(index % 3 * 7);
    Command::PostExec(PostExec {
        by: agent_identity(),
        session: session(of % SESSIONS),
        call_number: of / SESSIONS + 1,
        actual: Some(NanoUsd::new(500_000)),
        success: true,
        error_signal: false,
        partial: false,
        request: None,
        tokens_in: 1,
        tokens_out: 2,
        model: None,
        result: None,
    })
}

fn operator(index: u64) -> Command {
    match index % 10 {
        0 => Command::Engage(Engage {
            by: operator_identity(),
            scope: Scope::Session(session(index % SESSIONS)),
            reason: "drill".to_owned(),
            ticket: String::new(),
            request: request(index),
            mode: HaltMode::Halt,
            ttl: None,
            two_person: false,
        }),
        1 => Command::Release(Release {
            by: operator_identity(),
            scope: Scope::Session(session((index - 1) % SESSIONS)),
            justification: "over".to_owned(),
            request: request(index),
            ticket: String::new(),
        }),
        _ => Command::SetBudget(SetBudget {
            by: operator_identity(),
            account: AccountId::Organization(organization()),
            limit: Limit::Amount(NanoUsd::new(1_000_000_000_000)),
            request: request(index),
            justification: String::new(),
        }),
    }
}

fn request(index: u64) -> Request {
    Request {
        id: RequestId::parse(&format!("request-{index}")).unwrap(),
        payload: Digest::of(&index.to_be_bytes()),
    }
}

fn operator_identity() -> Principal {
    Principal {
        name: "cluster/admin/root".to_owned(),
        organization: None,
        agents: Vec::new(),
    }
}

fn agent_identity() -> Principal {
    Principal {
        name: "org/acme/agent/bot".to_owned(),
        organization: Some(organization()),
        agents: vec![AgentPattern::Exact(agent())],
    }
}

pub fn session(number: u64) -> SessionId {
    SessionId::parse(&format!("ses_{number:08}")).unwrap()
}

fn organization() -> OrganizationId {
    OrganizationId::parse("acme").unwrap()
}

fn agent() -> AgentId {
    AgentId::parse("bot").unwrap()
}

pub async fn append(store: &mut Store, range: std::ops::Range<u64>) {
    store.log.blocking_append(entries(range)).await.unwrap();
}

pub async fn apply(store: &mut Store, entries: Vec<Entry>) {
    let items = entries.into_iter().map(|entry| Ok((entry, None)));
    store.state.apply(futures::stream::iter(items)).await.unwrap();
}

pub async fn read(store: &mut Store, range: std::ops::Range<u64>) -> Vec<Entry> {
    store
        .log
        .get_log_reader()
        .await
        .try_get_log_entries(range)
        .await
        .unwrap()
}

/// Does what openraft does when a node starts: installs what was not, applies again what was committed.
pub async fn recover(store: &mut Store) {
    StorageHelper::new(&mut store.log, &mut store.state)
        .with_id(1)
        .get_initial_state()
        .await
        .unwrap();
}

/// The state hash that every replica has after these entries.
pub async fn reference(applied: u64) -> StateHash {
    let mut store = Store::in_memory(&MemoryNode::new(9), Options::default()).unwrap();
    apply(&mut store, entries(0..applied + 1)).await;
    store.reader.state_hash().await.unwrap()
}

/// A small generator, so that a failure's seed repeats it.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}
