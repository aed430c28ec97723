//! An HTTP/1 server over any accepted stream.
//!
//! Rule: every connection has a deadline in every phase: handshake, request head, idle, response,
//! stream. The number of connections is limited; at the limit the connection that has been idle
//! longest is closed, so that idle connections never block a request. Long-lasting work takes a
//! slot of its kind ([`WorkPermits`]), and a kind that is full leaves the others alone. Knows neither
//! callers nor content.
//!
//! Planned: the local socket (crates/adapters/local-socket) and the secure port of the node
//! controller (crates/adapters/node-api) have servers of their own and move onto this one.

mod activity;
mod answer;
mod body;
mod listener;
mod permits;
mod server;

pub use activity::TrackedStream;
pub use answer::{HandlerResponse, UpgradeTask, stream_of};
pub use body::{Body, BodySender, ReadBodyError, read_body};
pub use listener::ConnectionListener;
pub use permits::{WorkPermit, WorkPermits};
pub use server::{HttpRequestHandler, ServerLimits, serve};

/// A handler's input.
pub type Request = hyper::Request<hyper::body::Incoming>;
