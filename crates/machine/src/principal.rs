//! Who speaks.

use decision::{AgentId, OrganizationId};
use minicbor::{Decode, Encode};

/// Who speaks: the identity that the ingress node read from the client's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Principal {
    /// The certificate's path, such as `org/acme/agent/bot-1` or `cluster/admin/root`.
    #[n(0)]
    pub name: String,
    /// The organization it is bound to; none for a cluster-wide role.
    #[n(1)]
    pub organization: Option<OrganizationId>,
    /// The agents it may speak for.
    #[n(2)]
    pub agents: Vec<AgentPattern>,
}

/// Agents of the principal's organization: one name, or all that start with a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum AgentPattern {
    #[n(0)]
    Exact(#[n(0)] AgentId),
    #[n(1)]
    Prefix(#[n(0)] String),
}

impl AgentPattern {
    /// Says whether the agent is one of those named.
    pub fn matches(&self, agent: &AgentId) -> bool {
        match self {
            AgentPattern::Exact(id) => id == agent,
            AgentPattern::Prefix(prefix) => agent.as_str().starts_with(prefix.as_str()),
        }
    }
}

impl Principal {
    /// Says whether this principal may speak for the agent.
    pub fn speaks_for(&self, organization: &OrganizationId, agent: &AgentId) -> bool {
        self.organization.as_ref() == Some(organization)
            && self.agents.iter().any(|pattern| pattern.matches(agent))
    }

    /// Says whether this principal's reach includes the organization (cluster-wide roles reach all).
    pub fn reaches(&self, organization: &OrganizationId) -> bool {
        self.organization.as_ref().is_none_or(|own| own == organization)
    }
}
