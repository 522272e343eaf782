//! Every key's bytes, assigned once. A byte once given to a table or a meta key is never reused.
//!
//! Keys of a table sort as their `Key`s do: numbers are big-endian, texts end in `00 00` and write a zero
//! byte as `00 FF`, variants are one byte in the order of their declaration.

use decision::{AgentId, ApprovalId, GuardId, InvalidId, OrganizationId, RequestId, SessionId, Timestamp};
use machine::row::{DueWork, Key, Requester};
use machine::{AccountId, GuardScope, Scope};

/// Tables of `Space::Rows`, the first byte of a key. Never reuse a number.
pub(crate) mod table {
    pub const CLUSTER: u8 = 1;
    pub const CHAIN: u8 = 2;
    pub const GUARD: u8 = 3;
    pub const HALT: u8 = 4;
    pub const ACCOUNT: u8 = 5;
    pub const SESSION: u8 = 6;
    pub const SESSION_OF: u8 = 7;
    pub const CALL: u8 = 8;
    pub const HOLD: u8 = 9;
    pub const NONCES: u8 = 10;
    pub const REQUEST: u8 = 11;
    pub const DUE: u8 = 12;
    pub const KEYS: u8 = 13;
    pub const SEAL: u8 = 14;
    pub const APPROVAL: u8 = 15;
    pub const APPROVAL_OF: u8 = 16;
    pub const TALLY: u8 = 17;
}

/// `Space::LogMeta`. Never reuse a number.
pub(crate) const VOTE: &[u8] = &[1];
pub(crate) const COMMITTED: &[u8] = &[2];
pub(crate) const PURGED: &[u8] = &[3];

/// `Space::StateMeta`. Never reuse a number.
pub(crate) const APPLIED: &[u8] = &[1];
pub(crate) const MEMBERSHIP: &[u8] = &[2];

/// The least key of due work at this time.
pub(crate) fn due_at(time: Timestamp) -> Vec<u8> {
    let mut key = Writer(Vec::new());
    key.byte(table::DUE).number(time.nanos());
    key.0
}

/// The time of a key of due work, or of a bound of a scan.
pub(crate) fn due_time(key: &[u8]) -> Option<Timestamp> {
    let mut from = Reader(key);
    let table = from.byte().ok()?;
    let time = from.number().ok()?;
    (table == table::DUE).then_some(Timestamp::from_nanos(time))
}

