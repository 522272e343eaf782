//! Every RPC that a client may call, once: its path, its messages, who may call it, and what it waits behind.
//!
//! A new RPC is a row here and a function in the daemon's service. Whatever needs something of every RPC hands this
//! table a macro that reads the rows: [`Rpc`] and the traits of messages (here), roles and urgency (`daemon/roles.rs`),
//! the server's entries (`daemon/entry.rs`). An RPC of the `.proto` files without a row, or a row without its
//! function, does not compile.

pub use crate::proto::haltgate::admin::v1 as admin_v1;
pub use crate::proto::haltgate::audit::v1 as audit_v1;
pub use crate::proto::shackle::v1 as shackle_v1;

/// Hands the table to the macro of this name.
///
/// A service: its full name, where its trait is made, the file of its functions, and which queue its commands wait
/// in (`cluster::Urgency`). An RPC: its name, that within the service, its function and message, what answers it, who
/// may call it (a row of `daemon/roles.rs`), and whether it has `one` answer or `many`, or `both` sides are streams.
#[macro_export]
macro_rules! rpcs {
    ($read:ident) => {
        $read! {
            "shackle.v1.ShackleDaemon" = shackle_v1::shackle_daemon_server::{ShackleDaemon, ShackleDaemonServer}, guard, Call {
                Register              Register            register(RegisterRequest)                        RegisterResponse              AGENTS          one
                PreExec               PreExec             pre_exec(PreExecRequest)                         PreExecResponse               AGENTS          one
                PreExecStream         PreExecStream       pre_exec_stream(PreExecRequest)                  PreExecResponse               AGENTS          both(PreExecStreamStream)
                PostExec              PostExec            post_exec(PostExecNotification)                  Empty                         AGENTS          one
                Heartbeat             Heartbeat           heartbeat(Heartbeat)                             HeartbeatAck                  AGENTS          one
                GetSessionState       GetSessionState     get_session_state(GetSessionStateRequest)        SessionState                  AGENTS          one
                EndSession            EndSession          end_session(EndSessionRequest)                   EndSessionResponse            AGENTS          one
                WaitApproval          WaitApproval        wait_approval(WaitApprovalRequest)               WaitApprovalResponse          AGENTS          many(WaitApprovalStream)
                WatchControl          WatchControl        watch_control(WatchControlRequest)               WatchControlResponse          AGENTS          many(WatchControlStream)
                Redeem                Redeem              redeem(RedeemRequest)                            RedeemResponse                AGENTS          one
                VerifyAuthorization   VerifyAuthorization verify_authorization(VerifyAuthorizationRequest) VerifyAuthorizationResponse   AGENTS          one
            }
            "haltgate.admin.v1.Halts" = admin_v1::halts_server::{Halts, HaltsServer}, halts, Urgent {
                HaltsEngage           Engage              engage(HaltsEngageRequest)                       HaltsEngageResponse           OPERATE         one
                HaltsRelease          Release             release(HaltsReleaseRequest)                     HaltsReleaseResponse          RELEASE         one
                HaltsList             List                list(HaltsListRequest)                           HaltsListResponse             LOOK            one
                HaltsDrill            Drill               drill(HaltsDrillRequest)                         HaltsDrillResponse            CLUSTER_OPERATE one
            }
            "haltgate.admin.v1.Budgets" = admin_v1::budgets_server::{Budgets, BudgetsServer}, budgets, Urgent {
                BudgetsSet            Set                 set(BudgetsSetRequest)                           BudgetsSetResponse            OPERATE         one
                BudgetsGrant          Grant               grant(BudgetsGrantRequest)                       BudgetsGrantResponse          OPERATE         one
                BudgetsGet            Get                 get(BudgetsGetRequest)                           BudgetsGetResponse            LOOK            one
                BudgetsList           List                list(BudgetsListRequest)                         BudgetsListResponse           LOOK            one
                BudgetsCorrect        Correct             correct(BudgetsCorrectRequest)                   BudgetsCorrectResponse        OPERATE         one
            }
            "haltgate.admin.v1.Guards" = admin_v1::guards_server::{Guards, GuardsServer}, guards, Urgent {
                GuardsPut             Put                 put(GuardsPutRequest)                            GuardsPutResponse             OPERATE         one
                GuardsGet             Get                 get(GuardsGetRequest)                            GuardsGetResponse             LOOK            one
                GuardsList            List                list(GuardsListRequest)                          GuardsListResponse            LOOK            one
                GuardsCheck           Check               check(GuardsCheckRequest)                        GuardsCheckResponse           LOOK            one
            }
            "haltgate.admin.v1.Approvals" = admin_v1::approvals_server::{Approvals, ApprovalsServer}, approvals, Urgent {
                ApprovalsList         List                list(ApprovalsListRequest)                       ApprovalsListResponse         LOOK            one
                ApprovalsGet          Get                 get(ApprovalsGetRequest)                         ApprovalsGetResponse          LOOK            one
                ApprovalsDecide       Decide              decide(ApprovalsDecideRequest)                   ApprovalsDecideResponse       APPROVE         one
                ApprovalsWatch        Watch               watch(ApprovalsWatchRequest)                     ApprovalsWatchResponse        LOOK            many(WatchStream)
            }
            "haltgate.admin.v1.Sessions" = admin_v1::sessions_server::{Sessions, SessionsServer}, sessions, Urgent {
                SessionsList          List                list(SessionsListRequest)                        SessionsListResponse          LOOK            one
                SessionsGet           Get                 get(SessionsGetRequest)                          SessionsGetResponse           LOOK            one
                SessionsResetCircuit  ResetCircuit        reset_circuit(SessionsResetCircuitRequest)       SessionsResetCircuitResponse  OPERATE         one
                SessionsPause         Pause               pause(SessionsPauseRequest)                      SessionsPauseResponse         OPERATE         one
                SessionsResume        Resume              resume(SessionsResumeRequest)                    SessionsResumeResponse        OPERATE         one
                SessionsTerminate     Terminate           terminate(SessionsTerminateRequest)              SessionsTerminateResponse     OPERATE         one
            }
            "haltgate.admin.v1.Cluster" = admin_v1::cluster_server::{Cluster, ClusterServer}, cluster, Urgent {
                ClusterInit           Init                init(ClusterInitRequest)                         ClusterInitResponse           CLUSTER_INIT    one
                ClusterStatus         Status              status(ClusterStatusRequest)                     ClusterStatusResponse         CLUSTER_LOOK    one
                ClusterMembers        Members             members(ClusterMembersRequest)                   ClusterMembersResponse        CLUSTER_LOOK    one
                ClusterAddLearner     AddLearner          add_learner(ClusterAddLearnerRequest)            ClusterAddLearnerResponse     CLUSTER_OPERATE one
                ClusterPromote        Promote             promote(ClusterPromoteRequest)                   ClusterPromoteResponse        CLUSTER_OPERATE one
                ClusterRemove         Remove              remove(ClusterRemoveRequest)                     ClusterRemoveResponse         CLUSTER_OPERATE one
                ClusterTransferLeader TransferLeader      transfer_leader(ClusterTransferLeaderRequest)    ClusterTransferLeaderResponse CLUSTER_OPERATE one
                ClusterSnapshot       Snapshot            snapshot(ClusterSnapshotRequest)                 ClusterSnapshotResponse       CLUSTER_OPERATE one
                ClusterActivateVersion ActivateVersion    activate_version(ClusterActivateVersionRequest)  ClusterActivateVersionResponse CLUSTER_OPERATE one
            }
            "haltgate.audit.v1.Audit" = audit_v1::audit_server::{Audit, AuditServer}, audit, Urgent {
                AuditStream           Stream              stream(AuditStreamRequest)                       AuditStreamResponse           AUDIT           many(StreamStream)
                AuditGetEntry         GetEntry            get_entry(AuditGetEntryRequest)                  AuditGetEntryResponse         AUDIT           one
                AuditGetCheckpoint    GetCheckpoint       get_checkpoint(AuditGetCheckpointRequest)        AuditGetCheckpointResponse    AUDIT           one
                AuditListKeys         ListKeys            list_keys(AuditListKeysRequest)                  AuditListKeysResponse         AUDIT           one
            }
        }
    };
}

