//! Who may call what. The table of RPCs (`wire::rpc`) names one of the rows below for each; whatever a row does not name
//! is refused.

use cluster::Urgency;
use decision::OrganizationId;
use machine::{AccountId, GuardScope, Scope};
use wire::rpc::Rpc;

use crate::identity::{Identity, Role};

/// What a call is about, as far as its message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// The whole cluster: global halts, the default guard, membership.
    Cluster,
    /// Something inside one organization.
    Organization(&'a OrganizationId),
    /// Something whose organization only the state knows; the state machine compares it.
    InState,
}

/// Says whether an identity may make this call about this target (docs/SPEC.md 3).
pub fn permits(identity: &Identity, rpc: Rpc, target: Target<'_>) -> bool {
    let Row {
        agents,
        organization,
        cluster,
        nodes,
    } = row(rpc);
    let inside = |own: &OrganizationId| match target {
        Target::Cluster => false,
        Target::Organization(named) => named == own,
        Target::InState => true,
    };
    match identity {
        Identity::Agent(own, _)
        | Identity::Sidecar {
            organization: own, ..
        } => agents && inside(own),
        Identity::Person {
            organization: Some(own),
            role,
            ..
        } => organization.contains(role) && inside(own),
        Identity::Person {
            organization: None,
            role,
            ..
        } => cluster.contains(role),
        Identity::Node(_) => nodes,
    }
}

/// Says in words who may, to somebody who may not.
pub fn who_may(rpc: Rpc) -> String {
    let row = row(rpc);
    let roles = |roles: &[Role]| {
        roles
            .iter()
            .map(|role| role.word())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut may = Vec::new();
    if row.agents {
        may.push("agents and sidecars for their own".to_owned());
    }
    if !row.organization.is_empty() {
        may.push(format!("{} of the organization", roles(row.organization)));
    }
    if !row.cluster.is_empty() {
        may.push(format!("{} of the cluster", roles(row.cluster)));
    }
    format!("it is for {}", may.join("; "))
}

/// Who may make a call: agents and sidecars for their own sessions, roles of the organization, cluster-wide roles,
/// and nodes.
struct Row {
    agents: bool,
    organization: &'static [Role],
    cluster: &'static [Role],
    nodes: bool,
}

use Role::{Admin, Approver, Auditor, Operator};

const NOBODY: Row = Row {
    agents: false,
    organization: &[],
    cluster: &[],
    nodes: false,
};
/// Agents' own calls: nobody else may ask in their name.
const AGENTS: Row = Row {
    agents: true,
    ..NOBODY
};
/// Any operator may stop.
const OPERATE: Row = Row {
    organization: &[Operator, Admin],
    cluster: &[Operator, Admin],
    ..NOBODY
};
/// Letting go on needs more than stopping.
const RELEASE: Row = Row {
    organization: &[Admin],
    cluster: &[Admin],
    ..NOBODY
};
/// Nobody else decides for a person who was asked.
const APPROVE: Row = Row {
    organization: &[Approver],
    cluster: &[Approver],
    ..NOBODY
};
const LOOK: Row = Row {
    organization: &[Operator, Approver, Auditor, Admin],
    cluster: &[Operator, Approver, Auditor, Admin],
    ..NOBODY
};
const AUDIT: Row = Row {
    organization: &[Auditor],
    cluster: &[Auditor, Admin],
    ..NOBODY
};
const CLUSTER_LOOK: Row = Row {
    cluster: &[Operator, Auditor, Admin],
    ..NOBODY
};
const CLUSTER_OPERATE: Row = Row {
    cluster: &[Operator, Admin],
    ..NOBODY
};
/// A node may form the cluster that its own configuration lists, as it does by itself with `bootstrap`.
const CLUSTER_INIT: Row = Row {
    cluster: &[Admin],
    nodes: true,
    ..NOBODY
};

macro_rules! read {
    ($($path:literal = $package:ident::$module:ident::{$service:ident, $server:ident}, $file:ident, $urgency:ident {
        $($rpc:ident $name:ident $function:ident($request:ident) $reply:ident $who:ident $kind:ident $(($stream:ident))?)*
    })*) => {
        const fn row(rpc: Rpc) -> Row {
            match rpc { $($(Rpc::$rpc => $who,)*)* }
        }

        /// Which queue the commands of an RPC wait in.
        pub const fn urgency(rpc: Rpc) -> Urgency {
            match rpc { $($(Rpc::$rpc => Urgency::$urgency,)*)* }
        }
    };
}

wire::rpcs!(read);

/// Where a halt reaches.
pub fn of_scope(scope: &Scope) -> Target<'_> {
    match scope {
        Scope::Global => Target::Cluster,
        Scope::Organization(organization) | Scope::Agent(organization, _) | Scope::Guard(organization, _) => {
            Target::Organization(organization)
        }
        Scope::Session(_) => Target::InState,
    }
}

