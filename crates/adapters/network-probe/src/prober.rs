//! The port's implementation: dispatches a probe by protocol.

use std::sync::Arc;
use std::time::Duration;

use ports::PortFuture;
use ports::probing::{NetworkProber, NetworkTry, TryAnswer};
use rustls::ClientConfig;

use crate::{grpc, http, tcp};

#[derive(Debug, Clone)]
pub struct NetworkTries {
    /// `None` if TLS cannot be used at all; then https probes fail with that error.
    tls: Option<Arc<ClientConfig>>,
}

impl NetworkTries {
    pub fn new() -> Self {
        Self { tls: http_once::any_server().ok() }
    }
}

impl Default for NetworkTries {
    fn default() -> Self {
        Self::new()
    }
}

impl NetworkProber for NetworkTries {
    fn attempt<'a>(&'a self, what: &'a NetworkTry, limit: Duration) -> PortFuture<'a, TryAnswer> {
        Box::pin(async move {
            match what {
                NetworkTry::Http { scheme, host, port, path, headers, user_agent } => {
                    let request = http::HttpTry {
                        secure: scheme.eq_ignore_ascii_case("https"),
                        host,
                        port: *port,
                        path,
                        headers,
                        user_agent,
                    };
                    http::attempt(&request, self.tls.clone(), limit).await
                }
                NetworkTry::Tcp { host, port } => tcp::attempt(host, *port, limit).await,
                NetworkTry::Grpc { host, port, service, user_agent } => {
                    let request = grpc::GrpcTry { host, port: *port, service, user_agent };
                    grpc::attempt(&request, limit).await
                }
            }
        })
    }
}
