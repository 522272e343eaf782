//! Which version of the protocol a client and this daemon have in common.

use std::fmt;

use crate::error::{Code, Failure};
use crate::invalid::Invalid;

/// A version of SP/1.0's text: `major.minor.patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

/// The version that is spoken here.
pub const OURS: Version = Version {
    major: 1,
    minor: 0,
    patch: 1,
};
/// What a client speaks that does not say: the first published version.
const UNSAID: Version = Version {
    major: 1,
    minor: 0,
    patch: 0,
};

/// Gives the lower of the client's version and ours (docs/SPEC.md 6).
///
/// # Errors
/// INVALID_REQUEST for what is no version; PROTOCOL_VERSION_MISMATCH for another major.
pub fn negotiate(offered: &str) -> Result<Version, Failure> {
    if offered.is_empty() {
        return Ok(UNSAID);
    }
    let offered = parse(offered).ok_or_else(|| {
        Invalid::new(
            "protocol_version",
            "must be three numbers such as 1.0.0, or empty",
        )
    })?;
    if offered.major == OURS.major {
        Ok(offered.min(OURS))
    } else {
        Err(Failure::new(
            Code::ProtocolVersionMismatch,
            format!("this daemon speaks SP/{OURS}, and version 1 is all it has in common with anyone"),
        ))
    }
}

fn parse(text: &str) -> Option<Version> {
    let mut parts = text.split('.');
    let mut number = || {
        let digits = parts.next()?;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let version = Version {
        major: number()?,
        minor: number()?,
        patch: number()?,
    };
    parts.next().is_none().then_some(version)
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::negotiate;
    use crate::error::Code;

    #[test]
    fn the_lower_version_of_one_major_is_spoken() {
        let rows = [
            ("", Ok("1.0.0")),
            ("1.0.0", Ok("1.0.0")),
            ("1.0.1", Ok("1.0.1")),
            ("1.0.7", Ok("1.0.1")),
            ("1.2.0", Ok("1.0.1")),
            ("0.9.0", Err(Code::ProtocolVersionMismatch)),
            ("2.0.0", Err(Code::ProtocolVersionMismatch)),
            ("1", Err(Code::InvalidRequest)),
            ("1.0", Err(Code::InvalidRequest)),
            ("1.0.0.0", Err(Code::InvalidRequest)),
            ("1.0.x", Err(Code::InvalidRequest)),
            ("1.0.+1", Err(Code::InvalidRequest)),
            ("1..0", Err(Code::InvalidRequest)),
            ("1.0.99999999999", Err(Code::InvalidRequest)),
        ];
        for (offered, expected) in rows {
            let spoken = negotiate(offered)
                .map(|version| version.to_string())
                .map_err(|failure| failure.code);
            assert_eq!(spoken, expected.map(str::to_owned), "{offered:?}");
        }
    }
}
