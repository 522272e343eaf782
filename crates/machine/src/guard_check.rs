//! What no guard may say, wherever it is put.

use decision::NanoUsd;
use decision::policy::check_rules;

use crate::row::Guard;
use crate::row::reply::Refusal;

/// Entries of one list of a guard: it is read with every call.
pub const LIST_MAX: usize = 64;

/// The edge refuses it; so does this.
pub(crate) fn check(guard: &Guard) -> Result<(), Refusal> {
    amounts(guard)?;
    lists(guard)?;
    if guard
        .rate
        .is_some_and(|rate| rate.calls == 0 || rate.span.nanos() == 0)
    {
        return Err(Refusal::Invalid(
            "rate needs calls and a span above zero, or is unset".to_owned(),
        ));
    }
    let invalid = |invalid: &dyn std::fmt::Display| Refusal::Invalid(invalid.to_string());
    guard.breakers.check().map_err(|error| invalid(&error))?;
    check_rules(&guard.rules).map_err(|error| invalid(&error))
}

fn amounts(guard: &Guard) -> Result<(), Refusal> {
    let prices = &guard.prices;
    let tools = prices.tools.iter().map(|price| ("tool_prices", price.cost));
    let models = prices
        .models
        .iter()
        .map(|row| row.price)
        .chain([prices.other_models])
        .flat_map(|price| [price.input, price.output])
        .map(|amount| ("model_prices", amount));
    let amounts = [("default_cost", guard.default_cost)]
        .into_iter()
        .chain(guard.max_overdraft.map(|amount| ("max_overdraft", amount)));
    for (field, amount) in amounts.chain(tools).chain(models) {
        if amount.is_negative() {
            return Err(Refusal::Invalid(format!("{field} must not be below zero")));
        }
    }
    for (field, amount) in [("budget", guard.budget), ("max_cost", guard.max_cost)] {
        if amount.is_some_and(|amount| amount <= NanoUsd::ZERO) {
            return Err(Refusal::Invalid(format!("{field} is above zero, or unset")));
        }
    }
    Ok(())
}

fn lists(guard: &Guard) -> Result<(), Refusal> {
    let prices = &guard.prices;
    let lists = [
        ("agents", guard.agents.len()),
        ("allowed_tools", guard.allowed_tools.as_ref().map_or(0, Vec::len)),
        ("tool_limits", guard.tool_limits.len()),
        ("tool_prices", prices.tools.len()),
        ("model_prices", prices.models.len()),
    ];
    match lists.into_iter().find(|(_, length)| *length > LIST_MAX) {
        Some((field, _)) => Err(Refusal::Invalid(format!(
            "{field} has more than {LIST_MAX} entries"
        ))),
        None => Ok(()),
    }
}
