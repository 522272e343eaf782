//! A session: its counters, its latch, what it waits for.

use std::collections::BTreeMap;

use decision::limits::{self, RateWindow};
use decision::{
    AgentId, ApprovalId, Digest, DurationNs, GuardId, NanoUsd, OrganizationId, Outcomes, Reason, RecentCall,
    SessionId, Timestamp, ToolName,
};
use minicbor::{Decode, Encode};

use crate::row::guard::BudgetScope;
use crate::scope::AccountId;

/// Sessions not heard from for three heartbeats of 30 s are stale (SP/1.0 §4.5).
pub const SESSION_IDLE: DurationNs = DurationNs::from_secs(90);
/// A stale session ends after this long.
pub const SESSION_TTL: DurationNs = DurationNs::from_secs(24 * 3600);
/// An ended session's rows are kept this long for late settlements and questions.
pub const SESSION_KEPT: DurationNs = DurationNs::from_secs(3600);
/// Tools whose windows are counted apart. An agent that invents names faster is counted as at its limit.
pub const WINDOW_TOOLS_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Session {
    #[n(0)]
    pub organization: OrganizationId,
    #[n(1)]
    pub agent: AgentId,
    #[n(2)]
    pub status: SessionStatus,
    #[n(3)]
    pub opened_at: Timestamp,
    #[n(4)]
    pub last_activity: Timestamp,
    #[n(5)]
    pub metadata: BTreeMap<String, String>,
    /// Calls that were allowed.
    #[n(6)]
    pub total_calls: u64,
    /// `total_calls` when a reset last cleared that limit.
    #[n(7)]
    pub total_calls_base: u64,
    /// When the first call since the session's start, or since a reset, was allowed.
    #[n(8)]
    pub first_call_at: Option<Timestamp>,
    #[n(9)]
    pub last_call: Option<LastCall>,
    #[n(10)]
    /// Calls a tool in its current window; at most `WINDOW_TOOLS_MAX` tools.
    pub windows: BTreeMap<ToolName, limits::Window>,
    #[n(11)]
    pub trip: Option<Trip>,
    /// The highest call number seen; 0 before the first.
    #[n(12)]
    pub highest_call: u64,
    /// The calls that wait for people: one where the session pauses, at most `OPEN_APPROVALS_MAX`.
    #[n(13)]
    pub waiting: Vec<Waiting>,
    /// When it was ended; its rows go an hour later.
    #[n(14)]
    pub ended_at: Option<Timestamp>,
    /// Paused by an operator too: no approval's end lifts that.
    #[n(15)]
    pub paused_by_operator: bool,
    /// The named guard it runs under.
    #[n(16)]
    pub guard: Option<GuardId>,
    /// Its last allowed calls, as many as its guard's breakers look at.
    #[n(17)]
    pub recent: Vec<RecentCall>,
    /// Allowed calls within the sliding rate's span.
    #[n(18)]
    pub rate: RateWindow,
    #[n(19)]
    pub outcomes: Outcomes,
    /// Denials in a row.
    #[n(20)]
    pub denials: u32,
    /// Tokens reported, in and out.
    #[n(21)]
    pub tokens: u64,
    /// What its settled calls cost in all.
    #[n(22)]
    pub cost: NanoUsd,
    /// The numbers of the calls in `recent`.
    #[n(23)]
    pub recent_numbers: Vec<u64>,
    /// Tickets that came with audit entries up to this sequence are void.
    #[n(24)]
    pub tickets_void_to: u64,
}

impl Session {
    /// A session with nothing done in it.
    pub fn opened(
        organization: OrganizationId,
        agent: AgentId,
        metadata: BTreeMap<String, String>,
        now: Timestamp,
    ) -> Self {
        Self {
            organization,
            agent,
            status: SessionStatus::Active,
            opened_at: now,
            last_activity: now,
            metadata,
            total_calls: 0,
            total_calls_base: 0,
            first_call_at: None,
            last_call: None,
            windows: BTreeMap::new(),
            trip: None,
            highest_call: 0,
            waiting: Vec::new(),
            ended_at: None,
            paused_by_operator: false,
            guard: None,
            recent: Vec::new(),
            recent_numbers: Vec::new(),
            tickets_void_to: 0,
            rate: RateWindow::default(),
            outcomes: Outcomes::default(),
            denials: 0,
            tokens: 0,
            cost: NanoUsd::ZERO,
        }
    }
}

impl Session {
    /// The account that a budget scope names for this session.
    pub fn account(&self, id: &SessionId, scope: BudgetScope) -> AccountId {
        match scope {
            BudgetScope::Session => AccountId::Session(id.clone()),
            BudgetScope::Agent => AccountId::Agent(self.organization.clone(), self.agent.clone()),
            BudgetScope::Organization => AccountId::Organization(self.organization.clone()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SessionStatus {
    #[n(0)]
    Active,
    #[n(1)]
    Paused,
    #[n(2)]
    Terminated,
    #[n(3)]
    Stale,
}

/// The last call that was allowed, and how often it ran in a row.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LastCall {
    #[n(0)]
    pub call_number: u64,
    #[n(1)]
    pub tool: ToolName,
    #[n(2)]
    pub digest: Option<Digest>,
    #[n(3)]
    pub repeats: u32,
    /// It ended with `success = false`, or its error text held a known signal.
    #[n(4)]
    pub failed: bool,
}

/// The circuit's latch: the first reason sticks.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Trip {
    #[n(0)]
    pub reason: Reason,
    #[n(1)]
    pub at: Timestamp,
    #[n(2)]
    pub call_number: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Waiting {
    #[n(0)]
    pub call_number: u64,
    #[n(1)]
    pub approval_id: ApprovalId,
}
