//! Tests on real parts. One binary for all of them, since linking is slow; each test has its own
//! bed and deadline, and builds the parts it needs before the bed is made.
//!
//! Needs root. A part that cannot be built fails the test that needs it.

mod agent;
mod beds;
mod container_setup;
mod containerd;
mod control_plane;
mod node_controller;
mod reference_kubelet;
mod registry;
