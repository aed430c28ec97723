//! Tables of what is reported, by part.

mod addresses;
mod conditions;
mod containers;
mod phases;
mod resources;
