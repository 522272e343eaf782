//! TLS 1.3 with certificates on both sides, re-read when their files change.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster::{Connecting, Connector, Io};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    version,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use store::Member;
use tokio::net::TcpStream;
use tokio::sync::watch;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::config::TlsSection;
use crate::identity::Identity;
use crate::metrics::Metrics;

/// How often the files are looked at: a fifth of the 10 s within which new handshakes use a new pair.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a connection to a peer may take, handshake included.
const CONNECT: Duration = Duration::from_secs(3);
const ALPN: &[u8] = b"h2";

/// The node's certificate and the authorities it trusts: the last good ones.
#[derive(Debug)]
pub struct Tls {
    section: TlsSection,
    node_id: u32,
    current: watch::Sender<Arc<Material>>,
}

/// What one reading of the files gave.
struct Material {
    server: Arc<ServerConfig>,
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// End of the certificate's validity, seconds since the epoch.
    not_after: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: {message}", .path.display())]
    Malformed { path: PathBuf, message: String },
    #[error("{}: the certificate is {found}, this node needs spiffe://{trust_domain}/node/{node_id}", .path.display())]
    OtherNode {
        path: PathBuf,
        found: String,
        trust_domain: String,
        node_id: u32,
    },
}

impl Tls {
    /// Reads the files; the certificate must be this node's.
    ///
    /// # Errors
    /// A file that is missing or malformed, a key of another certificate, a certificate of somebody else.
    pub fn load(section: &TlsSection, node_id: u32) -> Result<Self, TlsError> {
        let material = Material::read(section, node_id)?;
        Ok(Self {
            section: section.clone(),
            node_id,
            current: watch::Sender::new(Arc::new(material)),
        })
    }

    pub fn trust_domain(&self) -> &str {
        &self.section.trust_domain
    }

