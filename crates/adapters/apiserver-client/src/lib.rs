//! Client of a Kubernetes API server: few HTTP/2 connections, paged lists, watches, guarded writes.
//!
//! Rule: every request has a deadline, every response a size limit, and nothing here decides what
//! to write. Unknown fields are never lost, since only patches are sent. Tokens and keys do not
//! appear in debug output, messages or logs.
//!
//! - [`kubeconfig`], [`access`], `proxy`: where the API server is, how it is reached and which
//!   identity to use; pure.
//! - `request`, `request_error`, `event_splitter`, `watch_line`, `protobuf`, `watch_progress`, `back_off`,
//!   `token_bucket`, `event_body`: requests and the meaning of responses; pure.
//! - `credentials`, `exec_plugin`, `tls`, `connections`, `proxy_tunnel`, [`client`], [`watch`]: the transport.
//! - `request_metrics`: what is counted of requests.
//! - `object_watch`: a watch of one object.
//! - `cluster_port`: the port that the rest of the project uses; `api_contents`: what pods take from
//!   the API; `no_api_server`: its stand-in on a node without an API server.

pub mod access;
mod api_contents;
mod back_off;
mod batching_socket;
pub mod client;
mod cluster_port;
mod connections;
mod credentials;
mod event_body;
mod event_splitter;
mod exec_plugin;
pub mod kubeconfig;
mod no_api_server;
mod object_watch;
mod protobuf;
mod proxy;
mod proxy_tunnel;
mod request;
mod request_error;
mod request_metrics;
mod secret;
mod tls;
mod token_bucket;
pub mod watch;
mod watch_line;
mod watch_progress;

pub use access::{ClusterAccess, InClusterError, ServerAddressError};
pub use api_contents::ApiContents;
pub use client::{ApiClient, ClientOptions, CredentialsError, InvalidHeaderError};
pub use kubeconfig::{KubeconfigError, kubeconfig_with_certificate, parse_kubeconfig};
pub use no_api_server::NoApiServer;
pub use protobuf::WatchedObject;
pub use proxy::{ProxyAddress, ProxyEnvironment};
pub use request_metrics::RequestMetrics;
pub use secret::Secret;
pub use token_bucket::RateLimit;
pub use watch::Watch;

#[cfg(test)]
mod tests;
