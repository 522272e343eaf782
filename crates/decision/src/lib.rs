//! What may run: the rules of SP/1.0 and ours, in one order, over facts that were looked up before.

pub mod decide;
pub mod digest;
pub mod facts;
pub mod id;
pub mod money;
pub mod time;
pub mod verdict;
