//! What an operator can name: the reach of a kill switch, an account, a guard.

use std::fmt;
use std::str::FromStr;

use decision::id::GuardId;
use decision::{AgentId, OrganizationId, SessionId};
use minicbor::{Decode, Encode};

/// The reach of the kill switch. Written `global`, `org/acme`, `org/acme/agent/bot-1`, `session/ses_…`,
/// `org/acme/guard/research`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Scope {
    #[n(0)]
    Global,
    #[n(1)]
    Organization(#[n(0)] OrganizationId),
    #[n(2)]
    Agent(#[n(0)] OrganizationId, #[n(1)] AgentId),
    #[n(3)]
    Session(#[n(0)] SessionId),
    /// A guard and all below it.
    #[n(4)]
    Guard(#[n(0)] OrganizationId, #[n(1)] GuardId),
}

/// Whose money: written like a scope, without `global`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum AccountId {
    #[n(0)]
    Organization(#[n(0)] OrganizationId),
    #[n(1)]
    Agent(#[n(0)] OrganizationId, #[n(1)] AgentId),
    #[n(2)]
    Session(#[n(0)] SessionId),
    /// Shared by all that run under the guard.
    #[n(3)]
    Guard(#[n(0)] OrganizationId, #[n(1)] GuardId),
}

/// Where a guard is put: written `default`, `org/acme`, `org/acme/agent/bot-1`, `org/acme/guard/research`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum GuardScope {
    #[n(0)]
    Default,
    #[n(1)]
    Organization(#[n(0)] OrganizationId),
    #[n(2)]
    Agent(#[n(0)] OrganizationId, #[n(1)] AgentId),
    /// A guard of a tree, which sessions name.
    #[n(3)]
    Named(#[n(0)] OrganizationId, #[n(1)] GuardId),
}

/// A text that names no scope, account or guard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not one of: {expected}")]
pub struct InvalidScope {
    given: String,
    expected: &'static str,
}

impl Scope {
    /// The organization that is named; none for all, and for a session, whose id does not say it.
    pub fn organization(&self) -> Option<&OrganizationId> {
        match self {
            Self::Organization(of) | Self::Agent(of, _) | Self::Guard(of, _) => Some(of),
            Self::Global | Self::Session(_) => None,
        }
    }
}

impl AccountId {
    /// The organization that is named; none for a session, whose id does not say it.
    pub fn organization(&self) -> Option<&OrganizationId> {
        match self {
            Self::Organization(of) | Self::Agent(of, _) | Self::Guard(of, _) => Some(of),
            Self::Session(_) => None,
        }
    }
}

impl GuardScope {
    /// The organization that the guard is of; none for the default.
    pub fn organization(&self) -> Option<&OrganizationId> {
        match self {
            Self::Default => None,
            Self::Organization(of) | Self::Agent(of, _) | Self::Named(of, _) => Some(of),
        }
    }

    /// The name of a guard of a tree.
    pub fn named(&self) -> Option<&GuardId> {
        match self {
            Self::Named(_, id) => Some(id),
            Self::Default | Self::Organization(_) | Self::Agent(..) => None,
        }
    }
}

const SCOPES: &str = "global, org/ORG, org/ORG/agent/AGENT, org/ORG/guard/GUARD, session/SESSION";
const ACCOUNTS: &str = "org/ORG, org/ORG/agent/AGENT, org/ORG/guard/GUARD, session/SESSION";
const GUARDS: &str = "default, org/ORG, org/ORG/agent/AGENT, org/ORG/guard/GUARD";

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        match Path::parse(text) {
            Some(Path::Word("global")) => Ok(Self::Global),
            Some(Path::Organization(org)) => Ok(Self::Organization(org)),
            Some(Path::Agent(org, agent)) => Ok(Self::Agent(org, agent)),
            Some(Path::Guard(org, guard)) => Ok(Self::Guard(org, guard)),
            Some(Path::Session(id)) => Ok(Self::Session(id)),
            Some(Path::Word(_)) | None => Err(InvalidScope {
                given: text.to_owned(),
                expected: SCOPES,
            }),
        }
    }
}

impl FromStr for AccountId {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        match Path::parse(text) {
            Some(Path::Organization(org)) => Ok(Self::Organization(org)),
            Some(Path::Agent(org, agent)) => Ok(Self::Agent(org, agent)),
            Some(Path::Guard(org, guard)) => Ok(Self::Guard(org, guard)),
            Some(Path::Session(id)) => Ok(Self::Session(id)),
            Some(Path::Word(_)) | None => Err(InvalidScope {
                given: text.to_owned(),
                expected: ACCOUNTS,
            }),
        }
    }
}

impl FromStr for GuardScope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        match Path::parse(text) {
            Some(Path::Word("default")) => Ok(Self::Default),
            Some(Path::Organization(org)) => Ok(Self::Organization(org)),
            Some(Path::Agent(org, agent)) => Ok(Self::Agent(org, agent)),
            Some(Path::Guard(org, guard)) => Ok(Self::Named(org, guard)),
            Some(Path::Word(_) | Path::Session(_)) | None => Err(InvalidScope {
                given: text.to_owned(),
                expected: GUARDS,
            }),
        }
    }
}

enum Path<'a> {
    Word(&'a str),
    Organization(OrganizationId),
    Agent(OrganizationId, AgentId),
    Guard(OrganizationId, GuardId),
    Session(SessionId),
}

impl<'a> Path<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split('/');
        let path = match (parts.next()?, parts.next(), parts.next(), parts.next()) {
            (word, None, None, None) => Self::Word(word),
            ("session", Some(id), None, None) => Self::Session(SessionId::parse(id).ok()?),
            ("org", Some(org), None, None) => Self::Organization(OrganizationId::parse(org).ok()?),
            ("org", Some(org), Some("agent"), Some(agent)) => {
                Self::Agent(OrganizationId::parse(org).ok()?, AgentId::parse(agent).ok()?)
            }
            ("org", Some(org), Some("guard"), Some(guard)) => {
                Self::Guard(OrganizationId::parse(org).ok()?, GuardId::parse(guard).ok()?)
            }
            _ => return None,
        };
        parts.next().is_none().then_some(path)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            Self::Organization(org) => write!(f, "org/{org}"),
            Self::Agent(org, agent) => write!(f, "org/{org}/agent/{agent}"),
            Self::Guard(org, guard) => write!(f, "org/{org}/guard/{guard}"),
            Self::Session(id) => write!(f, "session/{id}"),
        }
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Organization(org) => write!(f, "org/{org}"),
            Self::Agent(org, agent) => write!(f, "org/{org}/agent/{agent}"),
            Self::Guard(org, guard) => write!(f, "org/{org}/guard/{guard}"),
            Self::Session(id) => write!(f, "session/{id}"),
        }
    }
}

impl fmt::Display for GuardScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Organization(org) => write!(f, "org/{org}"),
            Self::Agent(org, agent) => write!(f, "org/{org}/agent/{agent}"),
            Self::Named(org, guard) => write!(f, "org/{org}/guard/{guard}"),
        }
    }
}
