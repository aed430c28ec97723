//! Typed access to a kubeconfig's maps; errors name the location and never the value.

use document::{Node, Value};

use super::{Entries, KubeconfigError};

/// The fields of one map.
#[derive(Debug, Clone)]
pub(super) struct KubeconfigFields<'a> {
    entries: &'a Entries,
    location: String,
    path: String,
}

impl<'a> KubeconfigFields<'a> {
    pub(super) fn of(node: &'a Node, path: &str) -> Result<Self, KubeconfigError> {
        match &node.value {
            Value::Map(entries) => {
                Ok(Self { entries, location: node.origin.to_string(), path: path.to_owned() })
            }
            _ => Err(KubeconfigError {
                location: node.origin.to_string(),
                field: if path.is_empty() { "kubeconfig" } else { path }.to_owned(),
                message: "expected a map".to_owned(),
            }),
        }
    }

    pub(super) fn path(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    pub(super) fn invalid(&self, field: &str, message: &str) -> KubeconfigError {
        let location = self.entries.get(field).map(|node| node.origin.to_string());
        KubeconfigError {
            location: location.unwrap_or_else(|| self.location.clone()),
            field: self.path(field),
            message: message.to_owned(),
        }
    }

    pub(super) fn reject(&self, field: &str, reason: &str) -> Result<(), KubeconfigError> {
        match self.node(field).map(|node| &node.value) {
            None => Ok(()),
            Some(Value::String(text)) if text.is_empty() => Ok(()),
            Some(_) => Err(self.invalid(field, reason)),
        }
    }

    /// The field's value, unless it is null.
    pub(super) fn node(&self, field: &str) -> Option<&'a Node> {
        self.entries.get(field).filter(|node| node.value != Value::Null)
    }

    /// `None` if it is absent or empty.
    pub(super) fn text(&self, field: &str) -> Result<Option<String>, KubeconfigError> {
        match self.node(field).map(|node| &node.value) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.invalid(field, "expected text")),
        }
    }

    pub(super) fn required(&self, field: &str) -> Result<String, KubeconfigError> {
        self.text(field)?.ok_or_else(|| self.invalid(field, "is needed"))
    }

    pub(super) fn flag(&self, field: &str) -> Result<bool, KubeconfigError> {
        match self.node(field).map(|node| &node.value) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.invalid(field, "expected true or false")),
        }
    }

    pub(super) fn list(&self, field: &str) -> Result<&'a [Node], KubeconfigError> {
        match self.node(field).map(|node| &node.value) {
            None => Ok(&[]),
            Some(Value::List(items)) => Ok(items),
            Some(_) => Err(self.invalid(field, "expected a list")),
        }
    }

    pub(super) fn texts(&self, field: &str) -> Result<Vec<String>, KubeconfigError> {
        let text = |node: &Node| match &node.value {
            Value::String(text) => Ok(text.clone()),
            _ => Err(self.invalid(field, "expected a list of texts")),
        };
        self.list(field)?.iter().map(text).collect()
    }

    /// A map of lists of strings, as one pair for each string.
    pub(super) fn lists(&self, field: &str) -> Result<Vec<(String, String)>, KubeconfigError> {
        let Some(map) = self.fields(field)? else { return Ok(Vec::new()) };
        let mut pairs = Vec::new();
        for key in map.entries.keys() {
            pairs.extend(map.texts(key)?.into_iter().map(|text| (key.clone(), text)));
        }
        Ok(pairs)
    }

    pub(super) fn fields(&self, field: &str) -> Result<Option<Self>, KubeconfigError> {
        self.node(field).map(|node| Self::of(node, &self.path(field))).transpose()
    }

    /// The entry of that name in a list such as `clusters`, whose content is under `inner`.
    pub(super) fn named(
        &self,
        list: &str,
        inner: &str,
        name: &str,
    ) -> Result<Self, KubeconfigError> {
        for (index, entry) in self.list(list)?.iter().enumerate() {
            let entry = Self::of(entry, &self.path(&format!("{list}[{index}]")))?;
            if entry.text("name")?.as_deref() == Some(name) {
                return entry.fields(inner)?.ok_or_else(|| entry.invalid(inner, "is needed"));
            }
        }
        Err(self.invalid(list, &format!("has no entry named {name:?}")))
    }
}
