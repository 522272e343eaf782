//! A node whose `apply` came to another state than the others': it is out of service within ten seconds and says where,
//! and the others go on.

#![expect(
    clippy::unwrap_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::time::{Duration, Instant};

use chaos::cluster::Cluster;
use chaos::load::{Load, Pace};
use rocksdb::{DB, IteratorMode, Options};

/// The column family of the machine's rows, and the first byte of an account's key (`store/src/keys.rs`).
const ROWS: &str = "rows";
const ACCOUNT: u8 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_diverged_is_out_of_service_and_the_others_serve() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    cluster.wait_quiet();
    let odd = (cluster.leader() + 1) % 3;
    cluster.kill(odd);
    // Its state forgets every account: the next call is decided otherwise there.
    forget_accounts(&cluster, odd);
    cluster.start(odd);
    let load = Load::start(
        &cluster,
        Pace {
            agents: 4,
            pause: Duration::from_millis(20),
            cost_nanos: 1_000,
            repeat: false,
            settle: false,
        },
    );
    let began = Instant::now();
    let why = cluster.wait_for("the node to notice", || {
        let status = cluster.status(odd, false)?;
        let why = status["not_ready"].as_array()?.first()?.as_str()?.to_owned();
        why.starts_with("diverged").then_some(why)
    });
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(why.contains("log entry "), "{why}");
    assert_eq!(cluster.metric(odd, "haltgate_out_of_service"), Some(1.0));

    // It answers nothing but that; the others decide.
    let listed = cluster.cli_of(odd, "operator", &["kill", "list", "--timeout", "2s"]);
    assert!(!listed.status.success());
    let serving = (0..3).find(|node| *node != odd).unwrap();
    let head = || cluster.status(serving, false)?["head_sequence"].as_u64();
    let before = cluster.wait_for("a head", head);
    cluster.wait_for("more verdicts", || (head()? > before + 100).then_some(()));
    for node in (0..3).filter(|node| *node != odd) {
        let status = cluster.status(node, false).unwrap();
        assert_eq!(status["ready"], true, "{status}");
    }
    load.stop().await;
}

fn forget_accounts(cluster: &Cluster, node: usize) {
    let path = cluster.dir().join(format!("data-{}/state-1", node + 1));
    let families = DB::list_cf(&Options::default(), &path).unwrap();
    let db = DB::open_cf(&Options::default(), &path, families).unwrap();
    let rows = db.cf_handle(ROWS).unwrap();
    let keys: Vec<Box<[u8]>> = db
        .iterator_cf(rows, IteratorMode::Start)
        .map(|item| item.unwrap().0)
        .filter(|key| key.first() == Some(&ACCOUNT))
        .collect();
    assert!(!keys.is_empty(), "no account is where it was looked for");
    for key in keys {
        db.delete_cf(rows, key).unwrap();
    }
}
