//! The agent as a black box beside containerd and the reference kubelet: what it runs and how, and
//! what happens to pods when it is killed, when pods are handed over between the two, or when the
//! runtime is gone.

mod adoption;
mod cancelled_starts;
mod clean_up;
mod cli;
mod container_environment;
mod exec_and_attach;
mod faults;
mod features;
mod full_disk;
mod kills;
mod lifecycle;
mod metrics;
mod node;
mod old_runtime;
mod open_streams;
mod probes;
mod pulls;
mod readme;
mod resources;
mod run_contents;
mod run_pods;
mod run_verbs;
mod runtime_restarts;
mod sources;
mod streams;
mod terminal;
mod termination;
mod two_roots;
mod upkeep;
mod volumes;
