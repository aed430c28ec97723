//! Typed access to a document's maps; errors name the location and hide the value.

use document::{Node, Value};

use super::{Entries, KubeconfigError};

/// The fields of one map.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    entries: &'a Entries,
    place: String,
    path: String,
}

impl<'a> Fields<'a> {
    pub(super) fn of(node: &'a Node, path: &str) -> Result<Self, KubeconfigError> {
        match &node.value {
            Value::Map(entries) => {
                Ok(Self { entries, place: node.origin.to_string(), path: path.to_owned() })
            }
            _ => Err(KubeconfigError {
                place: node.origin.to_string(),
                field: if path.is_empty() { "kubeconfig" } else { path }.to_owned(),
                problem: "expected a map".to_owned(),
            }),
        }
    }

    pub(super) fn path(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    pub(super) fn wrong(&self, field: &str, problem: &str) -> KubeconfigError {
        let place = self.entries.get(field).map(|node| node.origin.to_string());
        KubeconfigError {
            place: place.unwrap_or_else(|| self.place.clone()),
            field: self.path(field),
            problem: problem.to_owned(),
        }
    }

    pub(super) fn refuse(&self, field: &str, why: &str) -> Result<(), KubeconfigError> {
        match self.node(field).map(|node| &node.value) {
            None => Ok(()),
            Some(Value::String(text)) if text.is_empty() => Ok(()),
            Some(_) => Err(self.wrong(field, why)),
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
            Some(_) => Err(self.wrong(field, "expected text")),
        }
    }

    pub(super) fn needed(&self, field: &str) -> Result<String, KubeconfigError> {
        self.text(field)?.ok_or_else(|| self.wrong(field, "is needed"))
    }

    pub(super) fn flag(&self, field: &str) -> Result<bool, KubeconfigError> {
        match self.node(field).map(|node| &node.value) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(field, "expected true or false")),
        }
    }

    pub(super) fn list(&self, field: &str) -> Result<&'a [Node], KubeconfigError> {
        match self.node(field).map(|node| &node.value) {
            None => Ok(&[]),
            Some(Value::List(items)) => Ok(items),
            Some(_) => Err(self.wrong(field, "expected a list")),
        }
    }

    pub(super) fn texts(&self, field: &str) -> Result<Vec<String>, KubeconfigError> {
        let text = |node: &Node| match &node.value {
            Value::String(text) => Ok(text.clone()),
            _ => Err(self.wrong(field, "expected a list of texts")),
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
                return entry.fields(inner)?.ok_or_else(|| entry.wrong(inner, "is needed"));
            }
        }
        Err(self.wrong(list, &format!("has no entry named {name:?}")))
    }
}
