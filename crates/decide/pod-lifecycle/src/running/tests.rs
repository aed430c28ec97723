//! Tables of pods that should run, by rule.

mod containers;
mod first_start;
mod initialization;
mod probes;
mod restart_all;
mod start_order;
