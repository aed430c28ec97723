//! An Event as it is sent to the API server.
//!
//! Rule: the form is that of upstream's recorder (core/v1, a name per object and instant), so that
//! people and programs find what they expect. Does not count, merge or drop. upstream: client-go
//! tools/record

use ports::ApiTime;
use ports::cluster_api::{ClusterEvent, ClusterEventType, Repetition};
use serde::Serialize;
use serde_json::json;

/// The namespace of events about objects without one.
const DEFAULT_NAMESPACE: &str = "default";
/// How much of an object's name goes into the event's, which may have 253 characters.
const MAX_NAME_CHARS: usize = 200;

/// An event's fields, serialized without an intermediate tree: after a start there are many.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventDocument<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Metadata<'a>,
    involved_object: EventInvolvedObject<'a>,
    reason: &'a str,
    message: &'a str,
    source: EventComponent<'a>,
    first_timestamp: &'a str,
    last_timestamp: &'a str,
    count: u32,
    #[serde(rename = "type")]
    severity: &'a str,
    reporting_component: &'a str,
    reporting_instance: &'a str,
}

#[derive(Serialize)]
struct Metadata<'a> {
    namespace: &'a str,
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventInvolvedObject<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    field_path: &'a str,
}

#[derive(Serialize)]
struct EventComponent<'a> {
    component: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    host: &'a str,
}

/// Namespace, name and JSON of an event.
pub(crate) fn event_body(event: &ClusterEvent) -> (String, String, Vec<u8>) {
    let about = &event.about;
    let namespace =
        if about.namespace.is_empty() { DEFAULT_NAMESPACE } else { about.namespace.as_str() };
    let name = event_name(&about.name, event.at);
    let at = event.at.to_seconds_text();
    let document = EventDocument {
        api_version: "v1",
        kind: "Event",
        metadata: Metadata { namespace, name: &name },
        involved_object: EventInvolvedObject {
            api_version: &about.api_version,
            kind: &about.kind,
            namespace: &about.namespace,
            name: &about.name,
            uid: &about.uid,
            resource_version: &about.resource_version,
            field_path: &about.field_path,
        },
        reason: &event.reason,
        message: &event.message,
        source: EventComponent { component: &event.component, host: &event.host },
        first_timestamp: &at,
        last_timestamp: &at,
        count: 1,
        severity: match event.kind {
            ClusterEventType::Normal => "Normal",
            ClusterEventType::Warning => "Warning",
        },
        reporting_component: &event.component,
        reporting_instance: &event.host,
    };
    // Serializing text in fixed fields cannot fail.
    let body = serde_json::to_vec(&document).unwrap_or_default();
    (namespace.to_owned(), name, body)
}

/// A patch that sets an event's count and the time of its last occurrence.
pub(crate) fn repetition(again: Repetition<'_>) -> Vec<u8> {
    let Repetition { count, last, message } = again;
    let mut patch = json!({"count": count, "lastTimestamp": last.to_seconds_text()});
    if let Some(message) = message {
        patch["message"] = message.into();
    }
    patch.to_string().into_bytes()
}

/// The object's name and the instant in hexadecimal. Of a name that an event may not have (a
/// user's, with colons in it) the valid beginning is used.
fn event_name(about: &str, at: ApiTime) -> String {
    let is_name_character = |character: char| {
        character.is_ascii_lowercase() || character.is_ascii_digit() || "-.".contains(character)
    };
    let name: String =
        about.chars().take(MAX_NAME_CHARS).filter(|c| is_name_character(*c)).collect();
    let name = name.trim_matches(['-', '.']);
    let name = if name.is_empty() || name.contains("..") { "event" } else { name };
    format!("{name}.{:x}", at.nanos())
}

#[cfg(test)]
mod tests;
