//! Who asks, under which guards, with what arguments, and how requests are told apart.

use decision::behaviour::{Cycle, ErrorRate, Storm};
use decision::decide::RuleSet;
use decision::facts::Mode;
use decision::limits::Rate;
use decision::policy::{self, Decimal, Effect, Predicate, Scalar, Test};
use decision::{
    AgentId, Breakers, Digest, DurationNs, GuardId, HitlRule, NanoUsd, OrganizationId, PerBillion, RequestId,
    Rule, RuleId, ToolPattern,
};
use machine::command::{AgentPattern, Principal, Request};
use machine::{
    BudgetScope, Guard, GuardScope, LatchScope, PauseScope, ToolLimit, TripPolicy, Unsettled, Window,
};

/// Two organizations, one of them with two agents.
pub const AGENTS: [(&str, &str); 3] = [("acme", "bot-1"), ("acme", "bot-2"), ("globex", "bot-1")];
/// Where guards are put; `team` is above `left`.
pub const GUARD_SCOPES: [&str; 5] = [
    "org/acme/guard/left",
    "org/acme/guard/team",
    "org/acme",
    "org/acme/agent/bot-1",
    "default",
];
/// Where the kill switch is engaged, besides sessions.
pub const SCOPES: [&str; 6] = [
    "org/acme/guard/left",
    "org/acme/guard/team",
    "org/acme/agent/bot-1",
    "org/globex",
    "org/acme",
    "global",
];
/// Whose accounts are changed, besides sessions'.
pub const ACCOUNTS: [&str; 7] = [
    "org/acme",
    "org/globex",
    "org/acme/agent/bot-1",
    "org/acme/agent/bot-2",
    "org/globex/agent/bot-1",
    "org/acme/guard/team",
    "org/acme/guard/left",
];

pub fn root() -> Principal {
    principal("cluster/admin/root", None)
}

fn principal(name: &str, organization: Option<&str>) -> Principal {
    Principal {
        name: name.into(),
        organization: organization.map(|id| OrganizationId::parse(id).unwrap()),
        agents: Vec::new(),
    }
}

/// People: two of acme, one of globex, and two of the whole cluster.
pub const PEOPLE: usize = 5;

pub fn person(place: usize) -> Principal {
    match place {
        0 => principal("org/acme/admin/ann", Some("acme")),
        1 => principal("org/acme/admin/bob", Some("acme")),
        2 => principal("org/globex/admin/cem", Some("globex")),
        3 => principal("cluster/admin/eve", None),
        _ => root(),
    }
}

pub fn agent_of(place: usize) -> Principal {
    let (organization, agent) = AGENTS[place];
    Principal {
        agents: vec![AgentPattern::Exact(AgentId::parse(agent).unwrap())],
        ..principal(&format!("org/{organization}/agent/{agent}"), Some(organization))
    }
}

pub fn request(id: &str, payload: &str) -> Request {
    Request {
        id: RequestId::parse(id).unwrap(),
        payload: Digest::of(payload.as_bytes()),
    }
}

pub fn operators(id: u16, payload: &str) -> Request {
    request(&format!("o{id}"), payload)
}

pub fn arguments(number: u8) -> Vec<u8> {
    format!("{{\"a\":{number}}}").into_bytes()
}

pub fn digest(number: u8) -> Digest {
    decision::params::inspect(&arguments(number)).digest.unwrap()
}

/// A guard as it stands at a scope.
pub fn guard_at(scope: &GuardScope, place: usize) -> Guard {
    let mut guard = guards(place);
    match scope {
        GuardScope::Named(_, id) => {
            guard.parent = (id.as_str() == "left").then(|| GuardId::parse("team").unwrap());
            // Now and then it is for nobody any more.
            if place != 9 {
                guard.agents = vec![AgentPattern::Prefix("bot".into())];
            }
        }
        GuardScope::Organization(_) if place.is_multiple_of(2) => guard.parent = GuardId::parse("team").ok(),
        GuardScope::Organization(_) | GuardScope::Agent(..) | GuardScope::Default => {}
    }
    guard
}

pub const GUARDS: usize = 20;

