//! Pods on real parts: the built `keelson` on containerd and runc, from manifest to running process
//! and back to nothing. One binary for all of them, since linking is slow.
//!
//! Needs root.

mod adoption;
mod churn;
mod desk;
mod life;
mod world;
