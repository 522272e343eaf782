//! A cluster that commands talk to.

use std::time::Duration;

use client::{Credentials, Pool};
use decision::NanoUsd;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::args;
use crate::failed::Failed;

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

    /// Sends a request until a node answers; its request id makes repetitions one.
    pub async fn call<M, T, F, Fut>(&self, message: M, call: F) -> Result<T, Failed>
    where
        M: Clone,
        F: Fn(Channel, Request<M>) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        Ok(self.pool.call(&message, self.timeout, call).await?)
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
