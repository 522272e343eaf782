//! `haltgate demo`: three real nodes on loopback, and what the whole thing is for, as it happens.

use std::time::Instant;

use audit::Unsealed;
use client::{Call, Client, Done, Guarded, Refused, Registration, request_id};
use decision::NanoUsd;
use serde_json::json;
use wire::proto::haltgate::admin::v1 as admin;

use crate::command::audit::{export, verify};
use crate::command::running::{PATIENCE, Running};
use crate::failed::Failed;
use crate::remote::Remote;

const NODES: usize = 3;

pub async fn run() -> Result<(), Failed> {
    let mut show = Show::start()?;
    let outcome = show.play().await;
    if outcome.is_err() {
        show.cluster.print_logs();
    }
    outcome
}

struct Show {
    cluster: Running,
    operator: Remote,
}

impl Show {
    fn start() -> Result<Self, Failed> {
        let cluster = Running::prepare("demo", NODES, "")?;
        let operator = cluster.remote("admin")?;
        Ok(Self { cluster, operator })
    }

    async fn play(&mut self) -> Result<(), Failed> {
        self.form_the_cluster().await?;
        self.loop_of_death().await?;
        self.to_the_nano_dollar().await?;
        self.leader_dies().await?;
        self.organization_is_stopped().await?;
        self.chain_verifies().await
    }

    async fn form_the_cluster(&mut self) -> Result<(), Failed> {
        chapter("Three nodes, mutual TLS, one Raft log");
        for place in self.cluster.places() {
            self.cluster.spawn(place)?;
            say(&format!(
                "node {} listens on {}",
                place + 1,
                self.cluster.node(place)?.grpc
            ));
        }
        self.cluster.form().await?;
        say("formed; an organization needs money before it may spend: acme gets 5.00");
        self.set_budget("org/acme", "5.00").await
    }

    async fn loop_of_death(&self) -> Result<(), Failed> {
        chapter("An agent in the loop of death");
        let agent = self.agent("agent", "bot-1").await?;
        for attempt in 1..=5_u32 {
            let call =
                Call::new("web_search", json!({ "query": "why does this fail" })).estimated(usd("0.01")?);
            let ran = agent
                .run(call, |_params| async {
                    Err::<Done<()>, _>(ToolFailed("401 unauthorized"))
                })
                .await;
            match ran {
                Err(Refused::Tool(error)) => say(&format!("call {attempt}: ALLOW, ran, failed: {error}")),
                Err(refused) => say(&format!("call {attempt}: {refused}")),
                Ok(()) => return Err(Failed::refused("a tool that fails succeeded")),
            }
            if attempt == 5 && ran_is_allowed(&agent).await {
                return Err(Failed::refused("the loop of death was not stopped"));
            }
        }
        Ok(())
    }

    async fn to_the_nano_dollar(&self) -> Result<(), Failed> {
        chapter("A budget, to the nano-dollar");
        self.set_budget("org/acme/agent/bot-2", "0.500000001").await?;
        say("bot-2 may spend 0.500000001");
        let agent = self.agent("agent2", "bot-2").await?;
        let calls = [
            ("0.25", true),
            ("0.25", true),
            ("0.000000002", false),
            ("0.000000001", true),
            ("0.000000001", false),
        ];
        for (number, (cost, expected)) in (1_u32..).zip(calls) {
            let amount = usd(cost)?;
            let call = Call::new("buy", json!({ "item": number })).estimated(amount);
            let ran = agent
                .run(call, |_| async move {
                    Ok::<_, ToolFailed>(Done::new(()).cost(amount))
                })
                .await;
            match &ran {
                Ok(()) => say(&format!("{cost:>11}: ALLOW")),
                Err(refused) => say(&format!("{cost:>11}: {refused}")),
            }
            if ran.is_ok() != expected {
                return Err(Failed::refused(format!(
                    "the call of {cost} should have been the other way"
                )));
            }
        }
        Ok(())
    }

    async fn leader_dies(&mut self) -> Result<(), Failed> {
        chapter("The leader is killed (SIGKILL)");
        let leader = self.cluster.leader().await?;
        let agent = self.agent("agent", "bot-1").await?;
        self.cluster.kill(leader)?;
        let killed = Instant::now();
        say(&format!("node {} led, and is dead", leader + 1));
        let amount = usd("0.01")?;
        for number in 0..u32::MAX {
            let call = Call::new("read_file", json!({ "attempt": number })).estimated(amount);
            match agent
                .run(call, |_| async move {
                    Ok::<_, ToolFailed>(Done::new(()).cost(amount))
                })
                .await
            {
                Ok(()) => break,
                Err(refused) if killed.elapsed() > PATIENCE => {
                    return Err(Failed::refused(format!("no leader took over: {refused}")));
                }
                Err(_asked_again) => {}
            }
        }
        let silence = killed.elapsed();
        let next = self.cluster.leader().await?;
        say("until then every call was denied here: daemon_unavailable");
        say(&format!(
            "the next ALLOW came after {} ms; node {} leads now",
            silence.as_millis(),
            next + 1
        ));
        self.cluster.spawn(leader)?;
        say(&format!("node {} is started again and catches up", leader + 1));
        self.cluster.all_even().await
    }

