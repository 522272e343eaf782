//! Who floods, forges or mixes up: told no, and nobody else is kept out.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what goes wrong in a test's helper fails the test"
)]

use std::net::TcpStream;

use chaos::cluster::{Cluster, haltgate};
use client::Credentials;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use wire::proto::haltgate::peer::v1 as peer;
use wire::proto::haltgate::peer::v1::peer_client::PeerClient;
use wire::proto::shackle::v1 as sp;
use wire::proto::shackle::v1::shackle_daemon_client::ShackleDaemonClient;

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_connections_keep_no_operator_out() {
    let cluster = Cluster::form(3, "[limits]\nconnections = 40\n");
    cluster.fund("org/acme", "5.00");
    // More agents' connections than a port has places, each held open.
    let mut held = Vec::new();
    for number in 0..60 {
        let pool = cluster.pool_of(number % 3, "agent");
        let mut client = ShackleDaemonClient::new(pool.channel());
        let probe = sp::GetSessionStateRequest {
            session_id: "ses_none".to_owned(),
            allow_stale: true,
        };
        // Some are turned away: that is the point.
        let _turned_away = client.get_session_state(probe).await;
        held.push((pool, client));
    }
    // And connections that never say anything, on every port.
    let mut silent = Vec::new();
    for node in 0..3 {
        for address in [cluster.http(node), cluster.endpoint(node)] {
            for _ in 0..150 {
                if let Ok(stream) = TcpStream::connect(&address) {
                    silent.push(stream);
                }
            }
        }
    }
    for node in 0..3 {
        let engaged = cluster.cli_of(
            node,
            "operator",
            &[
                "kill",
                "engage",
                "org/acme",
                "--reason",
                "flood",
                "--timeout",
                "5s",
            ],
        );
        assert!(
            engaged.status.success(),
            "node {}: {}",
            node + 1,
            String::from_utf8_lossy(&engaged.stderr)
        );
    }
    drop((held, silent));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_certificate_that_is_no_members_forwards_nothing() {
    let cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "5.00");
    cluster.json("operator", &["kill", "engage", "org/acme", "--reason", "test"]);
    let dir = cluster.dir();
    let issued = haltgate()
        .args(["pki", "issue", "--dir"])
        .arg(dir)
        .args(["node/9", "--host", "127.0.0.1", "--name", "stranger"])
        .output()
        .unwrap();
    assert!(
        issued.status.success(),
        "{}",
        String::from_utf8_lossy(&issued.stderr)
    );
    let stranger = Credentials {
        ca: dir.join("ca.crt"),
        cert: dir.join("stranger.crt"),
        key: dir.join("stranger.key"),
    };
    let release = machine::Command::Release(machine::command::Release {
        by: machine::command::Principal {
            name: "cluster/admin/root".to_owned(),
            organization: None,
            agents: Vec::new(),
        },
        scope: "org/acme".parse().unwrap(),
        justification: "forged".to_owned(),
        request: machine::command::Request {
            id: decision::RequestId::parse("forged").unwrap(),
            payload: decision::Digest::of(b"forged"),
        },
        ticket: String::new(),
    });
    for node in 0..3 {
        let mut client = PeerClient::new(channel(&cluster.peer(node), &stranger));
        let hello = peer::HelloRequest {
            sender: Some(peer::Sender {
                node: "9".to_owned(),
                ..peer::Sender::default()
            }),
            ..peer::HelloRequest::default()
        };
        let hello = client
            .hello(hello)
            .await
            .expect("anyone of the authority may say hello")
            .into_inner();
        for raft_id in [hello.raft_id, hello.leader_id, 1] {
            let request = peer::ForwardRequest {
                sender: Some(peer::Sender {
                    cluster_id: hello.cluster_id.clone(),
                    raft_id,
                    node: "9".to_owned(),
                    to_raft_id: 0,
                }),
                command: machine::row::bytes(&release).into(),
                deadline_ms: 2_000,
                urgent: true,
            };
            let status = client.forward(request).await.expect_err("a stranger's command");
            assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
        }
        refuses_raft_messages(&mut client, &hello).await;
        // Nor does it take a member's place with a made-up id.
        let join = peer::JoinRequest {
            sender: Some(peer::Sender {
                raft_id: 1,
                node: "9".to_owned(),
                ..peer::Sender::default()
            }),
            peer_addr: "127.0.0.1:1".to_owned(),
            ..peer::JoinRequest::default()
        };
        let joined = client.join(join).await;
        assert!(joined.is_err() || !joined.unwrap().into_inner().leader_node.is_empty());
    }
    let halts = cluster.json("operator", &["kill", "list"]);
    assert_eq!(halts.as_array().unwrap().len(), 1, "{halts}");
}

