//! Without a quorum nothing is allowed, and nobody waits long to hear it.

use std::time::{Duration, Instant};

use chaos::cluster::Cluster;
use client::{Call, Done, Refused, Registration, UNAVAILABLE};
use tonic::Code;
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::halts_client::HaltsClient;
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

/// A call, an order and a read that come to the leader in the moment its followers die: each is answered as soon as
/// the leader knows that it is alone, whatever its deadline is.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_when_the_quorum_is_lost_is_told_so() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "5.00");
    let session = chaos::people::register(&cluster, 0, "agent", "bot-1", None).await;
    let leader = cluster.leader();
    for node in (0..3).filter(|node| *node != leader) {
        cluster.kill(node);
    }
    let killed = Instant::now();
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..30_u64 {
        let mut agent = ShackleDaemonClient::new(cluster.pool_of(leader, "agent").channel());
        let mut operator = HaltsClient::new(cluster.pool_of(leader, "operator").channel());
        let session = session.clone();
        asking.spawn(async move {
            tokio::time::sleep(Duration::from_millis(number * 50)).await;
            let asked = Instant::now();
            let mut call = tonic::Request::new(sp::PreExecRequest {
                session_id: session,
                call_number: number + 1,
                tool_name: "search".to_owned(),
                params_json: b"{}".to_vec(),
                nonce: client::nonce(),
                ..sp::PreExecRequest::default()
            });
            call.set_timeout(Duration::from_secs(12));
            let mut order = tonic::Request::new(admin::HaltsEngageRequest {
                request_id: client::request_id(),
                scope: "org/acme".to_owned(),
                mode: admin::HaltMode::Halt.into(),
                reason: "test".to_owned(),
                ..admin::HaltsEngageRequest::default()
            });
            order.set_timeout(Duration::from_secs(12));
            let (call, order) = tokio::join!(agent.pre_exec(call), operator.engage(order));
            let codes = [
                call.expect_err("no verdict").code(),
                order.expect_err("no order").code(),
            ];
            (asked.elapsed(), codes)
        });
    }
    let answers = asking.join_all().await;
    let slowest = answers.iter().map(|(took, _)| *took).max().unwrap_or_default();
    println!(
        "slowest answer {slowest:?}, all {:?} after the kill",
        killed.elapsed()
    );
    assert!(
        answers.iter().all(|(_, codes)| *codes == [Code::Unavailable; 2]),
        "{answers:?}"
    );
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");

    // And nobody says any longer that there is a leader.
    cluster.wait_for("a node without a leader", || {
        (cluster.status(leader, false)?["leader_id"] == 0).then_some(())
    });
    assert_eq!(cluster.metric(leader, "haltgate_raft_has_leader"), Some(0.0));
}
