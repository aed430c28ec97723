//! What a listener passes on and gets back: a path requested, a page returned.
//!
//! Rule: small values; no listener knows the pages' content, no page knows its caller.

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use ports::{HealthChecks, PortFuture};

use crate::health_reply;

/// A request for a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    pub path: String,
    pub query: String,
}

/// The response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
}

impl Page {
    /// Plain text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    /// There is no page of that name.
    pub fn not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// The health page `/NAME` or one of its checks `/NAME/CHECK`, if the path is one.
    pub fn health(name: &str, request: &PageRequest, checks: &HealthChecks) -> Option<Self> {
        let below = request.path.strip_prefix('/')?.strip_prefix(name)?;
        if !below.is_empty() && !below.starts_with('/') {
            return None;
        }
        let answer = health_reply::answer_named(name, &request.path, &request.query, checks, None);
        Some(Self::text(answer.status, answer.body))
    }

    pub(crate) fn into_response(self) -> Response<String> {
        let mut response = Response::new(self.body);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        headers.insert("cache-control", HeaderValue::from_static("no-cache, private"));
        response
    }
}

/// Pages that a listener serves.
pub trait Pages: Send + Sync {
    fn answer<'a>(&'a self, request: &'a PageRequest) -> PortFuture<'a, Page>;
}
