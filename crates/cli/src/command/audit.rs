//! `haltgate audit`: follow the log, take it home, and check it without trusting anyone.

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;

use audit::{Checkpoint, KeyRing, Start, Unsealed, Verified, Verifier};
use serde_json::{Value, json};
use wire::proto::haltgate::audit::v1 as proto;
use wire::proto::haltgate::audit::v1::audit_stream_response::Item;

use crate::args::{Audit, Output};
use crate::export::{EntryLine, KeyLine, Line, SealLine};
use crate::failed::{Failed, file};
use crate::print;
use crate::remote::Remote;

/// Entries that `tail` shows when it is not told where to begin.
const TAIL: u64 = 10;
/// A line of an export is one seal of 4,096 signatures at the most.
const LINE_MAX: usize = 4 << 20;

pub async fn run(command: Audit, output: Output) -> Result<(), Failed> {
    match command {
        Audit::Tail {
            remote,
            from,
            no_follow,
        } => tail(&Remote::open(&remote)?, from, !no_follow, output).await,
        Audit::Verify {
            file,
            checkpoint,
            allow_unsealed,
        } => {
            let unsealed = if allow_unsealed {
                Unsealed::Allow
            } else {
                Unsealed::Refuse
            };
            let verified = verify(&file, checkpoint.as_deref(), unsealed)?;
            report(output, &verified);
            Ok(())
        }
        Audit::Export { remote, to } => {
            let entries = export(&Remote::open(&remote)?, &to).await?;
            print::object(output, &json!({ "file": to, "entries": entries }));
            Ok(())
        }
        Audit::Checkpoint { remote } => {
            let answer = checkpoint(&Remote::open(&remote)?).await?;
            match output {
                Output::Table => crate::print::outln!("{}", answer.note.trim_end()),
                Output::Json => print::object(
                    output,
                    &json!({
                        "chain_id": answer.chain_id, "size": answer.size, "note": answer.note,
                        "head_hash": crate::export::hex(&answer.head_hash),
                        "root_hash": crate::export::hex(&answer.root_hash),
                        "key_ids": answer.key_ids,
                    }),
                ),
            }
            Ok(())
        }
    }
}

async fn tail(remote: &Remote, from: Option<u64>, follow: bool, output: Output) -> Result<(), Failed> {
    let from_sequence = match from {
        Some(from) => from.max(1),
        None => checkpoint(remote)
            .await?
            .size
            .saturating_sub(TAIL)
            .saturating_add(1),
    };
    let to_sequence = if follow { 0 } else { checkpoint(remote).await?.size };
    if !follow && from_sequence > to_sequence {
        return Ok(());
    }
    let request = proto::AuditStreamRequest {
        from_sequence,
        follow,
        to_sequence,
    };
    let mut items = remote.follow(request).await?;
    if output == Output::Table {
        print::outln!("{}", columns(HEADER));
    }
    while let Some(item) = items.message().await? {
        let Some(Item::Entry(message)) = item.item else {
            continue;
        };
        let entry = wire::audit::entry(&message).map_err(|error| Failed::refused(error.to_string()))?;
        match output {
            Output::Json => {
                crate::print::outln!("{}", to_json(&Line::Entry(Box::new(EntryLine::from(&entry))))?)
            }
            Output::Table => print::outln!("{}", row(&entry)),
        }
        if !follow && entry.sequence >= to_sequence {
            break;
        }
    }
    Ok(())
}

async fn checkpoint(remote: &Remote) -> Result<proto::Checkpoint, Failed> {
    let answer = remote.call(proto::AuditGetCheckpointRequest {}).await?;
    answer
        .checkpoint
        .ok_or_else(|| Failed::refused("the node gave no checkpoint"))
}

/// Writes the whole chain as it is now, with its keys; gives the number of entries.
pub async fn export(remote: &Remote, to: &Path) -> Result<u64, Failed> {
    let size = checkpoint(remote).await?.size;
    let keys = remote.call(proto::AuditListKeysRequest {}).await?;
    let out = std::fs::File::create(to).map_err(file(to))?;
    let mut out = BufWriter::new(out);
    let malformed = |error: wire::Invalid| Failed::refused(error.to_string());
    let mut write = |line: &Line| writeln!(out, "{}", to_json(line)?).map_err(file(to));
    for key in &keys.keys {
        write(&Line::Key(KeyLine::from(
            &wire::audit::key(key).map_err(malformed)?,
        )))?;
    }
    let request = proto::AuditStreamRequest {
        from_sequence: 1,
        follow: true,
        to_sequence: 0,
    };
    let mut items = remote.follow(request).await?;
    let mut entries = 0_u64;
    let mut sealed = 0_u64;
    // Seals follow the entries they cover; the last may cover some that came after we began.
    while sealed < size {
        let Some(item) = items.message().await? else {
            return Err(Failed::refused(
                "the node ended the stream before all entries were signed",
            ));
        };
        match item.item {
            Some(Item::Entry(message)) => {
                let entry = wire::audit::entry(&message).map_err(malformed)?;
                if entry.sequence != entries.saturating_add(1) {
                    return Err(Failed::refused(
                        "this certificate sees the entries of its organization only: the whole chain is a cluster auditor's",
                    ));
                }
                entries = entry.sequence;
                write(&Line::Entry(Box::new(EntryLine::from(&entry))))?;
            }
            Some(Item::Seal(message)) => {
                let seal = wire::audit::seal(&message).map_err(malformed)?;
                sealed = sealed.max(seal.to);
                write(&Line::Seal(SealLine::from(&seal)))?;
            }
            None => {}
        }
    }
    out.flush().map_err(file(to))?;
    Ok(entries)
}

