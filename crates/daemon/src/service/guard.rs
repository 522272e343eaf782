//! `ShackleDaemon`: what agents call.

use std::sync::Arc;
use std::time::Instant;

use cluster::Urgency;
use decision::{Reason, Verdict};
use machine::Working;
use machine::command::{AttachShown, PreExec};
use machine::query;
use machine::reply::VerdictReply;
use machine::row::{HaltMode, Read as _};
use machine::{Command, Reply};
use prost::Message as _;
use tonic::{Request, Response, Status, Streaming};
use wire::guard::{LookedAt, Question};
use wire::proto::shackle::v1 as proto;
use wire::proto::shackle::v1::shackle_daemon_server::ShackleDaemon;
use wire::session::Shown;
use wire::{Code, Failure};

use crate::door::{Ask, Door};
use crate::roles::Rpc;
use crate::service::stream::{self, Questions};
use crate::service::{Streamed, control, facts, tickets, unexpected};

/// Answers agents and sidecars.
#[derive(Debug, Clone)]
pub struct Guarding(pub Arc<Door>);

#[tonic::async_trait]
impl ShackleDaemon for Guarding {
    async fn register(
        &self,
        request: Request<proto::RegisterRequest>,
    ) -> Result<Response<proto::RegisterResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::Register)?;
        let answer = self.open(&ask, request.into_inner()).await;
        answer
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn pre_exec(
        &self,
        request: Request<proto::PreExecRequest>,
    ) -> Result<Response<proto::PreExecResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::PreExec)?;
        let answer = self.answer(&ask, request.into_inner()).await;
        answer
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn post_exec(&self, request: Request<proto::PostExecNotification>) -> Result<Response<()>, Status> {
        let ask = self.0.admit(&request, Rpc::PostExec)?;
        let settled = self.settle(&ask, request.into_inner()).await;
        settled
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn heartbeat(
        &self,
        request: Request<proto::Heartbeat>,
    ) -> Result<Response<proto::HeartbeatAck>, Status> {
        let ask = self.0.admit(&request, Rpc::Heartbeat)?;
        let ack = self.hear(&ask, request.into_inner()).await;
        ack.map(Response::new).map_err(|failure| self.0.status(failure))
    }

    async fn get_session_state(
        &self,
        request: Request<proto::GetSessionStateRequest>,
    ) -> Result<Response<proto::SessionState>, Status> {
        let ask = self.0.admit(&request, Rpc::GetSessionState)?;
        let state = self.look(&ask, request.into_inner()).await;
        state.map(Response::new).map_err(|failure| self.0.status(failure))
    }

    type PreExecStreamStream = Streamed<proto::PreExecResponse>;

    async fn pre_exec_stream(
        &self,
        request: Request<Streaming<proto::PreExecRequest>>,
    ) -> Result<Response<Self::PreExecStreamStream>, Status> {
        let ask = self.0.admit(&request, Rpc::PreExecStream)?;
        let questions = Questions {
            guarding: self.clone(),
            ask,
            incoming: request.into_inner(),
        };
        Ok(Response::new(stream::answers(questions)))
    }

    async fn end_session(
        &self,
        request: Request<proto::EndSessionRequest>,
    ) -> Result<Response<proto::EndSessionResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::EndSession)?;
        let ended = self.end(&ask, request.into_inner()).await;
        ended.map(Response::new).map_err(|failure| self.0.status(failure))
    }

    type WaitApprovalStream = Streamed<proto::WaitApprovalResponse>;

    async fn wait_approval(
        &self,
        request: Request<proto::WaitApprovalRequest>,
    ) -> Result<Response<Self::WaitApprovalStream>, Status> {
        let ask = self.0.admit(&request, Rpc::WaitApproval)?;
        let stream = control::wait_approval(&self.0, &ask, request.get_ref()).await;
        stream
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    type WatchControlStream = Streamed<proto::WatchControlResponse>;

    async fn watch_control(
        &self,
        request: Request<proto::WatchControlRequest>,
    ) -> Result<Response<Self::WatchControlStream>, Status> {
        let ask = self.0.admit(&request, Rpc::WatchControl)?;
        let stream = control::watch_control(&self.0, &ask, request.get_ref()).await;
        stream
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn redeem(
        &self,
        request: Request<proto::RedeemRequest>,
    ) -> Result<Response<proto::RedeemResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::Redeem)?;
        let redeemed = tickets::redeem(&self.0, &ask, request.get_ref()).await;
        redeemed
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }

    async fn verify_authorization(
        &self,
        request: Request<proto::VerifyAuthorizationRequest>,
    ) -> Result<Response<proto::VerifyAuthorizationResponse>, Status> {
        let ask = self.0.admit(&request, Rpc::VerifyAuthorization)?;
        let verified = tickets::verify(&self.0, &ask, request.get_ref()).await;
        verified
            .map(Response::new)
            .map_err(|failure| self.0.status(failure))
    }
}

