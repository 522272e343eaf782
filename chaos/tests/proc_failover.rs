//! Nodes die by kill -9 under load; nothing that was acknowledged is lost, and nothing is spent twice.

#![expect(
    clippy::indexing_slicing,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::time::Duration;

use chaos::checks;
use chaos::cluster::Cluster;
use chaos::load::{Load, Pace};

const COST: i64 = 1_000_000;
const LIMIT: i64 = 1_000_000_000_000;

fn pace() -> Pace {
    Pace {
        agents: 12,
        pause: Duration::from_millis(10),
        cost_nanos: COST,
        repeat: true,
        settle: true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_is_killed_ten_times_under_load() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    let load = Load::start(&cluster, pace());
    for _ in 0..10 {
        let leader = cluster.leader();
        cluster.kill(leader);
        cluster.leader();
        cluster.start(leader);
        // It serves again before the next one dies, so that a majority is always there; and so do the agents.
        cluster.wait_for("the killed node applies again", || cluster.status(leader, false));
        some_verdicts(&cluster);
    }
    let asked = load.stop().await;
    all_holds(&cluster, &asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_are_killed_at_once_under_load() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    let load = Load::start(&cluster, pace());
    for round in 0..3 {
        some_verdicts(&cluster);
        for node in 0..3 {
            cluster.kill(node);
        }
        for node in 0..3 {
            cluster.start(node);
        }
        cluster.leader();
        println!("round {round}: all three are back");
    }
    let asked = load.stop().await;
    all_holds(&cluster, &asked);
}

/// Waits until the load is one: three hundred more entries.
fn some_verdicts(cluster: &Cluster) {
    let head = || cluster.status(0, false)?["head_sequence"].as_u64();
    let before = cluster.wait_for("a head", head);
    cluster.wait_for("some verdicts", || (head()? > before + 300).then_some(()));
}

fn all_holds(cluster: &Cluster, asked: &[chaos::load::Asked]) {
    let chains = cluster.even_chains();
    checks::one_chain(&chains);
    let stood = checks::answers_stand(asked, &chains[0]);
    let repeated = checks::retries_agree(asked);
    checks::no_nonce_twice(&chains[0]);
    checks::nobody_overspent(&chains[0], LIMIT, COST);
    checks::nothing_tripped(&chains[0]);
    println!(
        "{stood} answers stand in {} entries, {repeated} of them were given again",
        chains[0].len()
    );
    assert!(
        stood > 500 && repeated > 100,
        "the load was one: {stood} answers, {repeated} repeated"
    );
}
