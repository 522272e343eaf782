//! How a command ends when it does not succeed: a sentence, and an exit code that scripts can tell apart.

use std::fmt;
use std::process::ExitCode;

use client::error_detail;
use tonic::{Code, Status};

/// Why a command did not do what it was told.
#[derive(Debug)]
pub struct Failed {
    end: End,
    message: String,
}

/// The exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// 1: refused, denied, or failed.
    Refused,
    /// 2: the command line or a file it names is wrong.
    Usage,
    /// 3: a person has to decide.
    NeedsHuman,
    /// 4: the cluster could not be asked.
    Unavailable,
}

impl Failed {
    pub fn new(end: End, message: impl Into<String>) -> Self {
        Self {
            end,
            message: message.into(),
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(End::Usage, message)
    }

    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(End::Refused, message)
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.end {
            End::Refused => 1,
            End::Usage => 2,
            End::NeedsHuman => 3,
            End::Unavailable => 4,
        })
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        let end = match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => End::Unavailable,
            Code::InvalidArgument => End::Usage,
            _ => End::Refused,
        };
        let message = match error_detail(&status) {
            // Many messages begin with the name of the field already.
            Some(error) if error.message.starts_with(&error.field) => {
                format!("{}: {}", error.code, error.message)
            }
            Some(error) => format!("{}: {}: {}", error.code, error.field, error.message),
            None => format!("{}: {}", status.code(), status.message()),
        };
        Self { end, message }
    }
}

impl From<client::OpenError> for Failed {
    fn from(error: client::OpenError) -> Self {
        Self::usage(error.to_string())
    }
}

/// Names the file in an error about it.
pub fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Failed {
    let path = path.display().to_string();
    move |error| Failed::usage(format!("{path}: {error}"))
}
