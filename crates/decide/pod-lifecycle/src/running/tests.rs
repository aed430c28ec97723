//! Plans for pods that should run, one module per group of rules.

mod containers;
mod first_start;
mod initialization;
mod probes;
mod restart_all;
mod start_order;
