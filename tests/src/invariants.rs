//! What must hold of a cluster, whatever happened to it: one checker an invariant.

use std::collections::BTreeMap;
use std::time::Duration;

use audit::{Detail, Entry, KeyRing, Kind, Start, Unsealed, Verifier};
use decision::{DurationNs, NanoUsd, Timestamp, Verdict};
use machine::{Command, Reply, Scope};
use store::StateReader;

use crate::history::History;

/// Everything one node's chain says.
pub fn chain(reader: &StateReader) -> Result<Vec<Entry>, String> {
    reader.entries(1, usize::MAX).map_err(|error| error.to_string())
}

/// I1: every verdict that a client received stands in the chain, at the sequence it named.
pub fn answers_stand_in_the_chain(history: &History, chain: &[Entry]) -> Result<usize, String> {
    let by_sequence: BTreeMap<u64, &Entry> = chain.iter().map(|entry| (entry.sequence, entry)).collect();
    let mut checked = 0;
    for (attempt, reply) in history.answered() {
        let Reply::Verdict(answer) = reply else { continue };
        let Command::PreExec(call) = &attempt.command else {
            continue;
        };
        let sequence = answer.place.sequence;
        let entry = by_sequence
            .get(&sequence)
            .ok_or_else(|| format!("verdict {sequence} is not in the chain"))?;
        // A call that still waits is told so at the sequence of its HITL.
        let same = entry.session_id == call.session.as_str()
            && entry.call_number == call.call_number
            && entry.nonce == Some(call.nonce)
            && entry.verdict == Some(answer.verdict)
            && (entry.reason == answer.reason.word() || answer.replayed);
        if !same {
            return Err(format!(
                "verdict {sequence}: the client was told {answer:?}, the chain says {entry:?}"
            ));
        }
        checked += 1;
    }
    Ok(checked)
}

/// I2, at the end: no account was drawn on beyond its limit, and the rows agree with each other.
pub fn nobody_overspent(reader: &StateReader, limit: NanoUsd, organization: &str) -> Result<(), String> {
    use machine::row::Read as _;
    let id = format!("org/{organization}")
        .parse()
        .map_err(|error| format!("{error}"))?;
    let (account, broken) = reader
        .at(|view| (view.account(&id), machine::check::broken_in(view)))
        .map_err(|error| error.to_string())?;
    let broken = broken.map_err(|fault| fault.to_string())?;
    if !broken.is_empty() {
        return Err(format!("rows disagree: {broken:?}"));
    }
    let account = account.map_err(|fault| fault.to_string())?.ok_or("no account")?;
    let used = account.spent.saturating_add(account.held);
    if used > limit {
        return Err(format!("{organization}: spent and held {used} of {limit}"));
    }
    Ok(())
}

/// I2, at every ALLOW: what was held and charged until then, and this hold, fit the organization's limit.
/// Worked out from the chain alone; every call there was held at `price`.
pub fn allows_fit_the_limit(
    chain: &[Entry],
    limit: NanoUsd,
    organization: &str,
    price: NanoUsd,
) -> Result<usize, String> {
    let mut drawn: BTreeMap<(&str, u64), NanoUsd> = BTreeMap::new();
    let mut used = NanoUsd::ZERO;
    let mut allowed = 0;
    for entry in chain.iter().filter(|entry| entry.organization_id == organization) {
        let amount = match (entry.kind, entry.verdict) {
            (Kind::Verdict, Some(Verdict::Allow)) => {
                allowed += 1;
                price
            }
            (Kind::Settlement | Kind::HoldExpired, _) => match said(entry)? {
                Detail::Settled { charged, .. } | Detail::Expired { charged, .. } => charged,
                _ => continue,
            },
            _ => continue,
        };
        let before = drawn
            .insert((&entry.session_id, entry.call_number), amount)
            .unwrap_or_default();
        used = used.saturating_sub(before).saturating_add(amount);
        if used > limit {
            return Err(format!("{}: {used} held and charged of {limit}", entry.sequence));
        }
    }
    Ok(allowed)
}

fn said(entry: &Entry) -> Result<Detail, String> {
    Detail::of(entry).map_err(|error| format!("{}: {error}", entry.sequence))
}

/// I3: one ALLOW at most is on record for each nonce of a session.
pub fn no_nonce_is_allowed_twice(chain: &[Entry]) -> Result<(), String> {
    let mut seen: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for entry in chain.iter().filter(|entry| entry.verdict == Some(Verdict::Allow)) {
        let nonce = entry
            .nonce
            .ok_or_else(|| format!("{}: an ALLOW without a nonce", entry.sequence))?;
        if let Some(earlier) = seen.insert((&entry.session_id, nonce), entry.sequence) {
            return Err(format!(
                "nonce {nonce} of {} at {earlier} and {}",
                entry.session_id, entry.sequence
            ));
        }
    }
    Ok(())
}

