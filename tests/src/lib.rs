//! What tests of whole clusters share: a cluster in one thread (`sim`), what its clients saw (`history`),
//! and what must hold of it (`invariants`).

pub mod history;
pub mod invariants;
pub mod sim;
