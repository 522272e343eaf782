//! Guard configuration: the limits a session runs under.

use decision::decide::RuleSet;
use decision::facts::Mode;
use decision::limits::Rate;
use decision::policy::Rule;
use decision::{
    AgentId, Breakers, Digest, DurationNs, GuardId, HitlRule, NanoUsd, PerBillion, ToolName, ToolPattern,
};
use minicbor::{Decode, Encode};

use crate::encoding::Canonical;
use crate::principal::AgentPattern;
use crate::row::price::Prices;

/// The limits of SP/1.0 §5.2 and ours; `None` is "not limited". The wire's 0 became `None` at the edge.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Guard {
    /// Counts the writes of this guard; stamped when it is written.
    #[n(0)]
    pub version: u64,
    /// What a session's account (or the scope's) is opened with at registration.
    #[n(1)]
    pub budget: Option<NanoUsd>,
    #[n(2)]
    pub budget_scope: BudgetScope,
    /// Identical consecutive calls that may run.
    #[n(3)]
    pub max_repeat_calls: Option<u32>,
    #[n(4)]
    pub error_amplification: bool,
    /// Wall clock since the first call, by log time.
    #[n(5)]
    pub timeout: Option<DurationNs>,
    #[n(6)]
    pub window: Option<Window>,
    #[n(7)]
    pub max_total_calls: Option<u32>,
    /// The jitter ratio of probabilistic denial.
    #[n(8)]
    pub probabilistic: Option<PerBillion>,
    #[n(9)]
    pub hitl: HitlRule,
    /// How long a hold waits for its settlement.
    #[n(10)]
    pub hold_ttl: DurationNs,
    #[n(11)]
    pub unsettled: Unsettled,
    #[n(12)]
    pub trip_policy: TripPolicy,
    /// The price of a call that names none. Never zero by default: an unpriced call is not free.
    #[n(13)]
    pub default_cost: NanoUsd,
    #[n(14)]
    pub settle_at_least_hold: bool,
    /// Whether a call must bring its parameters, not only their digest.
    #[n(15)]
    pub require_params: bool,
    /// How long an approval stays open.
    #[n(16)]
    pub approval_ttl: DurationNs,
    #[n(17)]
    pub pause_scope: PauseScope,
    /// The guard above it: of a named guard its place in the tree, of another the tree its sessions run in.
    #[n(18)]
    pub parent: Option<GuardId>,
    /// Who may register under it, where it is a named one; nobody by default.
    #[n(19)]
    pub agents: Vec<AgentPattern>,
    #[n(20)]
    pub mode: Mode,
    /// Unset allows every tool; empty allows none.
    #[n(21)]
    pub allowed_tools: Option<Vec<ToolPattern>>,
    #[n(22)]
    pub rate: Option<Rate>,
    #[n(23)]
    pub breakers: Breakers,
    /// Tokens of the whole session, in and out.
    #[n(24)]
    pub max_tokens: Option<u64>,
    /// What the whole session may have cost.
    #[n(25)]
    pub max_cost: Option<NanoUsd>,
    #[n(26)]
    pub prices: Prices,
    /// Limits of single tools; they only tighten the guard's own.
    #[n(27)]
    pub tool_limits: Vec<ToolLimit>,
    /// Rules whose DENY `HitlRule::OnDeny` turns into a question, besides R5b.
    #[n(28)]
    pub on_deny_rules: RuleSet,
    #[n(29)]
    pub latch_scope: LatchScope,
    /// Open sessions of one agent.
    #[n(30)]
    pub max_agent_sessions: Option<u32>,
    /// Open sessions of the whole organization.
    #[n(31)]
    pub max_organization_sessions: Option<u32>,
    /// How long a single-use authorization lives; unset hands out none.
    #[n(32)]
    pub ticket_ttl: Option<DurationNs>,
    /// From this part of a limit upwards an ALLOW carries a warning.
    #[n(33)]
    pub warn_at: Option<PerBillion>,
    /// What one call may be charged beyond its hold; unset books every report in full.
    #[n(34)]
    pub max_overdraft: Option<NanoUsd>,
    #[n(35)]
    pub rules: Vec<Rule>,
}

