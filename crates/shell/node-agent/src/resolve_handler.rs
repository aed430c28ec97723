//! Resolves the handler of a probe or a lifecycle hook: address, port, path, command.
//!
//! Rule: pure; it uses only the specification and the pod's address. An error names the invalid
//! value.
//!
//! upstream: pkg/probe/http/request.go, pkg/probe/util.go

use pod_lifecycle::ObservedPod;
use pod_model::pod::Pod;
use pod_model::pod::container::Container;
use pod_model::pod::handler::{HandlerAction, HttpGetAction, UriScheme};
use pod_model::pod::values::PortReference;
use ports::probing::NetworkProbeRequest;

/// The address to which a lifecycle hook connects. (Probes use the one in the pod's status.)
/// upstream: pkg/kubelet/lifecycle/handlers.go
pub(crate) fn pod_ip(observed: &ObservedPod, host_ips: &[String], pod: &Pod) -> Option<String> {
    if pod.spec.host_network {
        return host_ips.first().cloned();
    }
    let ready = observed.sandboxes.iter().find(|sandbox| sandbox.ready)?;
    ready.ips.first().cloned()
}

/// On whose behalf a request is sent; determines the user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requester {
    Probe,
    Hook,
}

impl Requester {
    fn user_agent(self) -> String {
        match self {
            Self::Probe => "kube-probe/1.36".to_owned(),
            Self::Hook => "kube-lifecycle/1.36".to_owned(),
        }
    }
}

/// A handler whose names and defaults are resolved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ResolvedHandler {
    Exec(Vec<String>),
    Network(NetworkProbeRequest),
    Sleep(i64),
}

/// Resolves `action` of `container`. `pod_ip` is used where the action names no host.
pub(crate) fn resolve_handler(
    action: HandlerAction<'_>,
    container: &Container,
    pod_ip: Option<&str>,
    requester: Requester,
) -> Result<ResolvedHandler, String> {
    let address = |host: &str| match (host, pod_ip) {
        ("", Some(ip)) => Ok(ip.to_owned()),
        ("", None) => Err("the pod has no address yet".to_owned()),
        (host, _) => Ok(host.to_owned()),
    };
    Ok(match action {
        HandlerAction::Exec(exec) => {
            ResolvedHandler::Exec(exec.command.iter().map(ToString::to_string).collect())
        }
        HandlerAction::HttpGet(get) => {
            let host = address(&get.host)?;
            ResolvedHandler::Network(http(get, host, port(&get.port, container)?, requester))
        }
        HandlerAction::TcpSocket(tcp) => {
            let (host, port) = (address(&tcp.host)?, port(&tcp.port, container)?);
            ResolvedHandler::Network(NetworkProbeRequest::Tcp { host, port })
        }
        HandlerAction::Grpc(grpc) => ResolvedHandler::Network(NetworkProbeRequest::Grpc {
            host: address("")?,
            port: port(&PortReference::Number(grpc.port), container)?,
            service: grpc.service.as_deref().unwrap_or_default().to_owned(),
            user_agent: requester.user_agent(),
        }),
        HandlerAction::Sleep(seconds) => ResolvedHandler::Sleep(seconds.0),
    })
}

fn http(get: &HttpGetAction, host: String, port: u16, requester: Requester) -> NetworkProbeRequest {
    let headers = get.http_headers.iter();
    let path =
        if get.path.starts_with('/') { get.path.to_string() } else { format!("/{}", get.path) };
    NetworkProbeRequest::Http {
        scheme: if get.scheme == UriScheme::Https { "https" } else { "http" },
        host,
        port,
        path,
        headers: headers.map(|each| (each.name.to_string(), each.value.to_string())).collect(),
        user_agent: requester.user_agent(),
    }
}

fn port(reference: &PortReference, container: &Container) -> Result<u16, String> {
    let number = match reference {
        PortReference::Number(number) => *number,
        PortReference::Name(name) => {
            let named = container.ports.iter().find(|port| port.name == *name);
            let named = named.map(|port| port.container_port);
            match named.or_else(|| name.parse().ok()) {
                Some(number) => number,
                None => {
                    return Err(format!(
                        "couldn't find port: {name:?} in container {}",
                        container.name
                    ));
                }
            }
        }
    };
    let valid = u16::try_from(number).ok().filter(|port| *port > 0);
    valid.ok_or_else(|| format!("invalid port number: {number}"))
}

#[cfg(test)]
mod tests;
