//! The store as `cluster` uses it, over RocksDB and over its twin in memory.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

// One generator of commands for the machine's properties and for the stores.
#[path = "../../../machine/tests/properties/cast.rs"]
mod cast;
mod contract;
mod directory;
mod fixture;
#[path = "../../../machine/tests/properties/found.rs"]
mod found;
mod kill;
mod measure;
#[path = "../../../machine/tests/properties/names.rs"]
mod names;
mod power;
mod random;
mod replay;
#[path = "../../../machine/tests/properties/seed.rs"]
mod seed;
mod snapshots;
#[path = "../../../machine/tests/properties/step.rs"]
mod step;
