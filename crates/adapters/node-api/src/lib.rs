//! The HTTP endpoints that the node serves.
//!
//! Rule: an endpoint turns requests into calls of ports and answers back into bytes; it decides
//! nothing about pods. Every listener bounds its connections and the time a peer may take.
//! Now: the health endpoint. The authenticated API of port 10250 is planned, not here yet.

mod health_endpoint;
mod health_reply;

pub use health_endpoint::HttpHealthEndpoint;
