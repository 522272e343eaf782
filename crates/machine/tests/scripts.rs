//! Scripts of commands and what the machine made of them, kept under `scripts/`.
//!
//! `UPDATE_GOLDENFILES=1 cargo test -p machine --test scripts` writes the outputs anew: read the difference.
//!
//! After every command the invariants of `machine::check` hold, the audit entries follow each other, and log
//! time has not gone back; a script fails where they do not.

#![expect(clippy::unwrap_used, reason = "a test that breaks says where")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use audit::chain::follows;
use audit::{ChainHead, Entry, seal};
use decision::{
    AgentId, ApprovalId, Digest, GuardId, Number, OrganizationId, RequestId, SessionId, Timestamp, ToolName,
};
use goldenscript::{ArgumentConsumer, Command as Line, Context};
use machine::command::{
    Act, AgentPattern, Correct, EndSession, Engage, GrantBudget, Init, Limit, Params, PostExec, PreExec,
    Principal, PutGuard, Redeem, RefusedAtEdge, Register, RegisterKey, Release, Request, Seen, SessionAct,
    SetBudget,
};
use machine::reply::{Reply, VerdictReply};
use machine::row::{Chain, Cluster, HaltMode, Key, Requester, Row};
use machine::{Applied, Batch, Command, Position, VERSION, check};
use machine::{Change, Working};
use read::{Failed, flag, guard, id, number, operator, request, required, root, signer, span};
use test_each_file::test_each_path;
use told::{balance, recorded, seconds, told};

#[path = "script/people.rs"]
mod people;
#[path = "script/read.rs"]
mod read;
#[path = "script/told.rs"]
mod told;

test_each_path! { in "crates/machine/tests/scripts" as holds => holds }

fn holds(path: &Path) {
    goldenscript::run(&mut Script::default(), path).unwrap();
}

#[derive(Default)]
struct Script {
    rows: BTreeMap<Key, Row>,
    index: u64,
    now: Timestamp,
    last_entry_at: Timestamp,
    head: Option<ChainHead>,
    entries: Vec<Entry>,
    /// The sessions and approvals that were minted, in order: scripts call them by their number.
    sessions: Vec<SessionId>,
    approvals: Vec<ApprovalId>,
}

impl goldenscript::Runner for Script {
    type Command = Line;

    fn run(&mut self, line: &Line, _context: &Context) -> Result<String, Failed> {
        let mut args = line.consume_args();
        let mut output = match line.name.as_str() {
            "at" => {
                self.now = Timestamp::ZERO.plus(span(args.next_pos().ok_or("at what time?")?)?);
                String::new()
            }
            "dump" => self.dump(args.next_pos().unwrap_or("accounts")),
            "fill" => self.fill(&mut args)?,
            "parts" => self.parts(&mut args)?,
            "seal" => self.seal(&mut args)?,
            name => {
                let command = self.command(name, &mut args)?;
                self.apply(vec![command])?
            }
        };
        args.reject_next()?;
        for (number, id) in self.sessions.iter().enumerate() {
            output = output.replace(id.as_str(), &format!("s{}", number + 1));
        }
        for (number, id) in self.approvals.iter().enumerate() {
            output = output.replace(id.as_str(), &format!("approval{}", number + 1));
        }
        Ok(output)
    }
}

