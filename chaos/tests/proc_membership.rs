//! Nodes come and go under load: learner, voter, removed; leadership is handed on, also by SIGTERM.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::time::{Duration, Instant};

use chaos::checks;
use chaos::cluster::{Cluster, haltgate};
use chaos::load::{Load, Pace};

fn pace() -> Pace {
    Pace {
        agents: 6,
        pause: Duration::from_millis(10),
        cost_nanos: 1_000,
        repeat: true,
        settle: true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fourth_node_joins_and_the_first_leaves_under_load() {
    // Four nodes are laid out; the first three know nothing of the fourth.
    let mut cluster = Cluster::lay_out(4, "");
    for node in 0..3 {
        let path = cluster.config(node);
        let text = std::fs::read_to_string(&path).unwrap();
        let (members, fourth) = text.rsplit_once("[[cluster.members]]").unwrap();
        assert!(fourth.contains("id = 4"), "{fourth}");
        std::fs::write(&path, members).unwrap();
        cluster.start(node);
    }
    let formed = haltgate()
        .args(["init", "--config"])
        .arg(cluster.config(0))
        .output()
        .unwrap();
    assert!(
        formed.status.success(),
        "{}",
        String::from_utf8_lossy(&formed.stderr)
    );
    cluster.fund("org/acme", "1000.00");
    let load = Load::start(&cluster, pace());

    cluster.start(3);
    let config = cluster.config(3);
    let joined = cluster.cli_of(
        0,
        "admin",
        &["join", "--config", config.to_str().unwrap(), "--timeout", "30s"],
    );
    assert!(
        joined.status.success(),
        "{}",
        String::from_utf8_lossy(&joined.stderr)
    );
    cluster.wait_for("four voters", || (voters(&cluster, 3)? == 4).then_some(()));

    // The one that leads leaves: first its leadership, then its vote.
    let leader = cluster.leader();
    let raft_id = cluster.status(leader, false).unwrap()["raft_id"]
        .as_u64()
        .unwrap();
    let drained = cluster.cli_of(leader, "cluster_operator", &["drain", "--output", "json"]);
    assert!(
        drained.status.success(),
        "{}",
        String::from_utf8_lossy(&drained.stderr)
    );
    let next = cluster.leader();
    assert_ne!(next, leader);
    remove(&cluster, next, raft_id).await;
    cluster.kill(leader);
    cluster.wait_for("three voters", || (voters(&cluster, next)? == 3).then_some(()));

    let asked = load.stop().await;
    let chains = cluster.even_chains();
    checks::one_chain(&chains);
    assert!(checks::answers_stand(&asked, &chains[0]) > 20);
    checks::nothing_tripped(&chains[0]);
    let changes: Vec<&str> = chains[0]
        .iter()
        .filter(|entry| entry["kind"] == "membership_changed")
        .filter_map(|entry| entry["detail"].as_str())
        .collect();
    assert!(changes.len() >= 3, "learner, voter, removed: {changes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_told_to_end_hands_on_first() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    let load = Load::start(&cluster, pace());
    for _ in 0..3 {
        let leader = cluster.leader();
        let told = Instant::now();
        let status = cluster.terminate(leader);
        assert!(status.success(), "{status}");
        cluster.leader();
        // An election by timeout takes longer than this.
        assert!(told.elapsed() < Duration::from_secs(8), "{:?}", told.elapsed());
        cluster.start(leader);
        cluster.wait_for("it applies again", || cluster.status(leader, false));
    }
    let asked = load.stop().await;
    cluster.wait_even();
    let chain = cluster.chain(0);
    assert!(checks::answers_stand(&asked, &chain) > 20);
    checks::retries_agree(&asked);
    checks::nothing_tripped(&chain);
}

fn voters(cluster: &Cluster, node: usize) -> Option<usize> {
    let status = cluster.status(node, false)?;
    Some(
        status["members"]
            .as_array()?
            .iter()
            .filter(|member| member["voter"] == true)
            .count(),
    )
}

async fn remove(cluster: &Cluster, leader: usize, raft_id: u64) {
    use wire::proto::haltgate::admin::v1 as admin;
    let channel = cluster.pool_of(leader, "admin").channel();
    let request = admin::ClusterRemoveRequest {
        request_id: client::request_id(),
        raft_id,
        justification: "it leaves".to_owned(),
        force: false,
    };
    admin::cluster_client::ClusterClient::new(channel)
        .remove(request)
        .await
        .expect("removed");
}

/// Two machines with one node's certificate: the second is told no, and the first goes on.
#[test]
fn a_second_node_of_the_same_name_does_not_push_the_first_out() {
    let cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "5.00");
    let leader = cluster.leader();
    let twin = (leader + 1) % 3;
    let before = cluster.status(twin, false).unwrap()["raft_id"].clone();
    let text = std::fs::read_to_string(cluster.config(twin)).unwrap();
    let (own, members) = text.split_once("[[cluster.members]]").unwrap();
    let own: String = own
        .lines()
        .map(|line| match line.split_once(" = ") {
            Some(("data_dir", _)) => "data_dir = \"data-twin\"\n".to_owned(),
            Some((key @ ("grpc" | "peer" | "http"), _)) => format!("{key} = \"127.0.0.1:0\"\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let path = cluster.dir().join("twin.toml");
    std::fs::write(&path, format!("{own}[[cluster.members]]{members}")).unwrap();
    let mut second = haltgate()
        .args(["server", "--config"])
        .arg(&path)
        .spawn()
        .unwrap();
    cluster.wait_for("the refusal", || {
        cluster
            .log_tail(leader)
            .contains("two nodes have one name")
            .then_some(())
    });
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(cluster.status(twin, false).unwrap()["raft_id"], before);
    assert_eq!(voters(&cluster, leader), Some(3));
    cluster.wait_even();
}

/// A removal that would leave no quorum is refused; forced, it goes on by itself as soon as it can, whoever leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_cut_short_is_finished_by_whoever_leads() {
    for leader_dies in [false, true] {
        let mut cluster = Cluster::form(3, "");
        cluster.fund("org/acme", "5.00");
        let leader = cluster.leader();
        let (dead, removed) = ((leader + 1) % 3, (leader + 2) % 3);
        let raft_id = cluster.status(removed, false).unwrap()["raft_id"]
            .as_u64()
            .unwrap();
        cluster.kill(dead);
        let refused = remove_within(&cluster, leader, raft_id, false, Duration::from_secs(10)).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::FailedPrecondition);
        let cut_short = remove_within(&cluster, leader, raft_id, true, Duration::from_secs(2)).await;
        assert_eq!(cut_short.unwrap_err().code(), tonic::Code::Unavailable);
        if leader_dies {
            cluster.kill(leader);
            cluster.start(leader);
        }
        cluster.start(dead);
        cluster.wait_for("two voters, and nothing under way", || {
            let two = [leader, dead]
                .iter()
                .all(|node| voters(&cluster, *node) == Some(2));
            (two && cluster.leads(&[leader, dead]).is_some()).then_some(())
        });
        // What was removed is told so, and serves nothing.
        cluster.wait_for("the removed node to know", || {
            let status = cluster.status(removed, false)?;
            let why = status["not_ready"].as_array()?.first()?.as_str()?;
            why.starts_with("removed").then_some(())
        });
        cluster.fund("org/acme", "6.00");
    }
}

async fn remove_within(
    cluster: &Cluster,
    leader: usize,
    raft_id: u64,
    force: bool,
    within: Duration,
) -> Result<(), tonic::Status> {
    use wire::proto::haltgate::admin::v1 as admin;
    let mut request = tonic::Request::new(admin::ClusterRemoveRequest {
        request_id: client::request_id(),
        raft_id,
        justification: "it leaves".to_owned(),
        force,
    });
    request.set_timeout(within);
    let channel = cluster.pool_of(leader, "admin").channel();
    let mut cluster = admin::cluster_client::ClusterClient::new(channel);
    cluster.remove(request).await.map(drop)
}
