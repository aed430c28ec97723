//! The agent as a black box beside containerd and the reference kubelet: what it runs and how, and
//! what happens to pods when it is killed, when pods are handed over between the two, or when the
//! runtime is gone.

mod adoption;
mod clean_up;
mod desk;
mod endings;
mod faults;
mod features;
mod forgotten;
mod front_door;
mod full_disk;
mod kills;
mod life;
mod metrics;
mod node;
mod old_runtime;
mod open_streams;
mod probes;
mod pulls;
mod reach;
mod resources;
mod run_pods;
mod run_verbs;
mod runtime_restarts;
mod sources;
mod streams;
mod terminal;
mod two_roots;
mod upkeep;
mod volumes;
mod world;
