//! `haltgate pki`: a certificate authority for development and small installations.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, string::Ia5String,
};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::args::{Output, Pki};
use crate::failed::{Failed, file};
use crate::print;

/// The trust domain of certificates made here; a configuration can name another.
pub const TRUST_DOMAIN: &str = "haltgate";
/// How long an authority made here lasts.
const AUTHORITY_DAYS: i64 = 3_650;

pub fn run(command: Pki, output: Output) -> Result<(), Failed> {
    match command {
        Pki::Init { dir } => {
            std::fs::create_dir_all(&dir).map_err(file(&dir))?;
            let authority = Authority::create(&dir)?;
            print::object(
                output,
                &json!({ "ca": authority.cert_path(), "key": dir.join("ca.key") }),
            );
        }
        Pki::Issue(issue) => {
            let authority = Authority::open(&issue.dir)?;
            let files = authority.issue(
                &Wanted {
                    identity: &issue.identity,
                    agents: &issue.agent,
                    hosts: &issue.host,
                    days: i64::from(issue.days),
                },
                &issue.dir.join(&issue.name),
            )?;
            print::object(output, &json!({ "cert": files.cert, "key": files.key }));
        }
        Pki::Inspect { cert } => inspect(&cert, output)?,
    }
    Ok(())
}

/// A certificate authority in a directory: `ca.crt`, `ca.key`.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// What a certificate shall say.
pub struct Wanted<'w> {
    /// A path below the trust domain.
    pub identity: &'w str,
    /// Agents, by name or by a prefix with `*`, that a sidecar may speak for.
    pub agents: &'w [String],
    pub hosts: &'w [String],
    pub days: i64,
}

/// The files of a certificate.
#[derive(Debug, Clone)]
pub struct Files {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority; refuses to replace one.
    pub fn create(dir: &Path) -> Result<Self, Failed> {
        let files = Files {
            cert: dir.join("ca.crt"),
            key: dir.join("ca.key"),
        };
        if files.key.exists() {
            return Err(Failed::refused(format!(
                "{} exists: an authority is not replaced",
                files.key.display()
            )));
        }
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "Haltgate development authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        valid(&mut params, AUTHORITY_DAYS);
        let cert = params.self_signed(&key).map_err(failed)?;
        write(&files, &cert.pem(), &key.serialize_pem())?;
        Ok(Self {
            dir: dir.to_owned(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Opens the authority of a directory.
    pub fn open(dir: &Path) -> Result<Self, Failed> {
        let (cert, key) = (dir.join("ca.crt"), dir.join("ca.key"));
        let cert = std::fs::read_to_string(&cert).map_err(file(&cert))?;
        let key = std::fs::read_to_string(&key).map_err(file(&key))?;
        let key = KeyPair::from_pem(&key).map_err(failed)?;
        Ok(Self {
            dir: dir.to_owned(),
            issuer: Issuer::from_ca_cert_pem(&cert, key).map_err(failed)?,
        })
    }

    pub fn cert_path(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    /// Issues a certificate into `NAME.crt` and `NAME.key`.
    pub fn issue(&self, wanted: &Wanted<'_>, name: &Path) -> Result<Files, Failed> {
        let mut params = CertificateParams::new(wanted.hosts.to_vec()).map_err(failed)?;
        params
            .distinguished_name
            .push(DnType::CommonName, wanted.identity);
        params.subject_alt_names.push(uri(wanted.identity)?);
        if !wanted.agents.is_empty() {
            let organization = wanted
                .identity
                .strip_prefix("org/")
                .and_then(|rest| rest.split('/').next())
                .ok_or_else(|| Failed::usage("only an identity org/ORG/sidecar/NAME speaks for agents"))?;
            for agent in wanted.agents {
                params
                    .subject_alt_names
                    .push(uri(&format!("org/{organization}/agent/{agent}"))?);
            }
        }
        params.is_ca = IsCa::NoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        valid(&mut params, wanted.days);
        let key = KeyPair::generate().map_err(failed)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let files = Files {
            cert: name.with_added_extension("crt"),
            key: name.with_added_extension("key"),
        };
        write(&files, &cert.pem(), &key.serialize_pem())?;
        Ok(files)
    }
}

fn inspect(path: &Path, output: Output) -> Result<(), Failed> {
    let bytes = std::fs::read(path).map_err(file(path))?;
    let invalid = |error: &dyn std::fmt::Display| Failed::usage(format!("{}: {error}", path.display()));
    let (_, pem) = x509_parser::pem::parse_x509_pem(&bytes).map_err(|error| invalid(&error))?;
    let (_, cert) = X509Certificate::from_der(&pem.contents).map_err(|error| invalid(&error))?;
    let names = cert.subject_alternative_name().map_err(|error| invalid(&error))?;
    let mut identities = Vec::new();
    let mut hosts = Vec::new();
    for name in names.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::URI(uri) => identities.push((*uri).to_owned()),
            GeneralName::DNSName(host) => hosts.push((*host).to_owned()),
            GeneralName::IPAddress(bytes) => hosts.push(address(bytes)),
            _ => {}
        }
    }
    print::object(
        output,
        &json!({
            "identities": identities,
            "hosts": hosts,
            "issuer": cert.issuer().to_string(),
            "not_before": cert.validity().not_before.to_string(),
            "not_after": cert.validity().not_after.to_string(),
            "valid_now": cert.validity().is_valid(),
        }),
    );
    Ok(())
}

fn address(bytes: &[u8]) -> String {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return std::net::Ipv4Addr::from(four).to_string();
    }
    <[u8; 16]>::try_from(bytes).map_or_else(
        |_| "?".to_owned(),
        |six| std::net::Ipv6Addr::from(six).to_string(),
    )
}

fn uri(path: &str) -> Result<SanType, Failed> {
    let uri = format!("spiffe://{TRUST_DOMAIN}/{path}");
    Ok(SanType::URI(Ia5String::try_from(uri).map_err(failed)?))
}

/// From an hour ago, for clocks that differ, for a number of days.
fn valid(params: &mut CertificateParams, days: i64) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now.saturating_sub(Duration::hours(1));
    params.not_after = now.saturating_add(Duration::days(days));
}

/// Writes a certificate and its key; nobody else may read the key.
fn write(files: &Files, cert: &str, key: &str) -> Result<(), Failed> {
    std::fs::write(&files.cert, cert).map_err(file(&files.cert))?;
    secret(&files.key, key.as_bytes())
}

/// Writes a file that only its owner may read.
pub fn secret(path: &Path, bytes: &[u8]) -> Result<(), Failed> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = options.open(path).map_err(file(path))?;
    opened.write_all(bytes).map_err(file(path))
}

fn failed(error: impl std::fmt::Display) -> Failed {
    Failed::refused(error.to_string())
}