/// The key of a log entry by index, or of an audit entry by sequence.
pub(crate) fn number(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Reads what `number` wrote.
pub(crate) fn read_number(bytes: &[u8]) -> Result<u64, KeyError> {
    bytes
        .try_into()
        .map(u64::from_be_bytes)
        .map_err(|_| KeyError::Malformed)
}

/// Bytes that are no key of any table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("a key with malformed bytes")]
    Malformed,
    #[error("a key with an {0}")]
    Name(#[from] InvalidId),
}

/// Encodes a row's key.
pub(crate) fn encode(key: &Key) -> Vec<u8> {
    let mut to = Writer(Vec::with_capacity(KEY_BYTES_TYPICAL));
    match key {
        Key::Cluster => to.byte(table::CLUSTER),
        Key::Chain => to.byte(table::CHAIN),
        Key::Guard(scope) => to.byte(table::GUARD).guard_scope(scope),
        Key::Halt(scope) => to.byte(table::HALT).scope(scope),
        Key::Account(id) => to.byte(table::ACCOUNT).account(id),
        Key::Session(id) => to.byte(table::SESSION).text(id.as_str()),
        Key::SessionOf(organization, agent, id) => to
            .byte(table::SESSION_OF)
            .text(organization.as_str())
            .text(agent.as_str())
            .text(id.as_str()),
        Key::Call(id, number) => to.byte(table::CALL).text(id.as_str()).number(*number),
        Key::Hold(id, number) => to.byte(table::HOLD).text(id.as_str()).number(*number),
        Key::Nonces(id, block) => to.byte(table::NONCES).text(id.as_str()).number(*block),
        Key::Request(by, id) => to.byte(table::REQUEST).requester(by).text(id.as_str()),
        Key::Due(at, work) => to.byte(table::DUE).number(at.nanos()).due_work(work),
        Key::Keys => to.byte(table::KEYS),
        Key::Seal(to_sequence) => to.byte(table::SEAL).number(*to_sequence),
        Key::Approval(id) => to.byte(table::APPROVAL).text(id.as_str()),
        Key::ApprovalOf(organization, id) => to
            .byte(table::APPROVAL_OF)
            .text(organization.as_str())
            .text(id.as_str()),
        Key::Tally(of) => to.byte(table::TALLY).account(of),
    };
    to.0
}

/// Decodes a row's key, all of the bytes.
pub(crate) fn decode(bytes: &[u8]) -> Result<Key, KeyError> {
    let mut from = Reader(bytes);
    let key = match from.byte()? {
        table::CLUSTER => Key::Cluster,
        table::CHAIN => Key::Chain,
        table::GUARD => Key::Guard(from.guard_scope()?),
        table::HALT => Key::Halt(from.scope()?),
        table::ACCOUNT => Key::Account(from.account()?),
        table::SESSION => Key::Session(from.session()?),
        table::SESSION_OF => Key::SessionOf(from.organization()?, from.agent()?, from.session()?),
        table::CALL => Key::Call(from.session()?, from.number()?),
        table::HOLD => Key::Hold(from.session()?, from.number()?),
        table::NONCES => Key::Nonces(from.session()?, from.number()?),
        table::REQUEST => Key::Request(from.requester()?, from.request()?),
        table::DUE => Key::Due(Timestamp::from_nanos(from.number()?), from.due_work()?),
        table::KEYS => Key::Keys,
        table::SEAL => Key::Seal(from.number()?),
        table::APPROVAL => Key::Approval(from.approval()?),
        table::APPROVAL_OF => Key::ApprovalOf(from.organization()?, from.approval()?),
        table::TALLY => Key::Tally(from.account()?),
        _ => return Err(KeyError::Malformed),
    };
    if from.0.is_empty() {
        Ok(key)
    } else {
        Err(KeyError::Malformed)
    }
}

/// Bytes set aside for one key: a table, a session id and a number fit.
const KEY_BYTES_TYPICAL: usize = 64;

struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        for byte in text.bytes() {
            self.0.push(byte);
            if byte == 0 {
                self.0.push(0xff);
            }
        }
        self.0.extend_from_slice(&[0, 0]);
        self
    }

    fn guard_scope(&mut self, scope: &GuardScope) -> &mut Self {
        match scope {
            GuardScope::Default => self.byte(0),
            GuardScope::Organization(id) => self.byte(1).text(id.as_str()),
            GuardScope::Agent(id, agent) => self.byte(2).text(id.as_str()).text(agent.as_str()),
            GuardScope::Named(id, guard) => self.byte(3).text(id.as_str()).text(guard.as_str()),
        }
    }

    fn scope(&mut self, scope: &Scope) -> &mut Self {
        match scope {
            Scope::Global => self.byte(0),
            Scope::Organization(id) => self.byte(1).text(id.as_str()),
            Scope::Agent(id, agent) => self.byte(2).text(id.as_str()).text(agent.as_str()),
            Scope::Session(id) => self.byte(3).text(id.as_str()),
            Scope::Guard(id, guard) => self.byte(4).text(id.as_str()).text(guard.as_str()),
        }
    }

    fn account(&mut self, account: &AccountId) -> &mut Self {
        match account {
            AccountId::Organization(id) => self.byte(0).text(id.as_str()),
            AccountId::Agent(id, agent) => self.byte(1).text(id.as_str()).text(agent.as_str()),
            AccountId::Session(id) => self.byte(2).text(id.as_str()),
            AccountId::Guard(id, guard) => self.byte(3).text(id.as_str()).text(guard.as_str()),
        }
    }

    fn requester(&mut self, requester: &Requester) -> &mut Self {
        match requester {
            Requester::Session(id) => self.byte(0).text(id.as_str()),
            Requester::Identity(name) => self.byte(1).text(name),
        }
    }

    fn due_work(&mut self, work: &DueWork) -> &mut Self {
        match work {
            DueWork::HoldExpiry(id, number) => self.byte(0).text(id.as_str()).number(*number),
            DueWork::SessionIdle(id) => self.byte(1).text(id.as_str()),
            DueWork::SessionEnd(id) => self.byte(2).text(id.as_str()),
            DueWork::SessionRemoval(id) => self.byte(3).text(id.as_str()),
            DueWork::RequestExpiry(by, id) => self.byte(4).requester(by).text(id.as_str()),
            DueWork::ApprovalExpiry(id) => self.byte(5).text(id.as_str()),
            DueWork::ApprovalRemoval(id) => self.byte(6).text(id.as_str()),
            DueWork::DrainEnd(scope) => self.byte(7).scope(scope),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, KeyError> {
        let (byte, rest) = self.0.split_first().ok_or(KeyError::Malformed)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn number(&mut self) -> Result<u64, KeyError> {
        let (bytes, rest) = self.0.split_first_chunk::<8>().ok_or(KeyError::Malformed)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*bytes))
    }

    fn text(&mut self) -> Result<String, KeyError> {
        let mut text = Vec::new();
        loop {
            match self.byte()? {
                0 => match self.byte()? {
                    0 => return String::from_utf8(text).map_err(|_| KeyError::Malformed),
                    0xff => text.push(0),
                    _ => return Err(KeyError::Malformed),
                },
                byte => text.push(byte),
            }
        }
    }

    fn session(&mut self) -> Result<SessionId, KeyError> {
        Ok(SessionId::parse(&self.text()?)?)
    }

    fn organization(&mut self) -> Result<OrganizationId, KeyError> {
        Ok(OrganizationId::parse(&self.text()?)?)
    }

    fn agent(&mut self) -> Result<AgentId, KeyError> {
        Ok(AgentId::parse(&self.text()?)?)
    }

    fn request(&mut self) -> Result<RequestId, KeyError> {
        Ok(RequestId::parse(&self.text()?)?)
    }

    fn guard(&mut self) -> Result<GuardId, KeyError> {
        Ok(GuardId::parse(&self.text()?)?)
    }

    fn approval(&mut self) -> Result<ApprovalId, KeyError> {
        Ok(ApprovalId::parse(&self.text()?)?)
    }

    fn guard_scope(&mut self) -> Result<GuardScope, KeyError> {
        match self.byte()? {
            0 => Ok(GuardScope::Default),
            1 => Ok(GuardScope::Organization(self.organization()?)),
            2 => Ok(GuardScope::Agent(self.organization()?, self.agent()?)),
            3 => Ok(GuardScope::Named(self.organization()?, self.guard()?)),
            _ => Err(KeyError::Malformed),
        }
    }

    fn scope(&mut self) -> Result<Scope, KeyError> {
        match self.byte()? {
            0 => Ok(Scope::Global),
            1 => Ok(Scope::Organization(self.organization()?)),
            2 => Ok(Scope::Agent(self.organization()?, self.agent()?)),
            3 => Ok(Scope::Session(self.session()?)),
            4 => Ok(Scope::Guard(self.organization()?, self.guard()?)),
            _ => Err(KeyError::Malformed),
        }
    }

    fn account(&mut self) -> Result<AccountId, KeyError> {
        match self.byte()? {
            0 => Ok(AccountId::Organization(self.organization()?)),
            1 => Ok(AccountId::Agent(self.organization()?, self.agent()?)),
            2 => Ok(AccountId::Session(self.session()?)),
            3 => Ok(AccountId::Guard(self.organization()?, self.guard()?)),
            _ => Err(KeyError::Malformed),
        }
    }

    fn requester(&mut self) -> Result<Requester, KeyError> {
        match self.byte()? {
            0 => Ok(Requester::Session(self.session()?)),
            1 => Ok(Requester::Identity(self.text()?)),
            _ => Err(KeyError::Malformed),
        }
    }

    fn due_work(&mut self) -> Result<DueWork, KeyError> {
        match self.byte()? {
            0 => Ok(DueWork::HoldExpiry(self.session()?, self.number()?)),
            1 => Ok(DueWork::SessionIdle(self.session()?)),
            2 => Ok(DueWork::SessionEnd(self.session()?)),
            3 => Ok(DueWork::SessionRemoval(self.session()?)),
            4 => Ok(DueWork::RequestExpiry(self.requester()?, self.request()?)),
            5 => Ok(DueWork::ApprovalExpiry(self.approval()?)),
            6 => Ok(DueWork::ApprovalRemoval(self.approval()?)),
            7 => Ok(DueWork::DrainEnd(self.scope()?)),
            _ => Err(KeyError::Malformed),
        }
    }
}

#[cfg(test)]
mod tests;
