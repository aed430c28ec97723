//! The port's implementation: dispatches a probe by protocol.

use std::sync::Arc;
use std::time::Duration;

use ports::PortFuture;
use ports::probing::{NetworkProbeRequest, NetworkProber, ProbeAttemptResult};
use rustls::ClientConfig;

use crate::{grpc, http, tcp};

#[derive(Debug, Clone)]
pub struct HostNetworkProber {
    /// `None` if TLS cannot be used at all; then https probes fail with that error.
    tls: Option<Arc<ClientConfig>>,
}

impl HostNetworkProber {
    pub fn new() -> Self {
        Self { tls: http_once::insecure_tls_config().ok() }
    }
}

impl Default for HostNetworkProber {
    fn default() -> Self {
        Self::new()
    }
}

impl NetworkProber for HostNetworkProber {
    fn attempt<'a>(
        &'a self,
        what: &'a NetworkProbeRequest,
        limit: Duration,
    ) -> PortFuture<'a, ProbeAttemptResult> {
        Box::pin(async move {
            match what {
                NetworkProbeRequest::Http { scheme, host, port, path, headers, user_agent } => {
                    let request = http::HttpProbe {
                        secure: scheme.eq_ignore_ascii_case("https"),
                        host,
                        port: *port,
                        path,
                        headers,
                        user_agent,
                    };
                    http::attempt(&request, self.tls.clone(), limit).await
                }
                NetworkProbeRequest::Tcp { host, port } => tcp::attempt(host, *port, limit).await,
                NetworkProbeRequest::Grpc { host, port, service, user_agent } => {
                    let request = grpc::GrpcProbe { host, port: *port, service, user_agent };
                    grpc::attempt(&request, limit).await
                }
            }
        })
    }
}
