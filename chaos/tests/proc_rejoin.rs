//! A follower that lost its data comes back under load by snapshot, and once more after a restart.

use std::time::Duration;

use chaos::checks;
use chaos::cluster::Cluster;
use chaos::load::{Load, Pace};

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_follower_comes_back_by_snapshot_and_serves() {
    let mut cluster = Cluster::form(3, "[raft]\nsnapshot_every = 500\nlog_kept = 200\n");
    cluster.fund("org/acme", "1000.00");
    let pace = Pace {
        agents: 8,
        pause: Duration::from_millis(5),
        cost_nanos: 1_000,
        repeat: true,
        settle: true,
    };
    let load = Load::start(&cluster, pace);
    let leader = cluster.leader();
    cluster.wait_for("a purged log", || {
        (cluster.status(leader, false)?["purged_index"].as_u64()? > 0).then_some(())
    });

    let wiped = (leader + 1) % 3;
    let before = cluster.status(wiped, false).expect("a status")["raft_id"].clone();
    cluster.wipe(wiped);
    cluster.start(wiped);
    let status = cluster.wait_for("the wiped node votes again", || {
        let status = cluster.status(wiped, false)?;
        let members = status["members"].as_array()?;
        let votes = members
            .iter()
            .any(|member| member["raft_id"] == status["raft_id"] && member["voter"] == true);
        (votes && members.len() == 3).then_some(status)
    });
    assert_ne!(status["raft_id"], before, "a new directory is a new node");
    assert!(
        status["snapshot_index"].as_u64() > Some(0),
        "it came by snapshot: {status}"
    );

    // A second start, on what it has now.
    cluster.kill(wiped);
    cluster.start(wiped);
    cluster.wait_for("it applies again", || cluster.status(wiped, false));
    let asked = load.stop().await;
    let chains = cluster.even_chains();
    checks::one_chain(&chains);
    assert!(checks::answers_stand(&asked, &chains[wiped]) > 500);
    cluster.wait_for("a leader that knows how far each member is", || {
        let status = cluster.status(cluster.leader(), false)?;
        let known = |member: &serde_json::Value| member["matched_index"] == status["last_log_index"];
        status["members"].as_array()?.iter().all(known).then_some(())
    });

    let client = cluster.client_of(wiped, "agent").deadline(Duration::from_secs(5));
    let registration = client::Registration {
        organization: "acme".to_owned(),
        agent: "bot-1".to_owned(),
        ..client::Registration::default()
    };
    client
        .register(&registration)
        .await
        .expect("the node that was wiped serves");
}
