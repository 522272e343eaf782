//! `haltgate local-cluster`: configurations, an authority, node certificates and credentials for a cluster on
//! this machine. It starts nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::args::{LocalCluster, Output};
use crate::command::pki::{Authority, Files, Wanted};
use crate::failed::{Failed, file};

/// Ports between one node's and the next one's.
const PORT_STEP: u16 = 10;
const LOOPBACK: &str = "127.0.0.1";
const DAYS: i64 = 365;

/// Where a cluster's files are.
#[derive(Debug, Clone)]
pub struct Layout {
    pub nodes: Vec<Node>,
    pub ca: PathBuf,
    pub clients: BTreeMap<&'static str, Client>,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub id: u16,
    pub config: PathBuf,
    pub grpc: String,
    pub peer: String,
    pub http: String,
}

#[derive(Debug, Clone)]
pub struct Client {
    pub files: Files,
    pub org: Option<&'static str>,
    pub agent: Option<&'static str>,
}

/// One node's ports.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    pub grpc: u16,
    pub peer: u16,
    pub http: u16,
}

pub fn run(args: &LocalCluster, output: Output) -> Result<(), Failed> {
    let ports: Option<Vec<Ports>> = (0..args.nodes)
        .map(|node| {
            let grpc = args.base_port.checked_add(node.checked_mul(PORT_STEP)?)?;
            Some(Ports {
                grpc,
                peer: grpc.checked_add(1)?,
                http: grpc.checked_add(2)?,
            })
        })
        .collect();
    let ports = ports.ok_or_else(|| Failed::usage("--base-port is too high for that many nodes"))?;
    let layout = write(&args.dir, &ports, "")?;
    match output {
        Output::Json => crate::print::outln!("{}", layout.to_json()),
        Output::Table => {
            for node in &layout.nodes {
                crate::print::outln!("haltgate server --config {} &", node.config.display());
            }
            if let Some(first) = layout.nodes.first() {
                crate::print::outln!("haltgate init --config {}", first.config.display());
            }
            crate::print::outln!(
                ". {}    # who you are: a cluster-wide admin",
                args.dir.join("env").display()
            );
        }
    }
    Ok(())
}

/// Writes everything into a directory; `settings` are further lines of every node's configuration.
pub fn write(dir: &Path, ports: &[Ports], settings: &str) -> Result<Layout, Failed> {
    std::fs::create_dir_all(dir.join("clients")).map_err(file(dir))?;
    let dir = &dir.canonicalize().map_err(file(dir))?;
    let authority = Authority::create(dir)?;
    let hosts = [LOOPBACK.to_owned(), "localhost".to_owned()];
    let mut nodes = Vec::new();
    for (id, ports) in (1_u16..).zip(ports) {
        let name = format!("node-{id}");
        let identity = format!("node/{id}");
        authority.issue(
            &Wanted {
                identity: &identity,
                agents: &[],
                hosts: &hosts,
                days: DAYS,
            },
            &dir.join(&name),
        )?;
        nodes.push(Node {
            id,
            config: dir.join(format!("{name}.toml")),
            grpc: format!("{LOOPBACK}:{}", ports.grpc),
            peer: format!("{LOOPBACK}:{}", ports.peer),
            http: format!("{LOOPBACK}:{}", ports.http),
        });
    }
    for node in &nodes {
        std::fs::write(&node.config, configuration(node, &nodes, settings)).map_err(file(&node.config))?;
    }
    let clients = clients(&authority, &dir.join("clients"))?;
    let layout = Layout {
        nodes,
        ca: authority.cert_path(),
        clients,
    };
    let environment = dir.join("env");
    std::fs::write(&environment, layout.environment()).map_err(file(&environment))?;
    Ok(layout)
}

