//! Every field of `KubeletConfiguration` v1beta1: its name, its kind, when it counts as unset, and
//! its default.
//!
//! The rule it keeps: the tables in `fields` are the only place that lists fields; decoding,
//! defaults, merging and printing all walk them. Rules between fields belong to the validation.

mod check;
mod defaults;
mod fields;
mod render;

#[cfg(test)]
mod tests;

pub use check::{NameMatching, check_value, decode};
pub use defaults::{DefaultingGates, apply_defaults, fill_absent, round_reserved_memory};
pub use fields::KUBELET_CONFIGURATION;
pub use render::document_form;

pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub const KIND: &str = "KubeletConfiguration";

/// One field of an object.
#[derive(Debug, Clone, Copy)]
pub struct SchemaField {
    pub name: &'static str,
    pub kind: FieldKind,
    pub presence: Presence,
    pub default: DefaultRule,
}

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Float,
    Text,
    /// `1m30s`, always as a string.
    Duration,
    /// `5s`, or a whole number of nanoseconds.
    DurationOrNanoseconds,
    /// `100Mi` as a string, or a bare number.
    Quantity,
    /// A point in time, as a string.
    Time,
    List(&'static FieldKind),
    Map(&'static FieldKind),
    Object(&'static [SchemaField]),
}

/// When a field counts as unset, and whether it is printed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Zero, empty and absent are the same; printed unless zero.
    ZeroIsAbsent,
    /// Zero and absent are the same; printed always.
    Always,
    /// An explicit zero counts as set; once settled it has a value and is printed.
    Explicit,
    /// May stay unset; printed only when set.
    Optional,
}

/// The default of a field that depends on nothing else.
#[derive(Debug, Clone, Copy)]
pub enum DefaultRule {
    Zero,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Also durations and quantities, in their canonical form.
    Text(&'static str),
    TextList(&'static [&'static str]),
}

/// The field at a dotted path, through objects only.
pub fn field_at(path: &str) -> Option<&'static SchemaField> {
    let mut fields = KUBELET_CONFIGURATION;
    let mut found = None;
    for name in path.split('.') {
        let field = fields.iter().find(|field| field.name == name)?;
        found = Some(field);
        fields = match field.kind {
            FieldKind::Object(inner) => inner,
            _ => &[],
        };
    }
    found
}

impl FieldKind {
    /// What this kind expects, for messages.
    pub fn expectation(self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Int32 => format!("a whole number from {} to {}", i32::MIN, i32::MAX),
            Self::Int64 => "a whole number of 64 bits".to_owned(),
            Self::Uint32 => format!("a whole number from 0 to {}", u32::MAX),
            Self::Float => "a number".to_owned(),
            Self::Text => "a string".to_owned(),
            Self::Duration => "a duration as a string, such as \"1m30s\"".to_owned(),
            Self::DurationOrNanoseconds => {
                "a duration as a string, such as \"5s\", or a whole number of nanoseconds"
                    .to_owned()
            }
            Self::Quantity => "a quantity, such as \"100Mi\" or 1024".to_owned(),
            Self::Time => "a time as a string".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) | Self::Object(_) => "an object".to_owned(),
        }
    }
}
