//! One session of acme's bot-1 under the guard `g`, below which three calls have run: A, B, A.

use std::collections::BTreeMap;

use decision::{AgentId, ApprovalId, Breakers, Digest, DurationNs, NanoUsd, OrganizationId, SessionId};
use decision::{GuardId, Timestamp, ToolName, limits::Rate};
use machine::command::{
    Act, AgentPattern, Correct, Decide, Engage, Init, Limit, Params, PostExec, PreExec, Principal, PutGuard,
    Register, Request, RuleFacts, Ruling, SessionAct, SetBudget,
};
use machine::reply::{Reply, VerdictReply};
use machine::row::{HaltMode, Key, Row, Session};
use machine::{
    Batch, Command, Guard, GuardPath, GuardScope, PauseScope, Position, TripPolicy, VERSION, Window,
};
use machine::{Change, Working};

pub struct World {
    rows: BTreeMap<Key, Row>,
    index: u64,
    pub session: SessionId,
}

/// The number and the nonce of the call that is looked at; those before it have 1, 2 and 3.
pub const ASKED: u64 = 10;

impl World {
    /// After three calls, with enough money everywhere.
    pub fn under(default_guard: Guard) -> Self {
        let mut world = Self {
            rows: BTreeMap::new(),
            index: 0,
            session: SessionId::parse("none").unwrap(),
        };
        world.apply(Command::Init(Init {
            chain_id: "chain".into(),
            by: root(),
            default_guard,
            unfunded_organizations: false,
            fixtures: false,
        }));
        world.fund("org/acme", Limit::Amount(NanoUsd::new(1_000)));
        world.fund("org/acme/agent/bot-1", Limit::Amount(NanoUsd::new(1_000)));
        world.put(wide());
        let registered = world.apply(Command::Register(Register {
            by: bot(),
            organization: acme(),
            agent: AgentId::parse("bot-1").unwrap(),
            resume: None,
            request: None,
            metadata: BTreeMap::new(),
            guard: Some(GuardId::parse("g").unwrap()),
        }));
        let Reply::Registered(registered) = registered else {
            panic!("{registered:?}")
        };
        world.session = registered.session;
        world.fund(&world.own(), Limit::Amount(NanoUsd::new(1_000)));
        for (number, arguments) in [(1, "a"), (2, "b"), (3, "a")] {
            let call = PreExec {
                call_number: number,
                nonce: number,
                digest: Some(Digest::of(arguments.as_bytes())),
                estimate: Some(NanoUsd::new(1)),
                ..world.asked()
            };
            assert_eq!(world.call(call).reason.word(), "within_thresholds");
        }
        world
    }

    pub fn apply(&mut self, command: Command) -> Reply {
        self.index += 1;
        let batch = Batch {
            proposed: Timestamp::from_nanos(1),
            seed: u128::from(self.index).to_be_bytes(),
            version: VERSION,
            vouched_by: Vec::new(),
            commands: vec![command],
        };
        let mut working = Working::over(&self.rows);
        let at = Position {
            term: 1,
            index: self.index,
        };
        let mut applied = machine::apply(&mut working, at, &batch).unwrap();
        for change in working.into_changes() {
            match change {
                Change::Put(key, row) => self.rows.insert(key, row),
                Change::Delete(key) => self.rows.remove(&key),
            };
        }
        assert_eq!(machine::check::broken(&self.rows), Vec::<String>::new());
        let reply = applied.replies.pop().unwrap();
        assert!(!matches!(reply, Reply::Refused(_)), "{reply:?}");
        reply
    }

