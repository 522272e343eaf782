//! A cluster that commands talk to.

use std::time::Duration;

use client::{Credentials, Pool};
use decision::NanoUsd;
use tonic::Streaming;
use wire::rpc::{Followed, Unary};

use crate::args;
use crate::failed::Failed;

/// Rows of one page of a list.
pub const PAGE: u32 = 500;

/// A pool of its nodes, and the time a command may take.
pub struct Remote {
    pub pool: Pool,
    pub timeout: Duration,
}

impl Remote {
    pub fn open(args: &args::Remote) -> Result<Self, Failed> {
        Ok(Self {
            pool: Pool::open(&args.endpoints, &credentials(args))?,
            timeout: args.timeout,
        })
    }

    /// Asks until a node answers; the request id makes repetitions one.
    pub async fn call<M: Unary>(&self, message: M) -> Result<M::Reply, Failed> {
        Ok(self.pool.call(&message, self.timeout).await?)
    }

    /// Asks for a list, page by page. `page` makes the request for a token, `rows` gives an answer's rows and the next.
    pub async fn pages<M: Unary, T>(
        &self,
        page: impl Fn(String) -> M,
        rows: impl Fn(M::Reply) -> (Vec<T>, String),
    ) -> Result<Vec<T>, Failed> {
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let (some, next) = rows(self.call(page(token)).await?);
            all.extend(some);
            if next.is_empty() {
                return Ok(all);
            }
            token = next;
        }
    }

    /// Asks for a stream until a node answers.
    pub async fn follow<M: Followed>(&self, message: M) -> Result<Streaming<M::Reply>, Failed> {
        Ok(self.pool.follow(&message, self.timeout).await?)
    }
}

pub fn credentials(args: &args::Remote) -> Credentials {
    Credentials {
        ca: args.ca.clone(),
        cert: args.cert.clone(),
        key: args.key.clone(),
    }
}

/// Reads dollars above zero.
pub fn dollars(text: &str) -> Result<NanoUsd, Failed> {
    match text.parse::<NanoUsd>() {
        Ok(amount) if amount > NanoUsd::ZERO => Ok(amount),
        Ok(_) => Err(Failed::usage(format!("{text:?} is not above zero"))),
        Err(error) => Err(Failed::usage(format!("{text:?}: {error}"))),
    }
}
