//! ConfigMaps and Secrets that a container's environment variables come from.
//!
//! Rule: the caller first lists the references ([`wanted`]), fetches the objects and passes their
//! contents in. An object that could not be fetched is reported with the kubelet's message. Without
//! an API server an optional object counts as missing and any other is an error; the kubelet
//! rejects both.
//!
//! upstream: pkg/kubelet/kubelet_pods.go

use std::collections::{BTreeMap, BTreeSet};

use pod_model::pod::Container;
use ports::{ContentData, ContentError, ContentKind};

use crate::{SetupError, refuse};

#[cfg(test)]
mod tests;

/// The results of fetching the objects, by kind and name in the pod's namespace.
pub type Contents = BTreeMap<(ContentKind, String), Result<ContentData, ContentError>>;

/// The objects in the pod's namespace that the container's environment variables refer to.
pub fn wanted(container: &Container) -> BTreeSet<(ContentKind, String)> {
    use ContentKind::{ConfigMap, Secret};
    let mut names = BTreeSet::new();
    let mut add_name = |kind, name: &str| names.insert((kind, name.to_owned()));
    for from in &container.env_from {
        if let Some(reference) = &from.config_map_ref {
            add_name(ConfigMap, &reference.name);
        } else if let Some(reference) = &from.secret_ref {
            add_name(Secret, &reference.name);
        }
    }
    for variable in container.env.iter().filter(|variable| variable.value.is_empty()) {
        let Some(source) = &variable.value_from else { continue };
        if let Some(key) = &source.config_map_key_ref {
            add_name(ConfigMap, &key.name);
        }
        if let Some(key) = &source.secret_key_ref {
            add_name(Secret, &key.name);
        }
    }
    names
}

/// One reference to a ConfigMap or a Secret.
#[derive(Clone, Copy)]
pub(crate) struct ContentReference<'a> {
    pub(crate) kind: ContentKind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) optional: bool,
}

impl ContentReference<'_> {
    /// All data of the object; `None` if it is optional and missing.
    pub(crate) fn data<'c>(
        &self,
        contents: &'c Contents,
    ) -> Result<Option<&'c BTreeMap<String, Vec<u8>>>, SetupError> {
        let Self { kind, namespace, name, optional } = *self;
        let (camel_case, resource) = match kind {
            ContentKind::ConfigMap => ("configMap", "configmap"),
            ContentKind::Secret => ("secret", "secret"),
        };
        match contents.get(&(kind, name.to_owned())) {
            Some(Ok(ContentData(data))) => Ok(Some(data)),
            Some(Err(ContentError::NotFound | ContentError::NoSource(_))) if optional => Ok(None),
            Some(Err(ContentError::NotFound)) => refuse!("{resource} {name:?} not found"),
            Some(Err(ContentError::NoSource(why))) => refuse!(
                "couldn't get {camel_case} {namespace}/{name}, no kubeClient defined: {why}"
            ),
            Some(Err(ContentError::Failed(why) | ContentError::Forbidden(why))) => refuse!("{why}"),
            None => refuse!("{resource} {name:?} has not been read yet"),
        }
    }

    /// The value of one key; `None` if it is optional and missing.
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

    /// The value as text. A NUL byte, or bytes that are not UTF-8, are an error: the container
    /// would not get them unchanged.
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