/// Raft's own messages from a node that is no member, under its own id and under others'.
async fn refuses_raft_messages(client: &mut PeerClient<Channel>, hello: &peer::HelloResponse) {
    for raft_id in [9, hello.raft_id, hello.leader_id] {
        let sender = Some(peer::Sender {
            cluster_id: hello.cluster_id.clone(),
            raft_id,
            node: "9".to_owned(),
            to_raft_id: hello.raft_id,
        });
        let append = peer::AppendEntriesRequest {
            sender: sender.clone(),
            ..peer::AppendEntriesRequest::default()
        };
        let vote = peer::VoteRequest {
            sender: sender.clone(),
            ..peer::VoteRequest::default()
        };
        let transfer = peer::TransferLeaderRequest {
            sender: sender.clone(),
            ..peer::TransferLeaderRequest::default()
        };
        let snapshot = peer::InstallSnapshotRequest {
            sender,
            ..peer::InstallSnapshotRequest::default()
        };
        let refusals = [
            client.append_entries(append).await.map(drop),
            client.vote(vote).await.map(drop),
            client.transfer_leader(transfer).await.map(drop),
            client
                .install_snapshot(futures::stream::iter([snapshot]))
                .await
                .map(drop),
        ];
        for refused in refusals {
            let status = refused.expect_err("a stranger's message");
            assert_eq!(status.code(), Code::PermissionDenied, "{raft_id}: {status:?}");
        }
    }
}

/// A node that does not lead says so: a command makes one hop.
#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_command_goes_no_further() {
    let cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "5.00");
    let leader = cluster.leader();
    let (member, follower) = ((leader + 1) % 3, (leader + 2) % 3);
    let raft_id = |node| cluster.status(node, false).unwrap()["raft_id"].as_u64().unwrap();
    let request = peer::ForwardRequest {
        sender: Some(peer::Sender {
            cluster_id: cluster.status(leader, false).unwrap()["cluster_id"]
                .as_str()
                .unwrap()
                .to_owned(),
            raft_id: raft_id(member),
            node: (member + 1).to_string(),
            to_raft_id: raft_id(follower),
        }),
        command: machine::row::bytes(&machine::Command::Due).into(),
        deadline_ms: 2_000,
        urgent: false,
    };
    let dir = cluster.dir();
    let certificate = Credentials {
        ca: dir.join("ca.crt"),
        cert: dir.join(format!("node-{}.crt", member + 1)),
        key: dir.join(format!("node-{}.key", member + 1)),
    };
    let mut client = PeerClient::new(channel(&cluster.peer(follower), &certificate));
    let answer = client.forward(request).await.unwrap().into_inner();
    match answer.outcome {
        Some(peer::forward_response::Outcome::Unavailable(why)) => {
            assert_eq!(why, i32::from(peer::Unavailable::NotLeader));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_of_another_node_or_with_pieces_missing_is_refused() {
    let mut cluster = Cluster::form(3, "");
    cluster.fund("org/acme", "5.00");
    cluster.wait_quiet();
    let leader = cluster.leader();
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.kill(one);
    cluster.kill(other);
    let data = |node: usize| cluster.dir().join(format!("data-{}", node + 1));
    let (own, aside) = (data(one), cluster.dir().join("aside"));
    std::fs::rename(&own, &aside).unwrap();
    std::fs::rename(data(other), &own).unwrap();
    refused(&cluster, one, "this data directory is node");
    std::fs::rename(&own, data(other)).unwrap();
    std::fs::rename(&aside, &own).unwrap();

    // The log's newest file is gone, the state that was applied from it is not.
    for entry in std::fs::read_dir(own.join("log")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            std::fs::remove_file(path).unwrap();
        }
    }
    refused(&cluster, one, "damaged");
    cluster.start(other);
    cluster.leader();
    // Wiped, it comes back as a new node.
    cluster.wipe(one);
    cluster.start(one);
    cluster.wait_for("it votes again", || {
        let status = cluster.status(one, false)?;
        let members = status["members"].as_array()?;
        members
            .iter()
            .any(|member| member["raft_id"] == status["raft_id"] && member["voter"] == true)
            .then_some(())
    });
    cluster.wait_even();
}

fn refused(cluster: &Cluster, node: usize, why: &str) {
    let ran = haltgate()
        .args(["server", "--config"])
        .arg(cluster.config(node))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && said.contains(why), "{said}");
}

fn channel(address: &str, credentials: &Credentials) -> Channel {
    let read = |path: &std::path::Path| std::fs::read(path).unwrap();
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(&credentials.ca)))
        .identity(Identity::from_pem(
            read(&credentials.cert),
            read(&credentials.key),
        ));
    Endpoint::from_shared(format!("https://{address}"))
        .unwrap()
        .tls_config(tls)
        .unwrap()
        .connect_lazy()
}
