//! Requests as values: method, path, query, content. No transport.
//!
//! Rule: whatever a name or a selector contains, it stays inside its part of the path or query; a
//! name that could form another path is an error. A request can be named without its content, so
//! that no content gets into messages.

use std::fmt;

use hyper::Method;
use ports::ClusterApiError;
use ports::cluster_api::{Deletion, ObjectPath, ObjectSelector, Patch, PatchKind, Resource};

/// What a request needs, except the server's address and the credentials.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: Vec<u8>,
    /// For messages: `PATCH nodes/worker-1/status`.
    pub(crate) description: String,
}

impl fmt::Debug for ApiRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ApiRequest({}, {} bytes)", self.description, self.body.len())
    }
}

const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// For lists and watches; a server that has no protobuf for a type answers in JSON.
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf, application/json";

impl ApiRequest {
    pub(crate) fn read(object: &ObjectPath) -> Result<Self, ClusterApiError> {
        Self::on(Method::GET, object, None)
    }

    pub(crate) fn create(
        object: &ObjectPath,
        body: Vec<u8>,
        manager: &str,
    ) -> Result<Self, ClusterApiError> {
        let mut request = Self::on(Method::POST, object, None)?;
        request.target = collection(object.resource, object.namespace.as_deref());
        request.body = body;
        Ok(request.query("fieldManager", manager))
    }

    pub(crate) fn create_subresource(
        object: &ObjectPath,
        subresource: &str,
        body: Vec<u8>,
        manager: &str,
    ) -> Result<Self, ClusterApiError> {
        let request = Self::on(Method::POST, object, Some(subresource))?;
        Ok(Self { body, ..request }.query("fieldManager", manager))
    }

    pub(crate) fn patch(
        object: &ObjectPath,
        patch: Patch,
        manager: &str,
    ) -> Result<Self, ClusterApiError> {
        let mut request = Self::on(Method::PATCH, object, patch.subresource.as_deref())?;
        request.body = patch.body;
        request.content_type = match patch.kind {
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::StrategicMerge => "application/strategic-merge-patch+json",
            PatchKind::Json => "application/json-patch+json",
            PatchKind::Apply { .. } => "application/apply-patch+yaml",
        };
        let request = request.query("fieldManager", manager);
        Ok(match patch.kind {
            PatchKind::Apply { force: true } => request.query("force", "true"),
            _ => request,
        })
    }

    pub(crate) fn delete(
        object: &ObjectPath,
        deletion: &Deletion,
    ) -> Result<Self, ClusterApiError> {
        let mut request = Self::on(Method::DELETE, object, None)?;
        let mut preconditions = serde_json::Map::new();
        for (key, value) in
            [("uid", &deletion.uid), ("resourceVersion", &deletion.resource_version)]
        {
            if let Some(value) = value {
                preconditions.insert(key.to_owned(), value.as_str().into());
            }
        }
        let mut options = serde_json::json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if !preconditions.is_empty() {
            options["preconditions"] = preconditions.into();
        }
        if let Some(seconds) = deletion.grace_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        request.body = options.to_string().into_bytes();
        Ok(request)
    }

    pub(crate) fn list(
        resource: Resource,
        selection: &ObjectSelector,
        limit: u32,
        token: Option<&str>,
    ) -> Self {
        let request = Self::over("LIST", resource, selection).query("limit", &limit.to_string());
        match token {
            Some(token) => request.query("continue", token),
            None => request,
        }
    }

    pub(crate) fn watch(
        resource: Resource,
        selection: &ObjectSelector,
        version: &str,
        seconds: u64,
    ) -> Self {
        Self::over("WATCH", resource, selection)
            .query("watch", "true")
            .query("allowWatchBookmarks", "true")
            .query("timeoutSeconds", &seconds.to_string())
            .query("resourceVersion", version)
    }

    /// A watch of one object, without bookmarks, in JSON. An empty version: from its current state.
    pub(crate) fn watch_object(object: &ObjectPath, version: &str, seconds: u64) -> Self {
        let selection = ObjectSelector {
            namespace: object.namespace.clone(),
            fields: format!("metadata.name={}", object.name),
            ..ObjectSelector::default()
        };
        let mut request = Self::over("WATCH", object.resource, &selection)
            .query("watch", "true")
            .query("timeoutSeconds", &seconds.to_string())
            .query("resourceVersion", version)
            .in_protobuf(false);
        request.description.push_str(&format!("/{}", object.name));
        request
    }

    /// Its response ends when the server or the client ends it.
    pub(crate) fn is_watch(&self) -> bool {
        self.description.starts_with("WATCH ")
    }

    /// Asks for the response in protobuf, or in JSON.
    #[must_use]
    pub(crate) fn in_protobuf(self, wanted: bool) -> Self {
        Self { accept: if wanted { PROTOBUF_OR_JSON } else { JSON }, ..self }
    }

    fn over(verb: &str, resource: Resource, selection: &ObjectSelector) -> Self {
        let namespace = selection.namespace.as_deref();
        let path_suffix = namespace.map(|name| format!(" in {name}")).unwrap_or_default();
        let request = Self {
            method: Method::GET,
            target: collection(resource, namespace),
            content_type: JSON,
            accept: PROTOBUF_OR_JSON,
            body: Vec::new(),
            description: format!("{verb} {}{path_suffix}", resource.plural),
        };
        request.query("labelSelector", &selection.labels).query("fieldSelector", &selection.fields)
    }

    fn on(
        method: Method,
        object: &ObjectPath,
        subresource: Option<&str>,
    ) -> Result<Self, ClusterApiError> {
        let mut target = collection(object.resource, object.namespace.as_deref());
        let mut description = format!("{method} {}", object.resource.plural);
        let below = [object.namespace.as_deref(), Some(object.name.as_str()), subresource];
        for segment in below.into_iter().flatten() {
            description.push('/');
            description.push_str(segment);
            if matches!(segment, "" | "." | "..") {
                return Err(ClusterApiError::Refused {
                    request: description,
                    status: 0,
                    reason: "NotSent".to_owned(),
                    message: format!("{segment:?} is no name"),
                });
            }
        }
        for segment in below.into_iter().skip(1).flatten() {
            target.push('/');
            percent_encode(segment, &mut target);
        }
        Ok(Self { method, target, content_type: JSON, accept: JSON, body: Vec::new(), description })
    }

    /// Adds a query parameter; none if the value is empty.
    fn query(mut self, key: &str, value: &str) -> Self {
        if !value.is_empty() {
            self.target.push(if self.target.contains('?') { '&' } else { '?' });
            self.target.push_str(key);
            self.target.push('=');
            percent_encode(value, &mut self.target);
        }
        self
    }
}

fn collection(resource: Resource, namespace: Option<&str>) -> String {
    let mut path = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    if let Some(namespace) = namespace {
        path.push_str("/namespaces/");
        percent_encode(namespace, &mut path);
    }
    path.push('/');
    path.push_str(resource.plural);
    path
}

/// Percent-encodes everything but characters that never have a meaning in a URL.
pub(crate) fn percent_encode(text: &str, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests;
