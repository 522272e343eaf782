//! What a node must not survive, and what it must.

use std::process::{Command, Stdio};
use std::time::Duration;

use chaos::cluster::{Cluster, haltgate};
use client::Registration;

/// A sync that failed: what is in memory cannot be trusted any more. The process ends, and nothing answers
/// beside a Raft that has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_sync_fails_ends_and_the_others_go_on() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "5.00");
    for node in [cluster.leader(), (cluster.leader() + 1) % 3] {
        let mut strace = Command::new("strace")
            .args([
                "-f",
                "-q",
                "-e",
                "trace=fdatasync,fsync",
                "-e",
                "inject=fdatasync,fsync:error=EIO:when=1+",
            ])
            .args(["-p", &cluster.pid(node).to_string(), "-o"])
            .arg(cluster.dir().join("strace-eio"))
            .stderr(Stdio::null())
            .spawn()
            .expect("strace is installed (`make setup`)");
        // Something to sync: whatever is decided, or an election.
        let client = cluster.client("agent").deadline(Duration::from_secs(20));
        let registration = Registration {
            organization: "acme".to_owned(),
            agent: "bot-1".to_owned(),
            ..Registration::default()
        };
        cluster.wait_for("the end of the node", || {
            cluster.ended(node).then_some(()).or_else(|| {
                cluster.cli(
                    "admin",
                    &["budget", "grant", "org/acme", "0.01", "--timeout", "2s"],
                );
                None
            })
        });
        strace.wait().expect("strace ends with its process");
        assert!(
            !cluster.exit_status(node).expect("its end").success(),
            "{}",
            cluster.log_tail(node)
        );
        client.register(&registration).await.expect("the others go on");
        cluster.start(node);
        cluster.wait_for("it serves again", || cluster.status(node, false));
    }
    cluster.wait_even();
}

#[test]
fn a_data_directory_is_used_by_one_process_and_by_its_own_node() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "5.00");
    cluster.wait_even();
    let second = haltgate()
        .args(["server", "--config"])
        .arg(cluster.config(0))
        .output()
        .expect("haltgate runs");
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("is in use by process"), "{said}");

    // A volume of another cluster under a running cluster's node: it is refused by its peers, and serves nobody.
    let mut other = Cluster::form(1, "");
    other.fund("org/globex", "1.00");
    other.kill(0);
    cluster.kill(0);
    let (own, foreign) = (cluster.dir().join("data-1"), other.dir().join("data-1"));
    std::fs::remove_dir_all(&own).expect("its data");
    std::fs::rename(foreign, &own).expect("another's data");
    cluster.start(0);
    let status = cluster.wait_for("its status", || cluster.status(0, false));
    let others = cluster.wait_for("the others' status", || cluster.status(1, false));
    assert_ne!(status["cluster_id"], others["cluster_id"]);
    cluster.wait_for("a leader of the other two", || {
        (1..3).find(|node| {
            cluster
                .status(*node, false)
                .is_some_and(|status| status["role"] == "leader")
        })
    });
    let shown = cluster.cli_of(1, "admin", &["budget", "show", "org/acme", "--output", "json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(
        shown["limit"], "5.00",
        "the cluster of the other two is unchanged"
    );
}
