//! Who calls: the URI names in a client's certificate, and nothing else.

use std::fmt;

use decision::{AgentId, OrganizationId};
use machine::command::{AgentPattern, Principal};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Most agents that one sidecar's certificate may list: they travel with each of its calls.
pub const SIDECAR_AGENTS_MAX: usize = 64;

/// A verified caller (docs/SPEC.md 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    Agent(OrganizationId, AgentId),
    /// Speaks for the agents that its certificate lists.
    Sidecar {
        organization: OrganizationId,
        name: AgentId,
        agents: Vec<AgentPattern>,
    },
    /// A person or a service; without an organization it acts on the whole cluster.
    Person {
        organization: Option<OrganizationId>,
        role: Role,
        name: AgentId,
    },
    /// A peer.
    Node(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Approver,
    Operator,
    Auditor,
    Admin,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Approver, Self::Operator, Self::Auditor, Self::Admin];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Approver => "approver",
            Self::Operator => "operator",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

/// Why a certificate names nobody here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    #[error("the certificate cannot be read")]
    Unreadable,
    #[error("the certificate has no URI name: it needs one like spiffe://DOMAIN/org/ORG/agent/AGENT")]
    NoUri,
    #[error("a URI name of the certificate is none of this system: {0}")]
    Grammar(&'static str),
    #[error("the certificate names more than one identity")]
    Several,
    #[error("the certificate lists more than {SIDECAR_AGENTS_MAX} agents")]
    TooManyAgents,
}

/// One URI name, read by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Agent(OrganizationId, AgentId),
    /// `agt-*`: only in a sidecar's certificate.
    Agents(OrganizationId, String),
    Sidecar(OrganizationId, AgentId),
    Person(Option<OrganizationId>, Role, AgentId),
    Node(u32),
}

/// Reads one URI name: exactly the grammar of docs/SPEC.md 3, nothing escaped, nothing left over.
///
/// # Errors
/// Anything else, another trust domain included.
pub fn parse_uri(trust_domain: &str, uri: &str) -> Result<Name, NoIdentity> {
    let path = uri
        .strip_prefix("spiffe://")
        .and_then(|rest| rest.strip_prefix(trust_domain))
        .and_then(|rest| rest.strip_prefix('/'))
        .ok_or(NoIdentity::Grammar("it is not of this trust domain"))?;
    let mut parts = path.split('/');
    let mut next = || parts.next().unwrap_or_default();
    let name = match (next(), next(), next(), next()) {
        ("org", organization, "agent", agents) if agents.ends_with('*') => {
            Name::Agents(organization_id(organization)?, prefix(agents)?)
        }
        ("org", organization, "agent", agent) => {
            Name::Agent(organization_id(organization)?, agent_id(agent)?)
        }
        ("org", organization, "sidecar", name) => {
            Name::Sidecar(organization_id(organization)?, agent_id(name)?)
        }
        ("org", organization, role, name) => {
            let role = Role::parse(role).ok_or(NoIdentity::Grammar("it has an unknown role"))?;
            Name::Person(Some(organization_id(organization)?), role, agent_id(name)?)
        }
        ("cluster", role, name, "") if path.ends_with(name) => {
            let role = Role::parse(role).ok_or(NoIdentity::Grammar("it has an unknown role"))?;
            Name::Person(None, role, agent_id(name)?)
        }
        ("node", id, "", "") if path.ends_with(id) => Name::Node(node_id(id)?),
        _ => return Err(NoIdentity::Grammar("its path is not one of those that are known")),
    };
    match parts.next() {
        None => Ok(name),
        Some(_) => Err(NoIdentity::Grammar("its path goes on")),
    }
}

