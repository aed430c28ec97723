//! ConfigMaps and Secrets that stand beside pods in a manifest.
//!
//! The rule it keeps: what an API server would store, or every error that it would find, each with
//! file, line and field. No value of a Secret is ever part of an error.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use document::diagnostic::Diagnostic;
use document::{Node, Value, child_path};
use pod_model::names::{check_dns_label, check_dns_subdomain};
use ports::{ContentData, ContentKind, ContentName, ContentObject};
use std::collections::BTreeMap;

use crate::validation::formats::config_key;

#[cfg(test)]
mod tests;

/// All values together, as the API server has it.
const MAX_DATA_BYTES: usize = 1 << 20;

/// A ConfigMap or a Secret from a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentManifest {
    pub name: ContentName,
    pub object: ContentObject,
}

/// The kind, where the document is one of these.
pub fn content_kind(root: &Node) -> Option<ContentKind> {
    if root.get("apiVersion")?.as_str()? != "v1" {
        return None;
    }
    match root.get("kind")?.as_str()? {
        "ConfigMap" => Some(ContentKind::ConfigMap),
        "Secret" => Some(ContentKind::Secret),
        _ => None,
    }
}

/// Decodes a document of this kind.
pub fn decode_content(kind: ContentKind, root: &Node) -> Result<ContentManifest, Vec<Diagnostic>> {
    let mut reader = ContentReader::default();
    let (namespace, name) = reader.metadata(root);
    let mut object = ContentObject::default();
    for (field, node) in root.as_map().into_iter().flatten() {
        match (kind, field.as_str()) {
            (_, "apiVersion" | "kind" | "metadata") => {}
            (_, "immutable") => object.immutable = reader.flag(field, node),
            (ContentKind::ConfigMap, "data") => object.data = reader.texts(field, node),
            (ContentKind::ConfigMap, "binaryData") => {
                object.binary_data = reader.encoded(field, node);
            }
            (ContentKind::Secret, "data" | "stringData") => {}
            (ContentKind::Secret, "type") => object.secret_type = reader.text(field, node),
            _ => reader.refuse(field, node, "unknown field"),
        }
    }
    if kind == ContentKind::Secret {
        if object.secret_type.is_empty() {
            "Opaque".clone_into(&mut object.secret_type);
        }
        object.data = reader.secret_data(root);
    }
    for key in object.data.0.keys().filter(|key| object.binary_data.0.contains_key(*key)) {
        let field = child_path("binaryData", key);
        reader.refuse(&field, root, "the key is in data already");
    }
    let all = object.data.0.values().chain(object.binary_data.0.values());
    let bytes: usize = all.map(Vec::len).sum();
    if bytes > MAX_DATA_BYTES {
        let why = format!("the values have {bytes} bytes, expected at most {MAX_DATA_BYTES}");
        reader.refuse("data", root, &why);
    }
    if reader.errors.is_empty() {
        let name = ContentName { kind, namespace, name };
        return Ok(ContentManifest { name, object });
    }
    Err(reader.errors)
}

#[derive(Default)]
struct ContentReader {
    errors: Vec<Diagnostic>,
}

impl ContentReader {
    fn refuse(&mut self, field: &str, node: &Node, why: &str) {
        self.errors.push(Diagnostic::error(field, why).at(node.origin.clone()));
    }

    /// Namespace and name.
    fn metadata(&mut self, root: &Node) -> (String, String) {
        let metadata = root.get("metadata");
        let mut text = |key: &str| match metadata.and_then(|metadata| metadata.get(key)) {
            Some(node) => self.text(&format!("metadata.{key}"), node),
            None => String::new(),
        };
        let (mut namespace, name) = (text("namespace"), text("name"));
        if namespace.is_empty() {
            "default".clone_into(&mut namespace);
        }
        let place = metadata.unwrap_or(root);
        let checks = [
            ("metadata.name", check_dns_subdomain(&name)),
            ("metadata.namespace", check_dns_label(&namespace)),
        ];
        for (field, check) in checks {
            if let Err(error) = check {
                self.refuse(field, place, &error.to_string());
            }
        }
        (namespace, name)
    }

    fn text(&mut self, field: &str, node: &Node) -> String {
        match &node.value {
            Value::String(text) => return text.clone(),
            Value::Null => {}
            _ => self.refuse_kind(field, node, "a string"),
        }
        String::new()
    }

    fn flag(&mut self, field: &str, node: &Node) -> bool {
        match &node.value {
            Value::Bool(flag) => return *flag,
            Value::Null => {}
            _ => self.refuse_kind(field, node, "true or false"),
        }
        false
    }

    fn refuse_kind(&mut self, field: &str, node: &Node, expected: &str) {
        let why = format!("expected {expected}, found {}", node.kind_name());
        self.refuse(field, node, &why);
    }

    /// The entries of a map of texts; each key is checked.
    fn texts(&mut self, field: &str, node: &Node) -> ContentData {
        let mut data = BTreeMap::new();
        let Value::Map(entries) = &node.value else {
            if !node.is_null() {
                self.refuse_kind(field, node, "an object");
            }
            return ContentData(data);
        };
        for (key, value) in entries {
            let path = child_path(field, key);
            if let Err(why) = config_key(key) {
                self.refuse(&path, value, why);
            }
            data.insert(key.clone(), self.text(&path, value).into_bytes());
        }
        ContentData(data)
    }

    fn encoded(&mut self, field: &str, node: &Node) -> ContentData {
        let mut data = BTreeMap::new();
        for (key, text) in self.texts(field, node).0 {
            // Kubernetes takes base64 that is broken into lines.
            let text: Vec<u8> = text.into_iter().filter(|byte| !b"\r\n".contains(byte)).collect();
            match STANDARD.decode(text) {
                Ok(bytes) => {
                    data.insert(key, bytes);
                }
                Err(_) => {
                    let value = node.get(&key).unwrap_or(node);
                    self.refuse(&child_path(field, &key), value, "expected base64");
                }
            }
        }
        ContentData(data)
    }

    /// `stringData` replaces what `data` has.
    fn secret_data(&mut self, root: &Node) -> ContentData {
        let mut data = root.get("data").map(|node| self.encoded("data", node)).unwrap_or_default();
        if let Some(node) = root.get("stringData") {
            data.0.extend(self.texts("stringData", node).0);
        }
        data
    }
}
