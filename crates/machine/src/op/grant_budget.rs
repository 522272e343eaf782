//! Adds to an account's limit.

use audit::Kind;
use decision::{Limit, NanoUsd};

use crate::command::GrantBudget;
use crate::row::Account;
use crate::row::reply::Refusal;
use crate::step::money::Order;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, grant: &GrantBudget) -> Done {
    let order = Order {
        by: &grant.by,
        account: &grant.account,
        request: &grant.request,
        justification: &grant.justification,
        kind: Kind::BudgetGranted,
    };
    order.carry_out(turn, |account| {
        if grant.amount <= NanoUsd::ZERO {
            return Err(Refusal::Invalid("a grant is above zero".to_owned()));
        }
        let none = || format!("{} has no account: set its budget first", grant.account);
        let account = account.ok_or_else(|| Refusal::NotFound(none()))?;
        let Limit::Amount(amount) = account.limit else {
            return Err(Refusal::Precondition(format!(
                "{} is suspended or unlimited: set its budget to an amount first",
                grant.account
            )));
        };
        let sum = amount
            .checked_add(grant.amount)
            .ok_or_else(|| Refusal::Invalid("the grants of this account would not fit".to_owned()))?;
        Ok(Account {
            limit: Limit::Amount(sum),
            ..account
        })
    })
}