/// Guards that differ in what they limit.
pub fn guards(place: usize) -> Guard {
    let tool_1 = || ToolPattern::parse("tool-1").unwrap();
    let guard = Guard {
        default_cost: NanoUsd::new(2),
        hold_ttl: DurationNs::from_secs(60),
        ..Guard::default()
    };
    let budget = |nanos| Some(NanoUsd::new(nanos));
    match place {
        0 => guard,
        1 => Guard {
            budget: budget(12),
            unsettled: Unsettled::Release,
            ..guard
        },
        2 => Guard {
            hitl: HitlRule::Always,
            ..guard
        },
        3 => Guard {
            max_total_calls: Some(3),
            ..guard
        },
        4 => Guard {
            window: Some(Window {
                duration: DurationNs::from_secs(60),
                max_calls: 2,
            }),
            max_repeat_calls: None,
            ..guard
        },
        5 => Guard {
            trip_policy: TripPolicy::Seed,
            settle_at_least_hold: true,
            ..guard
        },
        6 => Guard {
            budget: budget(9),
            hitl: HitlRule::OnDeny,
            on_deny_rules: RuleSet::EMPTY.with(Rule::R6).with(Rule::Q1),
            ..guard
        },
        7 => Guard {
            max_repeat_calls: Some(1),
            trip_policy: TripPolicy::Never,
            ..guard
        },
        8 => Guard {
            hitl: HitlRule::Always,
            pause_scope: PauseScope::Call,
            ticket_ttl: Some(DurationNs::from_secs(60)),
            ..guard
        },
        9 | 10 => Guard {
            ticket_ttl: Some(DurationNs::from_secs(60)),
            pause_scope: PauseScope::Call,
            warn_at: Some(PerBillion::ZERO),
            ..Guard::unlimited()
        },
        11 => Guard {
            mode: Mode::Observe,
            budget: budget(6),
            max_total_calls: Some(2),
            max_repeat_calls: Some(1),
            rules: rules(),
            ..guard
        },
        12 => Guard {
            rules: rules(),
            ..guard
        },
        13 => Guard {
            breakers: Breakers {
                name_streak: Some(2),
                storm: Some(Storm {
                    calls: 3,
                    window: 5,
                    ..Storm::default()
                }),
                cycle: Some(Cycle {
                    longest: 2,
                    rounds: 1,
                }),
                error_rate: Some(ErrorRate {
                    outcomes: 2,
                    ratio: PerBillion::ONE,
                }),
                denials: Some(4),
                ..Breakers::default()
            },
            max_repeat_calls: None,
            ..guard
        },
        14 => Guard {
            latch_scope: LatchScope::Agent,
            max_agent_sessions: Some(2),
            max_organization_sessions: Some(3),
            ..guard
        },
        15 => Guard {
            tool_limits: vec![ToolLimit {
                tool: tool_1(),
                max_repeat_calls: Some(1),
                window: None,
                ask: true,
            }],
            pause_scope: PauseScope::Call,
            approval_ttl: DurationNs::from_secs(60),
            ..guard
        },
        16 => Guard {
            require_params: true,
            rate: Some(Rate {
                calls: 3,
                span: DurationNs::from_secs(60),
            }),
            timeout: Some(DurationNs::from_secs(600)),
            max_cost: budget(20),
            max_tokens: Some(50),
            max_overdraft: budget(3),
            ..guard
        },
        17 => Guard {
            budget: budget(10),
            probabilistic: Some(PerBillion::ONE),
            ..guard
        },
        18 => Guard {
            budget: budget(50),
            budget_scope: BudgetScope::Agent,
            hitl: HitlRule::OnThreshold(PerBillion::from_percent(70).unwrap()),
            ..guard
        },
        _ => Guard {
            allowed_tools: Some(vec![ToolPattern::parse("tool-0").unwrap()]),
            ..guard
        },
    }
}

/// One tool is denied with some arguments and trips, another is asked for, and some are dear.
fn rules() -> Vec<policy::Rule> {
    let rule = |id: &str, tool: &str, when: Vec<Predicate>, effect| policy::Rule {
        id: RuleId::parse(id).unwrap(),
        tools: vec![ToolPattern::parse(tool).unwrap()],
        tags: Vec::new(),
        when,
        effect,
    };
    let a_is = |number: i64| Predicate {
        path: vec!["a".to_owned()],
        test: Test::Equals(Scalar::Number(Decimal::parse(&number.to_string()).unwrap())),
    };
    vec![
        rule("no-zero", "tool-1", vec![a_is(0)], Effect::Deny { trips: true }),
        rule("ask-one", "tool-0", vec![a_is(1)], Effect::Ask),
        rule("dear", "*", Vec::new(), Effect::Cost(NanoUsd::new(3))),
    ]
}
