//! No reply of the log goes out before its fsync: where syncs are slow, so is every verdict and every vote. And
//! one fsync serves many verdicts.

#![expect(
    clippy::expect_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chaos::cluster::{Cluster, signal};
use chaos::load::{Load, Pace};
use client::{Registration, nonce, request_id};
use wire::proto::shackle::v1 as sp;

const DELAY: Duration = Duration::from_millis(300);

/// strace, attached to a node until it is dropped.
struct Strace {
    child: Child,
    out: PathBuf,
}

impl Strace {
    fn attach(cluster: &Cluster, node: usize, inject: &[&str]) -> Self {
        let out = cluster.dir().join(format!("strace-{}", node + 1));
        let child = Command::new("strace")
            .args(["-f", "-q", "-e", "trace=fsync,fdatasync"])
            .args(inject)
            .arg("-o")
            .arg(&out)
            .args(["-p", &cluster.pid(node).to_string()])
            .stderr(Stdio::null())
            .spawn()
            .expect("strace is installed (`make setup`)");
        let strace = Self { child, out };
        cluster.wait_for("strace to attach", || attached(cluster.pid(node)).then_some(()));
        strace
    }

    /// Syncs that the node made while this was attached.
    fn syncs(self) -> usize {
        let out = self.out.clone();
        drop(self);
        count(&out)
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        signal(self.child.id(), "INT");
        self.child.wait().expect("strace ends");
    }
}

fn attached(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
}

fn count(out: &Path) -> usize {
    let text = std::fs::read_to_string(out).unwrap_or_default();
    text.lines()
        .filter(|line| line.contains("sync(") && !line.contains("unfinished"))
        .count()
        + text.lines().filter(|line| line.contains("sync resumed")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_log_and_vote_reply_waits_for_its_fsync() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    let client = cluster.client("agent").deadline(Duration::from_secs(20));
    let registration = Registration {
        organization: "acme".to_owned(),
        agent: "bot-1".to_owned(),
        ..Registration::default()
    };
    let session = client
        .register(&registration)
        .await
        .expect("a session")
        .session_id;
    let ask = async |number: u64| {
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
        let asked = Instant::now();
        client.pre_exec(request).await.expect("a verdict");
        asked.elapsed()
    };

    // Two followers sync slowly: the quorum needs one of them, so every verdict is at least that slow.
    let delay = format!("inject=fsync,fdatasync:delay_exit={}", DELAY.as_micros());
    let leader = cluster.leader();
    let followers: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    {
        let _slow: Vec<Strace> = followers
            .iter()
            .map(|node| Strace::attach(&cluster, *node, &["-e", &delay]))
            .collect();
        for number in 1..=5 {
            let took = ask(number).await;
            assert!(
                took >= DELAY,
                "verdict {number} after {took:?}, before any follower had synced"
            );
        }
    }
    // Nothing slow any more: it was the syncs.
    let mut quick = Duration::MAX;
    for number in 6..=10 {
        quick = quick.min(ask(number).await);
    }
    assert!(quick < DELAY, "{quick:?}");

    // A vote is a sync as well: the next leader needs its own and one more.
    let _slow: Vec<Strace> = followers
        .iter()
        .map(|node| Strace::attach(&cluster, *node, &["-e", &delay]))
        .collect();
    cluster.kill(leader);
    cluster.leader();
    for (strace, node) in _slow.into_iter().zip(followers) {
        let syncs = strace.syncs();
        assert!(syncs >= 1, "node {} voted without a sync", node + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_fsync_serves_many_verdicts() {
    let cluster = Cluster::form(3, "[limits]\nregisters_per_second_per_address = 0\n");
    cluster.fund("org/acme", "1000.00");
    let leader = cluster.leader();
    let pace = Pace {
        agents: 64,
        pause: Duration::ZERO,
        cost_nanos: 1,
        repeat: false,
        settle: false,
    };
    let load = Load::start(&cluster, pace);
    let head = |node| {
        cluster
            .status(node, false)
            .and_then(|status| status["head_sequence"].as_u64())
    };
    let start = cluster.wait_for("a load", || head(leader).filter(|head| *head > 500));
    let strace = Strace::attach(&cluster, leader, &[]);
    let from = head(leader).expect("a head");
    let to = cluster.wait_for("two thousand verdicts", || {
        head(leader).filter(|head| *head > start + 2_500)
    });
    let syncs = strace.syncs();
    load.stop().await;
    let verdicts = to - from;
    println!("{syncs} fsyncs of the leader for {verdicts} verdicts");
    assert!(
        syncs > 0 && u64::try_from(syncs).unwrap() * 2 < verdicts,
        "{syncs} fsyncs for {verdicts} verdicts"
    );
}
