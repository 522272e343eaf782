//! What an entry says beyond its fields: one type, one writer (`Display`), one reader (`parse`).

use std::fmt;
use std::str::FromStr;

use decision::{HaltMode, Limit, NanoUsd};

use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::keyring::KeyChange;

/// The meaning of [`Entry::detail`]. Scopes, accounts and guards are written as operators write them, a ticket is the
/// operator's own, to the end of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The other fields say it all.
    Nothing,
    /// A halt was engaged: with what mode, and which stronger one it stays.
    Engaged {
        scope: String,
        mode: HaltMode,
        stays: Option<HaltMode>,
        epoch: u64,
        ticket: String,
    },
    /// A halt's release was asked for, the first time of two.
    Asked {
        scope: String,
        ticket: String,
    },
    /// A halt was released, or its time was over.
    Lifted {
        scope: String,
        epoch: u64,
        ticket: String,
    },
    /// A hold was settled; `not_booked` and `overdraft` are zero where there is none.
    Settled {
        held: NanoUsd,
        charged: NanoUsd,
        success: bool,
        not_booked: NanoUsd,
        overdraft: NanoUsd,
    },
    /// A hold was closed by time, or by its session's end.
    Expired {
        held: NanoUsd,
        charged: NanoUsd,
    },
    /// A session was opened under this guard.
    Under(String),
    /// An account's limit as it is now.
    Limited {
        account: String,
        limit: Limit,
    },
    /// A guard was put.
    Version {
        guard: String,
        version: u64,
    },
    Key(KeyChange),
    /// Another version of the rules holds; these Raft ids had said that they can.
    Activated {
        version: u32,
        members: Vec<u64>,
    },
    /// So many sessions of a benchmark were loaded.
    Loaded(usize),
    /// A person's or a node's own words.
    Words(String),
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Engaged {
                scope,
                mode,
                stays,
                epoch,
                ticket,
            } => {
                write!(f, "{scope} {}", mode.word())?;
                if let Some(stays) = stays {
                    write!(f, " (stays {})", stays.word())?;
                }
                write!(f, " epoch {epoch}{}", Ticket(ticket))
            }
            Self::Asked { scope, ticket } => write!(f, "{scope}{}", Ticket(ticket)),
            Self::Lifted { scope, epoch, ticket } => write!(f, "{scope} epoch {epoch}{}", Ticket(ticket)),
            Self::Settled {
                held,
                charged,
                success,
                not_booked,
                overdraft,
            } => {
                write!(f, "held {held} charged {charged} success {success}")?;
                if *not_booked > NanoUsd::ZERO {
                    write!(f, " not_booked {not_booked}")?;
                }
                if *overdraft > NanoUsd::ZERO {
                    write!(f, " overdraft {overdraft}")?;
                }
                Ok(())
            }
            Self::Expired { held, charged } => write!(f, "held {held} charged {charged}"),
            Self::Under(guard) => write!(f, "guard {guard}"),
            Self::Limited { account, limit } => write!(f, "{account} {limit}"),
            Self::Version { guard, version } => write!(f, "{guard} version {version}"),
            Self::Key(change) => change.fmt(f),
            Self::Activated { version, members } => {
                write!(f, "version {version} members ")?;
                members.iter().enumerate().try_for_each(|(place, id)| {
                    let comma = if place == 0 { "" } else { "," };
                    write!(f, "{comma}{id}")
                })
            }
            Self::Loaded(sessions) => write!(f, "{sessions} sessions"),
            Self::Words(words) => f.write_str(words),
        }
    }
}

/// The end of a halt's text, where it has a ticket.
struct Ticket<'t>(&'t str);

impl fmt::Display for Ticket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            ticket => write!(f, " ticket {ticket}"),
        }
    }
}

impl Detail {
    /// Reads what an entry says.
    ///
    /// # Errors
    /// It is no detail of the entry's kind.
    pub fn of(entry: &Entry) -> Result<Self, Error> {
        Self::parse(entry.kind, &entry.detail)
    }