    /// What a new handshake of a caller uses.
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.borrow().server)
    }

    /// End of the certificate's validity, seconds since the epoch.
    pub fn not_after(&self) -> i64 {
        self.current.borrow().not_after
    }

    /// Looks at the files every two seconds, without end. A pair that cannot be used is left alone.
    pub async fn keep_current(&self, metrics: &Metrics) {
        let mut read = fingerprint(&self.section);
        let mut complained = String::new();
        loop {
            metrics.certificate_expiry_seconds.set(self.not_after());
            tokio::time::sleep(LOOK_EVERY).await;
            let now = fingerprint(&self.section);
            if now == read {
                continue;
            }
            match Material::read(&self.section, self.node_id) {
                Ok(material) => {
                    self.current.send_replace(Arc::new(material));
                    metrics
                        .certificate_reloads_total
                        .with_label_values(&["used"])
                        .inc();
                    tracing::info!("certificates were read again");
                    read = now;
                    complained.clear();
                }
                // Looked at again in two seconds: it may be half-written.
                Err(error) => {
                    metrics
                        .certificate_reloads_total
                        .with_label_values(&["ignored"])
                        .inc();
                    let error = error.to_string();
                    if error != complained {
                        tracing::warn!(error, "new certificates cannot be used: the last good ones stay");
                        complained = error;
                    }
                }
            }
        }
    }

    /// What a connection to one peer uses: it shows this node's certificate and takes that peer's only.
    fn client(&self, peer: &str) -> Result<ClientConfig, rustls::Error> {
        let material = Arc::clone(&self.current.borrow());
        let verifier = PeerVerifier {
            roots: Arc::clone(&material.roots),
            provider: provider(),
            trust_domain: self.section.trust_domain.clone(),
            peer: peer.to_owned(),
        };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(material.chain.clone(), material.key.clone_key())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.enable_sni = false;
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

impl Material {
    fn read(section: &TlsSection, node_id: u32) -> Result<Self, TlsError> {
        let TlsSection {
            ca,
            cert,
            key: key_file,
            trust_domain,
        } = section;
        let malformed = |path: &Path| {
            let path = path.to_owned();
            move |error: &dyn std::fmt::Display| TlsError::Malformed {
                path: path.clone(),
                message: error.to_string(),
            }
        };
        let mut roots = RootCertStore::empty();
        for authority in certificates(ca)? {
            roots.add(authority).map_err(|error| malformed(ca)(&error))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(cert)?;
        let key =
            PrivateKeyDer::from_pem_slice(&bytes(key_file)?).map_err(|error| malformed(key_file)(&error))?;
        let own = chain
            .first()
            .ok_or_else(|| malformed(cert)(&"holds no certificate"))?;
        let identity =
            Identity::of_certificate(trust_domain, own).map_err(|error| malformed(cert)(&error))?;
        if identity != Identity::Node(node_id) {
            return Err(TlsError::OtherNode {
                path: cert.clone(),
                found: identity.to_string(),
                trust_domain: trust_domain.clone(),
                node_id,
            });
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
            .build()
            .map_err(|error| malformed(ca)(&error))?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| malformed(cert)(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| malformed(key_file)(&error))?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed session would outlive the certificate that opened it.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let not_after = not_after(own).ok_or_else(|| malformed(cert)(&"has no end of validity"))?;
        Ok(Self {
            server: Arc::new(server),
            roots,
            chain,
            key,
            not_after,
        })
    }
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// Reads the end of a certificate's validity, seconds since the epoch.
pub(crate) fn not_after(der: &[u8]) -> Option<i64> {
    X509Certificate::from_der(der)
        .ok()
        .map(|(_, certificate)| certificate.validity().not_after.timestamp())
}

/// Seconds since the epoch by this machine's clock, which certificates are judged by.
pub(crate) fn wall_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let malformed = |message: String| TlsError::Malformed {
        path: path.to_owned(),
        message,
    };
    let found = CertificateDer::pem_slice_iter(&bytes(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| malformed(error.to_string()))?;
    if found.is_empty() {
        return Err(malformed("holds no certificate".to_owned()));
    }
    Ok(found)
}

/// Tells one state of the files from another, links followed: Kubernetes swaps a link.
fn fingerprint(section: &TlsSection) -> [Option<FileState>; 3] {
    [&section.ca, &section.cert, &section.key].map(|path| {
        let about = fs::metadata(path).ok()?;
        Some(FileState {
            inode: (about.dev(), about.ino()),
            modified: (about.mtime(), about.mtime_nsec()),
            length: about.len(),
        })
    })
}

#[derive(Debug, PartialEq, Eq)]
struct FileState {
    inode: (u64, u64),
    modified: (i64, i64),
    length: u64,
}

/// Takes exactly one peer: a certificate of our authorities with that node's name in it.
#[derive(Debug)]
struct PeerVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    trust_domain: String,
    /// The node's id, as its member is named.
    peer: String,
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        match Identity::of_certificate(&self.trust_domain, end_entity) {
            Ok(Identity::Node(id)) if id.to_string() == self.peer => Ok(ServerCertVerified::assertion()),
            Ok(_) | Err(_) => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Opens connections to peers over TCP and TLS.
#[derive(Debug)]
pub struct TlsConnector(pub Arc<Tls>);

impl Connector for TlsConnector {
    fn connect(&self, peer: &Member) -> Connecting {
        let config = self.0.client(&peer.name);
        let address = peer.peer.clone();
        Box::pin(async move {
            let config = config.map_err(io::Error::other)?;
            // Never sent and never compared: the verifier knows the peer.
            let name = ServerName::try_from("peer").map_err(io::Error::other)?;
            let connecting = async {
                let tcp = TcpStream::connect(&address).await?;
                tcp.set_nodelay(true)?;
                tokio_rustls::TlsConnector::from(Arc::new(config))
                    .connect(name, tcp)
                    .await
            };
            match tokio::time::timeout(CONNECT, connecting).await {
                Ok(connected) => connected.map(|stream| -> Box<dyn Io> { Box::new(stream) }),
                Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
            }
        })
    }
}
