//! Which request gets which answer.
//!
//! Rule: the agent's values as JSON, and nothing but. An unknown path is 404, a known one with the
//! wrong method 405; refusals of the agent have their own status and say why.

use hyper::{Method, StatusCode};
use ports::local_api::{LocalApi, LocalRefusal, LocalVersion};
use serde::Serialize;

/// An answer, before it is put on the wire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

pub(crate) async fn answer(api: &dyn LocalApi, method: &Method, path: &str) -> Reply {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let reads = method == Method::GET || method == Method::HEAD;
    match (parts.as_slice(), reads) {
        (["v1", "node"], true) => json(StatusCode::OK, &api.node()),
        (["v1", "pods"], true) => json(StatusCode::OK, &api.pods()),
        (["v1", "pods", uid], true) => match api.pod(uid) {
            Some(detail) => json(StatusCode::OK, &detail),
            None => refusal(&LocalRefusal::NotFound { message: format!("no pod has UID {uid}") }),
        },
        (["v1", "changes", since], true) => match since.parse() {
            Ok(since) => json(StatusCode::OK, &LocalVersion { version: api.changed(since).await }),
            Err(_) => {
                let message = format!("{since:?}: expected a number, the last version seen");
                refusal(&LocalRefusal::NotFound { message })
            }
        },
        (["v1", "pods", uid, "stop"], false) if method == Method::POST => {
            match api.stop(uid).await {
                Ok(stopped) => json(StatusCode::ACCEPTED, &stopped),
                Err(refused) => refusal(&refused),
            }
        }
        (["v1", "node" | "pods"] | ["v1", "pods", _] | ["v1", "pods", _, "stop"], _) => {
            let message = format!("{path} does not take {method}");
            json(StatusCode::METHOD_NOT_ALLOWED, &LocalRefusal::NotFound { message })
        }
        _ => refusal(&LocalRefusal::NotFound { message: format!("there is no {path}") }),
    }
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
        Ok(body) => Reply { status, body },
        Err(error) => Reply {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            body: format!("{{\"refusal\":\"notNow\",\"message\":{:?}}}", error.to_string()).into(),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests;
