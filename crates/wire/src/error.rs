//! Failures: what a program, a person and gRPC are told when nothing was decided.

use prost::Message as _;
use tonic::metadata::MetadataValue;
use tonic::{Code as Grpc, Status};

use machine::Refusal;

use crate::invalid::Invalid;
use crate::proto::haltgate::error::v1 as proto;

/// The trailing metadata that carries the encoded `haltgate.error.v1.Error`.
pub const METADATA_KEY: &str = "haltgate-error-bin";

/// Why an RPC was not answered (docs/SPEC.md 17). Nothing was decided; none of them may be read as ALLOW.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    ProtocolVersionMismatch,
    SessionNotFound,
    /// AUTHENTICATION_FAILED: no certificate, or one that is not valid here.
    Unauthenticated,
    /// AUTHENTICATION_FAILED: a valid one that may not do this.
    PermissionDenied,
    RateLimited,
    MessageTooLarge,
    DaemonUnavailable,
    RequestConflict,
    InvalidRequest,
    NotFound,
    FailedPrecondition,
    Internal,
}

impl Code {
    pub const ALL: [Self; 12] = [
        Self::ProtocolVersionMismatch,
        Self::SessionNotFound,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::RateLimited,
        Self::MessageTooLarge,
        Self::DaemonUnavailable,
        Self::RequestConflict,
        Self::InvalidRequest,
        Self::NotFound,
        Self::FailedPrecondition,
        Self::Internal,
    ];

    /// Gives the stable word and the gRPC status: one row a code.
    const fn row(self) -> (&'static str, Grpc) {
        match self {
            Self::ProtocolVersionMismatch => ("PROTOCOL_VERSION_MISMATCH", Grpc::FailedPrecondition),
            Self::SessionNotFound => ("SESSION_NOT_FOUND", Grpc::NotFound),
            Self::Unauthenticated => ("AUTHENTICATION_FAILED", Grpc::Unauthenticated),
            Self::PermissionDenied => ("AUTHENTICATION_FAILED", Grpc::PermissionDenied),
            Self::RateLimited => ("RATE_LIMITED", Grpc::ResourceExhausted),
            Self::MessageTooLarge => ("MESSAGE_TOO_LARGE", Grpc::ResourceExhausted),
            Self::DaemonUnavailable => ("DAEMON_UNAVAILABLE", Grpc::Unavailable),
            Self::RequestConflict => ("REQUEST_CONFLICT", Grpc::AlreadyExists),
            Self::InvalidRequest => ("INVALID_REQUEST", Grpc::InvalidArgument),
            Self::NotFound => ("NOT_FOUND", Grpc::NotFound),
            Self::FailedPrecondition => ("FAILED_PRECONDITION", Grpc::FailedPrecondition),
            Self::Internal => ("INTERNAL", Grpc::Internal),
        }
    }

    pub const fn word(self) -> &'static str {
        self.row().0
    }

    pub const fn grpc(self) -> Grpc {
        self.row().1
    }

    fn from_parts(word: &str, grpc: Grpc) -> Option<Self> {
        let named = |code: &Self| code.word() == word;
        Self::ALL
            .into_iter()
            .find(|code| named(code) && code.grpc() == grpc)
            .or_else(|| Self::ALL.into_iter().find(named))
    }
}

/// The member that leads, as far as the answering node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Configured node id.
    pub node_id: u64,
    /// `host:port` that agents and operators call.
    pub grpc_addr: String,
    pub term: u64,
}

