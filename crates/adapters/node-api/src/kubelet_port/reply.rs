//! Responses of the kubelet's HTTPS port, by path.
//!
//! Rule: status codes, headers and texts are those of upstream's handlers and routers. The caller
//! has authorized the request.

use std::sync::Arc;

use bytes::Bytes;
use http_server::Body;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};
use ports::KubeletApi;
use ports::local_api::LocalPod;
use serde::Serialize;
use serde_json::{Value, json};

use crate::health_counts::HealthCheckCounts;
use crate::health_reply;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A response whose body is in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KubeletReply {
    pub(super) status: u16,
    content_type: &'static str,
    header: Option<(HeaderName, &'static str)>,
    pub(super) body: Bytes,
}

/// The kind of a path; each kind has its own limit of requests in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Health,
    Query,
}

pub(super) fn kind(path: &str) -> RequestKind {
    if path == "/healthz" || path.starts_with("/healthz/") {
        RequestKind::Health
    } else {
        RequestKind::Query
    }
}

impl KubeletReply {
    fn new(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, content_type, header: None, body: body.into() }
    }

    pub(super) fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self::new(status, TEXT, body)
    }

    pub(super) fn too_many() -> Self {
        Self::text(503, "503: Too many requests are in flight\n")
    }

    fn not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// Upstream's router knows the beginning of the path only.
    pub(super) fn no_route() -> Self {
        Self::text(404, "404: Page Not Found")
    }

    pub(super) fn method_not_allowed(allow: &'static str) -> Self {
        Self { header: Some((ALLOW, allow)), ..Self::text(405, "405: Method Not Allowed") }
    }

    pub(super) fn json(body: impl Into<Bytes>) -> Self {
        Self::new(200, JSON, body)
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::whole(self.body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        if let Some((name, value)) = self.header {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// A handler that the configuration switches off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DisabledHandler {
    /// The beginning of its paths.
    pub path: &'static str,
    /// The text of the response.
    pub text: &'static str,
}

/// Content that does not change while the agent runs, and the results of health checks.
#[derive(Clone)]
pub(super) struct StaticPages {
    pub(super) configz: Bytes,
    pub(super) debugging_handlers: bool,
    pub(super) disabled: Vec<DisabledHandler>,
    pub(super) health: Arc<HealthCheckCounts>,
}

impl StaticPages {
    /// The answer of a handler that is switched off.
    pub(super) fn disabled(&self, path: &str) -> Option<KubeletReply> {
        if !self.debugging_handlers {
            let text = "Debug endpoints are disabled.\n";
            return is_debugging_path(path).then(|| KubeletReply::text(405, text));
        }
        let disabled = self.disabled.iter().find(|handler| path.starts_with(handler.path))?;
        Some(KubeletReply::text(405, format!("{}\n", disabled.text)))
    }

    /// Answers an authorized request; `path` is decoded.
    pub(super) fn reply(
        &self,
        api: &KubeletApi,
        method: &str,
        path: &str,
        query: &str,
    ) -> KubeletReply {
        match path {
            "/pods" | "/pods/" => get_only(method, || pod_list(pods(api))),
            "/metrics" => KubeletReply::new(200, METRICS, api.local.metrics()),
            "/metrics/slis" if method == "DELETE" => {
                self.health.reset();
                KubeletReply::text(200, "metrics reset\n")
            }
            "/metrics/slis" => KubeletReply::new(200, METRICS, self.health.text()),
            "/metrics/probes" => KubeletReply::new(200, METRICS, api.local.probe_metrics()),
            // A body that scrapers can read: upstream's own parser never ends on any other.
            "/metrics/cadvisor" | "/metrics/resource" => {
                KubeletReply::new(404, METRICS, "# no statistics of containers are collected\n")
            }
            _ if path.starts_with("/pods/") => KubeletReply::no_route(),
            _ if kind(path) == RequestKind::Health => {
                let reply = health_reply::answer(path, query, &api.checks, &self.health);
                KubeletReply::text(reply.status, reply.body)
            }
            _ if !self.debugging_handlers => {
                self.disabled(path).unwrap_or_else(KubeletReply::not_found)
            }
            "/configz" => KubeletReply::new(200, JSON, self.configz.clone()),
            "/runningpods/" => get_only(method, || pod_list(running_pods(api))),
            "/runningpods" => {
                let body = "<a href=\"/runningpods/\">Moved Permanently</a>.\n\n";
                let moved = KubeletReply::new(301, "text/html; charset=utf-8", body);
                KubeletReply { header: Some((LOCATION, "/runningpods/")), ..moved }
            }
            _ if path.starts_with("/runningpods/") => KubeletReply::no_route(),
            _ => KubeletReply::not_found(),
        }
    }
}

/// upstream: InstallDebuggingDisabledHandlers
fn is_debugging_path(path: &str) -> bool {
    const ROOTS: &[&str] = &[
        "/run/",
        "/exec/",
        "/attach/",
        "/portForward/",
        "/containerLogs/",
        "/runningpods/",
        "/debug/pprof/",
        "/logs/",
    ];
    ROOTS.iter().any(|root| path.starts_with(root))
}

fn get_only(method: &str, reply: impl FnOnce() -> KubeletReply) -> KubeletReply {
    if method == "GET" {
        return reply();
    }
    KubeletReply::method_not_allowed("GET")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodList {
    kind: &'static str,
    api_version: &'static str,
    metadata: Value,
    /// `null` if empty, as in Go.
    items: Option<Vec<Value>>,
}

fn pod_list(items: Vec<Value>) -> KubeletReply {
    let items = (!items.is_empty()).then_some(items);
    let list = PodList { kind: "PodList", api_version: "v1", metadata: json!({}), items };
    match serde_json::to_vec(&list) {
        Ok(mut body) => {
            body.push(b'\n');
            KubeletReply::new(200, JSON, body)
        }
        Err(error) => KubeletReply::text(500, error.to_string()),
    }
}

/// The pods that came from a pod source (such as the API server), with their status.
fn pods(api: &KubeletApi) -> Vec<Value> {
    let pods = api.local.pods().pods.into_iter().filter(LocalPod::is_desired);
    let objects = pods.map(|pod| pod.object).filter(Value::is_object);
    objects
        .map(|mut object| {
            if let Some(fields) = object.as_object_mut() {
                // As in Go, items of a typed list have no kind.
                fields.remove("kind");
                fields.remove("apiVersion");
            }
            object
        })
        .collect()
}

/// The pods that the runtime runs, in upstream's short form. upstream: pkg/kubelet/container
/// ToAPIPod
fn running_pods(api: &KubeletApi) -> Vec<Value> {
    let pods = api.local.pods().pods.into_iter();
    let running = pods.filter_map(|pod| {
        let containers = pod.containers.iter().filter(|container| container.state == "running");
        let containers: Vec<Value> = containers
            .map(|container| {
                let image = image(&pod.object, &container.name);
                json!({"name": container.name, "image": image, "resources": {}})
            })
            .collect();
        let metadata = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
        (!containers.is_empty()).then(
            || json!({"metadata": metadata, "spec": {"containers": containers}, "status": {}}),
        )
    });
    running.collect()
}

/// The image that a pod's spec names for a container; empty if it names none.
fn image<'a>(pod: &'a Value, container: &str) -> &'a str {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let specs = lists.iter().filter_map(|list| pod["spec"][*list].as_array()).flatten();
    let spec = specs.into_iter().find(|spec| spec["name"] == container);
    spec.and_then(|spec| spec["image"].as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