impl Guarding {
    async fn open(
        &self,
        ask: &Ask,
        message: proto::RegisterRequest,
    ) -> Result<proto::RegisterResponse, Failure> {
        let door = &self.0;
        door.emergency.check()?;
        door.registers
            .take(ask.caller.address, Instant::now())
            .map_err(|wait| self.too_often("registers", wait))?;
        let (register, spoken) = wire::guard::register(&message, ask.principal())?;
        if !register.by.speaks_for(&register.organization, &register.agent) {
            let named = format!("org/{}/agent/{}", register.organization, register.agent);
            return Err(door.refuse(ask, "agent", format!("{} may not register {named}", ask.identity)));
        }
        match door
            .propose(ask, Command::Register(register), Urgency::Call)
            .await?
        {
            Reply::Registered(registered) => Ok(wire::guard::register_response(
                &registered,
                spoken,
                env!("CARGO_PKG_VERSION"),
            )),
            _ => Err(unexpected("a registration")),
        }
    }

    /// Answers one question; of a stream, or by itself.
    pub(crate) async fn answer(
        &self,
        ask: &Ask,
        message: proto::PreExecRequest,
    ) -> Result<proto::PreExecResponse, Failure> {
        let door = &self.0;
        door.emergency.check()?;
        let most = door.config.limits.pre_exec_bytes;
        if message.encoded_len() > most {
            let what = format!("a question may have {most} bytes: send the digest of larger parameters");
            return Err(Failure::new(Code::MessageTooLarge, what));
        }
        let Question {
            call,
            dry_run,
            looked_at,
        } = wire::guard::pre_exec(&message, ask.principal())?;
        let bucket = (call.by.name.clone(), call.session.clone());
        door.calls
            .take(bucket, Instant::now())
            .map_err(|wait| self.too_often("calls", wait))?;
        door.own_session(ask, &call.session)?;
        let answer = if dry_run {
            self.evaluate(ask, call, &looked_at).await?
        } else {
            let answer = facts::decide(door, ask, &call, &looked_at).await?;
            let answer = self.look_again(ask, &call, &looked_at, answer).await?;
            self.show(ask, &answer, message.params_json).await;
            answer
        };
        self.count(&answer);
        let mut response = wire::guard::pre_exec_response(&answer);
        if let Some(allowed) = &answer.authorization {
            let cluster = door.local(|view| view.cluster())?;
            let chain_id = cluster.map(|cluster| cluster.chain_id).unwrap_or_default();
            response.authorization = wire::ticket::authorization(allowed, &chain_id, &door.signer);
        }
        Ok(response)
    }

    /// Puts the parameters of a call that now waits before its approvers. Where that fails they see its digest.
    async fn show(&self, ask: &Ask, answer: &VerdictReply, params: Vec<u8>) {
        let Some(approval) = answer.approval_id.clone() else {
            return;
        };
        if answer.verdict != Verdict::Hitl || answer.replayed || params.is_empty() {
            return;
        }
        let shown = AttachShown {
            by: ask.principal(),
            approval,
            params,
        };
        if let Err(failure) = self
            .0
            .propose(ask, Command::AttachShown(shown), Urgency::Call)
            .await
        {
            tracing::warn!(%failure, "an approver will not see the parameters of a held call");
        }
    }