/// A failed RPC, on either side of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.word())]
pub struct Failure {
    pub code: Code,
    /// What is wrong, where, and what to do. No secret, no parameter of a tool call.
    pub message: String,
    /// The field of INVALID_REQUEST; empty otherwise.
    pub field: String,
    pub leader: Option<Leader>,
    /// Milliseconds after which a repetition can succeed; 0 where nobody knows.
    pub retry_after_ms: u64,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            field: String::new(),
            leader: None,
            retry_after_ms: 0,
        }
    }

    #[must_use]
    pub fn led_by(self, leader: Option<Leader>) -> Self {
        Self { leader, ..self }
    }

    #[must_use]
    pub fn retry_after_ms(self, retry_after_ms: u64) -> Self {
        Self {
            retry_after_ms,
            ..self
        }
    }

    /// Gives the gRPC status with its detail.
    pub fn to_status(&self) -> Status {
        let mut status = Status::new(self.code.grpc(), self.message.as_str());
        status
            .metadata_mut()
            .insert_bin(METADATA_KEY, MetadataValue::from_bytes(&self.to_detail()));
        status
    }

    /// Gives the bytes of the detail.
    pub fn to_detail(&self) -> Vec<u8> {
        proto::Error {
            code: self.code.word().to_owned(),
            message: self.message.clone(),
            leader: self.leader.as_ref().map(|leader| proto::LeaderHint {
                node_id: leader.node_id,
                grpc_addr: leader.grpc_addr.clone(),
                term: leader.term,
            }),
            retry_after_ms: self.retry_after_ms,
            field: self.field.clone(),
        }
        .encode_to_vec()
    }

    /// Reads a status as a client receives it: from its detail, or, where a proxy or a broken connection made
    /// it, from its code alone.
    pub fn from_status(status: &Status) -> Self {
        let detail = status
            .metadata()
            .get_bin(METADATA_KEY)
            .and_then(|value| value.to_bytes().ok())
            .and_then(|bytes| proto::Error::decode(bytes).ok());
        let Some(detail) = detail else {
            return Self::new(without_detail(status.code()), status.message());
        };
        Self {
            code: Code::from_parts(&detail.code, status.code()).unwrap_or(without_detail(status.code())),
            message: detail.message,
            field: detail.field,
            leader: detail.leader.map(|leader| Leader {
                node_id: leader.node_id,
                grpc_addr: leader.grpc_addr,
                term: leader.term,
            }),
            retry_after_ms: detail.retry_after_ms,
        }
    }
}

