//! `haltgate.admin.v1` and `haltgate.audit.v1`: what people order, and the chain as it is sent and read back.

use audit::{Entry, Kind, Seal, Signer, link, seal};
use decision::{DenyReason, NanoUsd, OrganizationId, Timestamp, Verdict};
use machine::Scope;
use machine::command::{Act, Limit, Principal};
use machine::row::{Account, Halt, HaltChange, HaltMode, SessionStatus};
use wire::proto::haltgate::admin::v1 as proto;
use wire::proto::haltgate::audit::v1 as chain;
use wire::proto::shackle::v1 as shackle;
use wire::{admin, audit as wire_audit};

fn root() -> Principal {
    Principal {
        name: "cluster/admin/root".to_owned(),
        organization: None,
        agents: Vec::new(),
    }
}

type Change<T> = fn(&mut T);

fn engage() -> proto::HaltsEngageRequest {
    proto::HaltsEngageRequest {
        request_id: "r".to_owned(),
        scope: "org/acme".to_owned(),
        mode: proto::HaltMode::Halt.into(),
        reason: "runaway".to_owned(),
        ticket: String::new(),
        ttl_seconds: 0,
        two_person: false,
    }
}

#[test]
fn an_order_to_halt_is_read_or_says_what_is_wrong() {
    let rows: [(Option<&str>, Change<proto::HaltsEngageRequest>); 15] = [
        (None, |_| {}),
        (None, |engage| engage.scope = "global".to_owned()),
        (None, |engage| engage.scope = "org/acme/agent/bot-1".to_owned()),
        (None, |engage| engage.scope = "session/ses_1".to_owned()),
        (None, |engage| engage.mode = 0),
        (Some("scope"), |engage| engage.scope = String::new()),
        (Some("scope"), |engage| engage.scope = "org/".to_owned()),
        (Some("scope"), |engage| engage.scope = "default".to_owned()),
        (None, |engage| engage.mode = proto::HaltMode::Pause.into()),
        (Some("ttl_seconds"), |engage| engage.ttl_seconds = 60),
        (Some("mode"), |engage| engage.mode = 9),
        (Some("reason"), |engage| engage.reason = String::new()),
        (Some("reason"), |engage| engage.reason = "r".repeat(1_025)),
        (Some("ticket"), |engage| engage.ticket = "t".repeat(257)),
        (Some("request_id"), |engage| engage.request_id = String::new()),
    ];
    for (field, change) in rows {
        let mut message = engage();
        change(&mut message);
        let read = admin::engage(&message, root())
            .err()
            .map(|invalid| invalid.field.into_owned());
        assert_eq!(read.as_deref(), field, "{message:?}");
    }
    let unjustified = proto::HaltsReleaseRequest {
        request_id: "r".into(),
        scope: "global".into(),
        ..Default::default()
    };
    assert_eq!(
        admin::release(&unjustified, root()).unwrap_err().field,
        "justification"
    );
}

#[test]
fn a_limit_is_an_amount_above_0_or_a_word() {
    use proto::budgets_set_request::Limit as Said;
    let rows = [
        (Some(Said::AmountNanos(1)), Ok(Limit::Amount(NanoUsd::new(1)))),
        (Some(Said::Unlimited(())), Ok(Limit::Unlimited)),
        (Some(Said::Suspended(())), Ok(Limit::Suspended)),
        (Some(Said::AmountNanos(0)), Err("amount_nanos")),
        (Some(Said::AmountNanos(-1)), Err("amount_nanos")),
        (Some(Said::AmountNanos(i64::MIN)), Err("amount_nanos")),
        (Some(Said::AmountNanos(i64::MAX)), Err("amount_nanos")),
        (None, Err("limit")),
    ];
    for (limit, expected) in rows {
        let message = proto::BudgetsSetRequest {
            request_id: "r".to_owned(),
            scope: "org/acme".to_owned(),
            limit,
            justification: String::new(),
        };
        let read = admin::set_budget(&message, root())
            .map(|set| set.limit)
            .map_err(|error| error.field.into_owned());
        assert_eq!(read, expected.map_err(str::to_owned), "{limit:?}");
    }
    for (scope, amount_nanos, field) in [
        ("global", 1, "scope"),
        ("org/acme", 0, "amount_nanos"),
        ("default", 1, "scope"),
    ] {
        let message = proto::BudgetsGrantRequest {
            request_id: "r".to_owned(),
            scope: scope.to_owned(),
            amount_nanos,
            justification: String::new(),
        };
        assert_eq!(admin::grant_budget(&message, root()).unwrap_err().field, field);
    }
}

#[test]
fn orders_with_one_request_id_differ_in_their_payload() {
    let payload = |change: Change<proto::HaltsEngageRequest>| {
        let mut message = engage();
        change(&mut message);
        admin::engage(&message, root()).unwrap().request.payload
    };
    assert_eq!(payload(|_| {}), payload(|engage| engage.mode = 0));
    assert_ne!(
        payload(|_| {}),
        payload(|engage| engage.reason = "other".to_owned())
    );
    assert_ne!(
        payload(|_| {}),
        payload(|engage| engage.scope = "global".to_owned())
    );
    let act = |act| {
        let order = admin::SessionOrder {
            act,
            request_id: "r",
            session_id: "s",
            justification: "j",
        };
        admin::session_act(order, root()).unwrap().request.payload
    };
    assert_ne!(act(Act::Pause), act(Act::Resume));
}

