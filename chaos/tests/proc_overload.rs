//! Operators come through while every queue is full of calls.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chaos::cluster::Cluster;
use client::{Client, Registration, nonce, request_id};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::halts_client::HaltsClient;
use wire::proto::shackle::v1 as sp;

/// More calls at once than all queues hold.
const CALLERS: usize = 3_000;

/// How nice the callers are to the cluster: in life they are other machines.
const NICE: i32 = 10;

#[test]
fn kill_engage_is_answered_within_a_second_while_every_queue_is_full() {
    let be_nice = || {
        rustix::process::setpriority_process(None, NICE)
            .map(drop)
            .expect("a nicer thread")
    };
    let callers = tokio::runtime::Builder::new_multi_thread()
        .on_thread_start(be_nice)
        .enable_all()
        .build();
    let callers = callers.expect("a runtime");
    // The cluster's processes are started by this thread, which is not nice.
    let cluster = Cluster::form(
        3,
        "[limits]\nregisters_per_second_per_address = 0\ncalls_per_second_per_session = 0\n",
    );
    cluster.fund("org/acme", "1000.00");
    let slowest = callers.block_on(async { callers.spawn(async move { under_load(&cluster).await }).await });
    let slowest = slowest.expect("the load ends");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}

/// Fills every queue, lets an operator engage halts meanwhile, and gives the longest wait for an answer.
async fn under_load(cluster: &Cluster) -> Duration {
    let registration = Registration {
        organization: "acme".to_owned(),
        agent: "bot-1".to_owned(),
        ..Registration::default()
    };
    let mut clients: Vec<(Arc<Client>, String)> = Vec::new();
    for number in 0..24 {
        let client = cluster
            .client_of(number % 3, "agent")
            .deadline(Duration::from_secs(5));
        let session = client
            .register(&registration)
            .await
            .expect("a session")
            .session_id;
        clients.push((Arc::new(client), session));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let numbers = Arc::new(AtomicU64::new(0));
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let (client, session) = clients[caller % clients.len()].clone();
        let (stop, answered, numbers) = (stop.clone(), answered.clone(), numbers.clone());
        callers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                let request = sp::PreExecRequest {
                    session_id: session.clone(),
                    call_number: number,
                    tool_name: "search".to_owned(),
                    params_json: format!("{{\"n\":{number}}}").into_bytes(),
                    estimated_cost_nanos: Some(1),
                    nonce: nonce(),
                    request_id: request_id(),
                    ..sp::PreExecRequest::default()
                };
                if client.pre_exec(request).await.is_ok() {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    cluster.wait_for("a full house", || {
        (answered.load(Ordering::Relaxed) > 3_000).then_some(())
    });

    // An operator on a thread of its own: what is measured is the cluster, not this test's three thousand tasks.
    let slowest = std::thread::scope(|scope| scope.spawn(|| operate(cluster)).join().expect("the operator"));
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("a caller ends");
    }
    println!(
        "slowest engagement {slowest:?}; {} calls answered",
        answered.load(Ordering::Relaxed)
    );
    slowest
}

/// Engages one halt after the other, at every node; gives the longest wait for an answer.
fn operate(cluster: &Cluster) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut slowest = Duration::ZERO;
        for round in 0..6 {
            let operator = cluster.pool_of(round % 3, "operator");
            let mut halts = HaltsClient::new(operator.channel());
            // The connection is open before the clock starts.
            halts
                .list(admin::HaltsListRequest::default())
                .await
                .expect("a list");
            let request = admin::HaltsEngageRequest {
                request_id: request_id(),
                scope: format!("org/acme/agent/other-{round}"),
                mode: admin::HaltMode::Halt.into(),
                reason: "test".to_owned(),
                ticket: String::new(),
                ttl_seconds: 0,
                two_person: false,
            };
            let asked = Instant::now();
            let engaged = halts.engage(request).await.expect("engaged").into_inner();
            println!("round {round}: {:?}, {:?}", asked.elapsed(), engaged.nodes);
            slowest = slowest.max(asked.elapsed());
            assert!(engaged.halt_epoch > 0);
        }
        slowest
    })
}