/// What one kind of tool may do, beside what the guard says of all.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ToolLimit {
    #[n(0)]
    pub tool: ToolPattern,
    #[n(1)]
    pub max_repeat_calls: Option<u32>,
    #[n(2)]
    pub window: Option<Window>,
    /// Every call of it is asked for.
    #[n(3)]
    pub ask: bool,
}

/// What a tripped circuit stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum LatchScope {
    #[n(0)]
    Session,
    /// New sessions of its agent start tripped, too.
    #[n(1)]
    Agent,
}

/// Calls of one tool in one window (SP/1.0 layer 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Window {
    #[n(0)]
    pub duration: DurationNs,
    #[n(1)]
    pub max_calls: u32,
}

/// Whose account a session draws on first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum BudgetScope {
    #[n(0)]
    Session,
    #[n(1)]
    Agent,
    #[n(2)]
    Organization,
}

/// What waits while a person is asked; the session goes before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum PauseScope {
    /// The whole session.
    #[n(0)]
    Session,
    /// The one call.
    #[n(1)]
    Call,
}

/// What becomes of a hold that nobody settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Unsettled {
    #[n(0)]
    Charge,
    #[n(1)]
    Release,
}

/// Which denials trip the session's circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum TripPolicy {
    /// Those of behaviour: `Rule::trips_by_default`.
    #[n(0)]
    Behaviour,
    /// Any denial, as SP/1.0 §5.3 has it (the kill switch and probabilistic denial excepted).
    #[n(1)]
    Seed,
    #[n(2)]
    Never,
}

impl Default for Guard {
    /// The shipped default: stops an exact loop, prices what is unpriced, leaves the rest to budgets.
    fn default() -> Self {
        Self {
            version: 0,
            budget: None,
            budget_scope: BudgetScope::Session,
            max_repeat_calls: Some(3),
            error_amplification: true,
            timeout: None,
            window: None,
            max_total_calls: None,
            probabilistic: None,
            hitl: HitlRule::Never,
            hold_ttl: DurationNs::from_secs(600),
            unsettled: Unsettled::Charge,
            trip_policy: TripPolicy::Behaviour,
            // One cent: of the order of one model call, so that forgetting prices shows within a
            // hundred calls per dollar instead of never.
            default_cost: NanoUsd::new(10_000_000),
            settle_at_least_hold: false,
            require_params: false,
            approval_ttl: DurationNs::from_secs(300),
            pause_scope: PauseScope::Session,
            parent: None,
            agents: Vec::new(),
            mode: Mode::Enforce,
            allowed_tools: None,
            rate: None,
            breakers: Breakers::default(),
            max_tokens: None,
            max_cost: None,
            prices: Prices::default(),
            tool_limits: Vec::new(),
            on_deny_rules: RuleSet::EMPTY,
            latch_scope: LatchScope::Session,
            max_agent_sessions: None,
            max_organization_sessions: None,
            ticket_ttl: None,
            warn_at: None,
            max_overdraft: None,
            rules: Vec::new(),
        }
    }
}

impl Guard {
    /// SHA-256 over what the guard says; in the audit entry of every verdict it took part in.
    pub fn digest(&self) -> Digest {
        self.canonical().digest()
    }

