//! A pod of the API server: the compact pod, and its status as the API server has it.
//!
//! Rule: decoded from the API server's JSON; fields that this version does not know are skipped. A
//! field of another type than expected makes the whole pod unreadable, with the field's name.

use std::cell::RefCell;
use std::sync::Arc;

use pod_model::pod::Pod;
use pod_model::pod::codec::{DecodeNode, FieldCodec, NodeShape};
use pod_model::pod::status::PodStatus;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use crate::cluster_api::Resource;
use crate::cluster_objects::{ApiObject, ObjectIdentity};

#[cfg(test)]
mod tests;

/// A pod with all of its status.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ApiPod {
    pub pod: Pod,
    pub status: Arc<PodStatus>,
}

impl ApiObject for ApiPod {
    const RESOURCE: Resource = Resource::PODS;
    fn identity(&self) -> ObjectIdentity<'_> {
        let metadata = &self.pod.metadata;
        ObjectIdentity {
            namespace: &metadata.namespace,
            name: &metadata.name,
            uid: &metadata.uid,
            resource_version: &metadata.resource_version,
        }
    }
}

impl<'de> Deserialize<'de> for ApiPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let mismatch = RefCell::new(None);
        let node = JsonNode { name: "", value: &object, mismatch: &mismatch };
        let pod = Pod::read(&node);
        let status = object.get("status").filter(|status| !status.is_null());
        let status = status
            .and_then(|value| PodStatus::read(&JsonNode { name: "status", value, ..node }))
            .unwrap_or_default();
        match (pod, mismatch.into_inner()) {
            (Some(pod), None) => Ok(Self { pod, status: Arc::new(status) }),
            (_, why) => Err(D::Error::custom(why.unwrap_or_else(|| "not a pod".to_owned()))),
        }
    }
}

/// A node of a JSON tree, and where the first mismatch is recorded.
#[derive(Clone, Copy)]
struct JsonNode<'a> {
    name: &'a str,
    value: &'a Value,
    mismatch: &'a RefCell<Option<String>>,
}

impl DecodeNode for JsonNode<'_> {
    fn shape(&self) -> NodeShape<'_> {
        match self.value {
            Value::Null => NodeShape::Null,
            Value::Bool(value) => NodeShape::Bool(*value),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => NodeShape::Whole(whole.into()),
                (None, Some(whole)) => NodeShape::Whole(whole.into()),
                (None, None) => NodeShape::Fraction(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => NodeShape::Text(text),
            Value::Array(_) => NodeShape::List,
            Value::Object(_) => NodeShape::Object,
        }
    }

    fn each_item(&self, visit: &mut dyn FnMut(&dyn DecodeNode)) {
        for value in self.value.as_array().into_iter().flatten() {
            visit(&JsonNode { value, ..*self });
        }
    }

    fn each_entry(&self, visit: &mut dyn FnMut(&str, &dyn DecodeNode)) {
        for (name, value) in self.value.as_object().into_iter().flatten() {
            visit(name, &JsonNode { name, value, ..*self });
        }
    }

    fn refuse(&self, expected: &str) {
        let why = || format!("field {}: expected {expected}", self.name);
        self.mismatch.borrow_mut().get_or_insert_with(why);
    }

    fn unknown(&self, _: &[&str]) {}
}
