//! Network probes of containers: HTTP and HTTPS, TCP, gRPC health.
//!
//! Rule: one attempt, one result, within the limit; no connection outlives it and no task is
//! spawned. The texts of results are upstream's (pkg/probe), since they end in events that people
//! read. No thresholds, no repetition, no memory.

mod grpc;
mod health;
mod http;
mod prober;
mod tcp;

#[cfg(test)]
mod scripted;

pub use prober::HostNetworkProber;
