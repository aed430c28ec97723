//! One line of a watch, and one page of a list, read into objects of ours.
//!
//! Rule: an object that cannot be read costs only itself: the others of a page, and the version
//! that a watch has reached, are kept. Fields that we do not name are skipped, not stored.

use std::borrow::Cow;

use ports::cluster_objects::ApiObject;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::failure::Status;

/// What a line says.
#[derive(Debug)]
pub(crate) enum WatchLine<T> {
    Applied(T),
    Deleted(T),
    /// All up to this version has been sent.
    Bookmark {
        version: String,
    },
    Unreadable {
        object: String,
        version: String,
        cause: String,
    },
    Failed(Status),
}

/// An object that could not be read, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnreadableObject {
    pub(crate) object: String,
    pub(crate) cause: String,
}

#[derive(Debug)]
pub(crate) struct Page<T> {
    pub(crate) version: String,
    /// Empty after the last page.
    pub(crate) token: String,
    pub(crate) objects: Vec<T>,
    pub(crate) unreadable: Vec<UnreadableObject>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    token: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Envelope {
    metadata: EnvelopeMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EnvelopeMeta {
    name: String,
    namespace: String,
    resource_version: String,
}

pub(crate) fn read_line<T: ApiObject>(line: &[u8]) -> Result<WatchLine<T>, serde_json::Error> {
    let line: Line<'_> = serde_json::from_slice(line)?;
    let object = line.object.get();
    match line.kind.as_ref() {
        "BOOKMARK" => {
            let envelope: Envelope = serde_json::from_str(object)?;
            Ok(WatchLine::Bookmark { version: envelope.metadata.resource_version })
        }
        "ERROR" => Ok(WatchLine::Failed(Status::parse(object.as_bytes()))),
        kind => Ok(match read_object(object) {
            Ok(object) if kind == "DELETED" => WatchLine::Deleted(object),
            Ok(object) => WatchLine::Applied(object),
            Err((cause, envelope)) => WatchLine::Unreadable {
                object: name_of::<T>(&envelope),
                version: envelope.metadata.resource_version,
                cause,
            },
        }),
    }
}

pub(crate) fn read_page<T: ApiObject>(body: &[u8]) -> Result<Page<T>, serde_json::Error> {
    let list: List<'_> = serde_json::from_slice(body)?;
    let items = list.items.unwrap_or_default();
    let mut page = Page {
        version: list.metadata.resource_version,
        token: list.metadata.token,
        objects: Vec::with_capacity(items.len()),
        unreadable: Vec::new(),
    };
    for item in items {
        match read_object(item.get()) {
            Ok(object) => page.objects.push(object),
            Err((cause, envelope)) => {
                page.unreadable.push(UnreadableObject { object: name_of::<T>(&envelope), cause });
            }
        }
    }
    Ok(page)
}

fn read_object<T: ApiObject>(text: &str) -> Result<T, (String, Envelope)> {
    serde_json::from_str(text)
        .map_err(|error| (error.to_string(), serde_json::from_str(text).unwrap_or_default()))
}

fn name_of<T: ApiObject>(envelope: &Envelope) -> String {
    let plural = T::RESOURCE.plural;
    let EnvelopeMeta { name, namespace, .. } = &envelope.metadata;
    if namespace.is_empty() {
        format!("{plural}/{name}")
    } else {
        format!("{plural}/{namespace}/{name}")
    }
}

#[cfg(test)]
mod tests;
