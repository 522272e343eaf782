//! Who may call what: one table of RPCs and roles. Whatever it does not name is refused.

use decision::OrganizationId;
use machine::{AccountId, GuardScope, Scope};

use crate::identity::{Identity, Role};

/// Declares every RPC that has a caller with a role: its gRPC path.
macro_rules! rpcs {
    ($($name:ident $path:literal)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rpc { $($name,)* }

        impl Rpc {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its gRPC path without the leading slash.
            pub const fn path(self) -> &'static str {
                match self { $(Self::$name => $path,)* }
            }
        }
    };
}

rpcs! {
    Register "shackle.v1.ShackleDaemon/Register"
    PreExec "shackle.v1.ShackleDaemon/PreExec"
    PreExecStream "shackle.v1.ShackleDaemon/PreExecStream"
    PostExec "shackle.v1.ShackleDaemon/PostExec"
    Heartbeat "shackle.v1.ShackleDaemon/Heartbeat"
    GetSessionState "shackle.v1.ShackleDaemon/GetSessionState"
    EndSession "shackle.v1.ShackleDaemon/EndSession"
    WaitApproval "shackle.v1.ShackleDaemon/WaitApproval"
    WatchControl "shackle.v1.ShackleDaemon/WatchControl"
    Redeem "shackle.v1.ShackleDaemon/Redeem"
    VerifyAuthorization "shackle.v1.ShackleDaemon/VerifyAuthorization"
    HaltsEngage "haltgate.admin.v1.Halts/Engage"
    HaltsRelease "haltgate.admin.v1.Halts/Release"
    HaltsList "haltgate.admin.v1.Halts/List"
    HaltsDrill "haltgate.admin.v1.Halts/Drill"
    BudgetsSet "haltgate.admin.v1.Budgets/Set"
    BudgetsGrant "haltgate.admin.v1.Budgets/Grant"
    BudgetsGet "haltgate.admin.v1.Budgets/Get"
    BudgetsList "haltgate.admin.v1.Budgets/List"
    BudgetsCorrect "haltgate.admin.v1.Budgets/Correct"
    GuardsPut "haltgate.admin.v1.Guards/Put"
    GuardsGet "haltgate.admin.v1.Guards/Get"
    GuardsList "haltgate.admin.v1.Guards/List"
    GuardsCheck "haltgate.admin.v1.Guards/Check"
    ApprovalsList "haltgate.admin.v1.Approvals/List"
    ApprovalsGet "haltgate.admin.v1.Approvals/Get"
    ApprovalsDecide "haltgate.admin.v1.Approvals/Decide"
    ApprovalsWatch "haltgate.admin.v1.Approvals/Watch"
    SessionsList "haltgate.admin.v1.Sessions/List"
    SessionsGet "haltgate.admin.v1.Sessions/Get"
    SessionsResetCircuit "haltgate.admin.v1.Sessions/ResetCircuit"
    SessionsPause "haltgate.admin.v1.Sessions/Pause"
    SessionsResume "haltgate.admin.v1.Sessions/Resume"
    SessionsTerminate "haltgate.admin.v1.Sessions/Terminate"
    ClusterInit "haltgate.admin.v1.Cluster/Init"
    ClusterStatus "haltgate.admin.v1.Cluster/Status"
    ClusterMembers "haltgate.admin.v1.Cluster/Members"
    ClusterAddLearner "haltgate.admin.v1.Cluster/AddLearner"
    ClusterPromote "haltgate.admin.v1.Cluster/Promote"
    ClusterRemove "haltgate.admin.v1.Cluster/Remove"
    ClusterTransferLeader "haltgate.admin.v1.Cluster/TransferLeader"
    ClusterSnapshot "haltgate.admin.v1.Cluster/Snapshot"
    AuditStream "haltgate.audit.v1.Audit/Stream"
    AuditGetEntry "haltgate.audit.v1.Audit/GetEntry"
    AuditGetCheckpoint "haltgate.audit.v1.Audit/GetCheckpoint"
    AuditListKeys "haltgate.audit.v1.Audit/ListKeys"
}

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