    /// Taken apart by name, so that a new setting does not compile until it is hashed.
    fn canonical(&self) -> Canonical {
        let Guard {
            version,
            budget,
            budget_scope,
            max_repeat_calls,
            error_amplification,
            timeout,
            window,
            max_total_calls,
            probabilistic,
            hitl,
            hold_ttl,
            unsettled,
            trip_policy,
            default_cost,
            settle_at_least_hold,
            require_params,
            approval_ttl,
            pause_scope,
            parent,
            agents,
            mode,
            allowed_tools,
            rate,
            breakers,
            max_tokens,
            max_cost,
            prices,
            tool_limits,
            on_deny_rules,
            latch_scope,
            max_agent_sessions,
            max_organization_sessions,
            ticket_ttl,
            warn_at,
            max_overdraft,
            rules,
        } = self;
        Canonical::of("haltgate guard v1")
            .put(0, version)
            .put(1, budget)
            .put(2, budget_scope)
            .put(3, max_repeat_calls)
            .put(4, error_amplification)
            .put(5, timeout)
            .put(6, window)
            .put(7, max_total_calls)
            .put(8, probabilistic)
            .put(9, hitl)
            .put(10, hold_ttl)
            .put(11, unsettled)
            .put(12, trip_policy)
            .put(13, default_cost)
            .put(14, settle_at_least_hold)
            .put(15, require_params)
            .put(16, approval_ttl)
            .put(17, pause_scope)
            .put(18, parent)
            .put(19, agents)
            .put(20, mode)
            .put(21, allowed_tools)
            .put(22, rate)
            .put(23, breakers)
            .put(24, max_tokens)
            .put(25, max_cost)
            .put(26, prices)
            .put(27, tool_limits)
            .put(28, on_deny_rules)
            .put(29, latch_scope)
            .put(30, max_agent_sessions)
            .put(31, max_organization_sessions)
            .put(32, ticket_ttl)
            .put(33, warn_at)
            .put(34, max_overdraft)
            .put(35, rules)
    }

    /// A guard that limits nothing.
    pub fn unlimited() -> Self {
        Self {
            max_repeat_calls: None,
            error_amplification: false,
            trip_policy: TripPolicy::Never,
            breakers: Breakers::off(),
            ..Self::default()
        }
    }

    /// Says whether sessions of an agent may run under this guard by its name.
    pub fn is_for(&self, agent: &AgentId) -> bool {
        self.agents.iter().any(|pattern| pattern.matches(agent))
    }

    /// P2, of this guard alone.
    pub fn allows(&self, tool: &ToolName) -> bool {
        self.allowed_tools
            .as_ref()
            .is_none_or(|allowed| allowed.iter().any(|pattern| pattern.matches(tool)))
    }

    /// This guard as it is for one tool: its own limits, tightened by those of the tool.
    pub fn max_repeats_of(&self, tool: &ToolName) -> Option<u32> {
        self.limits_of(tool)
            .map(|limit| limit.max_repeat_calls)
            .fold(self.max_repeat_calls, least)
    }

    /// Q4: the window that one tool is counted in.
    pub fn window_of(&self, tool: &ToolName) -> Option<Window> {
        self.limits_of(tool)
            .map(|limit| limit.window)
            .fold(self.window, tighter)
    }

    /// R7: when a person is asked for a call of this tool.
    pub fn hitl_of(&self, tool: &ToolName) -> HitlRule {
        if self.limits_of(tool).any(|limit| limit.ask) {
            HitlRule::Always
        } else {
            self.hitl
        }
    }

    fn limits_of<'g>(&'g self, tool: &'g ToolName) -> impl Iterator<Item = &'g ToolLimit> {
        self.tool_limits
            .iter()
            .filter(move |limit| limit.tool.matches(tool))
    }

