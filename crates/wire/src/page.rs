//! Lists come in pages; a token names the last item of the page before.

use std::fmt;

use decision::{AgentId, OrganizationId, SessionId};

use crate::invalid::Invalid;

/// Items of a page where the request does not say.
const PAGE_DEFAULT: u32 = 100;
/// Most items of a page: it is built in memory.
pub const PAGE_MAX: u32 = 1_000;

/// Which part of a list is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub limit: usize,
    /// The last item of the page before; none for the first page.
    pub after: Option<T>,
}

impl<T> Page<T> {
    pub(crate) fn parse(
        size: u32,
        token: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Self, Invalid> {
        let limit = match size {
            0 => PAGE_DEFAULT,
            1..=PAGE_MAX => size,
            _ => return Err(Invalid::new("page_size", format!("must be at most {PAGE_MAX}"))),
        };
        let after =
            match token {
                "" => None,
                token => Some(read(token).ok_or_else(|| {
                    Invalid::new("page_token", "must be the next_page_token of a page before")
                })?),
            };
        Ok(Self {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            after,
        })
    }
}

/// A place in the list of sessions, which is in the order of their agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPlace {
    pub organization: OrganizationId,
    pub agent: AgentId,
    pub session: SessionId,
}

impl SessionPlace {
    pub(crate) fn parse(token: &str) -> Option<Self> {
        let mut parts = token.split('/');
        let place = Self {
            organization: OrganizationId::parse(parts.next()?).ok()?,
            agent: AgentId::parse(parts.next()?).ok()?,
            session: SessionId::parse(parts.next()?).ok()?,
        };
        parts.next().is_none().then_some(place)
    }
}

impl fmt::Display for SessionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.organization, self.agent, self.session)
    }
}
