use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex that stays usable after a panic under it: what it guards is replaced as a whole, never half.
#[derive(Debug, Default)]
pub(crate) struct Guarded<T>(Mutex<T>);

impl<T> Guarded<T> {
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
