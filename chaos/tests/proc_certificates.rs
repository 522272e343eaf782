//! Certificates change under a running node: new handshakes use the new pair, a bad one is ignored, no call fails.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use chaos::cluster::{Cluster, haltgate};
use chaos::load::{Load, Pace};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pair_is_used_within_ten_seconds_and_a_bad_one_never() {
    let cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "1000.00");
    let pace = Pace {
        agents: 4,
        pause: Duration::from_millis(20),
        cost_nanos: 1,
        repeat: false,
        settle: false,
    };
    let load = Load::start(&cluster, pace);
    let dir = cluster.dir();
    let before = shown(&cluster, 0);

    issue(dir, "renewed");
    std::fs::rename(dir.join("renewed.key"), dir.join("node-1.key")).unwrap();
    std::fs::rename(dir.join("renewed.crt"), dir.join("node-1.crt")).unwrap();
    let renewed = cluster.wait_for("the new certificate", || {
        Some(shown(&cluster, 0)).filter(|now| *now != before)
    });

    // Half of a pair, then no certificate at all: the last good one stays.
    issue(dir, "half");
    std::fs::rename(dir.join("half.crt"), dir.join("node-1.crt")).unwrap();
    let noticed = || cluster.metric(0, "haltgate_certificate_reloads_total{outcome=\"ignored\"}");
    cluster.wait_for("a refused pair", || noticed().filter(|failures| *failures >= 1.0));
    std::fs::write(dir.join("node-1.crt"), "not a certificate").unwrap();
    cluster.wait_for("another refused pair", || {
        noticed().filter(|failures| *failures >= 2.0)
    });
    assert_eq!(shown(&cluster, 0), renewed);

    let asked = load.stop().await;
    assert!(asked.len() > 100);
    assert!(
        asked.iter().rev().skip(4).all(|call| call.answers.len() == 1),
        "no call failed"
    );
}

fn issue(dir: &Path, name: &str) {
    let issued = haltgate()
        .args(["pki", "issue", "--dir"])
        .arg(dir)
        .args(["node/1", "--host", "127.0.0.1", "--name", name])
        .output()
        .unwrap();
    assert!(
        issued.status.success(),
        "{}",
        String::from_utf8_lossy(&issued.stderr)
    );
}

/// The certificate that a node shows in a new handshake.
fn shown(cluster: &Cluster, node: usize) -> String {
    let agent = cluster.credentials("agent");
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &cluster.endpoint(node), "-showcerts"])
        .arg("-cert")
        .arg(agent.cert)
        .arg("-key")
        .arg(agent.key)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let from = text.find("-----BEGIN CERTIFICATE").expect("a certificate");
    let to = text.find("-----END CERTIFICATE").expect("its end");
    text[from..to].to_owned()
}
