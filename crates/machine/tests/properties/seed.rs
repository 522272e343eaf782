//! The seed of what a run draws at random: a fresh one each time, printed. `HALTGATE_SEED` repeats it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

pub(crate) fn seed() -> u64 {
    let seed = match std::env::var_os("HALTGATE_SEED") {
        Some(text) => text.to_str().unwrap().parse().unwrap(),
        None => RandomState::new().build_hasher().finish(),
    };
    println!("HALTGATE_SEED={seed}");
    seed
}
