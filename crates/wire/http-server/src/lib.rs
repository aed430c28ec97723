//! An HTTP/1 server over any accepted stream.
//!
//! Rule: every connection has a deadline at every moment: for its handshake, for the head of a
//! request, while it is idle, for an answer, for a stream. The number of connections is limited; when
//! it is reached the connection that has been idle longest is closed, so that idle connections never
//! keep a request out. Work that lasts takes a place of its kind ([`Places`]), and a kind that is full
//! leaves the others alone. It knows neither callers nor what is served.
//!
//! Planned: the local socket (crates/adapters/local-socket) and the secure port of the node
//! controller (crates/adapters/node-api) have servers of their own and move onto this one.

mod activity;
mod answer;
mod body;
mod listener;
mod places;
mod server;

pub use activity::Watched;
pub use answer::{Answer, UpgradeTask, stream_of};
pub use body::{Body, BodySender, ReadBodyError, read_body};
pub use listener::Listener;
pub use places::{Place, Places};
pub use server::{Handler, Limits, serve};

/// What a handler gets.
pub type Request = hyper::Request<hyper::body::Incoming>;