    /// The last look before an ALLOW leaves: a halt that this node has applied since must not be overtaken.
    ///
    /// INVARIANT: no ALLOW is sent for a scope that this node knows as halted.
    async fn look_again(
        &self,
        ask: &Ask,
        call: &PreExec,
        looked_at: &LookedAt<'_>,
        answer: VerdictReply,
    ) -> Result<VerdictReply, Failure> {
        if answer.verdict == Verdict::Allow {
            self.0.emergency.check()?;
        }
        if answer.verdict != Verdict::Allow || !self.is_overtaken(&answer)? {
            return Ok(answer);
        }
        self.0.metrics.withheld_allows_total.inc();
        // Asked again with its request id, the call gets the DENY that now holds, recorded as such.
        if call.request.is_some() {
            let again = facts::decide(&self.0, ask, call, looked_at).await?;
            if again.verdict != Verdict::Allow || !self.is_overtaken(&again)? {
                return Ok(again);
            }
        }
        Err(Failure::new(
            Code::DaemonUnavailable,
            "a halt was engaged while the answer was on its way: nothing may run",
        ))
    }

    fn is_overtaken(&self, answer: &VerdictReply) -> Result<bool, Failure> {
        if self.0.node.progress().halt_epoch <= answer.place.halt_epoch {
            return Ok(false);
        }
        self.0.local(|view| match view.session(&answer.session)? {
            Some(session) => Ok(query::halted(view, &answer.session, &session)?.is_some()),
            // Gone already: whatever runs now runs unseen.
            None => Ok(true),
        })
    }

    /// Decides over the state as it is and keeps nothing of it. Whatever comes out is answered as a DENY.
    async fn evaluate(
        &self,
        ask: &Ask,
        call: PreExec,
        looked_at: &LookedAt<'_>,
    ) -> Result<VerdictReply, Failure> {
        let reply = self
            .0
            .read(ask, |view| {
                // Without its request id: the retry table answers what was asked, and this only wonders.
                let call = PreExec {
                    request: None,
                    rules: facts::found(view, &call, looked_at)?,
                    ..call
                };
                let index = view.applied().map_or(0, |id| id.index);
                facts::suppose(&mut Working::over(view), index, Command::PreExec(call))
            })
            .await?;
        match reply {
            Some(Reply::Verdict(mut answer)) => {
                answer.verdict = Verdict::Deny;
                answer.reason = Reason::DryRun(Box::new(answer.reason));
                answer.approval_id = None;
                // Nothing was recorded.
                answer.place.sequence = 0;
                Ok(answer)
            }
            Some(Reply::Refused(refusal)) => Err(refusal.into()),
            _ => Err(unexpected("a dry run")),
        }
    }

    async fn settle(&self, ask: &Ask, message: proto::PostExecNotification) -> Result<(), Failure> {
        let report = wire::guard::post_exec(&message, ask.principal())?;
        self.0.own_session(ask, &report.session)?;
        match self
            .0
            .propose(ask, Command::PostExec(report), Urgency::Call)
            .await?
        {
            Reply::Settled(_) => Ok(()),
            _ => Err(unexpected("a report")),
        }
    }