    /// Takes over whatever another guard on the same path limits more.
    pub fn tighten(&mut self, other: &Guard) {
        // Taken apart field by field: a setting that is forgotten here does not compile.
        let Guard {
            // What is said of one guard alone. Lists of tools, prices and rules: each guard's own apply.
            version: _,
            parent: _,
            agents: _,
            mode: _,
            allowed_tools: _,
            prices: _,
            rules: _,
            // Whose account is opened and looked at is the agent's own guard's word.
            budget: _,
            budget_scope: _,
            max_repeat_calls,
            error_amplification,
            timeout,
            window,
            max_total_calls,
            probabilistic,
            hitl,
            hold_ttl,
            unsettled,
            trip_policy,
            default_cost,
            settle_at_least_hold,
            require_params,
            approval_ttl,
            pause_scope,
            rate,
            breakers,
            max_tokens,
            max_cost,
            tool_limits,
            on_deny_rules,
            latch_scope,
            max_agent_sessions,
            max_organization_sessions,
            ticket_ttl,
            warn_at,
            max_overdraft,
        } = other;
        limit(&mut self.max_repeat_calls, *max_repeat_calls);
        self.error_amplification |= error_amplification;
        limit(&mut self.timeout, *timeout);
        self.window = tighter(self.window, *window);
        limit(&mut self.max_total_calls, *max_total_calls);
        self.probabilistic = self.probabilistic.max(*probabilistic);
        self.hitl = stricter(self.hitl, *hitl);
        self.hold_ttl = self.hold_ttl.min(*hold_ttl);
        self.unsettled = self.unsettled.min(*unsettled);
        self.trip_policy = self.trip_policy.stricter(*trip_policy);
        self.default_cost = self.default_cost.max(*default_cost);
        self.settle_at_least_hold |= settle_at_least_hold;
        self.require_params |= require_params;
        self.approval_ttl = self.approval_ttl.min(*approval_ttl);
        self.pause_scope = self.pause_scope.min(*pause_scope);
        self.rate = slower(self.rate, *rate);
        self.breakers = self.breakers.tightened(breakers);
        limit(&mut self.max_tokens, *max_tokens);
        limit(&mut self.max_cost, *max_cost);
        self.tool_limits.extend(tool_limits.iter().cloned());
        self.on_deny_rules = self.on_deny_rules.and(*on_deny_rules);
        self.latch_scope = self.latch_scope.max(*latch_scope);
        limit(&mut self.max_agent_sessions, *max_agent_sessions);
        limit(&mut self.max_organization_sessions, *max_organization_sessions);
        limit(&mut self.ticket_ttl, *ticket_ttl);
        limit(&mut self.warn_at, *warn_at);
        limit(&mut self.max_overdraft, *max_overdraft);
    }
}

impl TripPolicy {
    fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Seed, _) | (_, Self::Seed) => Self::Seed,
            (Self::Behaviour, _) | (_, Self::Behaviour) => Self::Behaviour,
            (Self::Never, Self::Never) => Self::Never,
        }
    }
}

fn limit<T: Ord>(own: &mut Option<T>, other: Option<T>) {
    *own = least(own.take(), other);
}

/// At least as tight as both: fewer calls in a longer time.
fn slower(one: Option<Rate>, two: Option<Rate>) -> Option<Rate> {
    match (one, two) {
        (Some(one), Some(two)) => Some(Rate {
            calls: one.calls.min(two.calls),
            span: one.span.max(two.span),
        }),
        (one, two) => one.or(two),
    }
}

/// The smaller of two limits; unset is none.
fn least<T: Ord>(one: Option<T>, two: Option<T>) -> Option<T> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}

/// At least as tight as both: fewer calls in a longer time.
fn tighter(one: Option<Window>, two: Option<Window>) -> Option<Window> {
    match (one, two) {
        (Some(one), Some(two)) => Some(Window {
            duration: one.duration.max(two.duration),
            max_calls: one.max_calls.min(two.max_calls),
        }),
        (one, two) => one.or(two),
    }
}

/// Asking for everything goes before asking from a threshold, that before not asking; asking instead of denying
/// loosens, so all must want it.
fn stricter(one: HitlRule, two: HitlRule) -> HitlRule {
    match (one, two) {
        (HitlRule::Always, _) | (_, HitlRule::Always) => HitlRule::Always,
        (HitlRule::OnThreshold(one), HitlRule::OnThreshold(two)) => HitlRule::OnThreshold(one.max(two)),
        (HitlRule::OnThreshold(ratio), _) | (_, HitlRule::OnThreshold(ratio)) => HitlRule::OnThreshold(ratio),
        (HitlRule::OnDeny, HitlRule::OnDeny) => HitlRule::OnDeny,
        (HitlRule::Never | HitlRule::OnDeny, HitlRule::Never | HitlRule::OnDeny) => HitlRule::Never,
    }
}