/// A request with one answer.
pub trait Unary: prost::Message + Clone + Default + 'static {
    const RPC: Rpc;
    type Reply: prost::Message + Default + 'static;
}

/// A request that a stream answers.
pub trait Followed: prost::Message + Clone + Default + 'static {
    const RPC: Rpc;
    type Reply: prost::Message + Default + 'static;
}

macro_rules! declare {
    ($($path:literal = $package:ident::$module:ident::{$service:ident, $server:ident}, $file:ident, $urgency:ident {
        $($rpc:ident $name:ident $function:ident($request:ident) $reply:ident $who:ident $kind:ident $(($stream:ident))?)*
    })*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rpc { $($($rpc,)*)* }

        impl Rpc {
            pub const ALL: &[Self] = &[$($(Self::$rpc,)*)*];

            /// Where gRPC sends it: `/package.Service/Method`.
            pub const fn route(self) -> &'static str {
                match self { $($(Self::$rpc => concat!("/", $path, "/", stringify!($name)),)*)* }
            }
        }

        $($(message! { $kind $rpc $package::$request => $package::$reply })*)*
    };
}

/// Which RPC a message asks, where it asks one alone.
macro_rules! message {
    (one $rpc:ident $request:path => $reply:path) => {
        impl Unary for $request {
            const RPC: Rpc = Rpc::$rpc;
            type Reply = $reply;
        }
    };
    (many $rpc:ident $request:path => $reply:path) => {
        impl Followed for $request {
            const RPC: Rpc = Rpc::$rpc;
            type Reply = $reply;
        }
    };
    (both $rpc:ident $request:path => $reply:path) => {};
}

rpcs!(declare);

impl Rpc {
    /// Its route without the slash in front: as metrics and the audit chain name it.
    pub fn path(self) -> &'static str {
        self.route().trim_start_matches('/')
    }

    /// The RPC of a route, where it is one of these.
    pub fn at(route: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rpc| rpc.route() == route)
    }
}
