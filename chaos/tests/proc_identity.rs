//! A certificate of another agent, organization or role, or none: refused on every RPC, the victim unchanged.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::time::Duration;

use chaos::cluster::Cluster;
use client::{Registration, request_id};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::budgets_client::BudgetsClient;
use wire::proto::haltgate::admin::v1::cluster_client::ClusterClient;
use wire::proto::haltgate::admin::v1::guards_client::GuardsClient;
use wire::proto::haltgate::admin::v1::halts_client::HaltsClient;
use wire::proto::haltgate::admin::v1::sessions_client::SessionsClient;
use wire::proto::haltgate::audit::v1 as audit;
use wire::proto::haltgate::audit::v1::audit_client::AuditClient;
use wire::proto::shackle::v1 as sp;
use wire::proto::shackle::v1::shackle_daemon_client::ShackleDaemonClient;

/// Who else may not: certificates that have no business with bot-1's session, by RPC.
struct Row {
    rpc: &'static str,
    refused: &'static [&'static str],
}

const NOT_AN_AGENT_OF_IT: &[&str] = &[
    "agent2",
    "other",
    "sidecar",
    "operator",
    "approver",
    "auditor",
    "cluster_operator",
    "cluster_auditor",
    "admin",
];
const NO_OPERATOR_OF_IT: &[&str] = &[
    "agent",
    "agent2",
    "other",
    "sidecar",
    "approver",
    "auditor",
    "cluster_auditor",
];
const NO_ADMIN: &[&str] = &[
    "agent",
    "agent2",
    "other",
    "sidecar",
    "operator",
    "approver",
    "auditor",
    "cluster_operator",
    "cluster_auditor",
];
const NO_AUDITOR: &[&str] = &["agent", "agent2", "other", "sidecar", "operator", "approver"];

const ROWS: &[Row] = &[
    Row {
        rpc: "Register",
        refused: NOT_AN_AGENT_OF_IT,
    },
    Row {
        rpc: "Resume",
        refused: NOT_AN_AGENT_OF_IT,
    },
    Row {
        rpc: "PreExec",
        refused: NOT_AN_AGENT_OF_IT,
    },
    Row {
        rpc: "PostExec",
        refused: NOT_AN_AGENT_OF_IT,
    },
    Row {
        rpc: "Heartbeat",
        refused: NOT_AN_AGENT_OF_IT,
    },
    Row {
        rpc: "GetSessionState",
        refused: NOT_AN_AGENT_OF_IT,
    },
    Row {
        rpc: "EndSession",
        refused: NOT_AN_AGENT_OF_IT,
    },
    Row {
        rpc: "Halts.Engage",
        refused: NO_OPERATOR_OF_IT,
    },
    Row {
        rpc: "Halts.Release",
        refused: NO_ADMIN,
    },
    Row {
        rpc: "Budgets.Set",
        refused: NO_OPERATOR_OF_IT,
    },
    Row {
        rpc: "Budgets.Grant",
        refused: NO_OPERATOR_OF_IT,
    },
    Row {
        rpc: "Guards.Put",
        refused: NO_OPERATOR_OF_IT,
    },
    Row {
        rpc: "Sessions.ResetCircuit",
        refused: NO_OPERATOR_OF_IT,
    },
    Row {
        rpc: "Sessions.Pause",
        refused: NO_OPERATOR_OF_IT,
    },
    Row {
        rpc: "Sessions.Resume",
        refused: NO_OPERATOR_OF_IT,
    },
    Row {
        rpc: "Sessions.Terminate",
        refused: NO_OPERATOR_OF_IT,
    },
    Row {
        rpc: "Cluster.Remove",
        refused: NO_OPERATOR_OF_IT,
    },
    Row {
        rpc: "Audit.GetEntry",
        refused: NO_AUDITOR,
    },
    Row {
        rpc: "Audit.Stream",
        refused: NO_AUDITOR,
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_is_refused_on_every_rpc_and_the_victim_is_unchanged() {
    let cluster = Cluster::form(3, "[limits]\nregisters_per_second_per_address = 0\n");
    cluster.fund("org/acme", "5.00");
    cluster.fund("org/globex", "5.00");
    let registration = Registration {
        organization: "acme".to_owned(),
        agent: "bot-1".to_owned(),
        ..Registration::default()
    };
    let agent = cluster.client("agent").deadline(Duration::from_secs(5));
    let session = agent.register(&registration).await.expect("a session").session_id;
    let call = sp::PreExecRequest {
        session_id: session.clone(),
        call_number: 1,
        tool_name: "search".to_owned(),
        params_json: b"{}".to_vec(),
        nonce: 1,
        ..sp::PreExecRequest::default()
    };
    agent.pre_exec(call).await.expect("a verdict");
    let victim = || {
        (
            cluster.json("admin", &["session", "show", &session]),
            cluster.json("admin", &["budget", "show", "org/acme"]),
            cluster.json("admin", &["guard", "show", "org/acme"]),
            cluster.json("admin", &["kill", "list"]),
        )
    };
    let before = victim();

    for row in ROWS {
        for who in row.refused {
            let channel = cluster
                .pool_of(usize::from(row.rpc.len() % 3 == 0), who)
                .channel();
            let status = attempt(row.rpc, channel, &session)
                .await
                .err()
                .unwrap_or_else(|| panic!("{who} was let through on {}", row.rpc));
            assert!(
                matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated),
                "{who} on {}: {status:?}",
                row.rpc
            );
            let detail = client::error_detail(&status).expect("a detail");
            assert_eq!(detail.code, "AUTHENTICATION_FAILED", "{who} on {}", row.rpc);
        }
        // No certificate at all: there is no connection.
        let status = attempt(row.rpc, without_certificate(&cluster), &session)
            .await
            .expect_err("no certificate");
        assert!(client::error_detail(&status).is_none(), "{}: {status:?}", row.rpc);
    }
    assert_eq!(victim(), before);
}

fn without_certificate(cluster: &Cluster) -> Channel {
    let ca = std::fs::read(cluster.credentials("agent").ca).expect("the authority");
    Endpoint::from_shared(format!("https://{}", cluster.endpoint(0)))
        .expect("an address")
        .tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)))
        .expect("TLS")
        .connect_lazy()
}

