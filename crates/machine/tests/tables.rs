//! Tables: what each rule trips, which call numbers are taken, who may speak for whom, how scopes are written.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that breaks says where")]

use std::collections::BTreeMap;

use decision::{
    AgentId, Digest, DurationNs, HitlRule, NanoUsd, OrganizationId, Reason, SessionId, Timestamp, ToolName,
};
use machine::command::{
    Act, AgentPattern, Engage, Init, Limit, Params, PreExec, Principal, PutGuard, Register, Request,
    SessionAct, SetBudget,
};
use machine::reply::{Refusal, Reply};
use machine::row::{Key, Row};
use machine::{
    AccountId, Batch, BudgetScope, Command, Guard, GuardScope, Position, Scope, TripPolicy, VERSION, Window,
};
use machine::{Change, Working};

/// A cluster with one session of acme's bot-1, under the guard given.
struct World {
    rows: BTreeMap<Key, Row>,
    index: u64,
    session: SessionId,
}

impl World {
    fn under(guard: Guard) -> Self {
        let mut world = Self {
            rows: BTreeMap::new(),
            index: 0,
            session: SessionId::parse("none").unwrap(),
        };
        world.apply(Command::Init(Init {
            chain_id: "chain".into(),
            by: root(),
            default_guard: guard,
            unfunded_organizations: true,
            fixtures: false,
        }));
        let registered = world.apply(Command::Register(Register {
            by: bot(),
            organization: acme(),
            agent: AgentId::parse("bot-1").unwrap(),
            resume: None,
            request: None,
            metadata: BTreeMap::new(),
            guard: None,
        }));
        let Reply::Registered(registered) = registered else {
            panic!("{registered:?}")
        };
        world.session = registered.session;
        world
    }

    fn apply(&mut self, command: Command) -> Reply {
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
        applied.replies.pop().unwrap()
    }

