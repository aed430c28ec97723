//! Routes requests to answers.
//!
//! Rule: the agent's values as JSON; only metrics are text. An unknown path is 404, a known one
//! with the wrong method 405, a body that cannot be parsed 400; the agent's errors have their own
//! status and a reason.

use std::sync::Arc;

use hyper::{Method, StatusCode};
use ports::local_api::{LocalApi, LocalApiError, LocalManifests, LocalStateVersion};
use ports::local_runtime::{
    CarryStream, LocalCommand, LocalImageName, LocalRuntime, LocalStreamRequest, StreamEndpoint,
};
use ports::metrics;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A response, before it is sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SocketReply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

pub(crate) const JSON: &str = "application/json";

/// The agent and the runtime that requests are passed to.
#[derive(Clone)]
pub(crate) struct RequestRouter {
    pub(crate) api: Arc<dyn LocalApi>,
    /// `None` if the runtime has no local port.
    pub(crate) runtime: Option<Arc<dyn LocalRuntime>>,
}

impl RequestRouter {
    pub(crate) async fn answer(&self, method: &Method, path: &str, body: &[u8]) -> SocketReply {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let reads = method == Method::GET || method == Method::HEAD;
        let writes = method == Method::POST;
        match parts.as_slice() {
            ["metrics"] if reads => Some(metrics_text(self.api.metrics())),
            ["metrics", "probes"] if reads => Some(metrics_text(self.api.probe_metrics())),
            ["v1", rest @ ..] if reads => self.read(rest, path).await,
            ["v1", rest @ ..] if writes => self.write(rest, path, body).await,
            _ => None,
        }
        .unwrap_or_else(|| not_found_or_not_allowed(path, method, &parts))
    }

    /// `None` for a path that cannot be read.
    async fn read(&self, parts: &[&str], path: &str) -> Option<SocketReply> {
        let api = &self.api;
        Some(match parts {
            ["node"] => json(StatusCode::OK, &api.node()),
            ["pods"] => json(StatusCode::OK, &api.pods()),
            ["pods", uid] => match api.pod(uid) {
                Some(detail) => json(StatusCode::OK, &detail),
                None => error_reply(&LocalApiError::NotFound {
                    message: format!("no pod has UID {uid}"),
                }),
            },
            ["changes", since] => match since.parse() {
                Ok(since) => {
                    json(StatusCode::OK, &LocalStateVersion { version: api.changed(since).await })
                }
                Err(_) => {
                    let message = format!("{since:?}: expected a number, the last version seen");
                    error_reply(&LocalApiError::NotFound { message })
                }
            },
            ["plugins"] => json(StatusCode::OK, &api.plugins()),
            ["usage"] => match self.runtime(path) {
                Ok(runtime) => ok_or_error(runtime.usage().await),
                Err(error) => error,
            },
            ["images"] => match self.runtime(path) {
                Ok(runtime) => ok_or_error(runtime.images().await),
                Err(error) => error,
            },
            ["containers", id, "process"] => match self.runtime(path) {
                Ok(runtime) => ok_or_error(runtime.process(id).await),
                Err(error) => error,
            },
            _ => return None,
        })
    }

    /// `None` for a path that cannot be written.
    async fn write(&self, parts: &[&str], path: &str, body: &[u8]) -> Option<SocketReply> {
        Some(match parts {
            ["pods"] => match parsed::<LocalManifests>(body) {
                Ok(manifests) => accepted_or_error(self.api.take(manifests).await),
                Err(reply) => reply,
            },
            ["pods", uid, "stop"] => accepted_or_error(self.api.stop(uid).await),
            ["images", "remove"] => match (self.runtime(path), parsed::<LocalImageName>(body)) {
                (Ok(runtime), Ok(image)) => ok_or_error(runtime.remove_image(&image.name).await),
                (Err(reply), _) | (_, Err(reply)) => reply,
            },
            _ => match (self.runtime(path), parse_stream_request(parts, body)?) {
                (Ok(runtime), Ok(stream_request)) => {
                    ok_or_error(runtime.address(stream_request).await)
                }
                (Err(reply), _) | (_, Err(reply)) => reply,
            },
        })
    }

