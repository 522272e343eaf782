//! Without a quorum nothing is allowed, and nobody waits long to hear it.

use std::time::{Duration, Instant};

use chaos::cluster::Cluster;
use client::{Call, Done, Refused, Registration, UNAVAILABLE};
use tonic::Code;
use wire::proto::shackle::v1 as sp;
use wire::proto::shackle::v1::shackle_daemon_client::ShackleDaemonClient;

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_node_says_unavailable_quickly_and_nothing_is_tripped() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "5.00");
    let registration = Registration {
        organization: "acme".to_owned(),
        agent: "bot-1".to_owned(),
        ..Registration::default()
    };
    let guarded = cluster
        .client("agent")
        .guarded(&registration)
        .await
        .expect("a session");
    let session = guarded.session().to_owned();

    for lone in 0..3 {
        for node in (0..3).filter(|node| *node != lone) {
            cluster.kill(node);
        }
        let pool = cluster.pool_of(lone, "agent");
        let request = |number: u64| sp::PreExecRequest {
            session_id: session.clone(),
            call_number: number,
            tool_name: "search".to_owned(),
            params_json: b"{}".to_vec(),
            nonce: client::nonce(),
            ..sp::PreExecRequest::default()
        };
        // The first calls may still wait for an election; then every one is answered at once.
        let mut client = ShackleDaemonClient::new(pool.channel());
        let mut quick = 0;
        for number in 0..20 {
            let asked = Instant::now();
            let status = client
                .pre_exec(request(1_000 + number))
                .await
                .expect_err("no verdict without a quorum");
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
            let detail = client::error_detail(&status).expect("a detail");
            assert_eq!(detail.code, "DAEMON_UNAVAILABLE");
            assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
            quick = if asked.elapsed() < Duration::from_millis(500) {
                quick + 1
            } else {
                0
            };
        }
        assert!(quick >= 10, "the last {quick} of 20 refusals were quick");

        let ran = guarded
            .run(Call::new("search", serde_json::json!({})), |_| async {
                Ok::<_, std::fmt::Error>(Done::new(()))
            })
            .await;
        match ran {
            Err(Refused::Denied { reason }) => assert_eq!(reason, UNAVAILABLE),
            other => panic!("{other:?}"),
        }
        for node in (0..3).filter(|node| *node != lone) {
            cluster.start(node);
        }
        cluster.leader();
    }

    let state = cluster.json("admin", &["session", "show", &session]);
    assert_eq!(state["circuit"], "closed", "{state}");
    assert_eq!(state["status"], "active", "{state}");
    let ran = guarded
        .run(Call::new("search", serde_json::json!({})), |_| async {
            Ok::<_, std::fmt::Error>(Done::new(()))
        })
        .await;
    assert!(ran.is_ok(), "{ran:?}");
}
