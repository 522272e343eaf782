//! Who asks, under which guards, and how requests are told apart.

use decision::{AgentId, Digest, DurationNs, HitlRule, NanoUsd, OrganizationId, RequestId};
use machine::command::{AgentPattern, Principal, Request};
use machine::{Guard, TripPolicy, Unsettled, Window};

/// Two organizations, one of them with two agents.
pub const AGENTS: [(&str, &str); 3] = [("acme", "bot-1"), ("acme", "bot-2"), ("globex", "bot-1")];
pub fn root() -> Principal {
    Principal {
        name: "cluster/admin/root".into(),
        organization: None,
        agents: Vec::new(),
    }
}

pub fn agent_of(place: usize) -> Principal {
    let (organization, agent) = AGENTS[place];
    Principal {
        name: format!("org/{organization}/agent/{agent}"),
        organization: Some(OrganizationId::parse(organization).unwrap()),
        agents: vec![AgentPattern::Exact(AgentId::parse(agent).unwrap())],
    }
}

pub fn request(id: &str, payload: &str) -> Request {
    Request {
        id: RequestId::parse(id).unwrap(),
        payload: Digest::of(payload.as_bytes()),
    }
}

pub fn operators(id: u8, payload: &str) -> Request {
    request(&format!("o{id}"), payload)
}

/// Guards that differ in what they limit.
pub fn guards(place: usize) -> Guard {
    let guard = Guard {
        default_cost: NanoUsd::new(2),
        hold_ttl: DurationNs::from_secs(60),
        ..Guard::default()
    };
    match place {
        0 => guard,
        1 => Guard {
            budget: Some(NanoUsd::new(12)),
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
            budget: Some(NanoUsd::new(9)),
            hitl: HitlRule::OnDeny,
            ..guard
        },
        _ => Guard {
            max_repeat_calls: Some(1),
            trip_policy: TripPolicy::Never,
            ..guard
        },
    }
}