    async fn organization_is_stopped(&self) -> Result<(), Failed> {
        chapter("Stop everything of one organization");
        let agent = self.agent("agent", "bot-1").await?;
        let request = admin::HaltsEngageRequest {
            request_id: request_id(),
            scope: "org/acme".to_owned(),
            mode: admin::HaltMode::Halt.into(),
            reason: "runaway spend".to_owned(),
            ticket: "INC-7".to_owned(),
            ttl_seconds: 0,
            two_person: false,
        };
        let engaged = self.operator.call(request).await?;
        say(&format!(
            "kill engaged: log index {}, halt epoch {}",
            engaged.log_index, engaged.halt_epoch
        ));
        for node in &engaged.nodes {
            let confirmed = node.reachable && node.applied_epoch >= engaged.halt_epoch;
            say(&format!(
                "node {} says: {}",
                node.node_id,
                if confirmed { "stopped" } else { "not confirmed" }
            ));
        }
        let call = Call::new("web_search", json!({ "query": "still there?" })).estimated(usd("0.01")?);
        match agent
            .run(call, |_| async { Ok::<_, ToolFailed>(Done::new(())) })
            .await
        {
            Err(refused) => say(&format!("bot-1: {refused}")),
            Ok(()) => return Err(Failed::refused("a call ran in a stopped organization")),
        }
        Ok(())
    }

    async fn chain_verifies(&self) -> Result<(), Failed> {
        chapter("The record");
        let file = self.cluster.dir.join("audit.jsonl");
        let entries = export(&self.operator, &file).await?;
        let verified = verify(&file, None, Unsealed::Refuse)?;
        say(&format!(
            "{entries} entries exported; {} verified: hashes, links, signatures",
            verified.entries
        ));
        let spoiled = self.cluster.dir.join("spoiled.jsonl");
        let text = std::fs::read_to_string(&file).map_err(crate::failed::file(&file))?;
        let changed = text.replacen("\"verdict\":\"DENY\"", "\"verdict\":\"ALLOW\"", 1);
        std::fs::write(&spoiled, changed).map_err(crate::failed::file(&spoiled))?;
        match verify(&spoiled, None, Unsealed::Refuse) {
            Err(broken) => {
                let broken = broken.to_string();
                say(&format!(
                    "one DENY changed to ALLOW in a copy: {}",
                    broken.rsplit_once(": ").map_or(&*broken, |_| broken
                        .trim_start_matches(&format!("{}: ", spoiled.display())))
                ));
                Ok(())
            }
            Ok(_) => Err(Failed::refused("a forged record verified")),
        }
    }

    async fn agent(&self, credentials: &str, agent: &str) -> Result<Guarded, Failed> {
        let layout = &self.cluster.layout;
        let client = Client::open(&layout.endpoints(), &layout.credentials(credentials)?)?;
        let registration = Registration {
            organization: "acme".to_owned(),
            agent: agent.to_owned(),
            ..Registration::default()
        };
        Ok(client.guarded(&registration).await?)
    }

    async fn set_budget(&self, scope: &str, amount: &str) -> Result<(), Failed> {
        let limit = admin::budgets_set_request::Limit::AmountNanos(usd(amount)?.nanos());
        let request = admin::BudgetsSetRequest {
            request_id: request_id(),
            scope: scope.to_owned(),
            limit: Some(limit),
            justification: "demo".to_owned(),
        };
        self.operator.call(request).await?;
        Ok(())
    }
}

/// Another attempt of the loop: it must not run.
async fn ran_is_allowed(agent: &Guarded) -> bool {
    let call = Call::new("web_search", json!({ "query": "why does this fail" }));
    !matches!(
        agent
            .run(call, |_| async { Ok::<_, ToolFailed>(Done::new(())) })
            .await,
        Err(Refused::Denied { .. })
    )
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ToolFailed(&'static str);

fn usd(text: &str) -> Result<NanoUsd, Failed> {
    text.parse()
        .map_err(|error| Failed::refused(format!("{text}: {error}")))
}

fn chapter(title: &str) {
    crate::print::outln!("\n== {title}");
}

fn say(line: &str) {
    crate::print::outln!("   {line}");
}