impl Identity {
    /// Reads the identity of a certificate whose chain was verified.
    ///
    /// # Errors
    /// The certificate names nobody, several, or somebody of another trust domain.
    pub fn of_certificate(trust_domain: &str, der: &[u8]) -> Result<Self, NoIdentity> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| NoIdentity::Unreadable)?;
        let names = certificate
            .subject_alternative_name()
            .map_err(|_| NoIdentity::Unreadable)?;
        let uris = names
            .iter()
            .flat_map(|names| &names.value.general_names)
            .filter_map(|name| match name {
                GeneralName::URI(uri) => Some(*uri),
                _ => None,
            });
        Self::of_uris(trust_domain, uris)
    }

    /// Reads the identity of a certificate's URI names.
    pub fn of_uris<'a>(trust_domain: &str, uris: impl Iterator<Item = &'a str>) -> Result<Self, NoIdentity> {
        let names = uris
            .map(|uri| parse_uri(trust_domain, uri))
            .collect::<Result<Vec<_>, _>>()?;
        match names.as_slice() {
            [] => Err(NoIdentity::NoUri),
            [Name::Agent(organization, agent)] => Ok(Self::Agent(organization.clone(), agent.clone())),
            [Name::Person(organization, role, name)] => Ok(Self::Person {
                organization: organization.clone(),
                role: *role,
                name: name.clone(),
            }),
            [Name::Node(id)] => Ok(Self::Node(*id)),
            [Name::Agents(..)] => Err(NoIdentity::Grammar(
                "a pattern of agents needs a sidecar's name beside it",
            )),
            names => Self::sidecar(names),
        }
    }

    /// One sidecar and the agents it speaks for, all of one organization.
    fn sidecar(names: &[Name]) -> Result<Self, NoIdentity> {
        let mut found = None;
        for name in names {
            if let Name::Sidecar(organization, name) = name
                && found.replace((organization.clone(), name.clone())).is_some()
            {
                return Err(NoIdentity::Several);
            }
        }
        let (own, sidecar) = found.ok_or(NoIdentity::Several)?;
        let mut agents = Vec::new();
        for name in names {
            let (organization, pattern) = match name {
                Name::Sidecar(..) => continue,
                Name::Agent(organization, agent) => (organization, AgentPattern::Exact(agent.clone())),
                Name::Agents(organization, prefix) => (organization, AgentPattern::Prefix(prefix.clone())),
                Name::Person(..) | Name::Node(_) => return Err(NoIdentity::Several),
            };
            if *organization != own {
                return Err(NoIdentity::Several);
            }
            agents.push(pattern);
        }
        if agents.len() > SIDECAR_AGENTS_MAX {
            return Err(NoIdentity::TooManyAgents);
        }
        Ok(Self::Sidecar {
            organization: own,
            name: sidecar,
            agents,
        })
    }

    /// The organization it is bound to; none for cluster-wide roles and for nodes.
    pub fn organization(&self) -> Option<&OrganizationId> {
        match self {
            Self::Agent(organization, _) | Self::Sidecar { organization, .. } => Some(organization),
            Self::Person { organization, .. } => organization.as_ref(),
            Self::Node(_) => None,
        }
    }

    /// What goes into commands, and so into the log.
    pub fn principal(&self) -> Principal {
        Principal {
            name: self.to_string(),
            organization: self.organization().cloned(),
            agents: match self {
                Self::Agent(_, agent) => vec![AgentPattern::Exact(agent.clone())],
                Self::Sidecar { agents, .. } => agents.clone(),
                Self::Person { .. } | Self::Node(_) => Vec::new(),
            },
        }
    }
}

/// Writes the certificate's path: `org/acme/agent/bot-1`, `cluster/admin/root`, `node/1`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(organization, agent) => write!(f, "org/{organization}/agent/{agent}"),
            Self::Sidecar {
                organization, name, ..
            } => write!(f, "org/{organization}/sidecar/{name}"),
            Self::Person {
                organization: Some(organization),
                role,
                name,
            } => {
                write!(f, "org/{organization}/{}/{name}", role.word())
            }
            Self::Person {
                organization: None,
                role,
                name,
            } => write!(f, "cluster/{}/{name}", role.word()),
            Self::Node(id) => write!(f, "node/{id}"),
        }
    }
}

fn organization_id(text: &str) -> Result<OrganizationId, NoIdentity> {
    if text == cluster::PROBE_ORGANIZATION {
        return Err(NoIdentity::Grammar("its organization is reserved for drills"));
    }
    OrganizationId::parse(text).map_err(|error| NoIdentity::Grammar(error.rule))
}

/// Agents, sidecars and people are named alike.
fn agent_id(text: &str) -> Result<AgentId, NoIdentity> {
    AgentId::parse(text).map_err(|error| NoIdentity::Grammar(error.rule))
}

