//! The parts of the comparison of pods with a real API server: the server, the pods, the verdicts.

mod compare;
mod generator;
mod server;

pub use compare::{PodComparison, compare};
pub use generator::Generator;
pub use server::ApiServer;
