//! How lines are read.

use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;

use audit::Signer;
use decision::behaviour::ErrorRate;
use decision::facts::Mode;
use decision::limits::Rate;
use decision::{
    AgentId, Breakers, Digest, DurationNs, GuardId, HitlRule, OrganizationId, Pattern, PerBillion, RequestId,
    Rule, RuleId, ToolPattern, policy,
};
use goldenscript::ArgumentConsumer;
use machine::command::{AgentPattern, Principal, Request};
use machine::row::price::{ModelPrice, TokenPrice, ToolPrice};
use machine::{BudgetScope, Guard, LatchScope, PauseScope, ToolLimit, TripPolicy, Unsettled, Window};

pub type Failed = Box<dyn Error>;

pub fn span(text: &str) -> Result<DurationNs, Failed> {
    let (count, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let count: u64 = count.parse()?;
    Ok(match unit {
        "ns" => DurationNs::from_nanos(count),
        "s" => DurationNs::from_secs(count),
        "h" => DurationNs::from_secs(count * 3600),
        other => return Err(format!("no unit {other}").into()),
    })
}

pub fn flag(args: &mut ArgumentConsumer<'_>, key: &str) -> Result<bool, Failed> {
    Ok(args
        .take_key(key)
        .map(bool::from_str)
        .transpose()?
        .unwrap_or(false))
}

pub fn number(args: &mut ArgumentConsumer<'_>, key: &str, default: u64) -> Result<u64, Failed> {
    Ok(args
        .take_key(key)
        .map(u64::from_str)
        .transpose()?
        .unwrap_or(default))
}

pub fn id<T, E: Error + 'static>(
    args: &mut ArgumentConsumer<'_>,
    key: &str,
    default: &str,
    parse: fn(&str) -> Result<T, E>,
) -> Result<T, Failed> {
    Ok(parse(args.take_key(key).unwrap_or(default))?)
}

/// `req=r1`, and `payload=other` where the same id comes with something else.
pub fn request(args: &mut ArgumentConsumer<'_>) -> Result<Option<Request>, Failed> {
    let payload = Digest::of(args.take_key("payload").unwrap_or("the same").as_bytes());
    let id = args.take_key("req").map(RequestId::parse).transpose()?;
    Ok(id.map(|id| Request { id, payload }))
}

pub fn required(request: Option<Request>, default: &str) -> Request {
    request.unwrap_or_else(|| Request {
        id: RequestId::parse(default).unwrap(),
        payload: Digest::of(default.as_bytes()),
    })
}

pub fn root() -> Principal {
    Principal {
        name: "cluster/admin/root".to_owned(),
        organization: None,
        agents: Vec::new(),
    }
}

/// `by=acme` is that organization's operator; without it, the cluster's administrator.
pub fn operator(args: &mut ArgumentConsumer<'_>) -> Result<Principal, Failed> {
    Ok(match args.take_key("by") {
        None => root(),
        Some(organization) => Principal {
            name: format!("org/{organization}/operator/olga"),
            organization: Some(OrganizationId::parse(organization)?),
            agents: Vec::new(),
        },
    })
}

pub fn signer(seed: &str) -> Result<Signer, Failed> {
    Ok(Signer::from_seed(&[seed.parse()?; 32]))
}

