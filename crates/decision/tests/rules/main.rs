//! Every rule of the order: facts in, verdict, reason and rule out.

mod edge;
mod order;
mod sample;
mod soften;
mod transition;
