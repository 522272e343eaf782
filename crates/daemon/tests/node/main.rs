//! One node over its real ports: what is refused and how, and what an agent is told.

mod guards;
mod site;

use std::fs;
use std::time::{Duration, Instant};

use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code as Grpc, Request};
use tonic_prost::ProstCodec;
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::budgets_client::BudgetsClient;
use wire::proto::haltgate::admin::v1::guards_client::GuardsClient;
use wire::proto::haltgate::admin::v1::halts_client::HaltsClient;
use wire::proto::haltgate::audit::v1 as audit;
use wire::proto::haltgate::audit::v1::audit_client::AuditClient;
use wire::proto::shackle::v1 as shackle;
use wire::{Code, Failure};

use site::{Authority, Site, call, write_pair};

/// A message whose first field is no text.
#[derive(Clone, PartialEq, prost::Message)]
struct NotText {
    #[prost(bytes = "vec", tag = "1")]
    session_id: Vec<u8>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_has_a_detail_those_of_grpc_itself_too() {
    let site = Site::start("").await.unwrap();
    let mut agent = site.agent().await.unwrap();
    let session = site.session(&mut agent).await.unwrap();

    let large = shackle::PreExecRequest {
        params_json: vec![b'x'; 70_000],
        ..call(&session, 1)
    };
    let too_large = agent.pre_exec(large).await.unwrap_err();
    assert_eq!(
        (too_large.code(), Failure::from_status(&too_large).code),
        (Grpc::ResourceExhausted, Code::MessageTooLarge)
    );

    let huge = shackle::RegisterRequest {
        framework: "x".repeat(2 << 20),
        ..Default::default()
    };
    let too_large = agent.register(huge).await.unwrap_err();
    assert_eq!(
        (too_large.code(), Failure::from_status(&too_large).code),
        (Grpc::ResourceExhausted, Code::MessageTooLarge)
    );

    let channel = site.connect("org/acme/agent/bot-1").await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let raw: ProstCodec<NotText, shackle::PreExecResponse> = ProstCodec::default();
    let path = PathAndQuery::from_static("/shackle.v1.ShackleDaemon/PreExec");
    let refused = grpc
        .unary(
            Request::new(NotText {
                session_id: vec![0xff],
            }),
            path,
            raw,
        )
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), Failure::from_status(&refused).code),
        (Grpc::InvalidArgument, Code::InvalidRequest)
    );

    let raw: ProstCodec<NotText, shackle::PreExecResponse> = ProstCodec::default();
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/shackle.v1.ShackleDaemon/Approve");
    let unknown = grpc
        .unary(Request::new(NotText::default()), path, raw)
        .await
        .unwrap_err();
    assert_eq!(
        (unknown.code(), Failure::from_status(&unknown).code),
        (Grpc::Unimplemented, Code::InvalidRequest)
    );

    let missing = agent.pre_exec(call("ses_none", 1)).await.unwrap_err();
    let failure = Failure::from_status(&missing);
    assert_eq!(
        (missing.code(), failure.code),
        (Grpc::NotFound, Code::SessionNotFound)
    );
    assert_eq!(
        failure.leader.map(|leader| leader.node_id),
        Some(1),
        "every failure says who leads"
    );

    let unsaid = agent
        .pre_exec(shackle::PreExecRequest {
            nonce: 0,
            ..call(&session, 1)
        })
        .await
        .unwrap_err();
    assert_eq!(Failure::from_status(&unsaid).field, "nonce");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_money_is_refused_everywhere_and_changes_nothing() {
    let site = Site::start("").await.unwrap();
    let mut agent = site.agent().await.unwrap();
    let session = site.session(&mut agent).await.unwrap();
    let root = site.connect("cluster/admin/root").await.unwrap();
    let (mut guards, mut budgets) = (GuardsClient::new(root.clone()), BudgetsClient::new(root));
    assert_eq!(
        agent
            .pre_exec(call(&session, 1))
            .await
            .unwrap()
            .into_inner()
            .verdict(),
        shackle::Verdict::Allow
    );
    let before = site.state_hash().await.unwrap();

    for usd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9, 1e308, 1e-10] {
        let mut refused = Vec::new();
        let asked = shackle::PreExecRequest {
            estimated_cost_usd: usd,
            ..call(&session, 2)
        };
        refused.push(agent.pre_exec(asked).await.unwrap_err());
        let report = shackle::PostExecNotification {
            session_id: session.clone(),
            call_number: 1,
            actual_cost_usd: usd,
            ..Default::default()
        };
        refused.push(agent.post_exec(report).await.unwrap_err());
        let pulse = shackle::Heartbeat {
            session_id: session.clone(),
            local_budget_remaining: usd,
            ..Default::default()
        };
        refused.push(agent.heartbeat(pulse).await.unwrap_err());
        for config in [
            shackle::GuardConfig {
                budget_usd: usd,
                ..Default::default()
            },
            shackle::GuardConfig {
                default_cost_usd: Some(usd),
                ..Default::default()
            },
            shackle::GuardConfig {
                deny_jitter_ratio: usd,
                ..Default::default()
            },
        ] {
            let put = admin::GuardsPutRequest {
                request_id: "guard".to_owned(),
                scope: "default".to_owned(),
                config: Some(config),
                justification: String::new(),
            };
            refused.push(guards.put(put).await.unwrap_err());
        }
        for status in refused {
            assert_eq!(status.code(), Grpc::InvalidArgument, "{usd:e}: {status}");
            assert_eq!(Failure::from_status(&status).code, Code::InvalidRequest);
        }
    }
    for amount_nanos in [0, -1, i64::MIN, i64::MAX] {
        let grant = admin::BudgetsGrantRequest {
            request_id: "grant".to_owned(),
            scope: "org/acme".to_owned(),
            amount_nanos,
            justification: String::new(),
        };
        assert_eq!(
            budgets.grant(grant).await.unwrap_err().code(),
            Grpc::InvalidArgument
        );
    }
    assert_eq!(site.state_hash().await.unwrap(), before);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_says_what_would_be_and_never_allows_or_writes() {
    let site = Site::start("").await.unwrap();
    let mut agent = site.agent().await.unwrap();
    let session = site.session(&mut agent).await.unwrap();
    let before = site.state_hash().await.unwrap();
    let rows = [
        (0.25, "dry_run:within_thresholds"),
        (6.0, "dry_run:organization_quota_exceeded"),
        (0.25, "dry_run:within_thresholds"),
    ];
    for (usd, reason) in rows {
        let asked = shackle::PreExecRequest {
            dry_run: true,
            estimated_cost_usd: usd,
            request_id: "same".to_owned(),
            ..call(&session, 1)
        };
        let answer = agent.pre_exec(asked).await.unwrap().into_inner();
        assert_eq!(
            (answer.verdict(), answer.reason.as_str()),
            (shackle::Verdict::Deny, reason)
        );
        assert_eq!(answer.audit_sequence, 0);
        assert!(answer.approval_id.is_empty());
    }
    assert_eq!(site.state_hash().await.unwrap(), before);
    let real = shackle::PreExecRequest {
        request_id: "same".to_owned(),
        ..call(&session, 1)
    };
    assert_eq!(
        agent.pre_exec(real).await.unwrap().into_inner().verdict(),
        shackle::Verdict::Allow
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_answers_in_order_and_ends_with_the_first_failure() {
    let site = Site::start("").await.unwrap();
    let mut agent = site.agent().await.unwrap();
    let session = site.session(&mut agent).await.unwrap();
    let mut questions: Vec<_> = (1..=300).map(|number| call(&session, number)).collect();
    questions.push(shackle::PreExecRequest {
        nonce: 0,
        ..call(&session, 301)
    });
    questions.push(call(&session, 302));
    let mut answers = agent
        .pre_exec_stream(tokio_stream::iter(questions))
        .await
        .unwrap()
        .into_inner();
    let mut allowed = 0;
    for number in 1..=300 {
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!(answer.call_number, number);
        allowed += u32::from(answer.verdict() == shackle::Verdict::Allow);
    }
    assert_eq!(allowed, 20, "five dollars hold twenty quarters");
    let failed = answers.message().await.unwrap_err();
    assert_eq!(Failure::from_status(&failed).field, "nonce");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_questions_of_one_session_are_turned_away_for_a_while() {
    let limits = "[limits]\ncalls_per_second_per_session = 5\nregisters_per_second_per_address = 2\n";
    let site = Site::start(limits).await.unwrap();
    let mut agent = site.agent().await.unwrap();
    let session = site.session(&mut agent).await.unwrap();
    let mut refused = None;
    for number in 1..=20 {
        if let Err(status) = agent.pre_exec(call(&session, number)).await {
            refused = Some(Failure::from_status(&status));
            break;
        }
    }
    let refused = refused.unwrap();
    assert_eq!(refused.code, Code::RateLimited);
    assert!((1..=201).contains(&refused.retry_after_ms), "{refused:?}");
    // Somebody else's calls into this session take nothing from its own rate, and are refused.
    let channel = site.connect("org/globex/agent/bot-1").await.unwrap();
    let mut stranger = shackle::shackle_daemon_client::ShackleDaemonClient::new(channel);
    let status = stranger.pre_exec(call(&session, 50)).await.unwrap_err();
    assert_eq!(status.code(), Grpc::PermissionDenied);
    let mut codes = Vec::new();
    for _ in 0..5 {
        let register = shackle::RegisterRequest {
            agent_id: "bot-1".to_owned(),
            ..Default::default()
        };
        codes.push(
            agent
                .register(register)
                .await
                .map_err(|status| Failure::from_status(&status).code)
                .map(drop),
        );
    }
    assert!(codes.contains(&Err(Code::RateLimited)), "{codes:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_identity_is_recorded_once_a_second_and_not_more() {
    let site = Site::start("").await.unwrap();
    let mut agent = site.agent().await.unwrap();
    let session = site.session(&mut agent).await.unwrap();
    let channel = site.connect("org/globex/agent/bot-1").await.unwrap();
    let mut stranger = shackle::shackle_daemon_client::ShackleDaemonClient::new(channel.clone());
    let mut halts = HaltsClient::new(channel);
    for number in 0..50 {
        let status = stranger.pre_exec(call(&session, number + 1)).await.unwrap_err();
        assert_eq!(status.code(), Grpc::PermissionDenied);
        let state = shackle::GetSessionStateRequest {
            session_id: session.clone(),
            allow_stale: number % 2 == 0,
        };
        assert_eq!(
            stranger.get_session_state(state).await.unwrap_err().code(),
            Grpc::PermissionDenied
        );
        let register = shackle::RegisterRequest {
            agent_id: "bot-1".to_owned(),
            organization_id: "acme".to_owned(),
            ..Default::default()
        };
        let status = stranger.register(register).await.unwrap_err();
        assert!(matches!(
            status.code(),
            Grpc::PermissionDenied | Grpc::ResourceExhausted
        ));
        let engage = admin::HaltsEngageRequest {
            scope: "org/acme".to_owned(),
            ..Default::default()
        };
        assert_eq!(
            halts.engage(engage).await.unwrap_err().code(),
            Grpc::PermissionDenied
        );
    }
    let mut auditor = AuditClient::new(site.connect("cluster/auditor/ayo").await.unwrap());
    let mut entries = auditor
        .stream(audit::AuditStreamRequest::default())
        .await
        .unwrap()
        .into_inner();
    let mut refused = 0;
    while let Some(message) = entries.message().await.unwrap() {
        if let Some(audit::audit_stream_response::Item::Entry(entry)) = message.item {
            refused += u32::from(entry.kind == "refused");
        }
    }
    assert!((1..=5).contains(&refused), "{refused} refusals recorded of 200");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_certificates_that_are_valid_here_get_an_answer() {
    let site = Site::start("").await.unwrap();
    let foreign = Authority::new().unwrap();
    let rows = [
        ("none", None),
        (
            "of another authority",
            Some(foreign.issue("org/acme/agent/bot-1").unwrap()),
        ),
        (
            "expired",
            Some(site.authority.issue_until("org/acme/agent/bot-1", 2002).unwrap()),
        ),
        ("of nobody", Some(site.authority.issue("nobody").unwrap())),
        ("of a node", Some(site.authority.issue("node/2").unwrap())),
    ];
    for (name, pair) in rows {
        let answer = match site.connect_with(pair.as_ref()).await {
            Ok(channel) => {
                let mut client = shackle::shackle_daemon_client::ShackleDaemonClient::new(channel);
                let register = shackle::RegisterRequest {
                    agent_id: "bot-1".to_owned(),
                    ..Default::default()
                };
                client
                    .register(register)
                    .await
                    .map(drop)
                    .map_err(|status| status.code())
            }
            Err(_no_connection) => Err(Grpc::Unavailable),
        };
        let code = answer.unwrap_err();
        let expected = match name {
            "of nobody" => vec![Grpc::Unauthenticated],
            "of a node" => vec![Grpc::PermissionDenied],
            // TLS refuses; how the client's library says so is its own.
            _ => vec![Grpc::Unavailable, Grpc::Unknown, Grpc::Internal, Grpc::Cancelled],
        };
        assert!(expected.contains(&code), "{name}: {code:?}");
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_certificate_is_used_and_a_broken_one_is_not() {
    let site = Site::start("").await.unwrap();
    let mut open = site.agent().await.unwrap();
    let session = site.session(&mut open).await.unwrap();
    let counted = |outcome: &str| -> u64 {
        let metrics = site.http("/metrics").unwrap();
        let line = format!("haltgate_certificate_reloads_total{{outcome=\"{outcome}\"}} ");
        let count = metrics.lines().find_map(|found| found.strip_prefix(&line));
        count.map_or(0, |count| count.parse().unwrap())
    };
    let exceeds = async |outcome: &str, before: u64| {
        let until = Instant::now() + Duration::from_secs(10);
        while counted(outcome) <= before {
            assert!(Instant::now() < until, "no reload was {outcome}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // Half a pair: the new certificate, the old key.
    let next = site.authority.issue("node/1").unwrap();
    fs::write(site.dir.join("node.pem"), &next.cert).unwrap();
    exceeds("ignored", 0).await;
    assert_eq!(counted("used"), 0);
    site.agent().await.unwrap();
    // Somebody else's pair.
    write_pair(&site.dir, &site.authority.issue("node/2").unwrap()).unwrap();
    // A look may have been under way while it was written: the one after that saw it whole.
    exceeds("ignored", counted("ignored") + 1).await;
    assert_eq!(counted("used"), 0);
    write_pair(&site.dir, &next).unwrap();
    exceeds("used", 0).await;
    let mut fresh = site.agent().await.unwrap();
    assert_eq!(
        fresh
            .pre_exec(call(&session, 1))
            .await
            .unwrap()
            .into_inner()
            .verdict(),
        shackle::Verdict::Allow
    );
    // What was open stayed open.
    assert_eq!(
        open.pre_exec(call(&session, 2))
            .await
            .unwrap()
            .into_inner()
            .verdict(),
        shackle::Verdict::Allow
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_say_whether_it_decides() {
    let site = Site::start("").await.unwrap();
    assert!(site.http("/livez").unwrap().starts_with("HTTP/1.1 200"));
    assert!(site.http("/readyz").unwrap().starts_with("HTTP/1.1 200"));
    let metrics = site.http("/metrics").unwrap();
    assert!(metrics.contains("\nhaltgate_ready 1\n"));
    // The median of one clock.
    assert!(metrics.contains("\nhaltgate_clock_skew_seconds 0\n"), "{metrics}");
    assert!(site.http("/anything").unwrap().starts_with("HTTP/1.1 404"));
    let mut agent = site.agent().await.unwrap();
    let session = site.session(&mut agent).await.unwrap();
    let engage = admin::HaltsEngageRequest {
        request_id: "stop".to_owned(),
        scope: "org/acme".to_owned(),
        reason: "runaway".to_owned(),
        ..Default::default()
    };
    let mut halts = HaltsClient::new(site.connect("org/acme/operator/olga").await.unwrap());
    let first = halts.engage(engage.clone()).await.unwrap().into_inner();
    assert_eq!((first.halt_epoch, first.already_engaged), (1, false));
    assert_eq!(
        first.nodes,
        [admin::NodeHaltEpoch {
            node_id: 1,
            applied_epoch: 1,
            reachable: true
        }]
    );
    let second = admin::HaltsEngageRequest {
        request_id: "stop-again".to_owned(),
        ..engage
    };
    assert!(halts.engage(second).await.unwrap().into_inner().already_engaged);
    let pulse = shackle::Heartbeat {
        session_id: session.clone(),
        ..Default::default()
    };
    let ack = agent.heartbeat(pulse).await.unwrap().into_inner();
    assert!(ack.halted && ack.halt_reason == "runaway");
    let answer = agent.pre_exec(call(&session, 1)).await.unwrap().into_inner();
    assert_eq!(
        (answer.reason.as_str(), answer.blocked_by_scope.as_str()),
        ("run_halted:organization", "org/acme")
    );
    site.stop().await;
}
