//! An event as the API server wants it.
//!
//! Rule: the form is that of upstream's recorder (core/v1, one name per object and instant), so
//! that people and programs find what they are used to. Does not count, merge or drop: what is
//! told is told. upstream: client-go tools/record

use ports::ApiTime;
use ports::cluster_api::{ClusterEvent, EventKind};
use serde_json::json;

/// Events about objects without a namespace live here.
const USUAL_NAMESPACE: &str = "default";
/// How much of an object's name gets into the event's, which may have 253 characters.
const LONGEST_NAME: usize = 200;

/// Namespace, name and content of an event.
pub(crate) fn event_body(event: &ClusterEvent) -> (String, String, Vec<u8>) {
    let about = &event.about;
    let namespace =
        if about.namespace.is_empty() { USUAL_NAMESPACE } else { about.namespace.as_str() };
    let name = event_name(&about.name, event.at);
    let at = event.at.to_seconds_text();
    let mut involved = serde_json::Map::new();
    for (key, value) in [
        ("apiVersion", &about.api_version),
        ("kind", &about.kind),
        ("namespace", &about.namespace),
        ("name", &about.name),
        ("uid", &about.uid),
        ("resourceVersion", &about.resource_version),
        ("fieldPath", &about.field_path),
    ] {
        if !value.is_empty() {
            involved.insert(key.to_owned(), value.as_str().into());
        }
    }
    let mut source = json!({"component": event.component});
    if !event.host.is_empty() {
        source["host"] = event.host.as_str().into();
    }
    let kind = match event.kind {
        EventKind::Normal => "Normal",
        EventKind::Warning => "Warning",
    };
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": name},
        "involvedObject": involved,
        "reason": event.reason,
        "message": event.message,
        "source": source,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "type": kind,
        "reportingComponent": event.component,
        "reportingInstance": event.host,
    });
    (namespace.to_owned(), name, body.to_string().into_bytes())
}

/// A patch that says how often an event came by now, and when last.
pub(crate) fn repetition(count: u32, last: ApiTime) -> Vec<u8> {
    json!({"count": count, "lastTimestamp": last.to_seconds_text()}).to_string().into_bytes()
}

/// The object's name and the instant in hexadecimal. An object whose name no event may have (a
/// user's, with colons in it) lends it as far as it goes.
fn event_name(about: &str, at: ApiTime) -> String {
    let fitting = |character: char| {
        character.is_ascii_lowercase() || character.is_ascii_digit() || "-.".contains(character)
    };
    let name: String = about.chars().take(LONGEST_NAME).filter(|c| fitting(*c)).collect();
    let name = name.trim_matches(['-', '.']);
    let name = if name.is_empty() || name.contains("..") { "event" } else { name };
    format!("{name}.{:x}", at.nanos())
}

#[cfg(test)]
mod tests;
