//! `Budgets`: accounts of organizations, agents and sessions.

use std::sync::Arc;

use cluster::Urgency;
use machine::query;
use machine::row::Read as _;
use machine::{AccountId, Command, Reply};
use tonic::{Request, Response, Status};
use wire::proto::haltgate::admin::v1 as proto;
use wire::proto::haltgate::admin::v1::budgets_server::Budgets;
use wire::{Code, Failure, admin};

use crate::door::{Ask, Door};
use crate::roles::{self, Rpc};
use crate::service::unexpected;

#[derive(Debug, Clone)]
pub struct Budgeting(pub Arc<Door>);

#[tonic::async_trait]
impl Budgets for Budgeting {
    async fn set(
        &self,
        request: Request<proto::BudgetsSetRequest>,
    ) -> Result<Response<proto::BudgetsSetResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::BudgetsSet)?;
        let set = admin::set_budget(request.get_ref(), ask.principal())
            .map_err(|error| self.0.status(error.into()))?;
        self.0.permit(&ask, roles::of_account(&set.account))?;
        let id = set.account.clone();
        let changed = self.change(&ask, id, Command::SetBudget(set)).await;
        changed
            .map(|(account, log_index)| {
                Response::new(proto::BudgetsSetResponse {
                    account: Some(account),
                    log_index,
                })
            })
            .map_err(|failure| self.0.status(failure))
    }

    async fn grant(
        &self,
        request: Request<proto::BudgetsGrantRequest>,
    ) -> Result<Response<proto::BudgetsGrantResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::BudgetsGrant)?;
        let grant = admin::grant_budget(request.get_ref(), ask.principal())
            .map_err(|error| self.0.status(error.into()))?;
        self.0.permit(&ask, roles::of_account(&grant.account))?;
        let id = grant.account.clone();
        let changed = self.change(&ask, id, Command::GrantBudget(grant)).await;
        changed
            .map(|(account, log_index)| {
                Response::new(proto::BudgetsGrantResponse {
                    account: Some(account),
                    log_index,
                })
            })
            .map_err(|failure| self.0.status(failure))
    }

    async fn get(
        &self,
        request: Request<proto::BudgetsGetRequest>,
    ) -> Result<Response<proto::BudgetsGetResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::BudgetsGet)?;
        let id = admin::account_id("scope", &request.get_ref().scope)
            .map_err(|error| self.0.status(error.into()))?;
        self.0.permit(&ask, roles::of_account(&id))?;
        let answer = async {
            let by = ask.principal();
            let (reached, found, log_index) = self
                .0
                .read(&ask, |view| {
                    let found = match view.account(&id)? {
                        Some(account) => Some((account, query::open_holds(view, &id, &account)?)),
                        None => None,
                    };
                    Ok((
                        query::reaches_account(view, &by, &id)?,
                        found,
                        view.applied().map_or(0, |id| id.index),
                    ))
                })
                .await?;
            if !reached {
                return Err(self
                    .0
                    .refuse(&ask, "organization", format!("this identity may not see {id}")));
            }
            let (account, open_holds) =
                found.ok_or_else(|| Failure::new(Code::NotFound, format!("{id} has no account")))?;
            let account = Some(admin::account(&id, &account, open_holds));
            Ok(proto::BudgetsGetResponse { account, log_index })
        };
        answer
            .await
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn list(
        &self,
        request: Request<proto::BudgetsListRequest>,
    ) -> Result<Response<proto::BudgetsListResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::BudgetsList)?;
        let wanted =
            admin::accounts_wanted(request.get_ref()).map_err(|error| self.0.status(error.into()))?;
        if let Some(below) = &wanted.below {
            self.0.permit(&ask, roles::of_account(below))?;
        }
        let answer = async {
            let by = ask.principal();
            let (accounts, next, log_index) = self
                .0
                .read(&ask, |view| {
                    let listed = query::accounts(view, &by, wanted)?;
                    let mut accounts = Vec::with_capacity(listed.items.len());
                    for (id, account) in listed.items {
                        // Counted where it is one look-up; an organization's are counted by Get.
                        let open_holds = match id {
                            AccountId::Session(_) => query::open_holds(view, &id, &account)?,
                            AccountId::Organization(_) | AccountId::Agent(..) | AccountId::Guard(..) => 0,
                        };
                        accounts.push(admin::account(&id, &account, open_holds));
                    }
                    Ok((accounts, listed.next, view.applied().map_or(0, |id| id.index)))
                })
                .await?;
            let next_page_token = next.map(|id| id.to_string()).unwrap_or_default();
            Ok(proto::BudgetsListResponse {
                accounts,
                next_page_token,
                log_index,
            })
        };
        answer
            .await
            .map(Response::new)
            .map_err(|failure: Failure| self.0.status(failure))
    }

    async fn correct(
        &self,
        request: Request<proto::BudgetsCorrectRequest>,
    ) -> Result<Response<proto::BudgetsCorrectResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::BudgetsCorrect)?;
        let correct = admin::correct_budget(request.get_ref(), ask.principal())
            .map_err(|error| self.0.status(error.into()))?;
        self.0.permit(&ask, roles::of_account(&correct.account))?;
        let id = correct.account.clone();
        let changed = self.change(&ask, id, Command::Correct(correct)).await;
        changed
            .map(|(account, log_index)| {
                Response::new(proto::BudgetsCorrectResponse {
                    account: Some(account),
                    log_index,
                })
            })
            .map_err(|failure| self.0.status(failure))
    }
}

impl Budgeting {
    async fn change(
        &self,
        ask: &Ask,
        id: AccountId,
        command: Command,
    ) -> Result<(proto::Account, u64), Failure> {
        match self.0.propose(ask, command, Urgency::Urgent).await? {
            Reply::Account(account, place) => {
                self.0.applied_here(ask, place.log_index).await;
                let open_holds = self.0.local(|view| query::open_holds(view, &id, &account))?;
                Ok((admin::account(&id, &account, open_holds), place.log_index))
            }
            _ => Err(unexpected("a change of a budget")),
        }
    }
}
