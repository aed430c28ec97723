//! The agent as a black box beside containerd and the reference kubelet: killed, adopted from,
//! adopted by, and left without a runtime.

mod adoption;
mod kills;
mod node;
mod runtime_restarts;