fn configuration(node: &Node, nodes: &[Node], settings: &str) -> String {
    let Node {
        id, grpc, peer, http, ..
    } = node;
    let mut text = format!(
        "# One node of a cluster on this machine. docs/CONFIG.md describes every key.\n\n\
         [node]\nid = {id}\ndata_dir = \"data-{id}\"\n\n\
         [listen]\ngrpc = \"{grpc}\"\npeer = \"{peer}\"\nhttp = \"{http}\"\n\n\
         [tls]\nca = \"ca.crt\"\ncert = \"node-{id}.crt\"\nkey = \"node-{id}.key\"\n"
    );
    for Node {
        id, grpc, peer, http, ..
    } in nodes
    {
        // Writing into a string cannot fail.
        let _written = write!(
            text,
            "\n[[cluster.members]]\nid = {id}\ngrpc = \"{grpc}\"\npeer = \"{peer}\"\nhttp = \"{http}\"\n"
        );
    }
    text.push_str(settings);
    text
}

/// Someone for every role.
fn clients(authority: &Authority, dir: &Path) -> Result<BTreeMap<&'static str, Client>, Failed> {
    let bench_agents = ["agt-*".to_owned()];
    let mut clients = BTreeMap::new();
    let mut issue = |name: &'static str, identity: &str, org, agent| {
        let agents: &[String] = if name == "sidecar" { &bench_agents } else { &[] };
        let wanted = Wanted {
            identity,
            agents,
            hosts: &[],
            days: DAYS,
        };
        let files = authority.issue(&wanted, &dir.join(name))?;
        clients.insert(name, Client { files, org, agent });
        Ok::<(), Failed>(())
    };
    issue("agent", "org/acme/agent/bot-1", Some("acme"), Some("bot-1"))?;
    issue("agent2", "org/acme/agent/bot-2", Some("acme"), Some("bot-2"))?;
    issue("other", "org/globex/agent/bot-1", Some("globex"), Some("bot-1"))?;
    issue("operator", "org/acme/operator/olga", Some("acme"), None)?;
    issue("approver", "org/acme/approver/ada", Some("acme"), None)?;
    issue("auditor", "org/acme/auditor/aki", Some("acme"), None)?;
    issue("cluster_operator", "cluster/operator/omar", None, None)?;
    issue("cluster_auditor", "cluster/auditor/ayo", None, None)?;
    issue("admin", "cluster/admin/root", None, None)?;
    issue("sidecar", "org/org-0001/sidecar/bench", Some("org-0001"), None)?;
    Ok(clients)
}

impl Layout {
    fn to_json(&self) -> Value {
        let nodes: Vec<Value> = self
            .nodes
            .iter()
            .map(|node| {
                json!({
                    "id": node.id, "config": node.config, "grpc": node.grpc, "peer": node.peer, "http": node.http,
                })
            })
            .collect();
        let clients: serde_json::Map<String, Value> = self
            .clients
            .iter()
            .map(|(name, client)| {
                let mut value = json!({ "cert": client.files.cert, "key": client.files.key });
                if let Some(value) = value.as_object_mut() {
                    for (key, text) in [("org", client.org), ("agent", client.agent)] {
                        if let Some(text) = text {
                            value.insert(key.to_owned(), json!(text));
                        }
                    }
                }
                ((*name).to_owned(), value)
            })
            .collect();
        json!({ "nodes": nodes, "ca": self.ca, "clients": clients })
    }

    /// The addresses where clients reach the nodes.
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.grpc.clone()).collect()
    }

    /// What a client shows, by its name in the layout.
    pub fn credentials(&self, name: &str) -> Result<client::Credentials, Failed> {
        let client = self
            .clients
            .get(name)
            .ok_or_else(|| Failed::refused(format!("no client {name}")))?;
        Ok(client::Credentials {
            ca: self.ca.clone(),
            cert: client.files.cert.clone(),
            key: client.files.key.clone(),
        })
    }

    fn environment(&self) -> String {
        let mut text = format!(
            "export HALTGATE_ENDPOINTS='{}'\nexport HALTGATE_CA='{}'\n",
            self.endpoints().join(","),
            self.ca.display()
        );
        if let Some(admin) = self.clients.get("admin") {
            let _written = write!(
                text,
                "export HALTGATE_CERT='{}'\nexport HALTGATE_KEY='{}'\n",
                admin.files.cert.display(),
                admin.files.key.display()
            );
        }
        text
    }
}
