//! Sets an account's limit.

use audit::Kind;
use decision::{Limit, NanoUsd};

use crate::command::SetBudget;
use crate::row::Account;
use crate::row::reply::Refusal;
use crate::step::money::Order;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, set: &SetBudget) -> Done {
    let order = Order {
        by: &set.by,
        account: &set.account,
        request: &set.request,
        justification: &set.justification,
        kind: Kind::BudgetSet,
    };
    order.carry_out(turn, |account| {
        if matches!(set.limit, Limit::Amount(amount) if amount <= NanoUsd::ZERO) {
            return Err(Refusal::Invalid(
                "a limit is above zero, or unlimited, or suspended".to_owned(),
            ));
        }
        Ok(Account {
            limit: set.limit,
            ..account.unwrap_or(Account::opened(set.limit))
        })
    })
}
