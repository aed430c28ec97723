//! Routes requests to answers.
//!
//! Rule: the agent's values as JSON; only metrics are text. An unknown path is 404, a known one
//! with the wrong method 405, a body that cannot be parsed 400; the agent's errors have their own
//! status and a reason.

use std::sync::Arc;

use hyper::{Method, StatusCode};
use ports::local_api::{LocalApi, LocalManifests, LocalRefusal, LocalVersion};
use ports::local_runtime::{
    CarryStream, LocalCommand, LocalImageName, LocalRuntime, StreamOffer, StreamWish,
};
use ports::metrics;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A response, before it is sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

pub(crate) const JSON: &str = "application/json";

/// The agent and the runtime that requests are passed to.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) api: Arc<dyn LocalApi>,
    /// `None` if the runtime has no local port.
    pub(crate) runtime: Option<Arc<dyn LocalRuntime>>,
}

impl Desk {
    pub(crate) async fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Reply {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let reads = method == Method::GET || method == Method::HEAD;
        let writes = method == Method::POST;
        match parts.as_slice() {
            ["metrics"] if reads => Some(counted(self.api.metrics())),
            ["metrics", "probes"] if reads => Some(counted(self.api.probe_metrics())),
            ["v1", rest @ ..] if reads => self.read(rest, path).await,
            ["v1", rest @ ..] if writes => self.write(rest, path, body).await,
            _ => None,
        }
        .unwrap_or_else(|| wrong(path, method, &parts))
    }

    /// `None` for a path that cannot be read.
    async fn read(&self, parts: &[&str], path: &str) -> Option<Reply> {
        let api = &self.api;
        Some(match parts {
            ["node"] => json(StatusCode::OK, &api.node()),
            ["pods"] => json(StatusCode::OK, &api.pods()),
            ["pods", uid] => match api.pod(uid) {
                Some(detail) => json(StatusCode::OK, &detail),
                None => {
                    refusal(&LocalRefusal::NotFound { message: format!("no pod has UID {uid}") })
                }
            },
            ["changes", since] => match since.parse() {
                Ok(since) => {
                    json(StatusCode::OK, &LocalVersion { version: api.changed(since).await })
                }
                Err(_) => {
                    let message = format!("{since:?}: expected a number, the last version seen");
                    refusal(&LocalRefusal::NotFound { message })
                }
            },
            ["usage"] => match self.runtime(path) {
                Ok(runtime) => told(runtime.usage().await),
                Err(refused) => refused,
            },
            ["images"] => match self.runtime(path) {
                Ok(runtime) => told(runtime.images().await),
                Err(refused) => refused,
            },
            ["containers", id, "process"] => match self.runtime(path) {
                Ok(runtime) => told(runtime.process(id).await),
                Err(refused) => refused,
            },
            _ => return None,
        })
    }

    /// `None` for a path that cannot be written.
    async fn write(&self, parts: &[&str], path: &str, body: &[u8]) -> Option<Reply> {
        Some(match parts {
            ["pods"] => match parsed::<LocalManifests>(body) {
                Ok(manifests) => accepted(self.api.take(manifests).await),
                Err(reply) => reply,
            },
            ["pods", uid, "stop"] => accepted(self.api.stop(uid).await),
            ["images", "remove"] => match (self.runtime(path), parsed::<LocalImageName>(body)) {
                (Ok(runtime), Ok(image)) => told(runtime.remove_image(&image.name).await),
                (Err(reply), _) | (_, Err(reply)) => reply,
            },
            _ => match (self.runtime(path), stream_wish(parts, body)?) {
                (Ok(runtime), Ok(wish)) => told(runtime.address(wish).await),
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
    ) -> Option<Result<CarryStream, Reply>> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let ["v1", parts @ ..] = parts.as_slice() else { return None };
        let (runtime, wish) = match (self.runtime(path), stream_wish(parts, body)?) {
            (Ok(runtime), Ok(wish)) => (runtime, wish),
            (Err(reply), _) | (_, Err(reply)) => return Some(Err(reply)),
        };
        Some(match runtime.stream(wish).await {
            Ok(StreamOffer::Here(carry)) => Ok(carry),
            Ok(StreamOffer::Address(stream)) => Err(json(StatusCode::OK, &stream)),
            Err(refused) => Err(refusal(&refused)),
        })
    }

    fn runtime(&self, path: &str) -> Result<&dyn LocalRuntime, Reply> {
        self.runtime.as_deref().ok_or_else(|| {
            let message = format!("this agent does not serve {path}");
            refusal(&LocalRefusal::NotNow { message })
        })
    }
}

/// `None` for a path that is no stream.
fn stream_wish(parts: &[&str], body: &[u8]) -> Option<Result<StreamWish, Reply>> {
    let command = |id: &str| Ok((id.to_owned(), parsed::<LocalCommand>(body)?));
    Some(match parts {
        ["pods", uid, "forward"] => Ok(StreamWish::Forward { pod: (*uid).to_owned() }),
        ["containers", id, "exec"] => {
            command(id).map(|(container, command)| StreamWish::Exec { container, command })
        }
        ["containers", id, "attach"] => {
            command(id).map(|(container, command)| StreamWish::Attach { container, command })
        }
        _ => return None,
    })
}

/// Metrics in the text format.
fn counted(text: String) -> Reply {
    Reply { status: StatusCode::OK, content_type: metrics::CONTENT_TYPE, body: text.into_bytes() }
}

fn is_known(parts: &[&str]) -> bool {
    matches!(
        parts,
        ["metrics"]
            | ["metrics", "probes"]
            | ["v1", "node" | "pods" | "usage" | "images"]
            | ["v1", "pods" | "changes", _]
            | ["v1", "pods", _, "stop" | "forward"]
            | ["v1", "containers", _, "exec" | "attach" | "process"]
            | ["v1", "images", "remove"]
    )
}

fn wrong(path: &str, method: &Method, parts: &[&str]) -> Reply {
    if is_known(parts) {
        let message = format!("{path} does not take {method}");
        return json(StatusCode::METHOD_NOT_ALLOWED, &LocalRefusal::NotFound { message });
    }
    refusal(&LocalRefusal::NotFound { message: format!("there is no {path}") })
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Reply> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("the request's body: {error}");
        json(StatusCode::BAD_REQUEST, &LocalRefusal::NotFound { message })
    })
}

fn told<T: Serialize>(answer: Result<T, LocalRefusal>) -> Reply {
    answer.map_or_else(|refused| refusal(&refused), |value| json(StatusCode::OK, &value))
}

fn accepted<T: Serialize>(answer: Result<T, LocalRefusal>) -> Reply {
    answer.map_or_else(|refused| refusal(&refused), |value| json(StatusCode::ACCEPTED, &value))
}

fn refusal(refused: &LocalRefusal) -> Reply {
    let status = match refused {
        LocalRefusal::NotFound { .. } => StatusCode::NOT_FOUND,
        LocalRefusal::OfManifest { .. } => StatusCode::CONFLICT,
        LocalRefusal::NotNow { .. } => StatusCode::SERVICE_UNAVAILABLE,
    };
    json(status, refused)
}

fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    match serde_json::to_vec(value) {
        Ok(body) => Reply { status, content_type: JSON, body },
        Err(error) => Reply {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            content_type: JSON,
            body: format!("{{\"refusal\":\"notNow\",\"message\":{:?}}}", error.to_string()).into(),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests;
