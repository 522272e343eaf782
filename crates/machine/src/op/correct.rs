//! Corrects what an account was charged: what was booked stays in the chain, and a compensating entry beside it.

use audit::Kind;
use decision::NanoUsd;

use crate::command::Correct;
use crate::row::Account;
use crate::row::reply::Refusal;
use crate::step::money::Order;
use crate::turn::{Done, Turn};

pub(crate) fn apply(turn: &mut Turn<'_>, correct: &Correct) -> Done {
    let order = Order {
        by: &correct.by,
        account: &correct.account,
        request: &correct.request,
        justification: &correct.justification,
        kind: Kind::Correction,
    };
    order.carry_out(turn, |account| {
        let Some(account) = account else {
            return Err(Refusal::NotFound(format!("{} has no account", correct.account)));
        };
        let spent = account.spent.checked_add(correct.amount);
        match spent.filter(|spent| !spent.is_negative()) {
            Some(spent) if correct.amount != NanoUsd::ZERO => Ok(Account { spent, ..account }),
            Some(_) => Err(Refusal::Invalid("a correction is not zero".to_owned())),
            None => Err(Refusal::Invalid(format!(
                "{} would be left with less than nothing spent, or with more than fits",
                correct.account
            ))),
        }
    })
}