    /// Costs no log entry: what is compared is what this node knows, and the leader is told some seconds later.
    async fn hear(&self, ask: &Ask, message: proto::Heartbeat) -> Result<proto::HeartbeatAck, Failure> {
        let door = &self.0;
        let pulse = wire::guard::heartbeat(&message)?;
        let read = |view: &store::StateView<'_>| {
            let Some(session) = view.session(&pulse.session)? else {
                return Ok(None);
            };
            let left = query::budget_left(view, &pulse.session, &session)?;
            // Under a pause an agent may still ask.
            let halt = query::halted(view, &pulse.session, &session)?
                .filter(|(_, halt)| halt.mode == HaltMode::Halt)
                .map(|(_, halt)| halt.reason);
            let now = view.cluster()?.map(|cluster| cluster.now).unwrap_or_default();
            Ok(Some((session, left, halt, now)))
        };
        // A session that was opened elsewhere a moment ago may not be here yet.
        let heard = match door.local(read)? {
            Some(heard) => Some(heard),
            None => door.read(ask, read).await?,
        };
        let Some((session, left, halt, now)) = heard else {
            return Err(machine::Refusal::SessionNotFound.into());
        };
        self.own(ask, &pulse.session, &session)?;
        door.node.seen(pulse.session.clone());
        Ok(wire::guard::heartbeat_ack(&pulse, left, halt, now))
    }

    async fn look(
        &self,
        ask: &Ask,
        message: proto::GetSessionStateRequest,
    ) -> Result<proto::SessionState, Failure> {
        let id = wire::guard::session_id(&message.session_id)?;
        let read = |view: &store::StateView<'_>| {
            let index = view.applied().map_or(0, |id| id.index);
            query::session_view(view, &id, index)
        };
        let found = if message.allow_stale {
            self.0.local(read)?
        } else {
            self.0.read(ask, read).await?
        };
        let found = found.ok_or(machine::Refusal::SessionNotFound)?;
        self.own(ask, &id, &found.session)?;
        Ok(wire::session::state(&found, Shown::Whole))
    }

    async fn end(
        &self,
        ask: &Ask,
        message: proto::EndSessionRequest,
    ) -> Result<proto::EndSessionResponse, Failure> {
        let end = wire::guard::end_session(&message, ask.principal())?;
        self.0.own_session(ask, &end.session)?;
        let session_id = end.session.as_str().to_owned();
        match self
            .0
            .propose(ask, Command::EndSession(end), Urgency::Call)
            .await?
        {
            Reply::Session(status, _) => Ok(proto::EndSessionResponse {
                session_id,
                status: wire::session::status(status).into(),
            }),
            _ => Err(unexpected("the end of a session")),
        }
    }

    /// A read of another's session is refused as a write is.
    fn own(
        &self,
        ask: &Ask,
        id: &decision::SessionId,
        session: &machine::row::Session,
    ) -> Result<(), Failure> {
        if ask.principal().speaks_for(&session.organization, &session.agent) {
            return Ok(());
        }
        Err(self.0.refuse(
            ask,
            "session",
            format!("this identity may not act on session/{id}"),
        ))
    }

    fn too_often(&self, limit: &'static str, wait: std::time::Duration) -> Failure {
        self.0
            .metrics
            .rate_limited_total
            .with_label_values(&[limit])
            .inc();
        let wait_ms = u64::try_from(wait.as_millis())
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        Failure::new(
            Code::RateLimited,
            format!("too often: the limit of {limit} is reached"),
        )
        .retry_after_ms(wait_ms)
    }

    fn count(&self, answer: &VerdictReply) {
        let metrics = &self.0.metrics;
        if answer.replayed {
            metrics.replays_total.inc();
        }
        let reason = answer.reason.word();
        metrics
            .verdicts_total
            .with_label_values(&[answer.verdict.word(), kind_of(&reason)])
            .inc();
    }
}

/// A reason without the name that it may carry: a label is of a closed set.
fn kind_of(word: &str) -> &str {
    const NAMED: [&str; 6] = [
        "run_halted:",
        "delegation:",
        "policy:",
        "parent_guard_denied:",
        "observe:",
        "dry_run:",
    ];
    NAMED
        .into_iter()
        .find(|prefix| word.starts_with(prefix))
        .map_or(word, |prefix| prefix.trim_end_matches(':'))
}

#[cfg(test)]
mod tests {
    use super::kind_of;

    #[test]
    fn a_label_carries_no_name() {
        let rows = [
            ("within_thresholds", "within_thresholds"),
            (
                "policy_violation:duplicate_nonce",
                "policy_violation:duplicate_nonce",
            ),
            ("run_halted:organization", "run_halted"),
            ("parent_guard_denied:org/acme/agent/bot-1", "parent_guard_denied"),
            ("policy:r1", "policy"),
            ("dry_run:parent_guard_denied:org/acme/agent/bot-1", "dry_run"),
        ];
        for (word, label) in rows {
            assert_eq!(kind_of(word), label);
        }
    }
}