/// Checks an export, line by line.
pub fn verify(path: &Path, checkpoint: Option<&Path>, unsealed: Unsealed) -> Result<Verified, Failed> {
    let broken = |what: &dyn std::fmt::Display| Failed::refused(format!("{}: {what}", path.display()));
    let mut verifier = Verifier::new(Start::Genesis, KeyRing::default());
    if let Some(path) = checkpoint {
        let text = std::fs::read_to_string(path).map_err(file(path))?;
        let checkpoint = Checkpoint::parse(&text)
            .map_err(|error| Failed::usage(format!("{}: {error}", path.display())))?;
        verifier = verifier.against(checkpoint);
    }
    let mut reader = BufReader::new(std::fs::File::open(path).map_err(file(path))?);
    let mut line = String::new();
    let mut number = 0_u64;
    let mut seals = Vec::new();
    loop {
        line.clear();
        let read = std::io::Read::take(&mut reader, u64::try_from(LINE_MAX).unwrap_or(u64::MAX))
            .read_line(&mut line)
            .map_err(file(path))?;
        if read == 0 {
            break;
        }
        number = number.saturating_add(1);
        let parsed: Line =
            serde_json::from_str(&line).map_err(|error| broken(&format!("line {number}: {error}")))?;
        match parsed {
            Line::Key(key) => {
                let public = key
                    .public()
                    .map_err(|error| broken(&format!("line {number}: {error}")))?;
                verifier
                    .push_key(public, &key.node)
                    .map_err(|error| broken(&format!("line {number}: {error}")))?;
            }
            Line::Entry(entry) => {
                let sequence = entry.sequence;
                let entry = (*entry)
                    .try_into()
                    .map_err(|error| broken(&format!("sequence {sequence}: {error}")))?;
                verifier.push_entry(&entry).map_err(|error| broken(&error))?;
            }
            Line::Seal(seal) => {
                let from = seal.from;
                seals.push(
                    seal.try_into()
                        .map_err(|error| broken(&format!("the seal from {from}: {error}")))?,
                );
            }
        }
        for seal in seals.drain(..) {
            verifier.push_seal(&seal).map_err(|error| broken(&error))?;
        }
    }
    verifier.finish(unsealed).map_err(|error| broken(&error))
}

fn report(output: Output, verified: &Verified) {
    let value = json!({
        "verified": true,
        "entries": verified.entries,
        "first": verified.first,
        "last": verified.last,
        "unsealed": verified.unsealed,
        "head_hash": crate::export::hex(&verified.head.hash),
        "chain_id": verified.head.chain_id,
    });
    print::object(output, &value);
}

fn to_json(line: &Line) -> Result<Value, Failed> {
    serde_json::to_value(line).map_err(|error| Failed::refused(error.to_string()))
}

const HEADER: [&str; 7] = ["SEQUENCE", "TIME", "KIND", "WHO", "VERDICT", "REASON", "DETAIL"];

/// One line of `tail`. Its columns have fixed widths: what follows is not known yet.
fn columns([sequence, time, kind, who, verdict, reason, detail]: [&str; 7]) -> String {
    format!("{sequence:>8}  {time:20}  {kind:21}  {who:28}  {verdict:7}  {reason:24}  {detail}")
        .trim_end()
        .to_owned()
}

fn row(entry: &audit::Entry) -> String {
    columns([
        &entry.sequence.to_string(),
        &print::utc(i128::from(entry.timestamp.nanos())),
        entry.kind.as_str(),
        &who(entry),
        entry.verdict.map_or("-", decision::Verdict::word),
        or_dash(&entry.reason),
        or_dash(&detail(entry)),
    ])
}

/// The person or node that acted, else the agent.
fn who(entry: &audit::Entry) -> String {
    let (operator, organization, agent) = (&entry.operator_id, &entry.organization_id, &entry.agent_id);
    match (operator.is_empty(), organization.is_empty(), agent.is_empty()) {
        (false, _, _) => operator.clone(),
        (true, false, false) => format!("org/{organization}/agent/{agent}"),
        (true, false, true) => format!("org/{organization}"),
        (true, true, _) => or_dash(agent).to_owned(),
    }
}

/// Which call it was, and what the other columns do not say.
fn detail(entry: &audit::Entry) -> String {
    let call = match entry.call_number {
        0 => String::new(),
        number => format!("call {number}"),
    };
    [
        call.as_str(),
        &entry.tool_name,
        &entry.approval_id,
        &entry.session_id,
        &entry.detail,
    ]
    .into_iter()
    .filter(|part| !part.is_empty())
    .collect::<Vec<_>>()
    .join(" ")
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
