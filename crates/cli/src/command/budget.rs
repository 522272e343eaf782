//! `haltgate budget`: what accounts may spend.

use client::request_id;
use decision::NanoUsd;
use serde_json::{Value, json};
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::haltgate::admin::v1::account::Limit as Shown;
use wire::proto::haltgate::admin::v1::budgets_set_request::Limit;

use crate::args::{Budget, Output};
use crate::failed::Failed;
use crate::print;
use crate::remote::{Remote, dollars};

const COLUMNS: [&str; 6] = ["scope", "limit", "spent", "held", "available", "overdraft"];

pub async fn run(command: Budget, output: Output) -> Result<(), Failed> {
    match command {
        Budget::Set {
            remote,
            scope,
            limit,
            justification,
        } => {
            let limit = match limit.as_str() {
                "unlimited" => Limit::Unlimited(()),
                "suspended" => Limit::Suspended(()),
                amount => Limit::AmountNanos(dollars(amount)?.nanos()),
            };
            let request = admin::BudgetsSetRequest {
                request_id: request_id(),
                scope,
                limit: Some(limit),
                justification,
            };
            let answer = Remote::open(&remote)?.call(request).await?;
            show(output, answer.account);
        }
        Budget::Grant {
            remote,
            scope,
            amount,
            justification,
        } => {
            let amount_nanos = dollars(&amount)?.nanos();
            let request = admin::BudgetsGrantRequest {
                request_id: request_id(),
                scope,
                amount_nanos,
                justification,
            };
            let answer = Remote::open(&remote)?.call(request).await?;
            show(output, answer.account);
        }
        Budget::Correct {
            remote,
            scope,
            amount,
            justification,
        } => {
            let wrong = |why: &dyn std::fmt::Display| Failed::usage(format!("{amount:?}: {why}"));
            let amount_nanos = match amount.parse::<NanoUsd>() {
                Ok(NanoUsd::ZERO) => return Err(wrong(&"a correction is not zero")),
                Ok(correction) => correction.nanos(),
                Err(error) => return Err(wrong(&error)),
            };
            let request = admin::BudgetsCorrectRequest {
                request_id: request_id(),
                scope,
                amount_nanos,
                justification,
            };
            let answer = Remote::open(&remote)?.call(request).await?;
            show(output, answer.account);
        }
        Budget::Show {
            remote,
            scope: Some(scope),
        } => {
            let request = admin::BudgetsGetRequest { scope };
            let answer = Remote::open(&remote)?.call(request).await?;
            show(output, answer.account);
        }
        Budget::Show { remote, scope: None } => {
            let remote = Remote::open(&remote)?;
            let mut rows = Vec::new();
            let mut page_token = String::new();
            loop {
                let request = admin::BudgetsListRequest {
                    scope: String::new(),
                    page_size: 500,
                    page_token,
                };
                let answer = remote.call(request).await?;
                rows.extend(answer.accounts.iter().map(account));
                page_token = answer.next_page_token;
                if page_token.is_empty() {
                    break;
                }
            }
            print::list(output, &rows, &COLUMNS);
        }
    }
    Ok(())
}

fn show(output: Output, shown: Option<admin::Account>) {
    print::object(output, &shown.as_ref().map_or(Value::Null, account));
}

fn account(account: &admin::Account) -> Value {
    let usd = |nanos: i64| NanoUsd::new(nanos).to_string();
    json!({
        "scope": account.scope,
        "limit": match account.limit {
            Some(Shown::AmountNanos(nanos)) => usd(nanos),
            Some(Shown::Unlimited(())) => "unlimited".to_owned(),
            Some(Shown::Suspended(())) | None => "suspended".to_owned(),
        },
        "spent": usd(account.spent_nanos),
        "held": usd(account.held_nanos),
        "available": account.available_nanos.map(usd),
        "overdraft": usd(account.overdraft_nanos),
        "spent_nanos": account.spent_nanos, "held_nanos": account.held_nanos,
        "available_nanos": account.available_nanos,
    })
}
