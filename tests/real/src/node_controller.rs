//! What tests and benchmarks of the node controller share: hollow nodes, a control plane without
//! node controllers, the two controllers side by side, and what they did.

mod api_server_proxy;
pub mod audit;
pub mod cluster;
pub mod comparison;
pub mod faulty;
pub mod hollow;
pub mod load;
pub mod measure;
pub mod recorder;
pub mod replay;
pub mod script;
mod watch_frames;