// What a line says.
impl Script {
    fn command(&self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Command, Failed> {
        Ok(match name {
            "init" => Command::Init(Init {
                chain_id: "chain".to_owned(),
                by: root(),
                unfunded_organizations: flag(args, "unfunded")?,
                fixtures: false,
                default_guard: guard(args)?,
            }),
            "register" => {
                let organization: OrganizationId = id(args, "org", "acme", OrganizationId::parse)?;
                let agent = id(args, "agent", "bot-1", AgentId::parse)?;
                Command::Register(Register {
                    by: self.agent(args, organization.as_str(), agent.as_str())?,
                    resume: args
                        .take_key("resume")
                        .map(|name| self.session(name))
                        .transpose()?,
                    request: request(args)?,
                    guard: args.take_key("guard").map(GuardId::parse).transpose()?,
                    metadata: BTreeMap::new(),
                    organization,
                    agent,
                })
            }
            "call" => Command::PreExec(self.pre_exec(args)?),
            "post" => Command::PostExec(self.post_exec(args)?),
            "seen" => Command::Seen(Seen {
                sessions: vec![self.session(args.next_pos().unwrap_or("1"))?],
            }),
            "end" => {
                let session = self.session(args.take_key("session").unwrap_or("1"))?;
                let by = self.owner(args, &session)?;
                Command::EndSession(EndSession { by, session })
            }
            "due" => Command::Due,
            "budget" | "grant" => {
                let by = operator(args)?;
                let account = args.next_pos().ok_or("which account?")?;
                let account = match account.strip_prefix("session/") {
                    Some(session) => machine::AccountId::Session(self.session(session)?),
                    None => account.parse()?,
                };
                let amount = args.next_pos().ok_or("how much?")?;
                let request = required(request(args)?, &format!("{name}{}", self.index));
                if name == "grant" {
                    let amount = amount.parse()?;
                    return Ok(Command::GrantBudget(GrantBudget {
                        by,
                        account,
                        amount,
                        request,
                        justification: String::new(),
                    }));
                }
                let limit = match amount {
                    "unlimited" => Limit::Unlimited,
                    "suspended" => Limit::Suspended,
                    amount => Limit::Amount(amount.parse()?),
                };
                Command::SetBudget(SetBudget {
                    by,
                    account,
                    limit,
                    request,
                    justification: String::new(),
                })
            }
            "guard" => {
                let by = operator(args)?;
                let scope = args.next_pos().ok_or("which guard?")?.parse()?;
                let request = required(request(args)?, &format!("guard{}", self.index));
                let guard = guard(args)?;
                Command::PutGuard(PutGuard {
                    by,
                    scope,
                    guard,
                    request,
                    justification: String::new(),
                })
            }
            "redeem" => {
                let session = self.session(args.take_key("session").unwrap_or("1"))?;
                let call_number = args.take_key("n").ok_or("n=?")?.parse()?;
                let issued = match self.rows.get(&Key::Call(session.clone(), call_number)) {
                    Some(Row::Call(call)) => call.ticket.as_ref().map(|ticket| ticket.id.clone()),
                    _ => None,
                };
                Command::Redeem(Redeem {
                    by: self.agent(args, "acme", "tool-server")?,
                    session,
                    call_number,
                    ticket: args
                        .take_key("ticket")
                        .map(str::to_owned)
                        .or(issued)
                        .unwrap_or_else(|| "tkt_none".to_owned()),
                    request: required(request(args)?, &format!("redeem{}", self.index)),
                })
            }
            "correct" => Command::Correct(Correct {
                by: operator(args)?,
                account: {
                    let account = args.next_pos().ok_or("which account?")?;
                    match account.strip_prefix("session/") {
                        Some(session) => machine::AccountId::Session(self.session(session)?),
                        None => account.parse()?,
                    }
                },
                amount: args.next_pos().ok_or("how much?")?.parse()?,
                request: required(request(args)?, &format!("correct{}", self.index)),
                justification: "looked at".to_owned(),
            }),
            "engage" | "release" => self.halt(name, args)?,
            "approve" | "reject" | "modify" | "defer" | "escalate" => self.decide(name, args)?,
            "reset" | "pause" | "resume" | "terminate" => Command::Session(SessionAct {
                by: operator(args)?,
                session: self.session(args.next_pos().unwrap_or("1"))?,
                act: match name {
                    "reset" => Act::ResetCircuit,
                    "pause" => Act::Pause,
                    "resume" => Act::Resume,
                    _ => Act::Terminate,
                },
                justification: "looked at".to_owned(),
                request: required(request(args)?, &format!("{name}{}", self.index)),
            }),
            "key" => Command::RegisterKey(RegisterKey {
                node: args.take_key("node").unwrap_or("n1").to_owned(),
                public: match args.next_pos() {
                    Some("weak") => [0; 32],
                    seed => signer(seed.unwrap_or("1"))?.public(),
                },
            }),
            "refused" => Command::Refused(RefusedAtEdge {
                by: operator(args)?,
                rpc: "Halts.Release".to_owned(),
                why: "needs role admin".to_owned(),
            }),
            other => return Err(format!("no command {other}").into()),
        })
    }

    fn pre_exec(&self, args: &mut ArgumentConsumer<'_>) -> Result<PreExec, Failed> {
        let session = self.session(args.take_key("session").unwrap_or("1"))?;
        let by = self.owner(args, &session)?;
        let call_number = args.take_key("n").ok_or("n=?")?.parse()?;
        let params = match args.take_key("params").unwrap_or("clear") {
            "clear" => Params::Clear,
            "hash" => Params::HashOnly,
            "opaque" => Params::Opaque,
            "malformed" => Params::Malformed,
            other => return Err(format!("params are {other}?").into()),
        };
        // `args={…}` are the parameters themselves; `digest=a` stands for some.
        let digest = match args.take_key("args") {
            Some(json) => decision::params::inspect(json.as_bytes())
                .digest
                .ok_or("args are malformed")?,
            None => Digest::of(args.take_key("digest").unwrap_or("a").as_bytes()),
        };
        Ok(PreExec {
            by,
            call_number,
            tool: id(args, "tool", "search", ToolName::parse)?,
            digest: (params != Params::Malformed).then_some(digest),
            params,
            estimate: args.take_key("cost").map(str::parse).transpose()?,
            nonce: number(args, "nonce", call_number)?,
            request: request(args)?,
            parent_guard: args.take_key("parent").map(str::to_owned),
            numbers: match args.take_key("page") {
                Some(page) => vec![Number::new("page", page.parse()?)],
                None => Vec::new(),
            },
            rules: self.rule_facts(args, &session)?,
            approval: args
                .take_key("approval")
                .map(|number| self.approval(number))
                .transpose()?,
            session,
        })
    }

    fn post_exec(&self, args: &mut ArgumentConsumer<'_>) -> Result<PostExec, Failed> {
        let session = self.session(args.take_key("session").unwrap_or("1"))?;
        Ok(PostExec {
            by: self.owner(args, &session)?,
            session,
            call_number: args.take_key("n").ok_or("n=?")?.parse()?,
            actual: args.take_key("cost").map(str::parse).transpose()?,
            success: !flag(args, "failed")?,
            error_signal: flag(args, "signal")?,
            partial: flag(args, "partial")?,
            request: request(args)?,
            tokens_in: number(args, "in", 0)?,
            tokens_out: number(args, "out", 0)?,
            model: Some(args.take_key("model").unwrap_or("").to_owned()),
            result: args.take_key("result").map(|text| Digest::of(text.as_bytes())),
        })
    }

    fn halt(&self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Command, Failed> {
        let by = operator(args)?;
        let scope = args.next_pos().ok_or("which scope?")?;
        let scope = match scope.strip_prefix("session/") {
            Some(session) => machine::Scope::Session(self.session(session)?),
            None => scope.parse()?,
        };
        let reason = args.take_key("why").unwrap_or("runaway").to_owned();
        let request = required(request(args)?, &format!("{name}{}", self.index));
        Ok(if name == "engage" {
            let ticket = String::new();
            Command::Engage(Engage {
                by,
                scope,
                reason,
                ticket,
                request,
                mode: match args.take_key("mode").unwrap_or("halt") {
                    "halt" => HaltMode::Halt,
                    "pause" => HaltMode::Pause,
                    "drain" => HaltMode::Drain,
                    other => return Err(format!("no mode {other}").into()),
                },
                ttl: args.take_key("ttl").map(span).transpose()?,
                two_person: flag(args, "two_person")?,
            })
        } else {
            Command::Release(Release {
                by,
                scope,
                justification: reason,
                request,
                ticket: String::new(),
            })
        })
    }

    fn session(&self, name: &str) -> Result<SessionId, Failed> {
        let number: usize = match name.parse() {
            Ok(number) => number,
            Err(_) => return Ok(SessionId::parse(name)?),
        };
        let minted = number.checked_sub(1).and_then(|place| self.sessions.get(place));
        minted
            .cloned()
            .ok_or_else(|| format!("no session {number}").into())
    }

    /// The session's own agent, unless the line says `by=`.
    fn owner(&self, args: &mut ArgumentConsumer<'_>, session: &SessionId) -> Result<Principal, Failed> {
        match self.rows.get(&Key::Session(session.clone())) {
            Some(Row::Session(row)) => self.agent(args, row.organization.as_str(), row.agent.as_str()),
            _ => self.agent(args, "acme", "bot-1"),
        }
    }

    fn agent(&self, args: &mut ArgumentConsumer<'_>, org: &str, agent: &str) -> Result<Principal, Failed> {
        let own = format!("org/{org}/agent/{agent}");
        self.agent_named(args.take_key("by").unwrap_or(&own))
    }

    fn agent_named(&self, name: &str) -> Result<Principal, Failed> {
        let machine::Scope::Agent(organization, agent) = name.parse()? else {
            return Err(format!("{name} is no agent").into());
        };
        Ok(Principal {
            name: name.to_owned(),
            organization: Some(organization),
            agents: vec![AgentPattern::Exact(agent)],
        })
    }
}

// What the machine makes of it.
impl Script {
    fn apply(&mut self, commands: Vec<Command>) -> Result<String, Failed> {
        let applied = self.step(commands)?;
        let mut output = String::new();
        for reply in &applied.replies {
            writeln!(output, "{}", told(reply))?;
        }
        // Of a long run of one kind its ends are enough.
        for run in applied.entries.chunk_by(|one, next| one.kind == next.kind) {
            for (place, entry) in run.iter().enumerate() {
                match run.len() - place {
                    left if place < 2 || left == 1 || run.len() < 6 => {
                        writeln!(output, "  {}", recorded(entry))?
                    }
                    left if place == 2 => writeln!(output, "  … {}", left - 1)?,
                    _ => {}
                }
            }
        }
        Ok(output)
    }

    /// Applies one batch; what changed of the accounts is told with its replies.
    fn step(&mut self, commands: Vec<Command>) -> Result<Applied, Failed> {
        self.index += 1;
        let batch = Batch {
            proposed: self.now,
            seed: u128::from(self.index).to_be_bytes(),
            version: VERSION,
            vouched_by: Vec::new(),
            commands,
        };
        let at = Position {
            term: 1,
            index: self.index,
        };
        let mut working = Working::over(&self.rows);
        let context = machine::Context {
            at,
            members: &[],
            entries: &self.entries.as_slice(),
        };
        let applied = machine::apply(&mut working, context, &batch)?;
        for change in working.into_changes() {
            match change {
                Change::Put(key, row) => self.rows.insert(key, row),
                Change::Delete(key) => self.rows.remove(&key),
            };
        }
        for reply in &applied.replies {
            self.learn(reply);
        }
        let mut head = self.head.take().unwrap_or_else(|| ChainHead::empty("chain"));
        for entry in &applied.entries {
            if !follows(&head, entry) || entry.timestamp < self.last_entry_at {
                return Err(format!("entry {} does not follow", entry.sequence).into());
            }
            self.last_entry_at = entry.timestamp;
            head = audit::link(&head, entry.clone()).head;
        }
        if let Some(Row::Chain(Chain { head: told, .. })) = self.rows.get(&Key::Chain)
            && *told != head
        {
            return Err("the chain's row is not its head".into());
        }
        self.head = Some(head);
        self.entries.extend(applied.entries.iter().cloned());
        let broken = check::broken(&self.rows);
        if broken.is_empty() {
            Ok(applied)
        } else {
            Err(broken.join("; ").into())
        }
    }

    fn learn(&mut self, reply: &Reply) {
        match reply {
            Reply::Registered(registered) if !self.sessions.contains(&registered.session) => {
                self.sessions.push(registered.session.clone());
            }
            Reply::Verdict(VerdictReply {
                approval_id: Some(id),
                ..
            }) if !self.approvals.contains(id) => {
                self.approvals.push(id.clone());
            }
            _ => {}
        }
    }

    /// Many allowed calls with different parameters, in one batch a call: `fill from=1 to=300`.
    fn fill(&mut self, args: &mut ArgumentConsumer<'_>) -> Result<String, Failed> {
        let (from, to) = (number(args, "from", 1)?, number(args, "to", 1)?);
        let cost = args.take_key("cost").map(str::parse).transpose()?;
        let session = self.session(args.take_key("session").unwrap_or("1"))?;
        let (by, settle) = (self.owner(args, &session)?, flag(args, "settle")?);
        let mut told = BTreeMap::<String, u64>::new();
        for call_number in from..=to {
            let call = Command::PreExec(PreExec {
                by: by.clone(),
                session: session.clone(),
                call_number,
                tool: ToolName::parse("search")?,
                digest: Some(Digest::of(&call_number.to_be_bytes())),
                params: Params::Clear,
                estimate: cost,
                nonce: call_number,
                request: None,
                parent_guard: None,
                approval: None,
                numbers: Vec::new(),
                rules: None,
            });
            let report = Command::PostExec(PostExec {
                by: by.clone(),
                session: session.clone(),
                call_number,
                actual: None,
                success: true,
                error_signal: false,
                partial: false,
                request: None,
                tokens_in: 0,
                tokens_out: 0,
                model: None,
                result: None,
            });
            let commands = if settle { vec![call, report] } else { vec![call] };
            for reply in self.step(commands)?.replies {
                let word = match reply {
                    Reply::Verdict(answer) => format!("{} {}", answer.verdict, answer.reason),
                    Reply::Settled(_) => "settled".to_owned(),
                    other => format!("{other:?}"),
                };
                *told.entry(word).or_default() += 1;
            }
        }
        Ok(told
            .iter()
            .map(|(word, times)| format!("{word} × {times}\n"))
            .collect())
    }

    /// Many partial reports of one call, with the requests `part1` to `part<to>`.
    fn parts(&mut self, args: &mut ArgumentConsumer<'_>) -> Result<String, Failed> {
        let to = number(args, "to", 1)?;
        let report = self.post_exec(args)?;
        let mut told = BTreeMap::<String, u64>::new();
        for part in 1..=to {
            let id = format!("part{part}");
            let report = PostExec {
                partial: true,
                request: Some(Request {
                    id: RequestId::parse(&id)?,
                    payload: Digest::of(b"the same"),
                }),
                ..report.clone()
            };
            for reply in self.step(vec![Command::PostExec(report)])?.replies {
                let name = format!("{reply:?}");
                *told
                    .entry(name.split('(').next().unwrap_or_default().to_owned())
                    .or_default() += 1;
            }
        }
        Ok(told
            .iter()
            .map(|(word, times)| format!("{word} × {times}\n"))
            .collect())
    }

    /// Seals the entries from one to another with a key of this seed.
    fn seal(&mut self, args: &mut ArgumentConsumer<'_>) -> Result<String, Failed> {
        let signer = signer(args.take_key("key").unwrap_or("1"))?;
        let (from, to) = (number(args, "from", 1)?, number(args, "to", 1)?);
        let within = |entry: &&Entry| (from..=to).contains(&entry.sequence);
        let mut range: Vec<Entry> = self.entries.iter().filter(within).cloned().collect();
        if range.is_empty() {
            // Beyond the head there is nothing to sign: the head instead.
            range.extend(self.entries.last().cloned());
        }
        let mut made = seal(&signer, &range)?;
        (made.from, made.to) = (from, to);
        self.apply(vec![Command::Seal(made)])
    }

    fn dump(&self, what: &str) -> String {
        let mut output = String::new();
        for (key, row) in &self.rows {
            let line = match (what, key, row) {
                ("accounts", Key::Account(id), Row::Account(account)) => {
                    format!("{id}: {}", balance(account))
                }
                ("session", Key::Session(id), Row::Session(session)) => format!(
                    "{id}: {:?} calls {} highest {} last seen {} trip {} waits {}",
                    session.status,
                    session.total_calls,
                    session.highest_call,
                    seconds(session.last_activity),
                    session
                        .trip
                        .as_ref()
                        .map_or("-".to_owned(), |trip| trip.reason.to_string()),
                    session.waiting.first().map_or(0, |waiting| waiting.call_number),
                ),
                ("calls", Key::Call(_, number), Row::Call(call)) => {
                    format!("{number}: nonce {} {:?}", call.nonce, call.phase)
                }
                ("holds", Key::Hold(_, number), Row::Hold(hold)) => format!(
                    "{number}: {} open {} charged {} until {}",
                    hold.amount,
                    hold.open,
                    hold.charged,
                    seconds(hold.expires_at)
                ),
                ("halts", Key::Halt(scope), Row::Halt(halt)) => format!(
                    "{scope}: engaged {} for {:?} by {} epoch {}, {} changes",
                    halt.engaged,
                    halt.reason,
                    halt.by,
                    halt.epoch,
                    halt.history.len()
                ),
                ("due", Key::Due(at, work), _) => format!("{}: {work:?}", seconds(*at)),
                ("requests", Key::Request(Requester::Session(_), id), _) => format!("{id}"),
                _ => continue,
            };
            output.push_str(&line);
            output.push('\n');
        }
        if what == "tables" {
            output = tables(&self.rows);
        }
        if let ("time", Some(Row::Cluster(Cluster { now, halt_epoch, .. }))) =
            (what, self.rows.get(&Key::Cluster))
        {
            output = format!("log time {} halt epoch {halt_epoch}\n", seconds(*now));
        }
        output
    }
}

/// How many rows each table has, but for those that are always there.
fn tables(rows: &BTreeMap<Key, Row>) -> String {
    let mut counts = BTreeMap::<String, u64>::new();
    for key in rows.keys() {
        let name = format!("{key:?}");
        let name = name.split('(').next().unwrap_or_default().to_owned();
        *counts.entry(name).or_default() += 1;
    }
    counts
        .iter()
        .map(|(name, count)| format!("{name} {count}\n"))
        .collect()
}