    pub fn call(&mut self, call: PreExec) -> VerdictReply {
        match self.apply(Command::PreExec(call)) {
            Reply::Verdict(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// The call that is looked at, before a cause changes it: A once more.
    pub fn asked(&self) -> PreExec {
        PreExec {
            by: bot(),
            session: self.session.clone(),
            call_number: ASKED,
            tool: ToolName::parse("search").unwrap(),
            digest: Some(Digest::of(b"a")),
            params: Params::Clear,
            estimate: Some(NanoUsd::new(5)),
            nonce: ASKED,
            request: None,
            parent_guard: None,
            approval: None,
            numbers: Vec::new(),
            rules: None,
        }
    }

    /// What the rules of the guard `g` found, under the guards that are current.
    pub fn facts(&self, matched: decision::policy::Matched) -> RuleFacts {
        let Some(Row::Session(session)) = self.rows.get(&Key::Session(self.session.clone())) else {
            panic!("no session")
        };
        let session: &Session = session;
        let leash = GuardPath::of(&self.rows, session).unwrap();
        RuleFacts {
            policy_digest: leash.digest(),
            matched: vec![decision::policy::Matched::default(), matched],
        }
    }

    pub fn own(&self) -> String {
        format!("session/{}", self.session)
    }

    pub fn put(&mut self, guard: Guard) {
        let request = self.request();
        self.apply(Command::PutGuard(PutGuard {
            by: root(),
            scope: "org/acme/guard/g".parse::<GuardScope>().unwrap(),
            guard,
            request,
            justification: String::new(),
        }));
    }

    pub fn fund(&mut self, account: &str, limit: Limit) {
        let request = self.request();
        self.apply(Command::SetBudget(SetBudget {
            by: root(),
            account: account.parse().unwrap(),
            limit,
            request,
            justification: String::new(),
        }));
    }

    /// Books on the session's account, so that less is left of it.
    pub fn correct(&mut self, amount: i64) {
        let request = self.request();
        self.apply(Command::Correct(Correct {
            by: root(),
            account: self.own().parse().unwrap(),
            amount: NanoUsd::new(amount),
            request,
            justification: String::new(),
        }));
    }

    pub fn engage(&mut self, scope: &str, mode: HaltMode) {
        let request = self.request();
        self.apply(Command::Engage(Engage {
            by: root(),
            scope: scope.parse().unwrap(),
            reason: "stop".into(),
            ticket: String::new(),
            request,
            mode,
            ttl: None,
            two_person: false,
        }));
    }

    pub fn terminate(&mut self) {
        let request = self.request();
        self.apply(Command::Session(SessionAct {
            by: root(),
            session: self.session.clone(),
            act: Act::Terminate,
            justification: "so".into(),
            request,
        }));
    }

    /// Opens the circuit: the first call costs more than the guard lets the session.
    pub fn trip(&mut self) {
        self.put(Guard {
            max_cost: Some(NanoUsd::new(1)),
            ..wide()
        });
        self.apply(Command::PostExec(PostExec {
            by: bot(),
            session: self.session.clone(),
            call_number: 1,
            actual: Some(NanoUsd::new(1)),
            success: true,
            error_signal: false,
            partial: false,
            request: None,
            tokens_in: 0,
            tokens_out: 0,
            model: None,
            result: None,
        }));
        self.put(wide());
    }

    /// A person lets the held call run.
    pub fn approve(&mut self, id: &ApprovalId) {
        let Some(Row::Approval(approval)) = self.rows.get(&Key::Approval(id.clone())) else {
            panic!("no approval {id}")
        };
        let info_digest = approval.info_digest;
        let request = self.request();
        self.apply(Command::Decide(Decide {
            by: Principal {
                name: "org/acme/approver/ann".into(),
                organization: Some(acme()),
                agents: Vec::new(),
            },
            approval: id.clone(),
            ruling: Ruling::Approve,
            info_digest,
            note: String::new(),
            request,
        }));
    }

    fn request(&self) -> Request {
        let id = format!("r{}", self.index);
        Request {
            id: decision::RequestId::parse(&id).unwrap(),
            payload: Digest::of(id.as_bytes()),
        }
    }
}

/// The guard `g` before a cause tightens it: it counts everything and stops nothing.
pub fn wide() -> Guard {
    Guard {
        agents: vec![AgentPattern::Exact(AgentId::parse("bot-1").unwrap())],
        trip_policy: TripPolicy::Never,
        pause_scope: PauseScope::Call,
        rate: Some(Rate {
            calls: 1_000,
            span: DurationNs::from_secs(60),
        }),
        window: Some(Window {
            duration: DurationNs::from_secs(60),
            max_calls: 1_000,
        }),
        breakers: Breakers {
            name_streak: Some(60),
            ..Breakers::off()
        },
        ..Guard::unlimited()
    }
}

pub fn root() -> Principal {
    Principal {
        name: "cluster/admin/root".into(),
        organization: None,
        agents: Vec::new(),
    }
}

pub fn bot() -> Principal {
    Principal {
        name: "org/acme/agent/bot-1".into(),
        organization: Some(acme()),
        agents: vec![AgentPattern::Exact(AgentId::parse("bot-1").unwrap())],
    }
}

fn acme() -> OrganizationId {
    OrganizationId::parse("acme").unwrap()
}