const fn row(rpc: Rpc) -> Row {
    match rpc {
        Rpc::Register
        | Rpc::PreExec
        | Rpc::PreExecStream
        | Rpc::PostExec
        | Rpc::Heartbeat
        | Rpc::GetSessionState
        | Rpc::EndSession
        | Rpc::WaitApproval
        | Rpc::WatchControl
        | Rpc::Redeem
        | Rpc::VerifyAuthorization => AGENTS,
        Rpc::HaltsEngage => OPERATE,
        Rpc::HaltsRelease => RELEASE,
        Rpc::HaltsList => LOOK,
        Rpc::HaltsDrill => CLUSTER_OPERATE,
        Rpc::BudgetsSet | Rpc::BudgetsGrant | Rpc::BudgetsCorrect | Rpc::GuardsPut => OPERATE,
        Rpc::BudgetsGet | Rpc::BudgetsList | Rpc::GuardsGet | Rpc::GuardsList | Rpc::GuardsCheck => LOOK,
        Rpc::ApprovalsList | Rpc::ApprovalsGet | Rpc::ApprovalsWatch => LOOK,
        Rpc::ApprovalsDecide => APPROVE,
        Rpc::SessionsList | Rpc::SessionsGet => LOOK,
        Rpc::SessionsResetCircuit | Rpc::SessionsPause | Rpc::SessionsResume | Rpc::SessionsTerminate => {
            OPERATE
        }
        Rpc::ClusterInit => CLUSTER_INIT,
        Rpc::ClusterStatus | Rpc::ClusterMembers => CLUSTER_LOOK,
        Rpc::ClusterAddLearner
        | Rpc::ClusterPromote
        | Rpc::ClusterRemove
        | Rpc::ClusterTransferLeader
        | Rpc::ClusterSnapshot => CLUSTER_OPERATE,
        Rpc::AuditStream | Rpc::AuditGetEntry | Rpc::AuditGetCheckpoint | Rpc::AuditListKeys => AUDIT,
    }
}

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
    use super::{Rpc, Target, permits};
    use crate::identity::Identity;
    use decision::OrganizationId;

    /// The callers, in the order of the columns below.
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

    /// One row an RPC, one column a caller: `a` about anything, `o` inside its own organization only, `.` never.
    #[rustfmt::skip]
    const TABLE: [(Rpc, &str); 46] = [
        //                            agent sidecar | org: approver operator auditor admin | cluster: the same | node
        (Rpc::Register,              "oo .... .... ."),
        (Rpc::PreExec,               "oo .... .... ."),
        (Rpc::PreExecStream,         "oo .... .... ."),
        (Rpc::PostExec,              "oo .... .... ."),
        (Rpc::Heartbeat,             "oo .... .... ."),
        (Rpc::GetSessionState,       "oo .... .... ."),
        (Rpc::EndSession,            "oo .... .... ."),
        (Rpc::WaitApproval,          "oo .... .... ."),
        (Rpc::WatchControl,          "oo .... .... ."),
        (Rpc::Redeem,                "oo .... .... ."),
        (Rpc::VerifyAuthorization,   "oo .... .... ."),
        (Rpc::HaltsEngage,           ".. .o.o .a.a ."),
        (Rpc::HaltsRelease,          ".. ...o ...a ."),
        (Rpc::HaltsList,             ".. oooo aaaa ."),
        (Rpc::HaltsDrill,            ".. .... .a.a ."),
        (Rpc::BudgetsSet,            ".. .o.o .a.a ."),
        (Rpc::BudgetsGrant,          ".. .o.o .a.a ."),
        (Rpc::BudgetsGet,            ".. oooo aaaa ."),
        (Rpc::BudgetsList,           ".. oooo aaaa ."),
        (Rpc::BudgetsCorrect,        ".. .o.o .a.a ."),
        (Rpc::GuardsPut,             ".. .o.o .a.a ."),
        (Rpc::GuardsGet,             ".. oooo aaaa ."),
        (Rpc::GuardsList,            ".. oooo aaaa ."),
        (Rpc::GuardsCheck,           ".. oooo aaaa ."),
        (Rpc::ApprovalsList,         ".. oooo aaaa ."),
        (Rpc::ApprovalsGet,          ".. oooo aaaa ."),
        (Rpc::ApprovalsDecide,       ".. o... a... ."),
        (Rpc::ApprovalsWatch,        ".. oooo aaaa ."),
        (Rpc::SessionsList,          ".. oooo aaaa ."),
        (Rpc::SessionsGet,           ".. oooo aaaa ."),
        (Rpc::SessionsResetCircuit,  ".. .o.o .a.a ."),
        (Rpc::SessionsPause,         ".. .o.o .a.a ."),
        (Rpc::SessionsResume,        ".. .o.o .a.a ."),
        (Rpc::SessionsTerminate,     ".. .o.o .a.a ."),
        (Rpc::ClusterInit,           ".. .... ...a a"),
        (Rpc::ClusterStatus,         ".. .... .aaa ."),
        (Rpc::ClusterMembers,        ".. .... .aaa ."),
        (Rpc::ClusterAddLearner,     ".. .... .a.a ."),
        (Rpc::ClusterPromote,        ".. .... .a.a ."),
        (Rpc::ClusterRemove,         ".. .... .a.a ."),
        (Rpc::ClusterTransferLeader, ".. .... .a.a ."),
        (Rpc::ClusterSnapshot,       ".. .... .a.a ."),
        (Rpc::AuditStream,           ".. ..o. ..aa ."),
        (Rpc::AuditGetEntry,         ".. ..o. ..aa ."),
        (Rpc::AuditGetCheckpoint,    ".. ..o. ..aa ."),
        (Rpc::AuditListKeys,         ".. ..o. ..aa ."),
    ];

    #[test]
    fn every_cell_of_the_table_is_as_written() {
        let own = OrganizationId::parse("acme").unwrap();
        let other = OrganizationId::parse("globex").unwrap();
        assert!(
            TABLE.iter().map(|row| row.0).eq(Rpc::ALL.iter().copied()),
            "one row an RPC"
        );
        for (rpc, cells) in TABLE {
            let cells: Vec<char> = cells.chars().filter(|cell| *cell != ' ').collect();
            assert_eq!(cells.len(), CALLERS.len(), "{rpc:?}");
            for (caller, cell) in CALLERS.iter().zip(cells) {
                let uri = format!("spiffe://haltgate/{caller}");
                let identity = Identity::of_uris("haltgate", [uri.as_str()].into_iter()).unwrap();
                let permitted = |target| permits(&identity, rpc, target);
                let answers = [
                    permitted(Target::Organization(&own)),
                    permitted(Target::Organization(&other)),
                    permitted(Target::Cluster),
                    permitted(Target::InState),
                ];
                let expected = match cell {
                    'a' => [true, true, true, true],
                    'o' => [true, false, false, true],
                    _ => [false; 4],
                };
                assert_eq!(answers, expected, "{caller} {rpc:?}");
            }
        }
    }

    #[test]
    fn an_rpc_has_one_path() {
        let mut paths: Vec<_> = Rpc::ALL.iter().map(|rpc| rpc.path()).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), Rpc::ALL.len());
    }
}
