//! What calls and tokens cost where nobody says it. Nothing is free because it is not listed.

use decision::{NanoUsd, Pattern, ToolName, ToolPattern};
use minicbor::{Decode, Encode};

/// Price tables of a guard.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Prices {
    /// What a call of a tool is held at when it names no cost; the dearest that matches counts.
    #[n(0)]
    pub tools: Vec<ToolPrice>,
    #[n(1)]
    pub models: Vec<ModelPrice>,
    /// Of models that are not listed.
    #[n(2)]
    pub other_models: TokenPrice,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ToolPrice {
    #[n(0)]
    pub tool: ToolPattern,
    #[n(1)]
    pub cost: NanoUsd,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ModelPrice {
    #[n(0)]
    pub model: Pattern,
    #[n(1)]
    pub price: TokenPrice,
}

/// For a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct TokenPrice {
    #[n(0)]
    pub input: NanoUsd,
    #[n(1)]
    pub output: NanoUsd,
}

/// Tokens that a price is for.
const PRICED_TOKENS: i128 = 1_000_000;

impl Default for Prices {
    /// Unlisted models are priced like the dearest in wide use: too dear shows at once, too cheap on the bill.
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            models: Vec::new(),
            other_models: TokenPrice {
                input: NanoUsd::new(15_000_000_000),
                output: NanoUsd::new(75_000_000_000),
            },
        }
    }
}

impl Prices {
    /// What a call of this tool costs by the table.
    pub fn of_tool(&self, tool: &ToolName) -> Option<NanoUsd> {
        let matching = self.tools.iter().filter(|price| price.tool.matches(tool));
        matching.map(|price| price.cost).max()
    }

    /// What tokens of this model cost by the table: the dearest row that matches.
    fn of_tokens(&self, model: &str, input: u64, output: u64) -> Option<NanoUsd> {
        let matching = self.models.iter().filter(|row| row.model.matches(model));
        matching.map(|row| row.price.of(input, output)).max()
    }
}

/// What tokens cost under several guards: the dearest that lists the model, else the dearest of other models.
pub(crate) fn of_tokens<'g>(
    guards: impl Iterator<Item = &'g Prices> + Clone,
    model: &str,
    input: u64,
    output: u64,
) -> Option<NanoUsd> {
    let listed = guards
        .clone()
        .filter_map(|prices| prices.of_tokens(model, input, output));
    let others = guards.map(|prices| prices.other_models.of(input, output));
    listed.max().or_else(|| others.max())
}

impl TokenPrice {
    /// Rounded up: a token is never free where its price is not.
    fn of(self, input: u64, output: u64) -> NanoUsd {
        let cost = |price: NanoUsd, tokens: u64| i128::from(price.nanos()).saturating_mul(i128::from(tokens));
        let sum = cost(self.input, input).saturating_add(cost(self.output, output));
        let nanos = sum.saturating_add(PRICED_TOKENS - 1) / PRICED_TOKENS;
        NanoUsd::new(i64::try_from(nanos).unwrap_or(i64::MAX))
    }
}