    /// Reads the text of an entry of this kind.
    ///
    /// # Errors
    /// It is no detail of this kind.
    pub fn parse(kind: Kind, text: &str) -> Result<Self, Error> {
        if matches!(kind, Kind::KeyRegistered | Kind::KeyRotated) {
            return KeyChange::parse(text).map(Self::Key);
        }
        Self::read(kind, text).ok_or(Error::DetailMalformed { kind })
    }

    fn read(kind: Kind, text: &str) -> Option<Self> {
        let mut words = Words(text);
        let detail = match kind {
            Kind::Refused | Kind::MembershipChanged | Kind::ApprovalDecided => Self::Words(words.rest()),
            Kind::HaltEngaged => {
                let (scope, mode) = (words.next()?.to_owned(), HaltMode::from_word(words.next()?)?);
                let stays = match words.after("(stays") {
                    Some(()) => Some(HaltMode::from_word(words.next()?.strip_suffix(')')?)?),
                    None => None,
                };
                Self::Engaged {
                    scope,
                    mode,
                    stays,
                    epoch: words.value("epoch")?,
                    ticket: words.ticket()?,
                }
            }
            Kind::ReleaseAsked => Self::Asked {
                scope: words.next()?.to_owned(),
                ticket: words.ticket()?,
            },
            Kind::HaltReleased | Kind::HaltExpired => Self::Lifted {
                scope: words.next()?.to_owned(),
                epoch: words.value("epoch")?,
                ticket: words.ticket()?,
            },
            Kind::Settlement => Self::Settled {
                held: words.value("held")?,
                charged: words.value("charged")?,
                success: words.value("success")?,
                not_booked: words.value_or("not_booked", NanoUsd::ZERO)?,
                overdraft: words.value_or("overdraft", NanoUsd::ZERO)?,
            },
            Kind::HoldExpired => Self::Expired {
                held: words.value("held")?,
                charged: words.value("charged")?,
            },
            Kind::BudgetSet | Kind::BudgetGranted | Kind::Correction => Self::Limited {
                account: words.next()?.to_owned(),
                limit: match words.next()? {
                    "unlimited" => Limit::Unlimited,
                    "suspended" => Limit::Suspended,
                    amount => Limit::Amount(amount.parse().ok()?),
                },
            },
            Kind::GuardPut => Self::Version {
                guard: words.next()?.to_owned(),
                version: words.value("version")?,
            },
            Kind::VersionActivated => Self::Activated {
                version: words.value("version")?,
                members: {
                    words.after("members")?;
                    let ids = words.next()?.split(',').map(str::parse);
                    ids.collect::<Result<_, _>>().ok()?
                },
            },
            Kind::SessionRegistered if !text.is_empty() => Self::Under(words.value("guard")?),
            Kind::Fixture => {
                let sessions = words.next()?.parse().ok()?;
                words.after("sessions")?;
                Self::Loaded(sessions)
            }
            _ => Self::Nothing,
        };
        words.0.is_empty().then_some(detail)
    }
}

/// The words of a text that are still to be read.
struct Words<'t>(&'t str);

impl<'t> Words<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    fn rest(&mut self) -> String {
        std::mem::take(&mut self.0).to_owned()
    }

    /// Goes past a word that has to come next.
    fn after(&mut self, word: &str) -> Option<()> {
        let mut ahead = Words(self.0);
        (ahead.next()? == word).then(|| self.0 = ahead.0)
    }

    /// Reads a word that follows its name.
    fn value<T: FromStr>(&mut self, name: &str) -> Option<T> {
        self.after(name)?;
        self.next()?.parse().ok()
    }

    /// The same where the name may be missing.
    fn value_or<T: FromStr>(&mut self, name: &str, missing: T) -> Option<T> {
        if Words(self.0).next() == Some(name) {
            self.value(name)
        } else {
            Some(missing)
        }
    }

    fn ticket(&mut self) -> Option<String> {
        if !self.0.is_empty() {
            self.after("ticket")?;
        }
        Some(self.rest())
    }
}

