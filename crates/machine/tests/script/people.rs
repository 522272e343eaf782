//! What people say of held calls, and what a node would find with rules.

use decision::policy::{Denied, Matched};
use decision::{ApprovalId, Digest, OrganizationId, RuleId, SessionId};
use goldenscript::ArgumentConsumer;
use machine::Command;
use machine::command::{Decide, Principal, RuleFacts, Ruling, Successor};
use machine::row::{Key, Row};

use super::Script;
use super::read::{Failed, flag, number, request, required};

impl Script {
    /// What a node would find with the rules of its own guard: `rules=current deny=no-b/trips ask=big cost_rule=0.5`.
    pub fn rule_facts(
        &self,
        args: &mut ArgumentConsumer<'_>,
        session: &SessionId,
    ) -> Result<Option<RuleFacts>, Failed> {
        let Some(known) = args.take_key("rules") else {
            return Ok(None);
        };
        let Some(Row::Session(row)) = self.rows.get(&Key::Session(session.clone())) else {
            return Err("rules of which session?".into());
        };
        let leash = machine::GuardPath::of(&self.rows, row)?;
        let policy_digest = match known {
            "current" => leash.digest(),
            _ => Digest::of(known.as_bytes()),
        };
        let mut matched = vec![Matched::default(); leash.guards().len()];
        let denied = |rule: &str| -> Result<Denied, Failed> {
            let (rule, trips) = rule
                .strip_suffix("/trips")
                .map_or((rule, false), |rule| (rule, true));
            let rule = RuleId::parse(rule)?;
            Ok(Denied { rule, trips })
        };
        let outermost = matched.first_mut().ok_or("a leash has guards")?;
        outermost.denied = args.take_key("root_denies").map(denied).transpose()?;
        let found = matched.last_mut().ok_or("a leash has guards")?;
        if let Some(rule) = args.take_key("deny") {
            found.denied = Some(denied(rule)?);
        }
        found.asks = args.take_key("ask").map(RuleId::parse).transpose()?;
        found.cost = args.take_key("cost_rule").map(str::parse).transpose()?;
        found.params_needed = flag(args, "needs")?;
        Ok(Some(RuleFacts {
            policy_digest,
            matched,
        }))
    }

    /// `approve 1`, with the digest of what is shown unless the line says `info=`.
    pub fn decide(&self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Command, Failed> {
        let approval = self.approval(args.next_pos().unwrap_or("1"))?;
        let shown = match self.rows.get(&Key::Approval(approval.clone())) {
            Some(Row::Approval(row)) => row.info_digest,
            _ => Digest::of(b"nothing"),
        };
        let by = match args.take_key("by") {
            Some(agent) if agent.contains("/agent/") => self.agent_named(agent)?,
            organization => Principal {
                name: format!("org/{}/approver/ada", organization.unwrap_or("acme")),
                organization: Some(OrganizationId::parse(organization.unwrap_or("acme"))?),
                agents: Vec::new(),
            },
        };
        let ruling = match name {
            "approve" => Ruling::Approve,
            "reject" => Ruling::Reject,
            "defer" => Ruling::Defer,
            "escalate" => Ruling::Escalate,
            _ => {
                let params = args.take_key("params").unwrap_or("{}").as_bytes().to_vec();
                Ruling::Modify(Successor {
                    call_number: number(args, "n", 0)?,
                    nonce: number(args, "nonce", 0)?,
                    digest: decision::params::inspect(&params)
                        .digest
                        .ok_or("params are malformed")?,
                    request: None,
                })
            }
        };
        Ok(Command::Decide(Decide {
            by,
            approval,
            ruling,
            info_digest: args
                .take_key("info")
                .map_or(shown, |text| Digest::of(text.as_bytes())),
            note: args.take_key("note").unwrap_or("").to_owned(),
            request: required(request(args)?, &format!("{name}{}", self.index)),
        }))
    }

    pub fn approval(&self, number: &str) -> Result<ApprovalId, Failed> {
        let number: usize = match number.parse() {
            Ok(number) => number,
            Err(_) => return Ok(ApprovalId::parse(number)?),
        };
        let minted = number.checked_sub(1).and_then(|place| self.approvals.get(place));
        minted
            .cloned()
            .ok_or_else(|| format!("no approval {number}").into())
    }
}
