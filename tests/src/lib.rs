//! What tests of whole clusters share: a cluster in one thread (`sim`), what its clients saw (`history`),
//! and what must hold of it (`invariants`).

#![expect(
    missing_debug_implementations,
    clippy::indexing_slicing,
    reason = "what goes wrong in a test's helper fails the test, and turmoil's types print nothing"
)]

pub mod history;
pub mod invariants;
pub mod sim;
