//! Moves that several commands share. Each uses only those above it in this list.

pub(crate) mod money;

pub(crate) mod memory;

pub(crate) mod counters;

pub(crate) mod facts;

pub(crate) mod verdict;

pub(crate) mod again;

pub(crate) mod settlement;

pub(crate) mod approval;

pub(crate) mod halts;

pub(crate) mod session;
