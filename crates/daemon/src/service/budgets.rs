//! `Budgets`: accounts of organizations, agents and sessions.

use std::sync::Arc;

use machine::reply::Place;
use machine::row::{Account, Fault, Read as _};
use machine::{AccountId, query};
use store::StateView;
use wire::proto::haltgate::admin::v1 as proto;
use wire::{Code, Failure, admin};

use crate::admit::Ask;
use crate::door::Door;
use crate::order::Order;
use crate::roles;

pub async fn set(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::BudgetsSetRequest,
) -> Result<proto::BudgetsSetResponse, Failure> {
    let set = admin::set_budget(&message, ask.principal())?;
    let (account, log_index) = change(door, ask, set.account.clone(), set).await?;
    Ok(proto::BudgetsSetResponse { account, log_index })
}

pub async fn grant(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::BudgetsGrantRequest,
) -> Result<proto::BudgetsGrantResponse, Failure> {
    let grant = admin::grant_budget(&message, ask.principal())?;
    let (account, log_index) = change(door, ask, grant.account.clone(), grant).await?;
    Ok(proto::BudgetsGrantResponse { account, log_index })
}

pub async fn correct(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::BudgetsCorrectRequest,
) -> Result<proto::BudgetsCorrectResponse, Failure> {
    let correct = admin::correct_budget(&message, ask.principal())?;
    let (account, log_index) = change(door, ask, correct.account.clone(), correct).await?;
    Ok(proto::BudgetsCorrectResponse { account, log_index })
}

async fn change(
    door: &Door,
    ask: &Ask,
    id: AccountId,
    order: impl Order<Answer = (Account, Place)>,
) -> Result<(Option<proto::Account>, u64), Failure> {
    let (account, place) = door.propose(ask, order).await?;
    door.applied_here(ask, place.log_index).await;
    let open_holds = door.local(|view| query::open_holds(view, &id, &account))?;
    Ok((Some(admin::account(&id, &account, open_holds)), place.log_index))
}

pub async fn get(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::BudgetsGetRequest,
) -> Result<proto::BudgetsGetResponse, Failure> {
    let id = admin::account_id("scope", &message.scope)?;
    door.admission.permit(ask, roles::of_account(&id))?;
    let by = ask.principal();
    let ((reached, found), log_index) = door
        .read_at(ask, |view, _| {
            let found = match view.account(&id)? {
                Some(account) => Some((account, query::open_holds(view, &id, &account)?)),
                None => None,
            };
            Ok((query::reaches_account(view, &by, &id)?, found))
        })
        .await?;
    if !reached {
        return Err(door
            .admission
            .refuse(ask, "organization", format!("this identity may not see {id}")));
    }
    let (account, open_holds) =
        found.ok_or_else(|| Failure::new(Code::NotFound, format!("{id} has no account")))?;
    Ok(proto::BudgetsGetResponse {
        account: Some(admin::account(&id, &account, open_holds)),
        log_index,
    })
}

pub async fn list(
    door: &Arc<Door>,
    ask: &Ask,
    message: proto::BudgetsListRequest,
) -> Result<proto::BudgetsListResponse, Failure> {
    let wanted = admin::accounts_wanted(&message)?;
    if let Some(below) = &wanted.below {
        door.admission.permit(ask, roles::of_account(below))?;
    }
    let by = ask.principal();
    let ((accounts, next), log_index) = door
        .read_at(ask, |view, _| {
            let listed = query::accounts(view, &by, wanted)?;
            let accounts = listed.items.iter().map(|(id, account)| shown(view, id, account));
            Ok((accounts.collect::<Result<_, _>>()?, listed.next))
        })
        .await?;
    Ok(proto::BudgetsListResponse {
        accounts,
        next_page_token: next.map(|id| id.to_string()).unwrap_or_default(),
        log_index,
    })
}

/// One account of a list.
fn shown(view: &StateView<'_>, id: &AccountId, account: &Account) -> Result<proto::Account, Fault> {
    // Counted where it is one look-up; an organization's are counted by Get.
    let open_holds = match id {
        AccountId::Session(_) => query::open_holds(view, id, account)?,
        AccountId::Organization(_) | AccountId::Agent(..) | AccountId::Guard(..) => 0,
    };
    Ok(admin::account(id, account, open_holds))
}