async fn attempt(rpc: &str, channel: Channel, session: &str) -> Result<(), Status> {
    let session_id = session.to_owned();
    let (request_id, justification) = (request_id(), "test".to_owned());
    let mut shackle = ShackleDaemonClient::new(channel.clone());
    let mut halts = HaltsClient::new(channel.clone());
    let mut budgets = BudgetsClient::new(channel.clone());
    let mut sessions = SessionsClient::new(channel.clone());
    let mut audits = AuditClient::new(channel.clone());
    let register = sp::RegisterRequest {
        agent_id: "bot-1".to_owned(),
        organization_id: "acme".to_owned(),
        protocol_version: "1.0.0".to_owned(),
        ..sp::RegisterRequest::default()
    };
    match rpc {
        "Register" => shackle.register(register).await.map(drop),
        "Resume" => shackle
            .register(sp::RegisterRequest {
                session_id,
                ..register
            })
            .await
            .map(drop),
        "PreExec" => {
            let call = sp::PreExecRequest {
                session_id,
                call_number: 2,
                tool_name: "search".to_owned(),
                params_json: b"{}".to_vec(),
                nonce: client::nonce(),
                ..sp::PreExecRequest::default()
            };
            shackle.pre_exec(call).await.map(drop)
        }
        "PostExec" => {
            let report = sp::PostExecNotification {
                session_id,
                call_number: 1,
                ..sp::PostExecNotification::default()
            };
            shackle.post_exec(report).await.map(drop)
        }
        "Heartbeat" => shackle
            .heartbeat(sp::Heartbeat {
                session_id,
                ..sp::Heartbeat::default()
            })
            .await
            .map(drop),
        "GetSessionState" => shackle
            .get_session_state(sp::GetSessionStateRequest {
                session_id,
                allow_stale: false,
            })
            .await
            .map(drop),
        "EndSession" => shackle
            .end_session(sp::EndSessionRequest {
                session_id,
                request_id,
            })
            .await
            .map(drop),
        "Halts.Engage" => {
            let engage = admin::HaltsEngageRequest {
                request_id,
                scope: "org/acme".to_owned(),
                mode: admin::HaltMode::Halt.into(),
                reason: justification,
                ticket: String::new(),
                ..Default::default()
            };
            halts.engage(engage).await.map(drop)
        }
        "Halts.Release" => {
            let scope = "org/acme".to_owned();
            let release = admin::HaltsReleaseRequest {
                request_id,
                scope,
                justification,
                ticket: String::new(),
            };
            halts.release(release).await.map(drop)
        }
        "Budgets.Set" => {
            let limit = Some(admin::budgets_set_request::Limit::AmountNanos(1));
            let scope = "org/acme".to_owned();
            budgets
                .set(admin::BudgetsSetRequest {
                    request_id,
                    scope,
                    limit,
                    justification,
                })
                .await
                .map(drop)
        }
        "Budgets.Grant" => {
            let scope = "org/acme".to_owned();
            let grant = admin::BudgetsGrantRequest {
                request_id,
                scope,
                amount_nanos: 1,
                justification,
            };
            budgets.grant(grant).await.map(drop)
        }
        "Guards.Put" => {
            let config = Some(sp::GuardConfig::default());
            let scope = "org/acme".to_owned();
            let put = admin::GuardsPutRequest {
                request_id,
                scope,
                config,
                justification,
            };
            GuardsClient::new(channel).put(put).await.map(drop)
        }
        "Sessions.ResetCircuit" => {
            let reset = admin::SessionsResetCircuitRequest {
                request_id,
                session_id,
                justification,
            };
            sessions.reset_circuit(reset).await.map(drop)
        }
        "Sessions.Pause" => sessions
            .pause(admin::SessionsPauseRequest {
                request_id,
                session_id,
                justification,
            })
            .await
            .map(drop),
        "Sessions.Resume" => sessions
            .resume(admin::SessionsResumeRequest {
                request_id,
                session_id,
                justification,
            })
            .await
            .map(drop),
        "Sessions.Terminate" => {
            let terminate = admin::SessionsTerminateRequest {
                request_id,
                session_id,
                justification,
            };
            sessions.terminate(terminate).await.map(drop)
        }
        "Cluster.Remove" => {
            let remove = admin::ClusterRemoveRequest {
                request_id,
                raft_id: 1,
                justification,
                force: false,
            };
            ClusterClient::new(channel).remove(remove).await.map(drop)
        }
        "Audit.GetEntry" => audits
            .get_entry(audit::AuditGetEntryRequest { sequence: 1 })
            .await
            .map(drop),
        "Audit.Stream" => {
            let request = audit::AuditStreamRequest {
                from_sequence: 1,
                follow: false,
                to_sequence: 1,
            };
            audits
                .stream(request)
                .await?
                .into_inner()
                .message()
                .await
                .map(drop)
        }
        other => panic!("no such RPC in this table: {other}"),
    }
}
