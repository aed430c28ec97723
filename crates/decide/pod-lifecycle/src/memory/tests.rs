//! What the memory makes of what happens.

mod happenings;
mod probing;
mod recovery;
