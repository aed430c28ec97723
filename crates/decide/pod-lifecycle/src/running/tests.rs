//! Tables of pods that should run, by rule.

mod containers;
mod first_start;
mod initialization;
mod lane;
mod probes;
mod restart_all;
