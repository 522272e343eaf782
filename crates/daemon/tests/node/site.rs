//! One node that formed its cluster by itself, and certificates for whoever calls it.

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use daemon::{Config, Running};
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::budgets_client::BudgetsClient;
use wire::proto::haltgate::admin::v1::cluster_client::ClusterClient;
use wire::proto::shackle::v1 as shackle;
use wire::proto::shackle::v1::shackle_daemon_client::ShackleDaemonClient;

pub type Anything = Box<dyn Error + Send + Sync>;

/// A certificate and its key, PEM.
pub struct Pair {
    pub cert: String,
    pub key: String,
}

/// An authority.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Result<Self, Anything> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            pem,
            issuer: Issuer::new(params, key),
        })
    }

    pub fn issue(&self, path: &str) -> Result<Pair, Anything> {
        self.issue_until(path, 2100)
    }

    pub fn issue_until(&self, path: &str, year: i32) -> Result<Pair, Anything> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        let uri = format!("spiffe://haltgate/{path}");
        params
            .subject_alt_names
            .push(SanType::URI(Ia5String::try_from(uri)?));
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair {
            cert,
            key: key.serialize_pem(),
        })
    }
}

pub struct Site {
    pub dir: PathBuf,
    pub authority: Authority,
    pub node: Option<Running>,
}

static SITES: AtomicU32 = AtomicU32::new(0);

impl Site {
    /// Starts a node with further settings, and waits until it decides.
    pub async fn start(settings: &str) -> Result<Self, Anything> {
        let number = SITES.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("haltgate-node-{}-{number}", std::process::id()));
        let _absent = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let authority = Authority::new()?;
        fs::write(dir.join("ca.pem"), &authority.pem)?;
        write_pair(&dir, &authority.issue("node/1")?)?;
        let any = "127.0.0.1:0";
        let text = format!(
            "[node]\nid = 1\ndata_dir = \"data\"\n[listen]\ngrpc = \"{any}\"\npeer = \"{any}\"\nhttp = \"{any}\"\n\
             [tls]\nca = \"ca.pem\"\ncert = \"node.pem\"\nkey = \"node.key\"\n\
             [cluster]\nbootstrap = true\nmembers = [{{ id = 1, peer = \"{any}\", grpc = \"{any}\" }}]\n\
             [timing]\nheartbeat_ms = 50\nelection_min_ms = 200\nelection_max_ms = 250\n\
             [log]\nlevel = \"off\"\n{settings}"
        );
        let file = dir.join("node.toml");
        fs::write(&file, text)?;
        let node = Running::start(Config::load(&file)?).await?;
        let until = Instant::now() + Duration::from_secs(20);
        while !node.obstacles().is_empty() {
            if Instant::now() > until {
                return Err(format!("not ready: {:?}", node.obstacles()).into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self {
            dir,
            authority,
            node: Some(node),
        })
    }

    pub fn port(&self) -> u16 {
        self.node.as_ref().map_or(0, |node| node.addresses().grpc.port())
    }

    /// Connects as somebody of this site's authority.
    pub async fn connect(&self, path: &str) -> Result<Channel, Anything> {
        self.connect_with(Some(&self.authority.issue(path)?)).await
    }

    pub async fn connect_with(&self, pair: Option<&Pair>) -> Result<Channel, Anything> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.authority.pem))
            .domain_name("localhost");
        if let Some(Pair { cert, key }) = pair {
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", self.port()))?;
        Ok(endpoint.tls_config(tls)?.connect().await?)
    }

    pub async fn agent(&self) -> Result<ShackleDaemonClient<Channel>, Anything> {
        Ok(ShackleDaemonClient::new(
            self.connect("org/acme/agent/bot-1").await?,
        ))
    }

    /// Opens a session in an organization that has 5 dollars.
    pub async fn session(&self, agent: &mut ShackleDaemonClient<Channel>) -> Result<String, Anything> {
        let mut budgets = BudgetsClient::new(self.connect("cluster/admin/root").await?);
        budgets
            .set(admin::BudgetsSetRequest {
                request_id: "budget".to_owned(),
                scope: "org/acme".to_owned(),
                limit: Some(admin::budgets_set_request::Limit::AmountNanos(5_000_000_000)),
                justification: String::new(),
            })
            .await?;
        let register = shackle::RegisterRequest {
            agent_id: "bot-1".to_owned(),
            ..Default::default()
        };
        Ok(agent.register(register).await?.into_inner().session_id)
    }

    /// The hash of all rows, once nothing moves any more.
    pub async fn state_hash(&self) -> Result<Vec<u8>, Anything> {
        let mut cluster = ClusterClient::new(self.connect("cluster/auditor/ayo").await?);
        let mut last = Vec::new();
        for _ in 0..100 {
            let status = cluster
                .status(admin::ClusterStatusRequest {
                    with_state_hash: true,
                })
                .await?
                .into_inner();
            if status.state_hash == last {
                return Ok(last);
            }
            last = status.state_hash;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Err("the state does not come to rest".into())
    }

    pub fn http(&self, path: &str) -> Result<String, Anything> {
        let address = self
            .node
            .as_ref()
            .map(|node| node.addresses().http)
            .ok_or("stopped")?;
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    pub async fn stop(mut self) {
        if let Some(node) = self.node.take() {
            node.stop().await;
        }
        let _left = fs::remove_dir_all(&self.dir);
    }
}

pub fn write_pair(dir: &Path, pair: &Pair) -> Result<(), Anything> {
    fs::write(dir.join("node.pem"), &pair.cert)?;
    fs::write(dir.join("node.key"), &pair.key)?;
    Ok(())
}

pub fn call(session_id: &str, number: u64) -> shackle::PreExecRequest {
    shackle::PreExecRequest {
        session_id: session_id.to_owned(),
        call_number: number,
        nonce: number,
        tool_name: "tool".to_owned(),
        params_json: format!("{{\"n\":{number}}}").into_bytes(),
        estimated_cost_usd: 0.25,
        ..Default::default()
    }
}
