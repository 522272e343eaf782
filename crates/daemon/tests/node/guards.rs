//! Guards in full over a node's real port: rules, lists of tools, trees, and what `Guards.Check` says beforehand.

#![expect(clippy::unwrap_used, reason = "a test that breaks says where")]

use std::collections::HashMap;

use tonic::transport::Channel;
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::budgets_client::BudgetsClient;
use wire::proto::haltgate::admin::v1::guards_check_request::Subject;
use wire::proto::haltgate::admin::v1::guards_client::GuardsClient;
use wire::proto::haltgate::admin::v1::sessions_client::SessionsClient;
use wire::proto::shackle::v1 as shackle;
use wire::proto::shackle::v1::shackle_daemon_client::ShackleDaemonClient;
use wire::{Code, Failure};

use crate::site::{Site, call};

const BOT: &str = "org/acme/agent/bot-1";

/// A guard as an operator's file has it.
fn file(text: &str) -> shackle::GuardConfig {
    toml::from_str(text).unwrap()
}

/// A site, its root, and one number a request.
struct Acme {
    site: Site,
    root: Channel,
    requests: u32,
}

impl Acme {
    async fn start() -> Self {
        let site = Site::start("").await.unwrap();
        let root = site.connect("cluster/admin/root").await.unwrap();
        Self {
            site,
            root,
            requests: 0,
        }
    }

    async fn put(&mut self, scope: &str, config: shackle::GuardConfig) -> Result<u64, tonic::Status> {
        self.requests += 1;
        let put = admin::GuardsPutRequest {
            request_id: format!("put-{}", self.requests),
            scope: scope.to_owned(),
            config: Some(config),
            justification: String::new(),
        };
        let answer = GuardsClient::new(self.root.clone()).put(put).await?.into_inner();
        Ok(answer.guard.unwrap().config.unwrap().version)
    }

    async fn check(&self, check: admin::GuardsCheckRequest) -> admin::GuardsCheckResponse {
        GuardsClient::new(self.root.clone())
            .check(check)
            .await
            .unwrap()
            .into_inner()
    }

    async fn state(&self, session: &str) -> shackle::SessionState {
        let get = admin::SessionsGetRequest {
            session_id: session.to_owned(),
        };
        let mut sessions = SessionsClient::new(self.root.clone());
        sessions.get(get).await.unwrap().into_inner().session.unwrap()
    }
}

fn asks(session: &str, number: u64, tool: &str, params: &str) -> shackle::PreExecRequest {
    shackle::PreExecRequest {
        tool_name: tool.to_owned(),
        params_json: params.as_bytes().to_vec(),
        ..call(session, number)
    }
}

