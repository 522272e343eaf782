//! The guards a session runs under, and what they come to together: the tightest of each limit.

use decision::facts::Mode;
use decision::{AgentId, Digest, GuardId, OrganizationId, ToolName};

use crate::guard::Guard;
use crate::scope::GuardScope;
use crate::table::{Fault, Key, Read, Rows, Session};

/// Guards on one path at most: a tree is no deeper.
pub const GUARD_DEPTH_MAX: usize = 16;

/// Guards, outermost first; never empty.
#[derive(Debug, Clone)]
pub struct Leash {
    guards: Vec<(GuardScope, Guard)>,
    effective: Guard,
    /// Of those that enforce, where some only observe.
    enforced: Option<Guard>,
    digest: Digest,
}

impl Leash {
    /// The leash of a session as it is now.
    pub fn of<R: Rows>(rows: &R, session: &Session) -> Result<Self, Fault> {
        Self::under(
            rows,
            &session.organization,
            &session.agent,
            session.guard.as_ref(),
        )
    }

    /// The agent's own guard (else the organization's, else the default), the tree that this one runs in, and the
    /// branch that the session named.
    pub fn under<R: Rows>(
        rows: &R,
        organization: &OrganizationId,
        agent: &AgentId,
        named: Option<&GuardId>,
    ) -> Result<Self, Fault> {
        let own = assigned(rows, organization, agent)?;
        let mut guards = branch(rows, organization, own.1.parent.as_ref())?;
        guards.push(own);
        for (scope, guard) in branch(rows, organization, named)? {
            if !guards.iter().any(|(known, _)| *known == scope) {
                guards.push((scope, guard));
            }
        }
        let merged = |enforcing: bool| {
            guards
                .iter()
                .filter(|(_, guard)| !enforcing || guard.mode == Mode::Enforce)
                .fold(None, |sum: Option<Guard>, (_, guard)| match sum {
                    None => Some(guard.clone()),
                    Some(mut sum) => {
                        sum.tighten(guard);
                        Some(sum)
                    }
                })
        };
        let observing = guards.iter().any(|(_, guard)| guard.mode == Mode::Observe);
        // Whose account is looked at first is the agent's own guard's word, in whatever tree it runs.
        let own_scope = guards
            .iter()
            .find(|(scope, _)| !matches!(scope, GuardScope::Named(..)))
            .map(|(_, guard)| (guard.budget, guard.budget_scope));
        let placed = |mut guard: Guard| {
            if let Some((budget, scope)) = own_scope {
                (guard.budget, guard.budget_scope) = (budget, scope);
            }
            guard
        };
        Ok(Self {
            effective: placed(merged(false).unwrap_or_else(Guard::unlimited)),
            enforced: observing.then(|| placed(merged(true).unwrap_or_else(Guard::unlimited))),
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

    /// Says whether the guard enforces that has the account which R5 looks at.
    pub fn enforces_own_account(&self) -> bool {
        self.guards
            .iter()
            .filter(|(scope, _)| !matches!(scope, GuardScope::Named(..)))
            .all(|(_, guard)| guard.mode == Mode::Enforce)
    }

    /// The guards themselves, outermost first.
    pub fn guards(&self) -> &[(GuardScope, Guard)] {
        &self.guards
    }

    /// The named guards above the session, outermost first.
    pub fn named(&self) -> impl DoubleEndedIterator<Item = (&GuardId, &Guard)> {
        self.guards.iter().filter_map(|(scope, guard)| match scope {
            GuardScope::Named(_, id) => Some((id, guard)),
            GuardScope::Default | GuardScope::Organization(_) | GuardScope::Agent(..) => None,
        })
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
pub(crate) fn assigned<R: Rows>(
    rows: &R,
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
            return Ok((scope, *guard));
        }
    }
    Err(Fault::Missing(Key::Guard(GuardScope::Default)))
}

/// A named guard and all above it, outermost first; empty where none is named.
pub(crate) fn branch<R: Rows>(
    rows: &R,
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
        branch.push((scope, *guard));
    }
    branch.reverse();
    Ok(branch)
}