    /// The answer to a POST that offers its connection for a stream; `None` for a path that is no
    /// stream.
    pub(crate) async fn stream(
        &self,
        path: &str,
        body: &[u8],
    ) -> Option<Result<CarryStream, SocketReply>> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let ["v1", parts @ ..] = parts.as_slice() else { return None };
        let (runtime, stream_request) =
            match (self.runtime(path), parse_stream_request(parts, body)?) {
                (Ok(runtime), Ok(stream_request)) => (runtime, stream_request),
                (Err(reply), _) | (_, Err(reply)) => return Some(Err(reply)),
            };
        Some(match runtime.stream(stream_request).await {
            Ok(StreamEndpoint::Here(stream_handler)) => Ok(stream_handler),
            Ok(StreamEndpoint::Address(stream)) => Err(json(StatusCode::OK, &stream)),
            Err(error) => Err(error_reply(&error)),
        })
    }

    fn runtime(&self, path: &str) -> Result<&dyn LocalRuntime, SocketReply> {
        self.runtime.as_deref().ok_or_else(|| {
            let message = format!("this agent does not serve {path}");
            error_reply(&LocalApiError::TemporarilyUnavailable { message })
        })
    }
}

/// `None` for a path that is no stream.
fn parse_stream_request(
    parts: &[&str],
    body: &[u8],
) -> Option<Result<LocalStreamRequest, SocketReply>> {
    let command = |id: &str| Ok((id.to_owned(), parsed::<LocalCommand>(body)?));
    Some(match parts {
        ["pods", uid, "forward"] => Ok(LocalStreamRequest::Forward { pod: (*uid).to_owned() }),
        ["containers", id, "exec"] => {
            command(id).map(|(container, command)| LocalStreamRequest::Exec { container, command })
        }
        ["containers", id, "attach"] => command(id)
            .map(|(container, command)| LocalStreamRequest::Attach { container, command }),
        _ => return None,
    })
}

/// Metrics in the text format.
fn metrics_text(text: String) -> SocketReply {
    SocketReply {
        status: StatusCode::OK,
        content_type: metrics::CONTENT_TYPE,
        body: text.into_bytes(),
    }
}

fn is_known(parts: &[&str]) -> bool {
    matches!(
        parts,
        ["metrics"]
            | ["metrics", "probes"]
            | ["v1", "node" | "pods" | "plugins" | "usage" | "images"]
            | ["v1", "pods" | "changes", _]
            | ["v1", "pods", _, "stop" | "forward"]
            | ["v1", "containers", _, "exec" | "attach" | "process"]
            | ["v1", "images", "remove"]
    )
}

fn not_found_or_not_allowed(path: &str, method: &Method, parts: &[&str]) -> SocketReply {
    if is_known(parts) {
        let message = format!("{path} does not take {method}");
        return json(StatusCode::METHOD_NOT_ALLOWED, &LocalApiError::NotFound { message });
    }
    error_reply(&LocalApiError::NotFound { message: format!("there is no {path}") })
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, SocketReply> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("the request's body: {error}");
        json(StatusCode::BAD_REQUEST, &LocalApiError::NotFound { message })
    })
}

fn ok_or_error<T: Serialize>(answer: Result<T, LocalApiError>) -> SocketReply {
    answer.map_or_else(|error| error_reply(&error), |value| json(StatusCode::OK, &value))
}

fn accepted_or_error<T: Serialize>(answer: Result<T, LocalApiError>) -> SocketReply {
    answer.map_or_else(|error| error_reply(&error), |value| json(StatusCode::ACCEPTED, &value))
}

fn error_reply(error: &LocalApiError) -> SocketReply {
    let status = match error {
        LocalApiError::NotFound { .. } => StatusCode::NOT_FOUND,
        LocalApiError::OwnedByManifest { .. } => StatusCode::CONFLICT,
        LocalApiError::TemporarilyUnavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
    };
    json(status, error)
}

fn json(status: StatusCode, value: &impl Serialize) -> SocketReply {
    match serde_json::to_vec(value) {
        Ok(body) => SocketReply { status, content_type: JSON, body },
        Err(error) => SocketReply {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            content_type: JSON,
            body: format!("{{\"refusal\":\"notNow\",\"message\":{:?}}}", error.to_string()).into(),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests;
