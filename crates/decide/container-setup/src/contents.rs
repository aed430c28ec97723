//! ConfigMaps and Secrets that a container's variables come from.
//!
//! Rule: what is needed is said before ([`wanted`]) and given as a value; what could not be had is
//! told with the reference's words. Where nobody can be asked (no API server) every reference is
//! refused, an optional one too.
//!
//! upstream: pkg/kubelet/kubelet_pods.go

use std::collections::{BTreeMap, BTreeSet};

use pod_model::pod::Container;

use crate::{SetupError, refuse};

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentKind {
    ConfigMap,
    Secret,
}

/// What came of asking for one.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    Found(BTreeMap<String, Vec<u8>>),
    NotFound,
    /// With the text of what went wrong.
    Failed(String),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Found(data) => out.debug_set().entries(data.keys()).finish(),
            Self::NotFound => out.write_str("NotFound"),
            Self::Failed(why) => out.debug_tuple("Failed").field(why).finish(),
        }
    }
}

/// What was had of what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// Whether there is anybody to ask.
    pub has_source: bool,
    pub found: BTreeMap<(ContentKind, String), Content>,
}

/// The names in the pod's namespace that the container's variables refer to.
pub fn wanted(container: &Container) -> BTreeSet<(ContentKind, String)> {
    use ContentKind::{ConfigMap, Secret};
    let mut names = BTreeSet::new();
    let mut want = |kind, name: &str| names.insert((kind, name.to_owned()));
    for from in &container.env_from {
        if let Some(reference) = &from.config_map_ref {
            want(ConfigMap, &reference.name);
        } else if let Some(reference) = &from.secret_ref {
            want(Secret, &reference.name);
        }
    }
    for variable in container.env.iter().filter(|variable| variable.value.is_empty()) {
        let Some(source) = &variable.value_from else { continue };
        if let Some(key) = &source.config_map_key_ref {
            want(ConfigMap, &key.name);
        }
        if let Some(key) = &source.secret_key_ref {
            want(Secret, &key.name);
        }
    }
    names
}

/// One reference to a ConfigMap or a Secret.
#[derive(Clone, Copy)]
pub(crate) struct Reference<'a> {
    pub(crate) kind: ContentKind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) optional: bool,
}

impl Reference<'_> {
    /// All of it; None where it may be missing and is.
    pub(crate) fn data<'c>(
        &self,
        contents: &'c Contents,
    ) -> Result<Option<&'c BTreeMap<String, Vec<u8>>>, SetupError> {
        let Self { kind, namespace, name, optional } = *self;
        let (in_sentence, resource) = match kind {
            ContentKind::ConfigMap => ("configMap", "configmap"),
            ContentKind::Secret => ("secret", "secret"),
        };
        if !contents.has_source {
            refuse!("couldn't get {in_sentence} {namespace}/{name}, no kubeClient defined");
        }
        match contents.found.get(&(kind, name.to_owned())) {
            Some(Content::Found(data)) => Ok(Some(data)),
            Some(Content::NotFound) if optional => Ok(None),
            Some(Content::NotFound) => refuse!("{resource} {name:?} not found"),
            Some(Content::Failed(why)) => refuse!("{why}"),
            None => refuse!("{resource} {name:?} has not been read yet"),
        }
    }

    /// One key of it; None where it may be missing and is.
    pub(crate) fn value(
        &self,
        contents: &Contents,
        key: &str,
    ) -> Result<Option<String>, SetupError> {
        let Some(data) = self.data(contents)? else { return Ok(None) };
        match data.get(key) {
            Some(bytes) => self.text(key, bytes).map(Some),
            None if self.optional => Ok(None),
            None => {
                let kind = match self.kind {
                    ContentKind::ConfigMap => "ConfigMap",
                    ContentKind::Secret => "Secret",
                };
                refuse!("couldn't find key {key} in {kind} {}/{}", self.namespace, self.name)
            }
        }
    }

    /// A variable is a text without a zero byte; anything else would become another value.
    pub(crate) fn text(&self, key: &str, bytes: &[u8]) -> Result<String, SetupError> {
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
            _ => refuse!(
                "key {key} of {}/{}: not a text that an environment variable can hold",
                self.namespace,
                self.name
            ),
        }
    }
}
