//! A cluster of processes on this machine: written, started, formed, looked at and ended in one way.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Pool, request_id};
use wire::proto::haltgate::admin::v1 as admin;

use crate::args::OfNode;
use crate::command::cluster::form;
use crate::command::local_cluster::{self, Layout, Ports};
use crate::failed::Failed;
use crate::remote::Remote;

/// How long the nodes may take to start, to elect a leader, and to catch up.
pub const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Lines of a node's log that are shown where something went wrong.
const LOG_LINES: usize = 20;

/// The processes, in a directory of their own. Dropping it ends them and removes the directory.
#[derive(Debug)]
pub struct Running {
    pub dir: PathBuf,
    pub layout: Layout,
    nodes: Vec<Option<Child>>,
}

impl Running {
    /// Writes the files of a cluster; `settings` are further lines of every node's configuration. Nothing runs yet.
    pub fn prepare(name: &str, nodes: usize, settings: &str) -> Result<Self, Failed> {
        let dir = std::env::temp_dir().join(format!("haltgate-{name}-{}", request_id()));
        let layout = local_cluster::write(&dir, &free_ports(nodes)?, settings)?;
        let nodes = layout.nodes.iter().map(|_| None).collect();
        Ok(Self { dir, layout, nodes })
    }

    pub fn places(&self) -> std::ops::Range<usize> {
        0..self.nodes.len()
    }

    /// Starts one node, and waits until it listens.
    pub fn spawn(&mut self, place: usize) -> Result<(), Failed> {
        let failed = |error: std::io::Error| Failed::refused(format!("node {}: {error}", place + 1));
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log(place))
            .map_err(failed)?;
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("server")
            .arg("--config")
            .arg(&self.node(place)?.config)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
        }
        if line.trim() != "ready" {
            let _ended = child.kill();
            let _reaped = child.wait();
            return Err(Failed::refused(format!("node {} did not start", place + 1)));
        }
        if let Some(slot) = self.nodes.get_mut(place) {
            *slot = Some(child);
        }
        Ok(())
    }

    /// Forms the cluster of the nodes that run.
    pub async fn form(&self) -> Result<(), Failed> {
        let config = self.node(0)?.config.clone();
        form(&OfNode {
            config,
            timeout: PATIENCE,
        })
        .await
        .map(drop)
    }

    /// SIGKILL.
    pub fn kill(&mut self, place: usize) -> Result<(), Failed> {
        let Some(mut child) = self.nodes.get_mut(place).and_then(Option::take) else {
            return Ok(());
        };
        child
            .kill()
            .and_then(|()| child.wait())
            .map_err(|error| Failed::refused(error.to_string()))?;
        Ok(())
    }

    /// The whole cluster, asked by a client of the layout.
    pub fn remote(&self, client: &str) -> Result<Remote, Failed> {
        Ok(Remote {
            pool: Pool::open(&self.layout.endpoints(), &self.layout.credentials(client)?)?,
            timeout: PATIENCE,
        })
    }

    pub fn node(&self, place: usize) -> Result<&local_cluster::Node, Failed> {
        let node = self.layout.nodes.get(place);
        node.ok_or_else(|| Failed::refused(format!("there is no node {}", place + 1)))
    }

    /// The place of the node that leads.
    pub async fn leader(&self) -> Result<usize, Failed> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            for place in self.places() {
                if self.nodes.get(place).is_some_and(Option::is_some)
                    && let Ok(status) = self.status(place).await
                    && status.role() == admin::NodeRole::Leader
                {
                    return Ok(place);
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(Failed::refused("no node leads"))
    }

    /// Waits until every node has applied what the leader has.
    pub async fn all_even(&self) -> Result<(), Failed> {
        let wanted = self.status(self.leader().await?).await?.applied_index;
        let deadline = Instant::now() + PATIENCE;
        for place in self.places() {
            while self.status(place).await.map_or(0, |status| status.applied_index) < wanted {
                if Instant::now() > deadline {
                    return Err(Failed::refused(format!("node {} does not catch up", place + 1)));
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        Ok(())
    }

    async fn status(&self, place: usize) -> Result<admin::ClusterStatusResponse, Failed> {
        let endpoint = self.node(place)?.grpc.clone();
        let pool = Pool::open(&[endpoint], &self.layout.credentials("admin")?)?;
        let request = admin::ClusterStatusRequest::default();
        Ok(pool.call(&request, Duration::from_secs(2)).await?)
    }

    fn log(&self, place: usize) -> PathBuf {
        self.dir.join(format!("node-{}.log", place + 1))
    }

    /// Prints the end of what each node logged.
    pub fn print_logs(&self) {
        for place in self.places() {
            let text = std::fs::read_to_string(self.log(place)).unwrap_or_default();
            eprintln!("--- node {} ---", place + 1);
            let lines: Vec<&str> = text.lines().collect();
            for line in lines.iter().skip(lines.len().saturating_sub(LOG_LINES)) {
                eprintln!("{line}");
            }
        }
    }
}

/// Ends what was started here, and nothing else.
impl Drop for Running {
    fn drop(&mut self) {
        for mut child in self.nodes.iter_mut().filter_map(Option::take) {
            let _ended = child.kill();
            let _reaped = child.wait();
        }
        let _removed = std::fs::remove_dir_all(&self.dir);
    }
}

/// Ports that are free now, three a node.
fn free_ports(nodes: usize) -> Result<Vec<Ports>, Failed> {
    let mut held = Vec::new();
    let mut port = || -> std::io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        held.push(listener);
        Ok(port)
    };
    let mut three = || {
        Ok(Ports {
            grpc: port()?,
            peer: port()?,
            http: port()?,
        })
    };
    (0..nodes)
        .map(|_| three().map_err(|error: std::io::Error| Failed::refused(format!("no free port: {error}"))))
        .collect()
}