#[cfg(test)]
mod tests {
    use decision::{HaltMode, Limit, NanoUsd};

    use super::Detail;
    use crate::entry::Kind;
    use crate::keyring::KeyChange;

    #[test]
    fn what_is_written_reads_back_and_has_one_text() {
        let scope = || "org/acme".to_owned();
        let amount = NanoUsd::new(1_500_000_000);
        let cases = [
            (Kind::Verdict, Detail::Nothing, ""),
            (
                Kind::HaltEngaged,
                Detail::Engaged {
                    scope: scope(),
                    mode: HaltMode::Drain,
                    stays: Some(HaltMode::Halt),
                    epoch: 7,
                    ticket: "INC 4 epoch".to_owned(),
                },
                "org/acme drain (stays halt) epoch 7 ticket INC 4 epoch",
            ),
            (
                Kind::HaltEngaged,
                Detail::Engaged {
                    scope: "global".to_owned(),
                    mode: HaltMode::Pause,
                    stays: None,
                    epoch: 1,
                    ticket: String::new(),
                },
                "global pause epoch 1",
            ),
            (
                Kind::ReleaseAsked,
                Detail::Asked {
                    scope: scope(),
                    ticket: "T".to_owned(),
                },
                "org/acme ticket T",
            ),
            (
                Kind::HaltReleased,
                Detail::Lifted {
                    scope: scope(),
                    epoch: 8,
                    ticket: String::new(),
                },
                "org/acme epoch 8",
            ),
            (
                Kind::Settlement,
                Detail::Settled {
                    held: amount,
                    charged: amount,
                    success: false,
                    not_booked: NanoUsd::ZERO,
                    overdraft: NanoUsd::new(1),
                },
                "held 1.50 charged 1.50 success false overdraft 0.000000001",
            ),
            (
                Kind::HoldExpired,
                Detail::Expired {
                    held: amount,
                    charged: NanoUsd::ZERO,
                },
                "held 1.50 charged 0.00",
            ),
            (
                Kind::SessionRegistered,
                Detail::Under("research".to_owned()),
                "guard research",
            ),
            (Kind::SessionRegistered, Detail::Nothing, ""),
            (
                Kind::BudgetSet,
                Detail::Limited {
                    account: scope(),
                    limit: Limit::Suspended,
                },
                "org/acme suspended",
            ),
            (
                Kind::Correction,
                Detail::Limited {
                    account: scope(),
                    limit: Limit::Amount(amount),
                },
                "org/acme 1.50",
            ),
            (
                Kind::GuardPut,
                Detail::Version {
                    guard: "default".to_owned(),
                    version: 2,
                },
                "default version 2",
            ),
            (
                Kind::KeyRegistered,
                Detail::Key(KeyChange::register([1; 32], "n1")),
                "public=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE= node=n1",
            ),
            (Kind::Fixture, Detail::Loaded(3), "3 sessions"),
            (
                Kind::VersionActivated,
                Detail::Activated {
                    version: 4,
                    members: vec![7, 11],
                },
                "version 4 members 7,11",
            ),
            (
                Kind::Refused,
                Detail::Words("session/x: no".to_owned()),
                "session/x: no",
            ),
        ];
        for (kind, detail, text) in cases {
            assert_eq!(detail.to_string(), text, "{kind}");
            assert_eq!(Detail::parse(kind, text), Ok(detail), "{kind}");
        }
    }

    #[test]
    fn what_is_of_another_kind_or_has_more_is_refused() {
        for (kind, text) in [
            (Kind::Verdict, "held 1.00"),
            (Kind::HoldExpired, "held 1.00 charged 1.00 more"),
            (Kind::HaltEngaged, "global stop epoch 1"),
            (Kind::HaltReleased, "global epoch 1 because"),
            (Kind::GuardPut, "default version two"),
        ] {
            assert!(Detail::parse(kind, text).is_err(), "{kind} {text}");
        }
    }
}
