//! The guards a session runs under, and what they come to together: the tightest of each limit.

use decision::facts::Mode;
use decision::{AgentId, Digest, GuardId, OrganizationId, ToolName};

use crate::row::{Fault, Guard, Key, Read, Rows, Session};
use crate::scope::GuardScope;

/// Guards on one path at most: a tree is no deeper.
pub const GUARD_DEPTH_MAX: usize = 16;

/// The guards above a session, outermost first; never empty.
#[derive(Debug, Clone)]
pub struct GuardPath {
    guards: Vec<(GuardScope, Guard)>,
    effective: Guard,
    /// Of those that enforce, where some only observe.
    enforced: Option<Guard>,
    digest: Digest,
}

impl GuardPath {
    /// The path of a session as it is now.
    pub fn of(rows: &(impl Rows + ?Sized), session: &Session) -> Result<Self, Fault> {
        Self::under(
            rows,
            &session.organization,
            &session.agent,
            session.guard.as_ref(),
        )
    }

    /// The agent's own guard (else the organization's, else the default), the tree that this one runs in, and the
    /// branch that the session named.
    pub fn under(
        rows: &(impl Rows + ?Sized),
        organization: &OrganizationId,
        agent: &AgentId,
        named: Option<&GuardId>,
    ) -> Result<Self, Fault> {
        let own = assigned(rows, organization, agent)?;
        // Whose account is looked at first is the agent's own guard's word, in whatever tree it runs.
        let (budget, scope) = (own.1.budget, own.1.budget_scope);
        let mut guards = branch(rows, organization, own.1.parent.as_ref())?;
        guards.push(own);
        for (scope, guard) in branch(rows, organization, named)? {
            if !guards.iter().any(|(known, _)| *known == scope) {
                guards.push((scope, guard));
            }
        }
        let merged = |enforcing: bool| {
            let mut counted = guards
                .iter()
                .map(|(_, guard)| guard)
                .filter(|guard| !enforcing || guard.mode == Mode::Enforce);
            let mut sum = counted.next().cloned().unwrap_or_else(Guard::unlimited);
            counted.for_each(|guard| sum.tighten(guard));
            (sum.budget, sum.budget_scope) = (budget, scope);
            sum
        };
        let observing = guards.iter().any(|(_, guard)| guard.mode == Mode::Observe);
        Ok(Self {
            effective: merged(false),
            enforced: observing.then(|| merged(true)),
            digest: digest_of(&guards),
            guards,
        })
    }

    /// What all guards come to.
    pub fn effective(&self) -> &Guard {
        &self.effective
    }

    /// What the enforcing guards come to, where some only observe.
    pub fn enforced(&self) -> Option<&Guard> {
        self.enforced.as_ref()
    }

    /// What may trip a session: the enforcing guards alone.
    pub fn tripping(&self) -> &Guard {
        self.enforced().unwrap_or(&self.effective)
    }

    /// Says whether the guard enforces that has the account which R5 looks at.
    pub fn enforces_own_account(&self) -> bool {
        self.guards
            .iter()
            .filter(|(scope, _)| scope.named().is_none())
            .all(|(_, guard)| guard.mode == Mode::Enforce)
    }

    /// The guards themselves, outermost first.
    pub fn guards(&self) -> &[(GuardScope, Guard)] {
        &self.guards
    }

    /// The named guards above the session, outermost first.
    pub fn named(&self) -> impl DoubleEndedIterator<Item = (&GuardId, &Guard)> {
        self.guards
            .iter()
            .filter_map(|(scope, guard)| Some((scope.named()?, guard)))
    }

    /// Says whether a guard is above the session.
    pub fn has(&self, id: &str) -> bool {
        self.named().any(|(named, _)| named.as_str() == id)
    }

    /// P2: every guard allows the tool, or every one that enforces.
    pub fn allows(&self, tool: &ToolName, enforcing: bool) -> bool {
        self.guards
            .iter()
            .filter(|(_, guard)| !enforcing || guard.mode == Mode::Enforce)
            .all(|(_, guard)| guard.allows(tool))
    }

    /// Of what all these guards say; whatever was derived under another digest does not hold.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

fn digest_of(guards: &[(GuardScope, Guard)]) -> Digest {
    match guards {
        [(_, only)] => only.digest(),
        many => {
            let digests: Vec<u8> = many
                .iter()
                .flat_map(|(_, guard)| *guard.digest().as_bytes())
                .collect();
            Digest::of(&digests)
        }
    }
}

/// The guard that an operator gave the agent: its own, else its organization's, else the default, whole.
pub(crate) fn assigned(
    rows: &(impl Rows + ?Sized),
    organization: &OrganizationId,
    agent: &AgentId,
) -> Result<(GuardScope, Guard), Fault> {
    let scopes = [
        GuardScope::Agent(organization.clone(), agent.clone()),
        GuardScope::Organization(organization.clone()),
        GuardScope::Default,
    ];
    for scope in scopes {
        if let Some(guard) = rows.guard(&scope)? {
            return Ok((scope, guard));
        }
    }
    Err(Fault::Missing(Key::Guard(GuardScope::Default)))
}

/// A named guard and all above it, outermost first; empty where none is named.
pub(crate) fn branch(
    rows: &(impl Rows + ?Sized),
    organization: &OrganizationId,
    named: Option<&GuardId>,
) -> Result<Vec<(GuardScope, Guard)>, Fault> {
    let mut branch = Vec::new();
    let mut next = named.cloned();
    while let Some(id) = next.take() {
        let scope = GuardScope::Named(organization.clone(), id);
        let key = Key::Guard(scope.clone());
        // INVARIANT: parents are there before their children, never change, and no path is deeper than this.
        if branch.len() >= GUARD_DEPTH_MAX {
            return Err(Fault::Missing(key));
        }
        let guard = rows.guard(&scope)?.ok_or(Fault::Missing(key))?;
        next.clone_from(&guard.parent);
        branch.push((scope, guard));
    }
    branch.reverse();
    Ok(branch)
}
