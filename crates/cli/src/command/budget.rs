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
use crate::remote::{PAGE, Remote, dollars};

const COLUMNS: [&str; 6] = ["scope", "limit", "spent", "held", "available", "overdraft"];

pub async fn run(command: Budget, output: Output) -> Result<(), Failed> {
    let shown = match command {
        Budget::Set {
            remote,
            scope,
            limit,
            justification,
        } => {
            let request = admin::BudgetsSetRequest {
                request_id: request_id(),
                scope,
                limit: Some(limit_of(&limit)?),
                justification,
            };
            Remote::open(&remote)?.call(request).await?.account
        }
        Budget::Grant {
            remote,
            scope,
            amount,
            justification,
        } => {
            let request = admin::BudgetsGrantRequest {
                request_id: request_id(),
                scope,
                amount_nanos: dollars(&amount)?.nanos(),
                justification,
            };
            Remote::open(&remote)?.call(request).await?.account
        }
        Budget::Correct {
            remote,
            scope,
            amount,
            justification,
        } => {
            let request = admin::BudgetsCorrectRequest {
                request_id: request_id(),
                scope,
                amount_nanos: correction(&amount)?.nanos(),
                justification,
            };
            Remote::open(&remote)?.call(request).await?.account
        }
        Budget::Show {
            remote,
            scope: Some(scope),
        } => {
            let request = admin::BudgetsGetRequest { scope };
            Remote::open(&remote)?.call(request).await?.account
        }
        Budget::Show { remote, scope: None } => return list(&Remote::open(&remote)?, output).await,
    };
    print::object(output, &shown.as_ref().map_or(Value::Null, account));
    Ok(())
}

async fn list(remote: &Remote, output: Output) -> Result<(), Failed> {
    let page = |page_token| admin::BudgetsListRequest {
        scope: String::new(),
        page_size: PAGE,
        page_token,
    };
    let rows = |answer: admin::BudgetsListResponse| {
        let rows = answer.accounts.iter().map(account).collect();
        (rows, answer.next_page_token)
    };
    print::list(output, &remote.pages(page, rows).await?, &COLUMNS);
    Ok(())
}

fn limit_of(text: &str) -> Result<Limit, Failed> {
    Ok(match text {
        "unlimited" => Limit::Unlimited(()),
        "suspended" => Limit::Suspended(()),
        amount => Limit::AmountNanos(dollars(amount)?.nanos()),
    })
}

fn correction(text: &str) -> Result<NanoUsd, Failed> {
    let wrong = |why: &dyn std::fmt::Display| Failed::usage(format!("{text:?}: {why}"));
    match text.parse::<NanoUsd>() {
        Ok(NanoUsd::ZERO) => Err(wrong(&"a correction is not zero")),
        Ok(correction) => Ok(correction),
        Err(error) => Err(wrong(&error)),
    }
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
