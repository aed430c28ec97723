//! Decodes one watch event, or one page of a list, from JSON or protobuf.
//!
//! Rule: an object that cannot be decoded costs only itself: the others of a page, and the version
//! that a watch has reached, are kept. Fields that are not declared are skipped, not stored.

use std::borrow::Cow;

use bytes::Bytes;
use ports::cluster_objects::ApiObject;
use prost::Message as _;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::protobuf::{self, WatchedObject};
use crate::request_error::ApiStatus;

/// The event type of a deletion.
const DELETED: &str = "DELETED";

/// A decoded event.
#[derive(Debug)]
pub(crate) enum WatchLine<T> {
    Applied(T),
    Deleted(T),
    /// Everything up to this version has been sent.
    Bookmark {
        version: String,
    },
    Unreadable {
        object: String,
        version: String,
        deleted: bool,
        cause: String,
    },
    Failed(ApiStatus),
}

/// An object that could not be decoded, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnreadableObject {
    pub(crate) object: String,
    pub(crate) cause: String,
}

#[derive(Debug)]
pub(crate) struct ListPage<T> {
    pub(crate) version: String,
    /// Empty after the last page.
    pub(crate) token: String,
    pub(crate) objects: Vec<T>,
    pub(crate) unreadable: Vec<UnreadableObject>,
}

#[derive(Deserialize)]
struct EventLine<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct ObjectList<'a> {
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
struct ObjectEnvelope {
    metadata: EnvelopeMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EnvelopeMeta {
    name: String,
    namespace: String,
    resource_version: String,
}

/// Decodes a watch event in JSON.
pub(crate) fn read_line<T: ApiObject>(line: &[u8]) -> Result<WatchLine<T>, String> {
    let line: EventLine<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let object = line.object.get();
    match line.kind.as_ref() {
        "BOOKMARK" => {
            let envelope: ObjectEnvelope =
                serde_json::from_str(object).map_err(|error| error.to_string())?;
            Ok(WatchLine::Bookmark { version: envelope.metadata.resource_version })
        }
        "ERROR" => Ok(WatchLine::Failed(ApiStatus::parse(object.as_bytes()))),
        kind => Ok(applied_or_deleted(kind == DELETED, read_object(object))),
    }
}

/// Decodes a watch event in protobuf.
pub(crate) fn read_frame<T: WatchedObject>(frame: Bytes) -> Result<WatchLine<T>, String> {
    let event = protobuf::WatchEventForm::decode(frame).map_err(|error| error.to_string())?;
    let kind = event.kind.clone();
    let object = event.object()?;
    match kind.as_ref() {
        b"BOOKMARK" => {
            let envelope =
                ObjectEnvelope::from_protobuf(object).map_err(|error| error.to_string())?;
            Ok(WatchLine::Bookmark { version: envelope.metadata.resource_version })
        }
        b"ERROR" => Ok(WatchLine::Failed(ApiStatus::from_protobuf(object)?)),
        kind => Ok(applied_or_deleted(kind == DELETED.as_bytes(), read_message(object))),
    }
}

fn applied_or_deleted<T: ApiObject>(
    deleted: bool,
    read: Result<T, (String, ObjectEnvelope)>,
) -> WatchLine<T> {
    match read {
        Ok(object) if deleted => WatchLine::Deleted(object),
        Ok(object) => WatchLine::Applied(object),
        Err((cause, envelope)) => WatchLine::Unreadable {
            object: name_of::<T>(&envelope),
            version: envelope.metadata.resource_version,
            deleted,
            cause,
        },
    }
}

/// Decodes a page; its first bytes show the encoding.
pub(crate) fn read_page<T: WatchedObject>(body: Bytes) -> Result<ListPage<T>, String> {
    if body.starts_with(protobuf::MAGIC) {
        let raw = protobuf::open(body)?;
        let list = protobuf::ObjectList::decode(raw).map_err(|error| error.to_string())?;
        let meta = list.metadata.unwrap_or_default();
        let meta = ListMeta { resource_version: meta.resource_version, token: meta.token };
        return Ok(page(meta, list.items.into_iter().map(read_message)));
    }
    let list: ObjectList<'_> = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    let items = list.items.unwrap_or_default();
    Ok(page(list.metadata, items.into_iter().map(|item| read_object(item.get()))))
}

fn page<T: ApiObject>(
    meta: ListMeta,
    items: impl ExactSizeIterator<Item = Result<T, (String, ObjectEnvelope)>>,
) -> ListPage<T> {
    let mut page = ListPage {
        version: meta.resource_version,
        token: meta.token,
        objects: Vec::with_capacity(items.len()),
        unreadable: Vec::new(),
    };
    for item in items {
        match item {
            Ok(object) => page.objects.push(object),
            Err((cause, envelope)) => {
                page.unreadable.push(UnreadableObject { object: name_of::<T>(&envelope), cause });
            }
        }
    }
    page
}

fn read_object<T: ApiObject>(text: &str) -> Result<T, (String, ObjectEnvelope)> {
    serde_json::from_str(text)
        .map_err(|error| (error.to_string(), serde_json::from_str(text).unwrap_or_default()))
}

fn read_message<T: WatchedObject>(bytes: Bytes) -> Result<T, (String, ObjectEnvelope)> {
    T::from_protobuf(bytes.clone())
        .map_err(|error| (error, ObjectEnvelope::from_protobuf(bytes).unwrap_or_default()))
}

impl ObjectEnvelope {
    fn from_protobuf(bytes: Bytes) -> Result<Self, prost::DecodeError> {
        let meta = protobuf::AnyObject::decode(bytes)?.metadata.unwrap_or_default();
        let protobuf::AnyMeta { name, namespace, resource_version } = meta;
        Ok(Self { metadata: EnvelopeMeta { name, namespace, resource_version } })
    }
}

fn name_of<T: ApiObject>(envelope: &ObjectEnvelope) -> String {
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