/// A pattern is the beginning of a name and one `*`; `*` alone is every agent.
fn prefix(text: &str) -> Result<String, NoIdentity> {
    let prefix = text.strip_suffix('*').unwrap_or(text);
    if !prefix.is_empty() {
        agent_id(prefix)?;
    }
    Ok(prefix.to_owned())
}

fn node_id(text: &str) -> Result<u32, NoIdentity> {
    match text.parse::<u32>() {
        Ok(id) if id > 0 && id.to_string() == text => Ok(id),
        Ok(_) | Err(_) => Err(NoIdentity::Grammar("a node id is a number from 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Identity, Name, NoIdentity, parse_uri};
    use decision::{AgentId, OrganizationId};

    #[test]
    fn each_form_of_the_grammar_is_read_and_written_alike() {
        let rows = [
            "org/acme/agent/bot-1",
            "org/acme/sidecar/s.1",
            "org/acme/approver/ann",
            "org/acme/operator/ann",
            "org/acme/auditor/ann",
            "org/acme/admin/ann",
            "cluster/approver/ann",
            "cluster/operator/ann",
            "cluster/auditor/ann",
            "cluster/admin/ann",
            "node/1",
            "node/4294967295",
        ];
        for path in rows {
            let uri = format!("spiffe://haltgate/{path}");
            let identity = Identity::of_uris("haltgate", [uri.as_str()].into_iter()).unwrap();
            assert_eq!(identity.to_string(), path);
            assert_eq!(identity.principal().name, path);
        }
    }

    #[test]
    fn whatever_is_not_exactly_the_grammar_is_nobody() {
        let long = "a".repeat(65);
        let rows = [
            "",
            "spiffe://haltgate",
            "spiffe://haltgate/",
            "spiffe:///org/acme/agent/bot-1",
            "SPIFFE://haltgate/org/acme/agent/bot-1",
            "https://haltgate/org/acme/agent/bot-1",
            "spiffe://haltgate.example/org/acme/agent/bot-1",
            "spiffe://haltgat/org/acme/agent/bot-1",
            "spiffe://other/org/acme/agent/bot-1",
            "spiffe://haltgate//org/acme/agent/bot-1",
            "spiffe://haltgate/org/acme/agent/bot-1/",
            "spiffe://haltgate/org/acme/agent/bot-1/x",
            "spiffe://haltgate/org/acme/agent/",
            "spiffe://haltgate/org/acme/agent",
            "spiffe://haltgate/org//agent/bot-1",
            "spiffe://haltgate/org/acme/Agent/bot-1",
            "spiffe://haltgate/org/acme/root/ann",
            "spiffe://haltgate/org/acme/node/1",
            "spiffe://haltgate/org/acme/agent/.bot",
            "spiffe://haltgate/org/acme/agent/bot%2d1",
            "spiffe://haltgate/org/acme/agent/bot 1",
            "spiffe://haltgate/org/acme/agent/bot?1",
            "spiffe://haltgate/org/acme/agent/bot#1",
            "spiffe://haltgate/org/acme/agent/bötchen",
            "spiffe://haltgate/org/acme/agent/*bot",
            "spiffe://haltgate/org/acme/agent/b*t",
            "spiffe://haltgate/org/acme/agent/b**",
            "spiffe://haltgate/org/acme/agent/.*",
            "spiffe://haltgate/org/acme/operator/*",
            "spiffe://haltgate/org/*/agent/bot",
            "spiffe://haltgate/org/../agent/bot",
            "spiffe://haltgate/cluster/agent/bot-1",
            "spiffe://haltgate/cluster/sidecar/s",
            "spiffe://haltgate/cluster/admin",
            "spiffe://haltgate/cluster/admin/",
            "spiffe://haltgate/cluster/admin/root/",
            "spiffe://haltgate/cluster/admin/root/x",
            "spiffe://haltgate/cluster/admin//root",
            "spiffe://haltgate/node",
            "spiffe://haltgate/node/",
            "spiffe://haltgate/node/0",
            "spiffe://haltgate/node/01",
            "spiffe://haltgate/node/+1",
            "spiffe://haltgate/node/-1",
            "spiffe://haltgate/node/one",
            "spiffe://haltgate/node/4294967296",
            "spiffe://haltgate/node/1/",
            "spiffe://haltgate/node/1//",
            "spiffe://haltgate/node/1/x",
        ];
        for uri in rows {
            assert!(parse_uri("haltgate", uri).is_err(), "{uri}");
        }
        assert!(parse_uri("haltgate", &format!("spiffe://haltgate/org/{long}/agent/b")).is_err());
        assert!(parse_uri("haltgate", &format!("spiffe://haltgate/org/acme/agent/{long}*")).is_err());
    }

    #[test]
    fn a_sidecar_speaks_for_what_it_lists_in_its_organization() {
        let read = |paths: &[&str]| {
            let uris: Vec<String> = paths
                .iter()
                .map(|path| format!("spiffe://haltgate/{path}"))
                .collect();
            Identity::of_uris("haltgate", uris.iter().map(String::as_str))
        };
        let sidecar = read(&[
            "org/acme/sidecar/s",
            "org/acme/agent/bot-1",
            "org/acme/agent/agt-*",
        ])
        .unwrap();
        let principal = sidecar.principal();
        let rows = [
            ("acme", "bot-1", true),
            ("acme", "agt-000001", true),
            ("acme", "agt-", true),
            ("acme", "bot-10", false),
            ("acme", "agt", false),
            ("globex", "bot-1", false),
            ("globex", "agt-1", false),
        ];
        for (organization, agent, speaks) in rows {
            let organization = OrganizationId::parse(organization).unwrap();
            assert_eq!(
                principal.speaks_for(&organization, &AgentId::parse(agent).unwrap()),
                speaks,
                "{agent}"
            );
        }
        let all = read(&["org/acme/agent/*", "org/acme/sidecar/s"])
            .unwrap()
            .principal();
        assert!(all.speaks_for(
            &OrganizationId::parse("acme").unwrap(),
            &AgentId::parse("any").unwrap()
        ));
        // Its own name is no agent's, and with nothing listed it speaks for nobody.
        let none = read(&["org/acme/sidecar/s"]).unwrap().principal();
        assert!(none.agents.is_empty());
    }

    #[test]
    fn a_certificate_is_one_identity_or_none() {
        let rows: [(&[&str], NoIdentity); 8] = [
            (&[], NoIdentity::NoUri),
            (&["org/acme/agent/a", "org/acme/agent/b"], NoIdentity::Several),
            (&["org/acme/agent/a", "org/acme/admin/a"], NoIdentity::Several),
            (&["node/1", "cluster/admin/root"], NoIdentity::Several),
            (&["org/acme/sidecar/s", "org/acme/sidecar/t"], NoIdentity::Several),
            (&["org/acme/sidecar/s", "org/globex/agent/a"], NoIdentity::Several),
            (&["org/acme/sidecar/s", "node/1"], NoIdentity::Several),
            (
                &["org/acme/agent/agt-*"],
                NoIdentity::Grammar("a pattern of agents needs a sidecar's name beside it"),
            ),
        ];
        for (paths, expected) in rows {
            let uris: Vec<String> = paths
                .iter()
                .map(|path| format!("spiffe://haltgate/{path}"))
                .collect();
            let read = Identity::of_uris("haltgate", uris.iter().map(String::as_str));
            assert_eq!(read, Err(expected), "{paths:?}");
        }
        let mut many = vec!["spiffe://haltgate/org/acme/sidecar/s".to_owned()];
        many.extend((0..65).map(|number| format!("spiffe://haltgate/org/acme/agent/a{number}")));
        let read = Identity::of_uris("haltgate", many.iter().map(String::as_str));
        assert_eq!(read, Err(NoIdentity::TooManyAgents));
        // One that is not ours spoils the rest.
        let mixed = ["spiffe://haltgate/org/acme/agent/a", "https://example.org/"];
        assert!(Identity::of_uris("haltgate", mixed.into_iter()).is_err());
        assert_eq!(
            Identity::of_certificate("haltgate", b"no certificate"),
            Err(NoIdentity::Unreadable)
        );
        assert!(matches!(
            parse_uri("haltgate", "spiffe://haltgate/org/acme/agent/agt-*"),
            Ok(Name::Agents(..))
        ));
    }
}