#[test]
fn closing_a_circuit_needs_a_justification() {
    let rows = [
        (Act::ResetCircuit, false),
        (Act::Pause, true),
        (Act::Resume, true),
        (Act::Terminate, true),
    ];
    for (act, passes) in rows {
        let order = admin::SessionOrder {
            act,
            request_id: "r",
            session_id: "s",
            justification: "",
        };
        assert_eq!(admin::session_act(order, root()).is_ok(), passes, "{act:?}");
    }
}

#[test]
fn a_guard_is_invalid_with_the_path_of_its_field() {
    let message = proto::GuardsPutRequest {
        request_id: "r".to_owned(),
        scope: "org/acme".to_owned(),
        config: Some(shackle::GuardConfig {
            budget_usd: f64::NAN,
            ..Default::default()
        }),
        justification: String::new(),
    };
    assert_eq!(
        admin::put_guard(&message, root()).unwrap_err().field,
        "config.budget_usd"
    );
    let session = proto::GuardsPutRequest {
        scope: "session/s".to_owned(),
        ..message
    };
    assert_eq!(admin::put_guard(&session, root()).unwrap_err().field, "scope");
}

#[test]
fn pages_are_bounded_and_tokens_are_places() {
    let page = |page_size, page_token: &str| {
        let message = proto::HaltsListRequest {
            page_size,
            page_token: page_token.to_owned(),
        };
        admin::halts_page(&message)
            .map(|page| page.limit)
            .map_err(|invalid| invalid.field.into_owned())
    };
    let rows = [
        (0, "", Ok(100)),
        (1, "org/acme", Ok(1)),
        (1_000, "", Ok(1_000)),
        (1_001, "", Err("page_size")),
        (u32::MAX, "", Err("page_size")),
        (0, "nonsense", Err("page_token")),
    ];
    for (size, token, expected) in rows {
        assert_eq!(
            page(size, token),
            expected.map_err(str::to_owned),
            "{size} {token}"
        );
    }
    let rows = [
        ("", "", None),
        ("org/acme", "acme/bot-1/ses_1", None),
        ("org/acme/agent/bot-1", "", None),
        ("global", "", Some("scope")),
        ("session/s", "", Some("scope")),
        ("", "acme/bot-1", Some("page_token")),
        ("", "acme/bot-1/s/x", Some("page_token")),
    ];
    for (scope, page_token, field) in rows {
        let message = proto::SessionsListRequest {
            scope: scope.to_owned(),
            page_token: page_token.to_owned(),
            statuses: vec![shackle::SessionStatus::Stale.into()],
            ..Default::default()
        };
        let read = admin::sessions_wanted(&message);
        assert_eq!(
            read.as_ref().err().map(|invalid| &*invalid.field),
            field,
            "{scope} {page_token}"
        );
        if let Ok(wanted) = read {
            assert_eq!(wanted.statuses, [SessionStatus::Stale]);
            assert_eq!(
                wanted
                    .page
                    .after
                    .map(|place| place.to_string())
                    .unwrap_or_default(),
                page_token
            );
        }
    }
}

#[test]
fn a_halt_keeps_the_epoch_of_its_first_engagement() {
    let change = |engaged, at, epoch| HaltChange {
        engaged,
        reason: "r".to_owned(),
        by: "b".to_owned(),
        at: Timestamp::from_nanos(at),
        epoch,
        ticket: String::new(),
    };
    let halt = Halt {
        engaged: true,
        reason: "r".to_owned(),
        ticket: "t".to_owned(),
        by: "b".to_owned(),
        at: Timestamp::from_nanos(30),
        epoch: 6,
        history: vec![
            change(true, 10, 1),
            change(false, 20, 3),
            change(true, 30, 5),
            change(true, 40, 6),
        ],
        mode: HaltMode::Halt,
        until: None,
        two_person: false,
        release_asked: None,
        drains: false,
    };
    let message = admin::halt(
        &Scope::Organization(OrganizationId::parse("acme").unwrap()),
        &halt,
    );
    assert_eq!(
        (message.scope.as_str(), message.epoch, message.history.len()),
        ("org/acme", 5, 4)
    );
}

#[test]
fn an_account_has_a_figure_only_where_it_has_an_amount() {
    let id = "org/acme".parse().unwrap();
    let drawn = |limit| Account {
        limit,
        spent: NanoUsd::new(7),
        held: NanoUsd::new(5),
    };
    let rows = [
        (Limit::Amount(NanoUsd::new(20)), Some(8), 0),
        (Limit::Amount(NanoUsd::new(10)), Some(-2), 2),
        (Limit::Suspended, None, 12),
        (Limit::Unlimited, None, 0),
    ];
    for (limit, available, overdraft) in rows {
        let message = admin::account(&id, &drawn(limit), 1);
        assert_eq!(
            (message.available_nanos, message.overdraft_nanos),
            (available, overdraft),
            "{limit:?}"
        );
    }
}

