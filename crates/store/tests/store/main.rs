//! The store as `cluster` uses it, over RocksDB and over its twin in memory.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod contract;
mod directory;
mod fixture;
mod kill;
mod measure;
mod power;
mod replay;
mod snapshots;
