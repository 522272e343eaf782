//! What one plain call costs in rows: how many are read, and how many are encoded with its batch.

#![expect(clippy::unwrap_used, reason = "a test that breaks says where")]

use std::cell::Cell;
use std::collections::BTreeMap;

use decision::{AgentId, Digest, NanoUsd, OrganizationId, RequestId, SessionId, Timestamp, ToolName};
use machine::command::{AgentPattern, Init, Limit, Params, PreExec, Principal, Register, Request, SetBudget};
use machine::row::{Fault, Key, Row, Rows};
use machine::{AccountId, Batch, Change, Command, Guard, Position, Reply, VERSION, Working, apply};

/// Rows that count how often they are read.
#[derive(Default)]
struct Counted {
    rows: BTreeMap<Key, Row>,
    reads: Cell<usize>,
    index: u64,
}

impl Rows for Counted {
    fn read(&self, key: &Key) -> Result<Option<Row>, Fault> {
        self.reads.set(self.reads.get() + 1);
        self.rows.read(key)
    }

    fn scan(&self, from: &Key, until: &Key, limit: usize) -> Result<Vec<(Key, Row)>, Fault> {
        self.rows.scan(from, until, limit)
    }
}

impl Counted {
    /// Applies one batch; gives the last reply, the rows read and the rows encoded.
    fn apply(&mut self, commands: Vec<Command>) -> (Reply, usize, usize) {
        self.index += 1;
        let at = Position {
            term: 1,
            index: self.index,
        };
        let batch = Batch {
            proposed: Timestamp::from_nanos(1_000),
            seed: u128::from(self.index).to_be_bytes(),
            version: VERSION,
            vouched_by: Vec::new(),
            commands,
        };
        self.reads.set(0);
        let mut working = Working::over(self);
        let mut applied = apply(&mut working, at, &batch).unwrap();
        let changes = working.into_changes();
        let encoded = changes
            .iter()
            .filter(|change| matches!(change, Change::Put(_, row) if *row != Row::Mark))
            .count();
        for change in changes {
            match change {
                Change::Put(key, row) => drop(self.rows.insert(key, row)),
                Change::Delete(key) => drop(self.rows.remove(&key)),
            }
        }
        (applied.replies.pop().unwrap(), self.reads.get(), encoded)
    }
}

fn bot() -> Principal {
    Principal {
        name: "org/acme/agent/bot".into(),
        organization: Some(OrganizationId::parse("acme").unwrap()),
        agents: vec![AgentPattern::Exact(AgentId::parse("bot").unwrap())],
    }
}

fn root() -> Principal {
    Principal {
        name: "cluster/admin/root".into(),
        organization: None,
        agents: Vec::new(),
    }
}

fn fund(account: AccountId) -> Command {
    Command::SetBudget(SetBudget {
        by: root(),
        request: Request {
            id: RequestId::parse(&format!("fund-{}", account.to_string().replace('/', "-"))).unwrap(),
            payload: Digest::of(b"fund"),
        },
        account,
        limit: Limit::Amount(NanoUsd::new(1_000_000)),
        justification: String::new(),
    })
}

fn call(session: &SessionId, number: u64) -> Command {
    Command::PreExec(PreExec {
        by: bot(),
        session: session.clone(),
        call_number: number,
        tool: ToolName::parse("search").unwrap(),
        digest: Some(Digest::of(&number.to_be_bytes())),
        params: Params::Clear,
        estimate: Some(NanoUsd::new(5)),
        nonce: number,
        request: None,
        parent_guard: None,
        approval: None,
        numbers: Vec::new(),
        rules: None,
    })
}

fn ready() -> (Counted, SessionId) {
    let mut rows = Counted::default();
    let (acme, agent) = (
        OrganizationId::parse("acme").unwrap(),
        AgentId::parse("bot").unwrap(),
    );
    rows.apply(vec![Command::Init(Init {
        chain_id: "chain".into(),
        by: root(),
        default_guard: Guard::default(),
        unfunded_organizations: false,
        fixtures: false,
    })]);
    rows.apply(vec![
        fund(AccountId::Organization(acme.clone())),
        fund(AccountId::Agent(acme.clone(), agent.clone())),
    ]);
    let (reply, ..) = rows.apply(vec![Command::Register(Register {
        by: bot(),
        organization: acme,
        agent,
        resume: None,
        request: None,
        metadata: BTreeMap::new(),
        guard: None,
    })]);
    let Reply::Registered(registered) = reply else {
        unreachable!("{reply:?}")
    };
    rows.apply(vec![fund(AccountId::Session(registered.session.clone()))]);
    (rows, registered.session)
}

#[test]
fn a_call_reads_each_row_once_and_writes_each_row_once() {
    let (mut rows, session) = ready();
    let (_, reads, encoded) = rows.apply(vec![call(&session, 1)]);
    println!("one call alone: {reads} reads, {encoded} encoded");
    assert!(reads <= READS, "{reads}");
    assert_eq!(encoded, ENCODED);
    let many = 100;
    let (_, reads, encoded) = rows.apply((2..2 + many).map(|number| call(&session, number)).collect());
    println!("{many} calls together: {reads} reads, {encoded} encoded");
}

/// Cluster, chain, session, the call's number, three places of guards, three accounts, four halts, the nonces.
const READS: usize = 15;
/// Cluster, chain, session, call, hold, three accounts, nonces.
const ENCODED: usize = 9;
