//! What is asked of the state: pages, reach, what is stopped.

#![expect(clippy::unwrap_used, reason = "a test that breaks says where")]

use std::collections::BTreeMap;

use decision::{AgentId, NanoUsd, OrganizationId, SessionId, Timestamp};
use machine::command::{Limit, Principal};
use machine::query::{
    AccountsWanted, Page, SessionsWanted, accounts, guard, guards, halted, halts, open_holds, sessions,
};
use machine::row::{Account, Halt, HaltMode, Hold, Key, Row, Session, SessionStatus};
use machine::{AccountId, GuardScope, Scope, Unsettled};

type Table = BTreeMap<Key, Row>;

fn org(name: &str) -> OrganizationId {
    OrganizationId::parse(name).unwrap()
}

fn agent(name: &str) -> AgentId {
    AgentId::parse(name).unwrap()
}

fn id(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

fn of(organization: Option<&str>) -> Principal {
    Principal {
        name: "p".to_owned(),
        organization: organization.map(org),
        agents: Vec::new(),
    }
}

fn page<T>(limit: usize, after: Option<T>) -> Page<T> {
    Page { limit, after }
}

fn session(organization: &str, agent_id: &str) -> Session {
    Session::opened(
        org(organization),
        agent(agent_id),
        BTreeMap::new(),
        Timestamp::ZERO,
    )
}

fn halt(engaged: bool) -> Row {
    Row::Halt(Halt {
        engaged,
        reason: "r".to_owned(),
        ticket: String::new(),
        by: "b".to_owned(),
        at: Timestamp::ZERO,
        epoch: 1,
        history: Vec::new(),
        mode: HaltMode::Halt,
        until: None,
        two_person: false,
        release_asked: None,
        drains: false,
    })
}

/// Two organizations: acme with two agents and three sessions, globex with one of each.
fn table() -> Table {
    let mut rows = Table::new();
    rows.insert(Key::Guard(GuardScope::Default), Row::Guard(Box::default()));
    rows.insert(
        Key::Guard(GuardScope::Organization(org("acme"))),
        Row::Guard(Box::default()),
    );
    rows.insert(
        Key::Guard(GuardScope::Organization(org("globex"))),
        Row::Guard(Box::default()),
    );
    for (name, organization, agent_id) in [
        ("s1", "acme", "bot-1"),
        ("s2", "acme", "bot-2"),
        ("s3", "acme", "bot-1"),
        ("s4", "globex", "bot-1"),
    ] {
        let row = session(organization, agent_id);
        rows.insert(
            Key::SessionOf(org(organization), agent(agent_id), id(name)),
            Row::Mark,
        );
        rows.insert(Key::Session(id(name)), Row::Session(Box::new(row)));
        let account = Account::opened(Limit::Amount(NanoUsd::new(5)));
        rows.insert(Key::Account(AccountId::Session(id(name))), Row::Account(account));
    }
    for account in ["org/acme", "org/globex", "org/acme/agent/bot-1"] {
        rows.insert(
            Key::Account(account.parse().unwrap()),
            Row::Account(Account::opened(Limit::Unlimited)),
        );
    }
    for scope in [
        "global",
        "org/acme",
        "org/globex",
        "session/s4",
        "org/acme/agent/bot-1",
    ] {
        rows.insert(Key::Halt(scope.parse().unwrap()), halt(scope != "org/acme"));
    }
    rows
}

#[test]
fn lists_hold_what_is_of_the_callers_organization() {
    let rows = table();
    let halts_of = |by| {
        let listed = halts(&rows, &of(by), page(10, None)).unwrap();
        listed
            .items
            .into_iter()
            .map(|(scope, _)| scope.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        halts_of(None),
        ["global", "org/globex", "org/acme/agent/bot-1", "session/s4"]
    );
    assert_eq!(halts_of(Some("acme")), ["global", "org/acme/agent/bot-1"]);
    assert_eq!(halts_of(Some("globex")), ["global", "org/globex", "session/s4"]);

    let accounts_of = |by, below: Option<&str>| {
        let wanted = AccountsWanted {
            below: below.map(|text| text.parse().unwrap()),
            page: page(10, None),
        };
        let listed = accounts(&rows, &of(by), wanted).unwrap();
        listed
            .items
            .into_iter()
            .map(|(id, _)| id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(accounts_of(None, None).len(), 7);
    assert_eq!(
        accounts_of(Some("acme"), None),
        [
            "org/acme",
            "org/acme/agent/bot-1",
            "session/s1",
            "session/s2",
            "session/s3"
        ]
    );
    assert_eq!(
        accounts_of(None, Some("org/acme/agent/bot-1")),
        ["org/acme/agent/bot-1", "session/s1", "session/s3"]
    );
    assert_eq!(accounts_of(None, Some("session/s2")), ["session/s2"]);
    assert_eq!(
        accounts_of(Some("globex"), Some("org/acme")),
        Vec::<String>::new()
    );

    let guards_of = |by| {
        let listed = guards(&rows, &of(by), page(10, None)).unwrap();
        listed
            .items
            .into_iter()
            .map(|(scope, _)| scope.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(guards_of(Some("acme")), ["default", "org/acme"]);
    assert_eq!(guards_of(None), ["default", "org/acme", "org/globex"]);
}

#[test]
fn pages_follow_each_other_and_the_last_has_no_token() {
    let rows = table();
    let mut wanted = SessionsWanted {
        of: None,
        statuses: Vec::new(),
        tripped: false,
        page: page(2, None),
    };
    let mut seen = Vec::new();
    loop {
        let listed = sessions(&rows, &of(None), &wanted, 9).unwrap();
        assert!(listed.items.len() <= 2);
        seen.extend(listed.items.into_iter().map(|view| view.id.to_string()));
        match listed.next {
            Some(next) => wanted.page.after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, ["s1", "s3", "s2", "s4"]);
    assert!(
        wanted
            .page
            .after
            .as_ref()
            .is_some_and(|place| place.session == id("s3")),
        "two pages of two, and no third"
    );

    let mut theirs = SessionsWanted {
        page: page(10, None),
        ..wanted.clone()
    };
    let listed = sessions(&rows, &of(Some("globex")), &theirs, 9).unwrap();
    assert_eq!(listed.items.len(), 1);
    theirs.of = Some(Scope::Agent(org("acme"), agent("bot-1")));
    assert_eq!(sessions(&rows, &of(None), &theirs, 9).unwrap().items.len(), 2);
    theirs.statuses = vec![SessionStatus::Stale];
    assert_eq!(sessions(&rows, &of(None), &theirs, 9).unwrap().items.len(), 0);
}

#[test]
fn a_long_list_is_read_in_chunks_without_a_gap() {
    let mut rows = Table::new();
    for number in 0..1_234_u32 {
        let key = Key::Account(AccountId::Session(id(&format!("s{number:04}"))));
        rows.insert(key, Row::Account(Account::opened(Limit::Unlimited)));
    }
    let mut after = None;
    let mut count = 0;
    loop {
        let listed = accounts(
            &rows,
            &of(None),
            AccountsWanted {
                below: None,
                page: page(1_000, after),
            },
        )
        .unwrap();
        count += listed.items.len();
        after = listed.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(count, 1_234);
}

#[test]
fn the_outermost_halt_in_force_is_the_one_that_is_told() {
    let mut rows = table();
    let bot = session("acme", "bot-1");
    let level = |rows: &Table| {
        halted(rows, &id("s1"), &bot)
            .unwrap()
            .map(|(level, _)| level.to_string())
    };
    assert_eq!(level(&rows).as_deref(), Some("global"));
    rows.insert(Key::Halt(Scope::Global), halt(false));
    assert_eq!(level(&rows).as_deref(), Some("agent"));
    rows.insert(Key::Halt("org/acme/agent/bot-1".parse().unwrap()), halt(false));
    assert_eq!(level(&rows), None);
    rows.insert(Key::Halt("session/s1".parse().unwrap()), halt(true));
    assert_eq!(level(&rows).as_deref(), Some("session"));
}

#[test]
fn the_guard_in_force_is_the_most_specific_one() {
    let rows = table();
    let found = |scope: &str, effective| {
        guard(&rows, &scope.parse().unwrap(), effective)
            .unwrap()
            .map(|(scope, _)| scope.to_string())
    };
    let rows = [
        ("default", false, Some("default")),
        ("org/acme", false, Some("org/acme")),
        ("org/acme/agent/bot-1", false, None),
        ("org/acme/agent/bot-1", true, Some("org/acme")),
        ("org/other/agent/bot-1", true, Some("default")),
        ("org/other", false, None),
    ];
    for (scope, effective, expected) in rows {
        assert_eq!(
            found(scope, effective).as_deref(),
            expected,
            "{scope} {effective}"
        );
    }
}

#[test]
fn open_holds_are_counted_on_every_account_of_their_path() {
    let mut rows = table();
    let hold = |open| {
        Row::Hold(Hold {
            amount: NanoUsd::new(3),
            open: NanoUsd::new(open),
            charged: NanoUsd::ZERO,
            accounts: vec![AccountId::Session(id("s1")), AccountId::Organization(org("acme"))],
            expires_at: Timestamp::ZERO,
            unsettled: Unsettled::Charge,
            at_least: false,
        })
    };
    rows.insert(Key::Hold(id("s1"), 1), hold(3));
    rows.insert(Key::Hold(id("s1"), 2), hold(3));
    rows.insert(Key::Hold(id("s1"), 3), hold(0));
    let drawn = Account {
        held: NanoUsd::new(6),
        ..Account::opened(Limit::Unlimited)
    };
    for (account, expected) in [
        ("session/s1", 2),
        ("org/acme", 2),
        ("org/globex", 0),
        ("session/s2", 0),
    ] {
        assert_eq!(
            open_holds(&rows, &account.parse().unwrap(), &drawn).unwrap(),
            expected,
            "{account}"
        );
    }
    let undrawn = Account::opened(Limit::Unlimited);
    assert_eq!(
        open_holds(&rows, &"org/acme".parse().unwrap(), &undrawn).unwrap(),
        0
    );
}