fn entries() -> Vec<Entry> {
    let mut head = audit::ChainHead::empty("chain");
    [Kind::Genesis, Kind::Verdict, Kind::HaltEngaged]
        .into_iter()
        .map(|kind| {
            let mut entry = Entry::blank(kind, Timestamp::from_nanos(1_700_000_000_123_456_789));
            if kind == Kind::Verdict {
                entry = Entry {
                    session_id: "s".to_owned(),
                    agent_id: "bot-1".to_owned(),
                    organization_id: "acme".to_owned(),
                    call_number: 3,
                    tool_name: "tool ü".to_owned(),
                    tool_params_hash: vec![1; 32],
                    verdict: Some(Verdict::Deny),
                    deny_reason: DenyReason::BudgetOverrun,
                    budget_before: NanoUsd::new(-5),
                    budget_after: NanoUsd::new(i64::MAX),
                    operator_id: "o".to_owned(),
                    reason: "budget_overrun".to_owned(),
                    all_reasons: vec!["budget_overrun".to_owned(), "timeout".to_owned()],
                    log_term: 2,
                    log_index: 9,
                    policy_digest: vec![2; 32],
                    approval_id: "a".to_owned(),
                    info_digest: vec![3; 32],
                    nonce: Some(u64::MAX),
                    request_id: "r".to_owned(),
                    detail: "d".to_owned(),
                    ..entry
                };
            }
            let linked = link(&head, entry);
            head = linked.head;
            linked.entry
        })
        .collect()
}

#[test]
fn entries_seals_and_keys_read_back_exactly() {
    let signer = Signer::from_seed(&[7; 32]);
    let entries = entries();
    let seal: Seal = seal(&signer, &entries).unwrap();
    for entry in &entries {
        assert_eq!(
            wire_audit::entry(&wire_audit::entry_message(entry, None)).unwrap(),
            *entry
        );
        let message = wire_audit::entry_message(entry, Some(&seal));
        assert_eq!(wire_audit::entry(&message).unwrap(), *entry);
        assert_eq!(message.signature, seal.signature(entry.sequence).unwrap());
        assert_eq!(message.key_id, signer.key_id());
        assert_eq!(message.chain_signature.is_empty(), entry.sequence != 3);
    }
    assert_eq!(wire_audit::seal(&wire_audit::seal_message(&seal)).unwrap(), seal);
    let mut ring = audit::KeyRing::default();
    ring.trust(signer.public(), "node 1").unwrap();
    for key in ring.iter() {
        assert_eq!(wire_audit::key(&wire_audit::key_message(key)).unwrap(), *key);
    }
}

#[test]
fn what_no_entry_can_have_is_invalid() {
    let rows: [(&str, Change<shackle::AuditEntry>); 11] = [
        ("kind", |entry| entry.kind = "verdicts".to_owned()),
        ("entry_id", |entry| entry.entry_id = String::new()),
        ("entry_id", |entry| entry.entry_id = entry.entry_id.to_uppercase()),
        ("entry_id", |entry| {
            entry.entry_id = entry.entry_id.replace('-', "")
        }),
        ("entry_id", |entry| entry.entry_id.push('0')),
        ("timestamp_ns", |entry| entry.timestamp_ns = -1),
        ("tool_params_hash", |entry| entry.tool_params_hash = vec![0; 31]),
        ("verdict", |entry| entry.verdict = 4),
        ("deny_reason", |entry| entry.deny_reason = 12),
        ("previous_entry_hash", |entry| entry.previous_entry_hash.clear()),
        ("info_digest", |entry| entry.info_digest = vec![0; 1]),
    ];
    for (field, change) in rows {
        let mut message = wire_audit::entry_message(&entries()[1], None);
        change(&mut message);
        assert_eq!(wire_audit::entry(&message).unwrap_err().field, field);
    }
    let short = chain::Seal {
        from: 1,
        to: 2,
        signatures: vec![vec![0; 64]],
        chain_signature: vec![0; 64],
        ..Default::default()
    };
    assert_eq!(wire_audit::seal(&short).unwrap_err().field, "signatures");
}

#[test]
fn a_range_is_in_order_and_has_one_end() {
    let rows = [
        ((0, 0, false), Ok((1, None, false))),
        ((5, 9, false), Ok((5, Some(9), false))),
        ((5, 5, false), Ok((5, Some(5), false))),
        ((5, 0, true), Ok((5, None, true))),
        ((5, 4, false), Err("to_sequence")),
        ((1, 9, true), Err("to_sequence")),
    ];
    for ((from_sequence, to_sequence, follow), expected) in rows {
        let message = chain::AuditStreamRequest {
            from_sequence,
            follow,
            to_sequence,
        };
        let read = wire_audit::range(&message)
            .map(|range| (range.from, range.to, range.follow))
            .map_err(|invalid| invalid.field.into_owned());
        assert_eq!(read, expected.map_err(str::to_owned));
    }
}