/// The shipped default with what the line changes of it; `off` unsets.
pub fn guard(args: &mut ArgumentConsumer<'_>) -> Result<Guard, Failed> {
    let mut guard = Guard::default();
    while let Some((key, value)) = args.next_key() {
        match key {
            "budget" => guard.budget = Some(value.parse()?),
            "scope" => {
                guard.budget_scope = match value {
                    "session" => BudgetScope::Session,
                    "agent" => BudgetScope::Agent,
                    "organization" => BudgetScope::Organization,
                    other => return Err(unknown(other)),
                }
            }
            // Off is all that looks at repetition.
            "repeats" if value == "off" => {
                guard.max_repeat_calls = None;
                guard.breakers = Breakers::off();
            }
            "repeats" => guard.max_repeat_calls = Some(value.parse()?),
            "amplify" => guard.error_amplification = value.parse()?,
            "timeout" => guard.timeout = Some(span(value)?),
            "window" => {
                let (calls, duration) = value.split_once('/').ok_or("calls/span")?;
                let (max_calls, duration) = (calls.parse()?, span(duration)?);
                guard.window = Some(Window { duration, max_calls });
            }
            "total" => guard.max_total_calls = Some(value.parse()?),
            "jitter" => guard.probabilistic = PerBillion::from_percent(value.parse()?),
            "hitl" => {
                guard.hitl = match value {
                    "never" => HitlRule::Never,
                    "always" => HitlRule::Always,
                    "on_deny" => HitlRule::OnDeny,
                    percent => {
                        HitlRule::OnThreshold(PerBillion::from_percent(percent.parse()?).ok_or("percent")?)
                    }
                }
            }
            "ttl" => guard.hold_ttl = span(value)?,
            "unsettled" => {
                guard.unsettled = match value {
                    "charge" => Unsettled::Charge,
                    "release" => Unsettled::Release,
                    other => return Err(unknown(other)),
                }
            }
            "trip" => {
                guard.trip_policy = match value {
                    "behaviour" => TripPolicy::Behaviour,
                    "seed" => TripPolicy::Seed,
                    "never" => TripPolicy::Never,
                    other => return Err(unknown(other)),
                }
            }
            "default_cost" => guard.default_cost = value.parse()?,
            "at_least" => guard.settle_at_least_hold = value.parse()?,
            "params" => guard.require_params = value == "required",
            "parent" => guard.parent = Some(GuardId::parse(value)?),
            "agents" => {
                guard.agents = value
                    .split(',')
                    .map(|name| AgentId::parse(name).map(AgentPattern::Exact))
                    .collect::<Result<_, _>>()?;
            }
            "observe" => {
                guard.mode = if value.parse()? {
                    Mode::Observe
                } else {
                    Mode::Enforce
                }
            }
            "tools" => guard.allowed_tools = Some(patterns(value)?),
            "polling" => guard.breakers.polling_tools = patterns(value)?,
            "result_aware" => guard.breakers.result_aware = value.parse()?,
            "streak" => guard.breakers.name_streak = Some(value.parse()?),
            "storm" if value == "off" => guard.breakers.storm = None,
            "cycle" if value == "off" => guard.breakers.cycle = None,
            "denials" => guard.breakers.denials = Some(value.parse()?),
            "errors" => {
                let (ratio, outcomes) = value.split_once('/').ok_or("percent/outcomes")?;
                guard.breakers.error_rate = Some(ErrorRate {
                    outcomes: outcomes.parse()?,
                    ratio: PerBillion::from_percent(ratio.parse()?).ok_or("percent")?,
                });
            }
            "rate" => {
                let (calls, span_text) = value.split_once('/').ok_or("calls/span")?;
                guard.rate = Some(Rate {
                    calls: calls.parse()?,
                    span: span(span_text)?,
                });
            }
            "max_tokens" => guard.max_tokens = Some(value.parse()?),
            "max_cost" => guard.max_cost = Some(value.parse()?),
            "price" => {
                let (tool, cost) = value.split_once('/').ok_or("tool/cost")?;
                let tool = ToolPattern::parse(tool)?;
                guard.prices.tools.push(ToolPrice {
                    tool,
                    cost: cost.parse()?,
                });
            }
            "model" => {
                let mut words = value.split('/');
                let mut word = || words.next().ok_or("model/input/output");
                guard.prices.models.push(ModelPrice {
                    model: Pattern::parse(word()?)?,
                    price: TokenPrice {
                        input: word()?.parse()?,
                        output: word()?.parse()?,
                    },
                });
            }
            "ask_tool" => guard.tool_limits.push(ToolLimit {
                tool: ToolPattern::parse(value)?,
                max_repeat_calls: None,
                window: None,
                ask: true,
            }),
            "tool_repeats" => {
                let (tool, most) = value.split_once('/').ok_or("tool/repeats")?;
                guard.tool_limits.push(ToolLimit {
                    tool: ToolPattern::parse(tool)?,
                    max_repeat_calls: Some(most.parse()?),
                    window: None,
                    ask: false,
                });
            }
            "on_deny" => {
                guard.on_deny_rules = guard.on_deny_rules.with(match value {
                    "P2" => Rule::P2,
                    "R6" => Rule::R6,
                    "Q5" => Rule::Q5,
                    other => return Err(unknown(other)),
                })
            }
            "latch" => {
                guard.latch_scope = match value {
                    "session" => LatchScope::Session,
                    "agent" => LatchScope::Agent,
                    other => return Err(unknown(other)),
                }
            }
            "agent_sessions" => guard.max_agent_sessions = Some(value.parse()?),
            "org_sessions" => guard.max_organization_sessions = Some(value.parse()?),
            "ticket_ttl" => guard.ticket_ttl = Some(span(value)?),
            "warn" => guard.warn_at = PerBillion::from_percent(value.parse()?),
            "max_overdraft" => guard.max_overdraft = Some(value.parse()?),
            "version" => guard.version = value.parse()?,
            // The rules' facts come with the calls; here it only counts that there are rules.
            "rule" => guard.rules.push(policy::Rule {
                id: RuleId::parse(value)?,
                tools: Vec::new(),
                tags: Vec::new(),
                when: Vec::new(),
                effect: policy::Effect::Ask,
            }),
            "approval_ttl" => guard.approval_ttl = span(value)?,
            "pause" => {
                guard.pause_scope = match value {
                    "session" => PauseScope::Session,
                    "call" => PauseScope::Call,
                    other => return Err(unknown(other)),
                }
            }
            other => return Err(unknown(other)),
        }
    }
    Ok(guard)
}

fn patterns(list: &str) -> Result<Vec<ToolPattern>, Failed> {
    let words = list.split(',').filter(|word| !word.is_empty());
    Ok(words.map(ToolPattern::parse).collect::<Result<_, _>>()?)
}

pub fn unknown(word: impl Display) -> Failed {
    format!("unknown: {word}").into()
}
