//! How answers and entries are written.

use audit::Entry;
use decision::{NanoUsd, Timestamp};
use machine::command::Limit;
use machine::reply::{Refusal, Reply, VerdictReply};
use machine::row::Account;

pub fn told(reply: &Reply) -> String {
    match reply {
        Reply::Done(_) => "done".to_owned(),
        Reply::Registered(registered) => format!(
            "{} guard version {}",
            registered.session, registered.guard.version
        ),
        Reply::Verdict(answer) => verdict(answer),
        Reply::Settled(settled) => format!(
            "settled charged {} remaining {}{}",
            settled.charged,
            amount(settled.remaining),
            if settled.replayed { " replayed" } else { "" }
        ),
        Reply::Account(account, _) => balance(account),
        Reply::Guard(guard, _) => format!("guard version {}", guard.version),
        Reply::Halt(halt) => format!(
            "{} {} for {:?} epoch {}{}",
            if halt.engaged { "engaged" } else { "released" },
            format!("{:?}", halt.mode).to_lowercase(),
            halt.reason,
            halt.place.halt_epoch,
            if halt.needs_second {
                ", a second person has to ask"
            } else {
                ""
            }
        ),
        Reply::Reevaluate(_) => "reevaluate".to_owned(),
        Reply::OtherVersion(active) => format!("version {active} is active"),
        Reply::Redeemed(redeemed) => match &redeemed.refused {
            None => "redeemed".to_owned(),
            Some(reason) => format!("not redeemed: {reason}"),
        },
        Reply::Session(status, _) => format!("session {status:?}"),
        Reply::Due(more) => format!("due, more {more}"),
        Reply::Approval(approval) => {
            let successor = approval.successor.as_ref();
            format!(
                "{} {:?}{}",
                approval.id,
                approval.status,
                successor.map_or(String::new(), |it| format!(
                    " n={} nonce={}",
                    it.call_number, it.nonce
                ))
            )
        }
        Reply::Refused(refusal) => format!("{}: {refusal}", refusal_name(refusal)),
    }
}

pub fn verdict(answer: &VerdictReply) -> String {
    let mut told = format!("{} {}", answer.verdict, answer.reason);
    for also in &answer.also {
        told.push_str(&format!(" +{also}"));
    }
    told.push_str(&format!(
        " | left {} repeats {}",
        amount(answer.remaining),
        answer.repeats
    ));
    if let Some(id) = &answer.approval_id {
        told.push_str(&format!(" {id}"));
    }
    if let Some(scope) = &answer.blocked_by {
        told.push_str(&format!(" blocked by {scope}"));
    }
    if let Some(wait) = answer.retry_after {
        told.push_str(&format!(" again in {}", seconds(Timestamp::ZERO.plus(wait))));
    }
    if answer.authorization.is_some() {
        told.push_str(" ticket");
    }
    for warning in &answer.warnings {
        told.push_str(&format!(" near {}", warning.word()));
    }
    if answer.replayed {
        told.push_str(&format!(" replayed from #{}", answer.place.sequence));
    }
    told
}

pub fn refusal_name(refusal: &Refusal) -> String {
    let name = format!("{refusal:?}");
    name.split('(').next().unwrap_or_default().to_owned()
}

pub fn recorded(entry: &Entry) -> String {
    let mut words = vec![format!("#{} {}", entry.sequence, entry.kind)];
    let call = (entry.call_number != 0).then(|| format!("call {}", entry.call_number));
    let money = (entry.budget_before != entry.budget_after)
        .then(|| format!("{} → {}", entry.budget_before, entry.budget_after));
    let by = (!entry.operator_id.is_empty()).then(|| format!("by {}", entry.operator_id));
    let said = [&entry.reason, &entry.detail].map(|text| (!text.is_empty()).then(|| text.clone()));
    words.extend(entry.verdict.map(|verdict| verdict.to_string()));
    words.extend(
        call.into_iter()
            .chain(money)
            .chain(by)
            .chain(said.into_iter().flatten()),
    );
    words.join(" · ")
}

pub fn balance(account: &Account) -> String {
    let limit = match account.limit {
        Limit::Amount(amount) => amount.to_string(),
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::Suspended => "suspended".to_owned(),
    };
    format!(
        "{limit}, spent {} held {} left {} overdraft {}",
        account.spent,
        account.held,
        amount(account.available()),
        account.overdraft()
    )
}

pub fn amount(amount: Option<NanoUsd>) -> String {
    amount.map_or("-".to_owned(), |amount| amount.to_string())
}

pub fn seconds(time: Timestamp) -> String {
    let span = time.since(Timestamp::ZERO);
    match span.nanos() % 1_000_000_000 {
        0 => format!("{}s", span.secs()),
        rest => format!("{}s+{rest}ns", span.secs()),
    }
}
