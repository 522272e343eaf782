//! The kill switch is drilled under load and during elections: every node denies, and nothing is allowed after the answer.

use std::time::Duration;

use chaos::checks;
use chaos::cluster::Cluster;
use chaos::load::{Load, Pace};

#[tokio::test(flavor = "multi_thread")]
async fn twenty_drills_under_load_two_of_them_during_an_election() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    // Some 200 calls a second.
    let load = Load::start(
        &cluster,
        Pace {
            agents: 8,
            pause: Duration::from_millis(40),
            cost_nanos: 1_000,
            repeat: false,
            settle: false,
        },
    );
    cluster.wait_for("some verdicts", || {
        (cluster.status(0, false)?["head_sequence"].as_u64()? > 300).then_some(())
    });
    let mut times = Vec::new();
    for round in 0..20 {
        let elects = round == 7 || round == 14;
        let leader = cluster.leader();
        let through = (leader + 1) % 3;
        if elects {
            cluster.kill(leader);
        }
        let drilled = cluster.json_of(
            through,
            "cluster_operator",
            &["kill", "drill", "--timeout", "20s"],
        );
        assert_eq!(drilled["passed"], true, "round {round}: {drilled}");
        let nodes = drilled["nodes"].as_array().expect("nodes");
        assert_eq!(nodes.len(), 3, "{drilled}");
        let denied = nodes
            .iter()
            .filter(|node| node["denied_after_ms"].as_f64().is_some());
        assert_eq!(denied.count(), if elects { 2 } else { 3 }, "{drilled}");
        times.push(
            nodes
                .iter()
                .map(|node| node["denied_after_ms"].clone())
                .collect::<Vec<_>>(),
        );
        if elects {
            cluster.start(leader);
        }
    }
    let asked = load.stop().await;
    println!("milliseconds a node: {times:?}");
    let chain = cluster.even_chains().remove(0);
    checks::answers_stand(&asked, &chain);
    let mut drills = 0;
    for engaged in chain.iter().filter(|entry| entry["kind"] == "halt_engaged") {
        let scope = engaged["detail"]
            .as_str()
            .and_then(|detail| detail.split(' ').next());
        let session = scope
            .and_then(|scope| scope.strip_prefix("session/"))
            .expect("a probe's session");
        let from = usize::try_from(engaged["sequence"].as_u64().expect("a sequence")).expect("a place");
        let late = checks::verdicts(&chain[from..], "ALLOW").filter(|entry| entry["session_id"] == session);
        assert_eq!(late.count(), 0, "{session}");
        drills += 1;
    }
    assert!(drills >= 20, "{drills}");
}
