//! CRI messages as JSON and back.
//!
//! Rule: protobuf's own JSON mapping, by the descriptors that the messages were generated from.
//! Read: field names as the standard has them (`log_path`) or in camel case (`logPath`), enums by
//! name or number; unknown fields are errors. Written: camel case, every field, 64-bit numbers as
//! text. Does not read files.

use anyhow::{Context, Result};
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;

fn descriptor<M: Name>() -> Result<MessageDescriptor> {
    let pool = DescriptorPool::decode(cri_wire::FILE_DESCRIPTOR_SET)
        .context("the built-in CRI descriptors are damaged")?;
    let name = M::full_name();
    pool.get_message_by_name(&name).with_context(|| format!("no CRI message is called {name}"))
}

pub(super) fn to_value<M: Message + Name>(message: &M) -> Result<Value> {
    let bytes = message.encode_to_vec();
    let dynamic = DynamicMessage::decode(descriptor::<M>()?, bytes.as_slice())
        .with_context(|| format!("cannot describe a {}", M::NAME))?;
    let options = SerializeOptions::new().skip_default_fields(false);
    dynamic
        .serialize_with_options(serde_json::value::Serializer, &options)
        .with_context(|| format!("cannot write a {} as JSON", M::NAME))
}

pub(super) fn from_text<M: Message + Name + Default>(text: &str) -> Result<M> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let dynamic = DynamicMessage::deserialize(descriptor::<M>()?, &mut deserializer)
        .with_context(|| format!("expected a {} as JSON", M::NAME))?;
    deserializer.end().with_context(|| format!("expected one {} and nothing after it", M::NAME))?;
    M::decode(dynamic.encode_to_vec().as_slice())
        .with_context(|| format!("cannot read a {}", M::NAME))
}

/// The response to a verbose request, with texts in `info` that are JSON themselves parsed.
pub(super) fn with_opened_info<M: Message + Name>(message: &M) -> Result<Value> {
    let mut value = to_value(message)?;
    if let Some(Value::Object(info)) = value.get_mut("info") {
        for entry in info.values_mut() {
            let opened = entry.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
            if let Some(opened @ (Value::Object(_) | Value::Array(_))) = opened {
                *entry = opened;
            }
        }
    }
    Ok(value)
}

pub(super) fn pretty(value: &Value) -> Result<String> {
    let mut text = serde_json::to_string_pretty(value).context("cannot write JSON")?;
    text.push('\n');
    Ok(text)
}