    fn call(&mut self, call: PreExec) -> Result<Reason, Refusal> {
        match self.apply(Command::PreExec(call)) {
            Reply::Verdict(answer) => Ok(answer.reason),
            Reply::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn plain(&self, number: u64) -> PreExec {
        PreExec {
            by: bot(),
            session: self.session.clone(),
            call_number: number,
            tool: ToolName::parse("search").unwrap(),
            digest: Some(Digest::of(b"a")),
            params: Params::Clear,
            estimate: Some(NanoUsd::new(1)),
            nonce: number,
            request: None,
            parent_guard: None,
            approval: None,
            numbers: Vec::new(),
            rules: None,
        }
    }

    fn tripped(&self) -> bool {
        match self.rows.get(&Key::Session(self.session.clone())) {
            Some(Row::Session(session)) => session.trip.is_some(),
            other => panic!("{other:?}"),
        }
    }
}

fn root() -> Principal {
    Principal {
        name: "cluster/admin/root".into(),
        organization: None,
        agents: Vec::new(),
    }
}

fn bot() -> Principal {
    Principal {
        name: "org/acme/agent/bot-1".into(),
        organization: Some(acme()),
        agents: vec![AgentPattern::Exact(AgentId::parse("bot-1").unwrap())],
    }
}

fn acme() -> OrganizationId {
    OrganizationId::parse("acme").unwrap()
}

fn request(id: &str) -> Request {
    Request {
        id: decision::RequestId::parse(id).unwrap(),
        payload: Digest::of(id.as_bytes()),
    }
}

/// A guard, what is done before, and the call that is then denied.
type Case = (
    &'static str,
    &'static str,
    bool,
    bool,
    Guard,
    fn(&mut World),
    fn(&World) -> PreExec,
);

#[test]
fn each_policy_trips_on_the_rules_it_names_and_on_no_other() {
    let guard = || Guard {
        max_repeat_calls: None,
        ..Guard::default()
    };
    let funded = |guard: Guard| Guard {
        budget: Some(NanoUsd::new(2)),
        ..guard
    };
    let once: fn(&mut World) = |world| {
        let first = world.plain(1);
        assert_eq!(world.call(first), Ok(Reason::WithinThresholds));
    };
    let nothing: fn(&mut World) = |_| {};
    let again: fn(&World) -> PreExec = |world| world.plain(2);
    let priced: fn(&World) -> PreExec = |world| PreExec {
        estimate: Some(NanoUsd::new(3)),
        ..world.plain(2)
    };
    // rule, reason, trips under BEHAVIOUR, under SEED (under NEVER nothing does)
    let cases: Vec<Case> = vec![
        ("K1", "run_halted:global", false, false, guard(), halted, again),
        ("K2", "session_terminated", false, false, guard(), ended, again),
        (
            "R1",
            "policy_violation:malformed_input",
            false,
            true,
            guard(),
            nothing,
            |world| PreExec {
                params: Params::Malformed,
                digest: None,
                ..world.plain(2)
            },
        ),
        (
            "R3",
            "policy_violation:duplicate_nonce",
            false,
            true,
            guard(),
            once,
            |world| PreExec {
                nonce: 1,
                ..world.plain(2)
            },
        ),
        ("R4", "session_paused", false, true, guard(), paused, again),
        (
            "P3",
            "policy_violation:params_required",
            false,
            true,
            Guard {
                require_params: true,
                ..guard()
            },
            nothing,
            |world| PreExec {
                params: Params::HashOnly,
                ..world.plain(2)
            },
        ),
        (
            "R5",
            "budget_exhausted",
            true,
            true,
            funded(guard()),
            |world| {
                let all = PreExec {
                    estimate: Some(NanoUsd::new(2)),
                    ..world.plain(1)
                };
                assert_eq!(world.call(all), Ok(Reason::WithinThresholds));
            },
            again,
        ),
        (
            "R5b",
            "budget_overrun",
            false,
            true,
            funded(guard()),
            nothing,
            priced,
        ),
        (
            "Q1",
            "parent_guard_denied:org/acme/agent/bot-1",
            false,
            true,
            guard(),
            |world| {
                suspend(world, "org/acme/agent/bot-1");
            },
            again,
        ),
        (
            "Q2",
            "organization_quota_exceeded",
            false,
            true,
            guard(),
            |world| suspend(world, "org/acme"),
            again,
        ),
        (
            "Q3",
            "timeout",
            true,
            true,
            Guard {
                timeout: Some(DurationNs::ZERO),
                ..guard()
            },
            once,
            again,
        ),
        (
            "Q4",
            "window_exceeded",
            false,
            true,
            Guard {
                window: Some(one_a_second()),
                ..guard()
            },
            once,
            again,
        ),
        (
            "Q5",
            "global_limit",
            true,
            true,
            Guard {
                max_total_calls: Some(1),
                ..guard()
            },
            once,
            again,
        ),
        (
            "R6",
            "max_repeat_exceeded",
            true,
            true,
            Guard {
                max_repeat_calls: Some(1),
                ..guard()
            },
            once,
            again,
        ),
    ];
    for (rule, reason, behaviour, seed, guard, before, call) in cases {
        for (policy, trips) in [
            (TripPolicy::Behaviour, behaviour),
            (TripPolicy::Seed, seed),
            (TripPolicy::Never, false),
        ] {
            let mut world = World::under(Guard {
                trip_policy: policy,
                ..guard.clone()
            });
            before(&mut world);
            let call = call(&world);
            let answered = world.call(call.clone()).map(|reason| reason.word().into_owned());
            assert_eq!(answered.as_deref(), Ok(reason), "{rule} {policy:?}");
            assert_eq!(world.tripped(), trips, "{rule} {policy:?}");
        }
    }
}

fn one_a_second() -> Window {
    Window {
        duration: DurationNs::from_secs(1),
        max_calls: 1,
    }
}

fn halted(world: &mut World) {
    world.apply(Command::Engage(Engage {
        by: root(),
        scope: Scope::Global,
        reason: "stop".into(),
        ticket: String::new(),
        request: request("engage"),
        mode: machine::row::HaltMode::Halt,
        ttl: None,
        two_person: false,
    }));
}

fn act(world: &mut World, act: Act) {
    let session = world.session.clone();
    world.apply(Command::Session(SessionAct {
        by: root(),
        session,
        act,
        justification: "so".into(),
        request: request("act"),
    }));
}

fn ended(world: &mut World) {
    act(world, Act::Terminate);
}

fn paused(world: &mut World) {
    act(world, Act::Pause);
}

fn suspend(world: &mut World, account: &str) {
    world.apply(Command::SetBudget(SetBudget {
        by: root(),
        account: account.parse().unwrap(),
        limit: Limit::Suspended,
        request: request("suspend"),
        justification: String::new(),
    }));
}

#[test]
fn a_question_and_a_denial_by_chance_never_trip() {
    for policy in [TripPolicy::Behaviour, TripPolicy::Seed, TripPolicy::Never] {
        let mut world = World::under(Guard {
            hitl: HitlRule::Always,
            trip_policy: policy,
            ..Guard::default()
        });
        let call = world.plain(1);
        assert_eq!(world.call(call), Ok(Reason::HitlAllCalls));
        assert!(!world.tripped());

        let mut world = World::under(Guard {
            budget: Some(NanoUsd::new(1_000)),
            probabilistic: Some(decision::PerBillion::ONE),
            max_repeat_calls: None,
            trip_policy: policy,
            ..Guard::default()
        });
        let most = PreExec {
            estimate: Some(NanoUsd::new(999)),
            ..world.plain(1)
        };
        assert_eq!(world.call(most), Ok(Reason::WithinThresholds));
        let free = PreExec {
            estimate: Some(NanoUsd::ZERO),
            ..world.plain(2)
        };
        assert_eq!(world.call(free), Ok(Reason::Probabilistic));
        assert!(!world.tripped());
    }
}

#[test]
fn call_numbers_are_taken_within_the_window_and_no_other() {
    let (highest, behind, beyond) = (500_000_u64, 4_096, 1_000_000);
    let rows = [
        (highest + 1, true),
        (highest + beyond, true),
        (highest + beyond + 1, false),
        (u64::MAX, false),
        (highest - 1, true),
        (highest - behind, true),
        (highest - behind - 1, false),
        (1, false),
    ];
    for (number, taken) in rows {
        let mut world = World::under(Guard {
            max_repeat_calls: None,
            ..Guard::default()
        });
        let first = world.plain(highest);
        assert_eq!(world.call(first), Ok(Reason::WithinThresholds));
        let call = world.plain(number);
        let answered = world.call(call);
        assert_eq!(answered.is_ok(), taken, "{number}: {answered:?}");
    }
}

#[test]
fn at_most_256_tools_are_counted_and_further_names_are_full() {
    let mut world = World::under(Guard {
        max_repeat_calls: None,
        window: Some(Window {
            duration: DurationNs::from_secs(60),
            max_calls: 2,
        }),
        ..Guard::default()
    });
    for number in 1..=257_u64 {
        let tool = ToolName::parse(&format!("tool {number}")).unwrap();
        let call = PreExec {
            tool,
            ..world.plain(number)
        };
        let expected = if number <= 256 {
            Reason::WithinThresholds
        } else {
            Reason::WindowExceeded
        };
        assert_eq!(world.call(call), Ok(expected), "tool {number}");
    }
    let known = PreExec {
        tool: ToolName::parse("tool 1").unwrap(),
        ..world.plain(300)
    };
    assert_eq!(world.call(known), Ok(Reason::WithinThresholds));
}

#[test]
fn a_principal_speaks_for_the_agents_that_it_lists_in_its_own_organization() {
    let exact = |name: &str| AgentPattern::Exact(AgentId::parse(name).unwrap());
    let prefix = |text: &str| AgentPattern::Prefix(text.to_owned());
    let rows = [
        (Some("acme"), vec![exact("bot-1")], "acme", "bot-1", true),
        (Some("acme"), vec![exact("bot-1")], "acme", "bot-10", false),
        (Some("acme"), vec![exact("bot-1")], "globex", "bot-1", false),
        (Some("acme"), vec![prefix("bot-")], "acme", "bot-10", true),
        (Some("acme"), vec![prefix("bot-")], "acme", "bo", false),
        (Some("acme"), vec![prefix("bot-")], "globex", "bot-1", false),
        (Some("acme"), vec![exact("a"), prefix("b")], "acme", "bot", true),
        (Some("acme"), vec![], "acme", "bot-1", false),
        // A cluster-wide role is no agent of anybody.
        (None, vec![], "acme", "bot-1", false),
        (None, vec![prefix("")], "acme", "bot-1", false),
    ];
    for (own, agents, organization, agent, speaks) in rows {
        let principal = Principal {
            name: "someone".into(),
            organization: own.map(|own| OrganizationId::parse(own).unwrap()),
            agents,
        };
        let (organization, agent) = (
            OrganizationId::parse(organization).unwrap(),
            AgentId::parse(agent).unwrap(),
        );
        assert_eq!(
            principal.speaks_for(&organization, &agent),
            speaks,
            "{principal:?} {agent}"
        );
        let reaches = own.is_none_or(|own| own == organization.as_str());
        assert_eq!(
            principal.reaches(&organization),
            reaches,
            "{principal:?} {organization}"
        );
    }
}

#[test]
fn scopes_accounts_and_guards_are_read_as_they_are_written() {
    // text, and whether it names a scope, an account, a guard
    let rows = [
        ("global", true, false, false),
        ("default", false, false, true),
        ("org/acme", true, true, true),
        ("org/acme/agent/bot-1", true, true, true),
        ("session/ses_1", true, true, false),
        ("", false, false, false),
        ("Global", false, false, false),
        ("org", false, false, false),
        ("org/", false, false, false),
        ("org/.hidden", false, false, false),
        ("org/acme/", false, false, false),
        ("org/acme/agent", false, false, false),
        ("org/acme/agent/", false, false, false),
        ("org/acme/bot/bot-1", false, false, false),
        ("org/acme/agent/bot-1/x", false, false, false),
        ("org/acme agent", false, false, false),
        ("session/", false, false, false),
        ("session/a/b", false, false, false),
        ("/org/acme", false, false, false),
    ];
    for (text, scope, account, guard) in rows {
        let read = text.parse::<Scope>().map(|scope| scope.to_string());
        assert_eq!(read.as_deref().ok(), scope.then_some(text), "scope {text}");
        let read = text.parse::<AccountId>().map(|account| account.to_string());
        assert_eq!(read.as_deref().ok(), account.then_some(text), "account {text}");
        let read = text.parse::<GuardScope>().map(|guard| guard.to_string());
        assert_eq!(read.as_deref().ok(), guard.then_some(text), "guard {text}");
    }
}

#[test]
fn a_reset_clears_the_counter_that_tripped_and_no_other() {
    let mut world = World::under(Guard {
        budget: None,
        budget_scope: BudgetScope::Session,
        max_repeat_calls: Some(1),
        max_total_calls: Some(2),
        ..Guard::default()
    });
    let first = world.plain(1);
    assert_eq!(world.call(first), Ok(Reason::WithinThresholds));
    let second = world.plain(2);
    assert_eq!(world.call(second), Ok(Reason::MaxRepeatExceeded));
    act(&mut world, Act::ResetCircuit);
    let third = world.plain(3);
    assert_eq!(world.call(third), Ok(Reason::WithinThresholds));
    // Two calls in all, as before the reset.
    let fourth = PreExec {
        digest: Some(Digest::of(b"b")),
        ..world.plain(4)
    };
    assert_eq!(world.call(fourth), Ok(Reason::GlobalLimit));
}

#[test]
fn a_guard_that_would_lift_limits_is_refused() {
    let mut world = World::under(Guard::default());
    for guard in [
        Guard {
            default_cost: NanoUsd::new(-1),
            ..Guard::default()
        },
        Guard {
            budget: Some(NanoUsd::new(-1)),
            ..Guard::default()
        },
        Guard {
            budget: Some(NanoUsd::ZERO),
            ..Guard::default()
        },
    ] {
        let put = PutGuard {
            by: root(),
            scope: GuardScope::Default,
            guard,
            request: request("guard"),
            justification: String::new(),
        };
        assert!(matches!(
            world.apply(Command::PutGuard(put)),
            Reply::Refused(Refusal::Invalid(_))
        ));
    }
}