/// The same call, only thought of.
fn thought(asked: &shackle::PreExecRequest) -> admin::GuardsCheckRequest {
    admin::GuardsCheckRequest {
        subject: Some(Subject::SessionId(asked.session_id.clone())),
        tool_name: asked.tool_name.clone(),
        params_json: asked.params_json.clone(),
        estimated_cost_nanos: Some(250_000_000),
        tags: asked.tags.clone(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_decide_as_checks_and_dry_runs_say() {
    let mut acme = Acme::start().await;
    let mut agent = acme.site.agent().await.unwrap();
    let session = acme.site.session(&mut agent).await.unwrap();
    let rules = file(
        r#"
        pause_scope = "call"
        [[rules]]
        id = "big"
        effect = "ask"
        tools = ["pay"]
        when = [{ path = ["amount"], op = "more", values = ["100"] }]
        [[rules]]
        id = "dear"
        effect = "cost"
        cost_usd = 0.5
        tags = [{ key = "model", matches = "large*" }]
        [[rules]]
        id = "no-db"
        effect = "deny"
        trips = true
        tools = ["db.*"]
        "#,
    );
    acme.put("org/acme", rules).await.unwrap();
    let tagged = shackle::PreExecRequest {
        tags: HashMap::from([("model".to_owned(), "large-1".to_owned())]),
        ..asks(&session, 6, "search", r#"{"q":6}"#)
    };
    let only_digest = shackle::PreExecRequest {
        params_json: Vec::new(),
        tool_params_hash: vec![7; 32],
        ..asks(&session, 5, "pay", "")
    };
    let rows = [
        (
            asks(&session, 1, "pay", r#"{"amount":100}"#),
            "ALLOW",
            "within_thresholds",
            250,
        ),
        (
            asks(&session, 2, "pay", r#"{"amount":100.5}"#),
            "HITL",
            "policy:big",
            250,
        ),
        // Nobody can say whether a text, or nothing, is more than 100.
        (
            asks(&session, 3, "pay", r#"{"amount":"100.5"}"#),
            "DENY",
            "policy:error",
            0,
        ),
        (asks(&session, 4, "pay", "{}"), "DENY", "policy:error", 0),
        (only_digest, "DENY", "policy_violation:params_required", 0),
        (tagged, "ALLOW", "within_thresholds", 500),
        (asks(&session, 7, "db.drop", "{}"), "DENY", "policy:no-db", 0),
        (asks(&session, 8, "search", "{}"), "DENY", "circuit_open", 0),
    ];
    for (asked, verdict, reason, hold_thousandths) in rows {
        let checked = acme.check(thought(&asked)).await;
        let dry = shackle::PreExecRequest {
            dry_run: true,
            ..asked.clone()
        };
        let dry = agent.pre_exec(dry).await.unwrap().into_inner();
        let answer = agent.pre_exec(asked.clone()).await.unwrap().into_inner();
        let got = (answer.verdict().as_str_name(), answer.reason.as_str());
        assert_eq!(got, (verdict, reason), "call {}", asked.call_number);
        let said = (checked.verdict().as_str_name(), checked.reason.as_str());
        assert_eq!(said, got, "call {} was checked", asked.call_number);
        assert_eq!(checked.all_reasons[0], reason);
        assert_eq!(checked.hold_nanos, hold_thousandths * 1_000_000, "{reason}");
        assert_eq!(checked.guards, ["org/acme"]);
        assert_eq!(dry.reason, format!("dry_run:{reason}"));
    }
    let state = acme.state(&session).await;
    assert_eq!(state.circuit_trip_reason, "policy:no-db");
    assert_eq!(state.guard_path, ["org/acme"]);
    acme.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_holds_from_the_answer_to_its_put() {
    let mut acme = Acme::start().await;
    let mut agent = acme.site.agent().await.unwrap();
    let session = acme.site.session(&mut agent).await.unwrap();
    for (number, rule) in (1..=12).zip(["a", "b", "c"].into_iter().cycle()) {
        let config = format!("[[rules]]\nid = \"{rule}\"\neffect = \"deny\"");
        acme.put("default", file(&config)).await.unwrap();
        let answer = agent.pre_exec(call(&session, number)).await.unwrap().into_inner();
        assert_eq!(answer.reason, format!("policy:{rule}"));
    }
    acme.put("default", file("")).await.unwrap();
    let answer = agent.pre_exec(call(&session, 13)).await.unwrap().into_inner();
    assert_eq!(answer.reason, "within_thresholds");
    acme.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_list_of_tools_allows_none_and_no_list_allows_all() {
    let mut acme = Acme::start().await;
    let mut agent = acme.site.agent().await.unwrap();
    let session = acme.site.session(&mut agent).await.unwrap();
    let rows = [
        ("trip_policy = \"never\"", "within_thresholds"),
        (
            "trip_policy = \"never\"\nallowed_tools = []",
            "escalation:tool_not_allowed",
        ),
        (
            "trip_policy = \"never\"\nallowed_tools = [\"to*\"]",
            "within_thresholds",
        ),
        (
            "trip_policy = \"never\"\nallowed_tools = [\"other\"]",
            "escalation:tool_not_allowed",
        ),
        (
            "mode = \"observe\"\nallowed_tools = []",
            "observe:escalation:tool_not_allowed",
        ),
    ];
    for (number, (config, reason)) in (1..).zip(rows) {
        acme.put("org/acme", file(config)).await.unwrap();
        let answer = agent.pre_exec(call(&session, number)).await.unwrap().into_inner();
        assert_eq!(answer.reason, reason, "{config}");
    }
    acme.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_is_replaced_at_the_version_that_was_seen() {
    let mut acme = Acme::start().await;
    assert_eq!(acme.put("org/acme", file("")).await.unwrap(), 1);
    assert_eq!(acme.put("org/acme", file("version = 1")).await.unwrap(), 2);
    let stale = acme.put("org/acme", file("version = 1")).await.unwrap_err();
    assert_eq!(Failure::from_status(&stale).code, Code::RequestConflict);
    assert_eq!(acme.put("org/acme", file("version = 0")).await.unwrap(), 3);
    let orphan = acme
        .put("org/acme/guard/a", file("parent_guard_id = \"none\""))
        .await;
    assert_eq!(
        Failure::from_status(&orphan.unwrap_err()).code,
        Code::InvalidRequest
    );
    acme.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_share_the_account_of_a_tree() {
    let mut acme = Acme::start().await;
    let mut first = acme.site.agent().await.unwrap();
    acme.site.session(&mut first).await.unwrap();
    acme.put(
        "org/acme/guard/research",
        file("budget_usd = 0.75\nagents = [\"bot-*\"]"),
    )
    .await
    .unwrap();
    let leaf = "parent_guard_id = \"research\"\nagents = [\"bot-2\"]\nmax_repeat_calls = 1";
    acme.put("org/acme/guard/leaf", file(leaf)).await.unwrap();

    let second = acme.site.connect("org/acme/agent/bot-2").await.unwrap();
    let mut second = ShackleDaemonClient::new(second);
    let under = |agent: &str, guard: &str| shackle::RegisterRequest {
        agent_id: agent.to_owned(),
        guard_id: guard.to_owned(),
        ..Default::default()
    };
    let one = first
        .register(under("bot-1", "research"))
        .await
        .unwrap()
        .into_inner();
    let two = second
        .register(under("bot-2", "leaf"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(two.active_config.unwrap().max_repeat_calls, 1, "the tightest");
    assert!(
        first.register(under("bot-1", "leaf")).await.is_err(),
        "not for this agent"
    );
    let state = acme.state(&two.session_id).await;
    assert_eq!(
        state.guard_path,
        ["default", "org/acme/guard/research", "org/acme/guard/leaf"]
    );

    let thought_of = admin::GuardsCheckRequest {
        subject: Some(Subject::Agent(BOT.to_owned())),
        guard_id: "research".to_owned(),
        tool_name: "tool".to_owned(),
        params_json: b"{}".to_vec(),
        estimated_cost_nanos: Some(250_000_000),
        ..Default::default()
    };
    let rows = [
        (true, 1, "within_thresholds"),
        (false, 1, "within_thresholds"),
        (true, 2, "within_thresholds"),
        (false, 2, "parent_guard_denied:research"),
        (true, 3, "parent_guard_denied:research"),
    ];
    for (by_first, number, reason) in rows {
        let checked = acme.check(thought_of.clone()).await;
        let answer = if by_first {
            first.pre_exec(call(&one.session_id, number)).await
        } else {
            second.pre_exec(call(&two.session_id, number)).await
        };
        let answer = answer.unwrap().into_inner();
        assert_eq!(answer.reason, reason, "call {number}");
        assert_eq!(checked.reason, reason, "the next session would get the same");
        assert_eq!(checked.guards, ["default", "org/acme/guard/research"]);
    }

    let mut budgets = BudgetsClient::new(acme.root.clone());
    let get = admin::BudgetsGetRequest {
        scope: "org/acme/guard/research".to_owned(),
    };
    let account = budgets.get(get).await.unwrap().into_inner().account.unwrap();
    assert_eq!((account.held_nanos, account.open_holds), (750_000_000, 3));
    acme.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_correction_changes_what_was_spent_once_and_by_operators_only() {
    let acme = Acme::start().await;
    let mut agent = acme.site.agent().await.unwrap();
    acme.site.session(&mut agent).await.unwrap();
    let correct = |request_id: &str, amount_nanos| admin::BudgetsCorrectRequest {
        request_id: request_id.to_owned(),
        scope: "org/acme".to_owned(),
        amount_nanos,
        justification: "invoice 7".to_owned(),
    };
    let mut budgets = BudgetsClient::new(acme.root.clone());
    let rows = [
        ("a", 2_000_000_000, 2_000_000_000),
        ("a", 2_000_000_000, 2_000_000_000),
        ("b", -500_000_000, 1_500_000_000),
    ];
    for (request, amount, spent) in rows {
        let answer = budgets
            .correct(correct(request, amount))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.account.unwrap().spent_nanos, spent);
    }
    let wrong = [
        correct("c", 0),
        correct("d", i64::MIN),
        correct("e", -1_500_000_001),
        admin::BudgetsCorrectRequest {
            justification: String::new(),
            ..correct("f", 1)
        },
    ];
    for request in wrong {
        let refused = budgets.correct(request).await.unwrap_err();
        assert_eq!(Failure::from_status(&refused).code, Code::InvalidRequest);
    }
    let auditor = acme.site.connect("cluster/auditor/ayo").await.unwrap();
    let refused = BudgetsClient::new(auditor)
        .correct(correct("g", 1))
        .await
        .unwrap_err();
    assert_eq!(Failure::from_status(&refused).code, Code::PermissionDenied);
    acme.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_writes_nothing_and_reaches_no_further_than_its_caller() {
    let acme = Acme::start().await;
    let mut agent = acme.site.agent().await.unwrap();
    let session = acme.site.session(&mut agent).await.unwrap();
    let before = acme.site.state_hash().await.unwrap();
    let of_agent = admin::GuardsCheckRequest {
        subject: Some(Subject::Agent(BOT.to_owned())),
        tool_name: "tool".to_owned(),
        ..Default::default()
    };
    let checked = acme.check(of_agent.clone()).await;
    assert_eq!(
        (checked.reason.as_str(), checked.hold_nanos),
        ("within_thresholds", 10_000_000)
    );
    assert_eq!(checked.effective.unwrap().max_repeat_calls, 3);
    let of_session = admin::GuardsCheckRequest {
        subject: Some(Subject::SessionId(session)),
        ..of_agent.clone()
    };
    acme.check(of_session.clone()).await;
    assert_eq!(acme.site.state_hash().await.unwrap(), before);

    let elsewhere = acme.site.connect("org/globex/auditor/gil").await.unwrap();
    let mut elsewhere = GuardsClient::new(elsewhere);
    for request in [of_agent.clone(), of_session.clone()] {
        let refused = elsewhere.check(request).await.unwrap_err();
        assert_eq!(Failure::from_status(&refused).code, Code::PermissionDenied);
    }
    let mut root = GuardsClient::new(acme.root.clone());
    let wrong = [
        admin::GuardsCheckRequest {
            subject: None,
            ..of_agent.clone()
        },
        admin::GuardsCheckRequest {
            subject: Some(Subject::Agent("org/acme".to_owned())),
            ..of_agent.clone()
        },
        admin::GuardsCheckRequest {
            tool_name: String::new(),
            ..of_agent.clone()
        },
        admin::GuardsCheckRequest {
            guard_id: "research".to_owned(),
            ..of_session
        },
    ];
    for (request, field) in wrong
        .into_iter()
        .zip(["subject", "agent", "tool_name", "guard_id"])
    {
        let refused = root.check(request).await.unwrap_err();
        assert_eq!(Failure::from_status(&refused).field, field);
    }
    let unknown = admin::GuardsCheckRequest {
        subject: Some(Subject::SessionId("ses_none".to_owned())),
        ..of_agent
    };
    let refused = root.check(unknown).await.unwrap_err();
    assert_eq!(Failure::from_status(&refused).code, Code::SessionNotFound);
    acme.site.stop().await;
}
