//! Policy as data: rules that deny, ask, or price a call by its tool, tags and arguments (P3).
//!
//! Rules only tighten. Each is looked at, in order; none switches another off, and one that cannot be
//! judged denies. The proposing node evaluates them where the arguments are, and the entry carries what
//! matched.

mod decimal;
mod predicate;

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};

pub use decimal::Decimal;
pub use predicate::{CHOICES_MAX, PATH_MAX, Predicate, Scalar, TEXT_MAX, Test};

use crate::id::{RuleId, ToolName};
use crate::json::Value;
use crate::money::NanoUsd;
use crate::pattern::{Pattern, ToolPattern};
use predicate::Unjudged;

/// A guard has at most this many rules.
pub const RULES_MAX: usize = 64;
/// A rule has at most this many predicates.
pub const PREDICATES_MAX: usize = 16;
/// A rule names at most this many patterns of tools.
pub const TOOLS_MAX: usize = 64;
/// A rule looks at at most this many tags.
pub const TAGS_MAX: usize = 16;

/// Evaluates every rule against one call; total.
pub fn evaluate(rules: &[Rule], call: &Asked<'_>) -> Matched {
    let mut matched = Matched::default();
    for rule in rules {
        match rule.applies(call) {
            Applies::No => {}
            Applies::Yes => matched.take(rule),
            Applies::NeedsParams => matched.params_needed = true,
            Applies::Unjudged => matched.deny(RuleId::error(), false),
        }
    }
    matched
}

/// Holds what the rules look at.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub tool: &'a ToolName,
    pub tags: &'a BTreeMap<String, String>,
    /// The arguments' object; unset where the call came without.
    pub params: Option<&'a Value<'a>>,
}

/// Holds what the rules say of one call; the default says nothing.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq, Default)]
pub struct Matched {
    /// The first rule that denies and trips the circuit, else the first that denies.
    #[n(0)]
    pub denied: Option<Denied>,
    /// The first rule that asks a person.
    #[n(1)]
    pub asks: Option<RuleId>,
    /// The highest price; the caller takes it where it is above the estimate.
    #[n(2)]
    pub cost: Option<NanoUsd>,
    /// A rule asks about arguments, and there are none (`policy_violation:params_required`).
    #[n(3)]
    pub params_needed: bool,
}

/// Names the rule that denies; `error` where one could not be judged.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    #[n(0)]
    pub rule: RuleId,
    /// The session's circuit opens as well.
    #[n(1)]
    pub trips: bool,
}

impl Matched {
    fn take(&mut self, rule: &Rule) {
        match rule.effect {
            Effect::Deny { trips } => self.deny(rule.id.clone(), trips),
            Effect::Ask => {
                self.asks.get_or_insert_with(|| rule.id.clone());
            }
            Effect::Cost(cost) => self.cost = self.cost.max(Some(cost)),
        }
    }

    fn deny(&mut self, rule: RuleId, trips: bool) {
        match &self.denied {
            Some(denied) if denied.trips || !trips => {}
            _ => self.denied = Some(Denied { rule, trips }),
        }
    }
}

/// Holds one rule: where it looks, what must hold, and what follows.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    #[n(0)]
    pub id: RuleId,
    /// Any of these; empty for every tool.
    #[n(1)]
    pub tools: Vec<ToolPattern>,
    /// All of these.
    #[n(2)]
    pub tags: Vec<TagTest>,
    /// All of these, asked in order up to the first that does not hold, so that `exists amount` can stand
    /// before `amount > 100`. One that cannot be judged makes the call denied by `error`.
    #[n(3)]
    pub when: Vec<Predicate>,
    #[n(4)]
    pub effect: Effect,
}

/// Looks at one tag. Tags are what the caller says of itself.
#[derive(Encode, Decode, Debug, Clone, PartialEq, Eq)]
pub struct TagTest {
    #[n(0)]
    pub key: String,
    #[n(1)]
    pub pattern: Pattern,
    /// A call without the tag matches too, so that nobody escapes the rule by leaving the tag out.
    #[n(2)]
    pub or_absent: bool,
}

