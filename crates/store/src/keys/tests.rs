use decision::{AgentId, OrganizationId, RequestId, SessionId, Timestamp};
use machine::row::{DueWork, Key, Requester};
use machine::{AccountId, GuardScope, Scope};
use proptest::prelude::*;

use super::{decode, encode};

/// Few characters and short names, so that prefixes and equal parts are common.
fn session() -> impl Strategy<Value = SessionId> {
    "[a.:_-]{1,3}".prop_map(|text| SessionId::parse(&text).unwrap())
}

fn organization() -> impl Strategy<Value = OrganizationId> {
    "[ab_-]{1,3}".prop_map(|text| OrganizationId::parse(&text).unwrap())
}

fn agent() -> impl Strategy<Value = AgentId> {
    "[ab_-]{1,3}".prop_map(|text| AgentId::parse(&text).unwrap())
}

fn request() -> impl Strategy<Value = RequestId> {
    "[!a~]{1,3}".prop_map(|text| RequestId::parse(&text).unwrap())
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..3_u64, 254..258_u64, any::<u64>()]
}

/// Identities are any text, zero bytes and the like included.
fn requester() -> impl Strategy<Value = Requester> {
    prop_oneof![
        session().prop_map(Requester::Session),
        "[\u{0}\u{1}a\u{ff}\u{fffd}]{0,3}".prop_map(Requester::Identity),
    ]
}

fn due_work() -> impl Strategy<Value = DueWork> {
    prop_oneof![
        (session(), number()).prop_map(|(id, number)| DueWork::HoldExpiry(id, number)),
        session().prop_map(DueWork::SessionIdle),
        session().prop_map(DueWork::SessionEnd),
        session().prop_map(DueWork::SessionRemoval),
        (requester(), request()).prop_map(|(by, id)| DueWork::RequestExpiry(by, id)),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        Just(Key::Cluster),
        Just(Key::Chain),
        Just(Key::Keys),
        Just(Key::Guard(GuardScope::Default)),
        organization().prop_map(|org| Key::Guard(GuardScope::Organization(org))),
        (organization(), agent()).prop_map(|(org, agent)| Key::Guard(GuardScope::Agent(org, agent))),
        Just(Key::Halt(Scope::Global)),
        organization().prop_map(|org| Key::Halt(Scope::Organization(org))),
        (organization(), agent()).prop_map(|(org, agent)| Key::Halt(Scope::Agent(org, agent))),
        session().prop_map(|id| Key::Halt(Scope::Session(id))),
        organization().prop_map(|org| Key::Account(AccountId::Organization(org))),
        (organization(), agent()).prop_map(|(org, agent)| Key::Account(AccountId::Agent(org, agent))),
        session().prop_map(|id| Key::Account(AccountId::Session(id))),
        session().prop_map(Key::Session),
        (organization(), agent(), session()).prop_map(|(org, agent, id)| Key::SessionOf(org, agent, id)),
        (session(), number()).prop_map(|(id, number)| Key::Call(id, number)),
        (session(), number()).prop_map(|(id, number)| Key::Hold(id, number)),
        (session(), number()).prop_map(|(id, block)| Key::Nonces(id, block)),
        (requester(), request()).prop_map(|(by, id)| Key::Request(by, id)),
        (number(), due_work()).prop_map(|(at, work)| Key::Due(Timestamp::from_nanos(at), work)),
        number().prop_map(Key::Seal),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_key_reads_back_the_same(key in key()) {
        prop_assert_eq!(decode(&encode(&key)), Ok(key));
    }

    #[test]
    fn bytes_sort_as_keys_do(a in key(), b in key()) {
        let (bytes_a, bytes_b) = (encode(&a), encode(&b));
        if bytes_a.first() == bytes_b.first() {
            prop_assert_eq!(bytes_a.cmp(&bytes_b), a.cmp(&b));
        } else {
            prop_assert_ne!(a, b);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
        if let Ok(key) = decode(&bytes) {
            prop_assert_eq!(encode(&key), bytes);
        }
    }
}

/// The bytes rest on disks: this test changes only together with a new format version.
#[test]
fn bytes_are_as_they_were_given() {
    let session = SessionId::parse("s").unwrap();
    let rows = [
        (Key::Cluster, "01"),
        (Key::Chain, "02"),
        (Key::Guard(GuardScope::Default), "0300"),
        (Key::Halt(Scope::Global), "0400"),
        (Key::Account(AccountId::Session(session.clone())), "0502730000"),
        (Key::Session(session.clone()), "06730000"),
        (Key::Call(session.clone(), 258), "087300000000000000000102"),
        (Key::Hold(session.clone(), 1), "097300000000000000000001"),
        (Key::Nonces(session.clone(), 1), "0a7300000000000000000001"),
        (
            Key::Request(Requester::Identity("\0".into()), RequestId::parse("r").unwrap()),
            "0b0100ff0000720000",
        ),
        (
            Key::Due(Timestamp::from_nanos(5), DueWork::SessionIdle(session)),
            "0c000000000000000501730000",
        ),
        (Key::Keys, "0d"),
        (Key::Seal(7), "0e0000000000000007"),
    ];
    for (key, hex) in rows {
        let bytes: String = encode(&key).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes, hex, "{key:?}");
    }
}
