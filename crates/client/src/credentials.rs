//! What a client shows and what it trusts.

use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// The PEM files of one identity.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The authorities that the cluster's certificates must come from.
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Why no client could be made; fix the configuration.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{endpoint:?} is no address: {why}")]
    Endpoint { endpoint: String, why: String },
    #[error("no endpoint was given")]
    NoEndpoint,
}

impl Credentials {
    pub(crate) fn tls(&self) -> Result<ClientTlsConfig, OpenError> {
        Ok(ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read(&self.ca)?))
            .identity(Identity::from_pem(read(&self.cert)?, read(&self.key)?)))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(path).map_err(|source| OpenError::File {
        path: path.to_owned(),
        source,
    })
}
