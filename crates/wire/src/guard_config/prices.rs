//! Price tables and single tools' limits of a guard.

use decision::Pattern;
use machine::ToolLimit;
use machine::row::price::{ModelPrice, Prices, TokenPrice, ToolPrice};

use super::{above_zero, at, at_most, tool, window, window_of};
use crate::invalid::Invalid;
use crate::money;
use crate::proto::shackle::v1 as proto;

pub(super) fn read(config: &proto::GuardConfig) -> Result<Prices, Invalid> {
    at_most("tool_prices", config.tool_prices.len())?;
    at_most("model_prices", config.model_prices.len())?;
    Ok(Prices {
        tools: at("tool_prices", &config.tool_prices, |row| {
            Ok(ToolPrice {
                tool: tool("tool", &row.tool)?,
                cost: money::dollars("cost_usd", row.cost_usd)?,
            })
        })?,
        models: at("model_prices", &config.model_prices, |row| {
            let price = row.price.ok_or_else(|| Invalid::new("price", "is needed"))?;
            Ok(ModelPrice {
                model: Pattern::parse(&row.model)
                    .map_err(|invalid| Invalid::new("model", invalid.to_string()))?,
                price: token_price(price).map_err(|invalid| invalid.within("price"))?,
            })
        })?,
        other_models: match config.other_models {
            Some(price) => token_price(price).map_err(|invalid| invalid.within("other_models"))?,
            None => Prices::default().other_models,
        },
    })
}

fn token_price(price: proto::TokenPrice) -> Result<TokenPrice, Invalid> {
    Ok(TokenPrice {
        input: money::dollars("input_usd", price.input_usd)?,
        output: money::dollars("output_usd", price.output_usd)?,
    })
}

pub(super) fn write(prices: &Prices, config: &mut proto::GuardConfig) {
    config.tool_prices = prices
        .tools
        .iter()
        .map(|row| proto::ToolPrice {
            tool: row.tool.as_str().to_owned(),
            cost_usd: money::to_dollars(row.cost),
        })
        .collect();
    config.model_prices = prices
        .models
        .iter()
        .map(|row| proto::ModelPrice {
            model: row.model.as_str().to_owned(),
            price: Some(to_token_price(row.price)),
        })
        .collect();
    config.other_models = Some(to_token_price(prices.other_models));
}

fn to_token_price(price: TokenPrice) -> proto::TokenPrice {
    proto::TokenPrice {
        input_usd: money::to_dollars(price.input),
        output_usd: money::to_dollars(price.output),
    }
}

pub(super) fn tool_limits(overrides: &[proto::ToolOverride]) -> Result<Vec<ToolLimit>, Invalid> {
    at_most("tool_overrides", overrides.len())?;
    at("tool_overrides", overrides, |row| {
        Ok(ToolLimit {
            tool: tool("tool", &row.tool)?,
            max_repeat_calls: above_zero(row.max_repeat_calls),
            window: window(row.window_duration_s, row.window_max_calls)?,
            ask: row.ask,
        })
    })
}

pub(super) fn tool_overrides(limits: &[ToolLimit]) -> Vec<proto::ToolOverride> {
    let row = |limit: &ToolLimit| {
        let (window_duration_s, window_max_calls) = window_of(limit.window);
        proto::ToolOverride {
            tool: limit.tool.as_str().to_owned(),
            max_repeat_calls: limit.max_repeat_calls.unwrap_or(0),
            window_duration_s,
            window_max_calls,
            ask: limit.ask,
        }
    };
    limits.iter().map(row).collect()
}
