//! Names of things, checked once where they enter.

use std::fmt;

use minicbor::{Decode, Encode};

/// Says which kind of name was not well formed; the caller fixes the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} must be {rule}")]
pub struct InvalidId {
    pub kind: &'static str,
    pub rule: &'static str,
}

/// Declares one name type: its kind, the rule in words, its longest length in characters, and its test.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:literal, $rule:literal, $holds:expr) => {
        $(#[$doc])*
        #[derive(Encode, Decode, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cbor(transparent)]
        pub struct $name(#[n(0)] String);

        impl $name {
            /// The longest name, in characters.
            pub const LEN_MAX: usize = $max;

            /// Checks and copies a name.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                let holds: fn(&str) -> bool = $holds;
                let length = text.chars().take($max + 1).count();
                if length == 0 || length > $max || !holds(text) {
                    return Err(InvalidId { kind: $kind, rule: $rule });
                }
                Ok($name(text.to_owned()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Gives the lower bound of a scan: less than every name, and none itself.
            pub const fn below_all() -> Self {
                $name(String::new())
            }

            /// Gives the upper bound of a scan: greater than every name, and none itself.
            pub fn above_all() -> Self {
                $name(char::MAX.to_string())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        /// Lets a sorted map keyed by this name be searched with a borrowed text.
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

const NAME_RULE_CHARS: &str = "._-";

id!(
    /// Names a tenant.
    OrganizationId, "organization_id", 64, "1 to 64 of [A-Za-z0-9._-], not starting with a dot", is_name
);
id!(
    /// Names an agent within its organization.
    AgentId, "agent_id", 64, "1 to 64 of [A-Za-z0-9._-], not starting with a dot", is_name
);
id!(
    /// Names a guard within its organization.
    GuardId, "guard_id", 64, "1 to 64 of [A-Za-z0-9._-], not starting with a dot", is_name
);
id!(
    /// Names an agent's session; minted by the cluster.
    SessionId, "session_id", 64, "1 to 64 of [A-Za-z0-9._:-]", |text| {
        text.bytes().all(|b| is_name_byte(b) || b == b':')
    }
);
id!(
    /// Names one request of a client, so that a retry is recognized.
    RequestId, "request_id", 64, "1 to 64 visible ASCII characters", |text| {
        text.bytes().all(|b| b.is_ascii_graphic())
    }
);
id!(
    /// Names an approval; minted by the cluster.
    ApprovalId, "approval_id", 64, "1 to 64 of [A-Za-z0-9._-], not starting with a dot", is_name
);
id!(
    /// Names a tool as the agent calls it.
    ToolName, "tool_name", 128, "1 to 128 characters without control characters", |text| {
        !text.chars().any(char::is_control)
    }
);
id!(
    /// Names a signing key.
    KeyId, "key_id", 64, "1 to 64 of [A-Za-z0-9._-], not starting with a dot", is_name
);

id!(
    /// Names a policy rule within its guard.
    RuleId, "rule_id", 64, "1 to 64 of [A-Za-z0-9._-], not starting with a dot", is_name
);

impl RuleId {
    /// Gives the id under which a rule denies that could not be judged (`policy:error`).
    pub fn error() -> RuleId {
        RuleId("error".to_owned())
    }
}

fn is_name(text: &str) -> bool {
    !text.starts_with('.') && text.bytes().all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || NAME_RULE_CHARS.bytes().any(|allowed| allowed == byte)
}