/// I3: a retried request got its original answer, or a denial.
pub fn retries_agree(history: &History) -> Result<usize, String> {
    // What it was told first, and first but a denial: the answer that was lost may come after a halt's denial.
    let mut first: BTreeMap<(String, String), (Verdict, u64)> = BTreeMap::new();
    let mut allowed: BTreeMap<(String, String), (Verdict, u64)> = BTreeMap::new();
    let mut retried = 0;
    for (attempt, reply) in history.answered() {
        let (Command::PreExec(call), Reply::Verdict(answer)) = (&attempt.command, reply) else {
            continue;
        };
        let Some(request) = &call.request else { continue };
        let key = (call.session.to_string(), request.id.to_string());
        let told = (answer.verdict, answer.place.sequence);
        let original = *first.entry(key.clone()).or_insert(told);
        if original != told {
            retried += 1;
        }
        if answer.verdict == Verdict::Deny {
            continue;
        }
        let released = *allowed.entry(key.clone()).or_insert(told);
        if released != told || told.1 > original.1 {
            return Err(format!(
                "{key:?}: first {original:?}, {released:?}, then {told:?}"
            ));
        }
    }
    Ok(retried)
}

/// I4: after an Engage in the chain there is no ALLOW in its scope until its Release.
pub fn no_allow_while_engaged_in_the_chain(chain: &[Entry], organization: &str) -> Result<(), String> {
    let mut engaged = false;
    for entry in chain {
        let scope = format!("org/{organization}");
        match said(entry)? {
            Detail::Engaged { scope: of, .. } if of == scope => engaged = true,
            Detail::Lifted { scope: of, .. } if of == scope => engaged = false,
            _ if engaged
                && entry.kind == Kind::Verdict
                && entry.organization_id == organization
                && entry.verdict == Some(Verdict::Allow) =>
            {
                return Err(format!("{}: ALLOW while engaged", entry.sequence));
            }
            _ => {}
        }
    }
    Ok(())
}

/// I5: no request invoked after Engage had returned, and before a Release was invoked, got an ALLOW.
pub fn no_allow_after_engage_returned(history: &History, organization: &str) -> Result<usize, String> {
    let mut spans: Vec<(Duration, Duration)> = Vec::new();
    let scope = format!("org/{organization}")
        .parse::<Scope>()
        .map_err(|error| error.to_string())?;
    let mut attempts: Vec<_> = history.attempts.iter().collect();
    attempts.sort_by_key(|attempt| attempt.invoked);
    for attempt in attempts {
        match (&attempt.command, &attempt.reply) {
            (Command::Engage(engage), Some(Reply::Halt(halt)))
                if engage.scope == scope
                    && halt.engaged
                    && spans.last().is_none_or(|(_, end)| *end < Duration::MAX) =>
            {
                spans.push((attempt.returned, Duration::MAX));
            }
            (Command::Release(release), _) if release.scope == scope => {
                if let Some((_, end)) = spans.last_mut().filter(|(_, end)| *end == Duration::MAX) {
                    *end = attempt.invoked;
                }
            }
            _ => {}
        }
    }
    for (attempt, reply) in history.answered() {
        let Reply::Verdict(answer) = reply else { continue };
        let within = spans
            .iter()
            .any(|(from, until)| attempt.invoked > *from && attempt.returned < *until);
        if answer.verdict == Verdict::Allow && within {
            return Err(format!(
                "ALLOW at {:?} after Engage returned: {answer:?}",
                attempt.returned
            ));
        }
    }
    Ok(spans.len())
}

/// How far a node's log time may be beyond the median of the voters' clocks, and the simulation's step.
const AHEAD_MAX: DurationNs = DurationNs::from_millis(1_002);

/// Log time stays behind the median of the voters' clocks and a second; `median` is what they show now.
pub fn log_time_is_bounded(node: &str, reader: &StateReader, median: Timestamp) -> Result<(), String> {
    let log_time = reader.progress().borrow().log_time;
    let ahead = log_time.since(median);
    if ahead > AHEAD_MAX {
        return Err(format!(
            "{node}: log time {log_time} is {} ms ahead",
            ahead.millis_up()
        ));
    }
    Ok(())
}

/// I7: the chain links and its signatures hold.
pub fn chain_verifies(reader: &StateReader) -> Result<u64, String> {
    let mut verifier = Verifier::new(Start::Genesis, KeyRing::default());
    for key in reader.keys().map_err(|error| error.to_string())?.iter() {
        verifier
            .push_key(key.public, &key.node)
            .map_err(|broken| broken.to_string())?;
    }
    for entry in chain(reader)? {
        verifier.push_entry(&entry).map_err(|broken| broken.to_string())?;
    }
    for seal in reader
        .seals_from(1, usize::MAX)
        .map_err(|error| error.to_string())?
    {
        verifier.push_seal(&seal).map_err(|broken| broken.to_string())?;
    }
    verifier
        .finish(Unsealed::Allow)
        .map(|verified| verified.entries)
        .map_err(|broken| broken.to_string())
}

/// I7, at any time: equal sequence means equal hash on all nodes. Keeps what was seen.
#[derive(Debug, Default)]
pub struct OneChain(BTreeMap<u64, [u8; 32]>);

impl OneChain {
    pub fn observe(&mut self, node: &str, reader: &StateReader) -> Result<(), String> {
        let progress = *reader.progress().borrow();
        match self.0.insert(progress.head_sequence, progress.head_hash) {
            Some(hash) if hash != progress.head_hash => Err(format!(
                "{node}: another entry {} than a node had before",
                progress.head_sequence
            )),
            Some(_) | None => Ok(()),
        }
    }
}