/// Says what follows where a rule matches.
#[derive(Encode, Decode, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// DENY `policy:<rule id>`.
    #[n(0)]
    Deny {
        /// The session's circuit opens as well.
        #[n(0)]
        trips: bool,
    },
    /// A person is asked.
    #[n(1)]
    Ask,
    /// The call is expected to cost at least this.
    #[n(2)]
    Cost(#[n(0)] NanoUsd),
}

enum Applies {
    No,
    Yes,
    NeedsParams,
    Unjudged,
}

impl Rule {
    fn applies(&self, call: &Asked<'_>) -> Applies {
        let named = self.tools.is_empty() || self.tools.iter().any(|pattern| pattern.matches(call.tool));
        if !named || !self.tags.iter().all(|tag| tag.holds(call.tags)) {
            return Applies::No;
        }
        if self.when.is_empty() {
            return Applies::Yes;
        }
        let Some(params) = call.params else {
            return Applies::NeedsParams;
        };
        for predicate in &self.when {
            match predicate.holds(params) {
                Ok(true) => {}
                Ok(false) => return Applies::No,
                Err(Unjudged) => return Applies::Unjudged,
            }
        }
        Applies::Yes
    }

    /// Refuses a rule that is out of its bounds, and names the field.
    pub fn check(&self) -> Result<(), InvalidRule> {
        let bounds = [
            (
                "id",
                self.id != RuleId::error(),
                "is not `error`, which names rules that cannot be judged",
            ),
            ("tools", self.tools.len() <= TOOLS_MAX, "has at most 64 patterns"),
            ("tags", self.tags.len() <= TAGS_MAX, "has at most 16 tests"),
            (
                "tags",
                self.tags
                    .iter()
                    .all(|tag| (1..=TEXT_MAX).contains(&tag.key.len())),
                "has keys of 1 to 256 bytes",
            ),
            (
                "when",
                self.when.len() <= PREDICATES_MAX,
                "has at most 16 predicates",
            ),
            (
                "effect",
                !matches!(self.effect, Effect::Cost(cost) if cost <= NanoUsd::ZERO),
                "is a cost above zero",
            ),
        ];
        if let Some((field, _, must)) = bounds.into_iter().find(|(_, holds, _)| !holds) {
            return Err(self.invalid(field.to_owned(), must));
        }
        for (position, predicate) in self.when.iter().enumerate() {
            predicate
                .check()
                .map_err(|(part, must)| self.invalid(format!("when[{position}].{part}"), must))?;
        }
        Ok(())
    }

    fn invalid(&self, field: String, must: &'static str) -> InvalidRule {
        InvalidRule {
            rule: self.id.clone(),
            field,
            must,
        }
    }
}

impl TagTest {
    fn holds(&self, tags: &BTreeMap<String, String>) -> bool {
        match tags.get(&self.key) {
            Some(value) => self.pattern.matches(value),
            None => self.or_absent,
        }
    }
}

/// Checks a guard's rules, one by one and that each has an id of its own.
pub fn check_rules(rules: &[Rule]) -> Result<(), InvalidRules> {
    if rules.len() > RULES_MAX {
        return Err(InvalidRules::TooMany);
    }
    let mut ids = std::collections::BTreeSet::new();
    for rule in rules {
        rule.check()?;
        if !ids.insert(&rule.id) {
            return Err(InvalidRules::SameId(rule.id.clone()));
        }
    }
    Ok(())
}

/// Names the field of a rule that is wrong; the caller fixes the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule}: {field} {must}")]
pub struct InvalidRule {
    pub rule: RuleId,
    /// As in `when[2].path`, counted from 0.
    pub field: String,
    pub must: &'static str,
}

/// Says why a guard's rules are refused; the caller fixes the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRules {
    #[error("a guard has at most 64 rules")]
    TooMany,
    #[error("two rules have the id {0}")]
    SameId(RuleId),
    #[error(transparent)]
    Rule(#[from] InvalidRule),
}
