//! How lines are read.

use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;

use audit::Signer;
use decision::{Digest, DurationNs, HitlRule, OrganizationId, PerBillion, RequestId};
use goldenscript::ArgumentConsumer;
use machine::command::{Principal, Request};
use machine::{BudgetScope, Guard, PauseScope, TripPolicy, Unsettled, Window};

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
            "repeats" => guard.max_repeat_calls = (value != "off").then(|| value.parse()).transpose()?,
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

pub fn unknown(word: impl Display) -> Failed {
    format!("unknown: {word}").into()
}