/// Whose an account is.
pub fn of_account(account: &AccountId) -> Target<'_> {
    match account {
        AccountId::Organization(organization)
        | AccountId::Agent(organization, _)
        | AccountId::Guard(organization, _) => Target::Organization(organization),
        AccountId::Session(_) => Target::InState,
    }
}

/// Whose a guard is to change.
pub fn of_guard_change(scope: &GuardScope) -> Target<'_> {
    match scope {
        GuardScope::Default => Target::Cluster,
        GuardScope::Organization(organization)
        | GuardScope::Agent(organization, _)
        | GuardScope::Named(organization, _) => Target::Organization(organization),
    }
}

/// Whose a guard is to look at: the default one is in force for everyone.
pub fn of_guard(scope: &GuardScope) -> Target<'_> {
    match scope {
        GuardScope::Default => Target::InState,
        GuardScope::Organization(organization)
        | GuardScope::Agent(organization, _)
        | GuardScope::Named(organization, _) => Target::Organization(organization),
    }
}

#[cfg(test)]
mod tests {
    use super::{Target, permits};
    use crate::identity::{Identity, Role};
    use decision::OrganizationId;
    use wire::rpc::Rpc;

    const CALLERS: [&str; 11] = [
        "org/acme/agent/bot-1",
        "org/acme/sidecar/s",
        "org/acme/approver/p",
        "org/acme/operator/p",
        "org/acme/auditor/p",
        "org/acme/admin/p",
        "cluster/approver/p",
        "cluster/operator/p",
        "cluster/auditor/p",
        "cluster/admin/p",
        "node/1",
    ];

    /// The rows of SPEC 3: RPCs, who may in the own organization, who may in all.
    fn specified() -> Vec<[String; 3]> {
        let spec =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SPEC.md")).unwrap();
        let rows = spec
            .lines()
            .skip_while(|line| !line.starts_with("| RPC |"))
            .skip(2);
        rows.take_while(|line| line.starts_with('|'))
            .map(|line| {
                let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
                let same = if cells[2] == "the same" {
                    cells[1]
                } else {
                    cells[2]
                };
                [cells[0], cells[1], same].map(str::to_owned)
            })
            .collect()
    }

    /// Says whether a row's first cell names an RPC: `Halts.Engage`, `Halts.Engage/Release`, or of agents' own `Redeem`.
    fn names(cell: &str, service: &str, method: &str) -> bool {
        cell.split('`').any(|named| match named.split_once('.') {
            Some((of, methods)) => of == service && methods.split('/').any(|one| one == method),
            None => named == method && service == "ShackleDaemon",
        })
    }

    /// Says whether a cell names a role, before what it says of its reach.
    fn has(cell: &str, role: &str) -> bool {
        let roles = cell.split([':', ';']).next().unwrap_or_default();
        roles.split(|c: char| !c.is_alphabetic()).any(|word| word == role)
    }

    #[test]
    fn every_rpc_is_for_those_whom_the_specification_names() {
        let (own, other) = (
            OrganizationId::parse("acme").unwrap(),
            OrganizationId::parse("globex").unwrap(),
        );
        let rows = specified();
        for rpc in Rpc::ALL {
            let (service, method) = rpc.path().rsplit_once('/').unwrap();
            let service = service.rsplit('.').next().unwrap();
            let row = rows
                .iter()
                .find(|row| names(&row[0], service, method))
                .or_else(|| {
                    rows.iter()
                        .find(|row| row[0].split('`').any(|named| named == service))
                });
            let [_, inside, everywhere] = row.unwrap_or_else(|| panic!("SPEC 3 does not name {rpc:?}"));
            for caller in CALLERS {
                let identity =
                    Identity::of_uris("haltgate", [&*format!("spiffe://haltgate/{caller}")].into_iter());
                let (reach, role) = caller.split_once('/').unwrap();
                let role = role.split('/').nth_back(1).unwrap_or("node");
                let may = match reach {
                    "org" => [has(inside, role), false],
                    "cluster" => [has(everywhere, role); 2],
                    _ => [everywhere.contains("the node itself"); 2],
                };
                let identity = identity.unwrap();
                let permitted = |target| permits(&identity, *rpc, target);
                let answers = [
                    permitted(Target::Organization(&own)),
                    permitted(Target::InState),
                    permitted(Target::Organization(&other)),
                    permitted(Target::Cluster),
                ];
                assert_eq!(answers, [may[0], may[0], may[1], may[1]], "{caller} {rpc:?}");
            }
        }
    }

    #[test]
    fn every_role_is_one_of_the_callers() {
        for role in Role::ALL {
            assert!(
                CALLERS.iter().any(|caller| caller.contains(role.word())),
                "{role:?}"
            );
        }
    }
}
