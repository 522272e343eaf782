use decision::money::NanoUsd;
use decision::time::Timestamp;
use decision::verdict::{DenyReason, Verdict};
use proptest::prelude::{Strategy, any, prop_assert_eq, prop_assert_ne, proptest};

use super::{canonical_bytes, hash, signed_bytes};
use crate::entry::{Entry, Kind};
use crate::verify::flip::{FIELDS, Signed};

fn golden() -> Entry {
    Entry {
        sequence: 7,
        entry_id: [0x11; 16],
        session_id: "s-1".into(),
        agent_id: "agent".into(),
        organization_id: "org".into(),
        call_number: 3,
        tool_name: "search".into(),
        tool_params_hash: vec![0x22; 32],
        verdict: Some(Verdict::Deny),
        deny_reason: DenyReason::BudgetOverrun,
        budget_before: NanoUsd::new(5_000_000_000),
        budget_after: NanoUsd::new(-1),
        operator_id: "op".into(),
        previous_hash: [0x33; 32],
        reason: "budget_overrun".into(),
        all_reasons: vec!["budget_overrun".into(), "timeout".into()],
        log_term: 2,
        log_index: 40,
        policy_digest: vec![0x44; 32],
        approval_id: "ap".into(),
        info_digest: vec![0x55; 32],
        nonce: Some(9),
        request_id: "r".into(),
        chain_id: "chain".into(),
        detail: "d\u{e9}".into(),
        ..Entry::blank(Kind::Verdict, Timestamp::from_nanos(1_700_000_000_000_000_001))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Written out by hand, field by field: these bytes are a promise to everyone who keeps a chain.
fn golden_one_to_thirteen() -> String {
    [
        "01 00000010 11111111111111111111111111111111",
        "02 00000008 17979cfe362a0001",
        "03 00000003 732d31",
        "04 00000005 6167656e74",
        "05 00000003 6f7267",
        "06 00000008 0000000000000003",
        "07 00000006 736561726368",
        "08 00000020 2222222222222222222222222222222222222222222222222222222222222222",
        "09 00000008 0000000000000002",
        "0a 00000008 000000000000000b",
        "0b 00000008 000000012a05f200",
        "0c 00000008 ffffffffffffffff",
        "0d 00000002 6f70",
    ]
    .concat()
    .replace(' ', "")
}

#[test]
fn signed_bytes_are_golden() {
    assert_eq!(hex(&signed_bytes(&golden())), golden_one_to_thirteen());
}

#[test]
fn canonical_bytes_are_golden() {
    let label = hex(b"haltgate audit entry v1\n");
    let ours = [
        "0f 00000020 3333333333333333333333333333333333333333333333333333333333333333",
        "64 00000008 0000000000000007",
        "65 00000008 0000000000000002",
        "66 0000000e 6275646765745f6f76657272756e",
        "67 0000000e 6275646765745f6f76657272756e",
        "67 00000007 74696d656f7574",
        "68 00000008 0000000000000002",
        "69 00000008 0000000000000028",
        "6a 00000020 4444444444444444444444444444444444444444444444444444444444444444",
        "6b 00000002 6170",
        "6c 00000020 5555555555555555555555555555555555555555555555555555555555555555",
        "6e 00000005 636861696e",
        "72 00000008 0000000000000009",
        "73 00000001 72",
        "74 00000003 64c3a9",
    ]
    .concat()
    .replace(' ', "");
    assert_eq!(
        hex(&canonical_bytes(&golden())),
        format!("{label}{}{ours}", golden_one_to_thirteen())
    );
}

#[test]
fn a_field_after_116_leaves_bytes_only_where_it_is_set() {
    let vouched = Entry {
        vouched_by: "n2".into(),
        ..golden()
    };
    assert_eq!(
        hex(&canonical_bytes(&vouched)),
        format!("{}78000000026e32", hex(&canonical_bytes(&golden())))
    );
}

#[test]
fn hash_is_golden() {
    assert_eq!(
        hex(&hash(&golden())),
        "7f7fd47a844200cc26ed18afdfb74825606a13560defe65971df09d1661b9f9d"
    );
}

#[test]
fn no_two_splits_of_the_same_text_hash_alike() {
    let split = |reasons: &[&str]| Entry {
        all_reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        ..golden()
    };
    let hashes = [
        split(&["ab"]),
        split(&["a", "b"]),
        split(&["b", "a"]),
        split(&["ab", ""]),
        split(&[]),
    ];
    for (index, one) in hashes.iter().enumerate() {
        for other in &hashes[index + 1..] {
            assert_ne!(hash(one), hash(other));
        }
    }
}

fn entries() -> impl Strategy<Value = Entry> {
    let texts = (any::<[String; 8]>(), any::<Vec<String>>());
    let bytes = (
        any::<[u8; 16]>(),
        any::<[u8; 32]>(),
        any::<Vec<u8>>(),
        any::<[Vec<u8>; 2]>(),
    );
    let numbers = (any::<[u64; 6]>(), any::<Option<u64>>(), any::<[i64; 2]>());
    (texts, bytes, numbers).prop_map(|((texts, all_reasons), bytes, (numbers, nonce, money))| {
        let [
            session_id,
            agent_id,
            organization_id,
            tool_name,
            operator_id,
            reason,
            chain_id,
            detail,
        ] = texts;
        let (entry_id, previous_hash, tool_params_hash, [policy_digest, info_digest]) = bytes;
        let [sequence, call_number, log_term, log_index, kind, time] = numbers;
        Entry {
            sequence,
            entry_id,
            session_id,
            agent_id,
            organization_id,
            call_number,
            tool_name,
            tool_params_hash,
            verdict: Some(Verdict::Hitl),
            budget_before: NanoUsd::new(money[0]),
            budget_after: NanoUsd::new(money[1]),
            operator_id,
            previous_hash,
            reason,
            all_reasons,
            log_term,
            log_index,
            policy_digest,
            info_digest,
            nonce,
            chain_id,
            detail,
            ..Entry::blank(
                Kind::ALL[usize::try_from(kind).unwrap() % Kind::ALL.len()],
                Timestamp::from_nanos(time),
            )
        }
    })
}

proptest! {
    #[test]
    fn every_flipped_field_changes_the_hash_and_fields_1_to_13_what_is_signed(entry in entries()) {
        for (name, signed, flip) in FIELDS {
            let mut flipped = entry.clone();
            flip(&mut flipped);
            prop_assert_ne!(hash(&entry), hash(&flipped), "{}", name);
            prop_assert_eq!(signed_bytes(&entry) != signed_bytes(&flipped), *signed == Signed::Yes, "{}", name);
        }
    }

    #[test]
    fn stored_entries_read_back_the_same(entry in entries()) {
        let stored = minicbor::to_vec(&entry).unwrap();
        prop_assert_eq!(minicbor::decode::<Entry>(&stored).unwrap(), entry);
    }
}