/// What a status means that our own code did not make: gRPC's own refusals, proxies, broken connections.
pub fn without_detail(grpc: Grpc) -> Code {
    match grpc {
        // A client that gave up, a connection that broke, a proxy that answered: no daemon said no.
        Grpc::Ok
        | Grpc::Cancelled
        | Grpc::Unknown
        | Grpc::DeadlineExceeded
        | Grpc::Aborted
        | Grpc::Unavailable => Code::DaemonUnavailable,
        Grpc::InvalidArgument | Grpc::Unimplemented => Code::InvalidRequest,
        Grpc::NotFound => Code::NotFound,
        Grpc::AlreadyExists => Code::RequestConflict,
        Grpc::PermissionDenied => Code::PermissionDenied,
        Grpc::Unauthenticated => Code::Unauthenticated,
        Grpc::ResourceExhausted => Code::RateLimited,
        Grpc::OutOfRange => Code::MessageTooLarge,
        Grpc::FailedPrecondition => Code::FailedPrecondition,
        Grpc::Internal | Grpc::DataLoss => Code::Internal,
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        let message = invalid.to_string();
        Self {
            field: invalid.field.into_owned(),
            ..Self::new(Code::InvalidRequest, message)
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        let code = match refusal {
            // Nothing is wrong with the request: the cluster is not there yet.
            Refusal::NotInitialized => Code::DaemonUnavailable,
            Refusal::AlreadyInitialized | Refusal::Precondition(_) => Code::FailedPrecondition,
            Refusal::SessionNotFound => Code::SessionNotFound,
            Refusal::NotYours(_) => Code::PermissionDenied,
            Refusal::Conflict(_) => Code::RequestConflict,
            Refusal::Invalid(_) => Code::InvalidRequest,
            Refusal::NotFound(_) => Code::NotFound,
        };
        // The machine's refusals begin with the field that they are about, where there is one.
        let field = match (code, message.split_once(' ')) {
            (Code::InvalidRequest, Some((field @ "call_number", _))) => field.to_owned(),
            _ => String::new(),
        };
        Self {
            field,
            ..Self::new(code, message)
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        failure.to_status()
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, Failure, Leader};
    use crate::invalid::Invalid;
    use machine::Refusal;
    use tonic::{Code as Grpc, Status};

    #[test]
    fn every_code_has_the_status_of_the_specification() {
        let rows = [
            (
                Code::ProtocolVersionMismatch,
                "PROTOCOL_VERSION_MISMATCH",
                Grpc::FailedPrecondition,
            ),
            (Code::SessionNotFound, "SESSION_NOT_FOUND", Grpc::NotFound),
            (
                Code::Unauthenticated,
                "AUTHENTICATION_FAILED",
                Grpc::Unauthenticated,
            ),
            (
                Code::PermissionDenied,
                "AUTHENTICATION_FAILED",
                Grpc::PermissionDenied,
            ),
            (Code::RateLimited, "RATE_LIMITED", Grpc::ResourceExhausted),
            (
                Code::MessageTooLarge,
                "MESSAGE_TOO_LARGE",
                Grpc::ResourceExhausted,
            ),
            (Code::DaemonUnavailable, "DAEMON_UNAVAILABLE", Grpc::Unavailable),
            (Code::RequestConflict, "REQUEST_CONFLICT", Grpc::AlreadyExists),
            (Code::InvalidRequest, "INVALID_REQUEST", Grpc::InvalidArgument),
            (Code::NotFound, "NOT_FOUND", Grpc::NotFound),
            (
                Code::FailedPrecondition,
                "FAILED_PRECONDITION",
                Grpc::FailedPrecondition,
            ),
            (Code::Internal, "INTERNAL", Grpc::Internal),
        ];
        assert_eq!(rows.map(|row| row.0), Code::ALL);
        for (code, word, grpc) in rows {
            assert_eq!((code.word(), code.grpc()), (word, grpc));
        }
    }

    #[test]
    fn a_failure_reads_back_from_its_status() {
        for code in Code::ALL {
            let failure = Failure {
                code,
                message: "a ä\n\"b\"".into(),
                field: "config.budget_usd".into(),
                leader: Some(Leader {
                    node_id: 2,
                    grpc_addr: "b:9000".into(),
                    term: 7,
                }),
                retry_after_ms: 5,
            };
            assert_eq!(Failure::from_status(&failure.to_status()), failure);
        }
    }

    #[test]
    fn a_status_without_a_detail_is_never_more_than_its_code_says() {
        let rows = [
            (Grpc::Unavailable, Code::DaemonUnavailable),
            (Grpc::Ok, Code::DaemonUnavailable),
            (Grpc::DeadlineExceeded, Code::DaemonUnavailable),
            (Grpc::Cancelled, Code::DaemonUnavailable),
            (Grpc::Unauthenticated, Code::Unauthenticated),
            (Grpc::OutOfRange, Code::MessageTooLarge),
            (Grpc::Internal, Code::Internal),
        ];
        for (grpc, code) in rows {
            assert_eq!(
                Failure::from_status(&Status::new(grpc, "x")),
                Failure::new(code, "x")
            );
        }
    }

    #[test]
    fn refusals_and_invalid_messages_have_their_codes_and_fields() {
        let text = String::from("call_number 9 is too far");
        let rows = [
            (Refusal::NotInitialized, Code::DaemonUnavailable, ""),
            (Refusal::AlreadyInitialized, Code::FailedPrecondition, ""),
            (Refusal::SessionNotFound, Code::SessionNotFound, ""),
            (Refusal::NotYours(text.clone()), Code::PermissionDenied, ""),
            (Refusal::Conflict(text.clone()), Code::RequestConflict, ""),
            (
                Refusal::Invalid(text.clone()),
                Code::InvalidRequest,
                "call_number",
            ),
            (
                Refusal::Invalid("the account is full".into()),
                Code::InvalidRequest,
                "",
            ),
            (Refusal::NotFound(text.clone()), Code::NotFound, ""),
            (Refusal::Precondition(text), Code::FailedPrecondition, ""),
        ];
        for (refusal, code, field) in rows {
            let failure = Failure::from(refusal);
            assert_eq!((failure.code, failure.field.as_str()), (code, field));
        }
        let failure = Failure::from(Invalid::new("budget_usd", "must be money").within("config"));
        assert_eq!(failure.field, "config.budget_usd");
        assert_eq!(failure.message, "config.budget_usd: must be money");
    }
}
