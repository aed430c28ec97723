//! A container's environment variables.
//!
//! Rule: `envFrom` first, then `env` in its order, each entry seeing those before it; a later value
//! replaces an earlier one. Service variables can be referred to and come last. The order is that
//! of the first mention (the reference's is random).
//!
//! upstream: pkg/kubelet/kubelet_pods.go

use std::collections::BTreeMap;

use pod_model::pod::container::{EnvFromSource, EnvVar};
use pod_model::pod::{Container, Pod};
use ports::ContentKind;

use crate::contents::ContentReference;
use crate::inputs::{ContainerSetupInputs, NodeSetupInputs};
use crate::{SetupError, env_file, expansion, fields, refuse, resource_fields};

#[cfg(test)]
mod tests;

/// The inputs of one container's variables.
#[derive(Clone, Copy)]
pub struct EnvironmentSource<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub node: &'a NodeSetupInputs,
    pub facts: &'a ContainerSetupInputs,
}

/// The variables, those of devices first.
pub fn make(source: &EnvironmentSource<'_>) -> Result<Vec<(String, String)>, SetupError> {
    let mut values = EnvironmentValues::default();
    for from in &source.container.env_from {
        for (name, value) in from_content(source, from)? {
            values.put(&name, value);
        }
    }
    for variable in &source.container.env {
        if let Some(value) = value_of(source, variable, &values)? {
            values.put(&variable.name, value);
        }
    }
    let services = source.facts.service_environment.iter();
    let left: Vec<_> = services.filter(|(name, _)| values.get(name).is_none()).collect();
    let mut all = source.facts.given.env.clone();
    all.extend(values.entries);
    all.extend(left.into_iter().map(|(name, value)| (name.clone(), value.clone())));
    Ok(all)
}

/// The files that must be read before [`make`], as volume and path; their contents go into
/// [`ContainerSetupInputs::env_files`].
pub fn wanted_files(container: &Container) -> Vec<(String, String)> {
    let sources = container.env.iter().filter(|variable| variable.value.is_empty());
    let files = sources.filter_map(|variable| variable.value_from.as_ref()?.file_key_ref.as_ref());
    files.map(|file| (file.volume_name.to_string(), file.path.to_string())).collect()
}

/// Names with their values in the order of their first mention.
#[derive(Default)]
struct EnvironmentValues {
    entries: Vec<(String, String)>,
    places: BTreeMap<String, usize>,
}

impl EnvironmentValues {
    fn get(&self, name: &str) -> Option<&str> {
        let entry = self.entries.get(*self.places.get(name)?)?;
        Some(entry.1.as_str())
    }

    fn put(&mut self, name: &str, value: String) {
        match self.places.get(name).and_then(|place| self.entries.get_mut(*place)) {
            Some(entry) => entry.1 = value,
            None => {
                self.places.insert(name.to_owned(), self.entries.len());
                self.entries.push((name.to_owned(), value));
            }
        }
    }
}

fn from_content(
    source: &EnvironmentSource<'_>,
    from: &EnvFromSource,
) -> Result<Vec<(String, String)>, SetupError> {
    let (kind, reference) = match (&from.config_map_ref, &from.secret_ref) {
        (Some(reference), _) => (ContentKind::ConfigMap, reference),
        (None, Some(reference)) => (ContentKind::Secret, reference),
        (None, None) => return Ok(Vec::new()),
    };
    let reference = ContentReference {
        kind,
        namespace: &source.pod.metadata.namespace,
        name: &reference.name,
        optional: reference.optional == Some(true),
    };
    let Some(data) = reference.data(&source.facts.contents)? else { return Ok(Vec::new()) };
    let entries = data
        .iter()
        .map(|(key, bytes)| Ok((format!("{}{key}", from.prefix), reference.text(key, bytes)?)));
    entries.collect()
}

/// None where the variable is left out: an optional source that is not there.
fn value_of(
    source: &EnvironmentSource<'_>,
    variable: &EnvVar,
    values: &EnvironmentValues,
) -> Result<Option<String>, SetupError> {
    if !variable.value.is_empty() {
        let services = &source.facts.service_environment;
        let known = |name: &str| {
            values.get(name).map(ToOwned::to_owned).or_else(|| services.get(name).cloned())
        };
        return Ok(Some(expansion::expand(&variable.value, known)));
    }
    let Some(from) = &variable.value_from else { return Ok(Some(String::new())) };
    let namespace = &*source.pod.metadata.namespace;
    if let Some(field) = &from.field_ref {
        return fields::value(field, source.pod, source.node, &source.facts.pod_ips).map(Some);
    }
    if let Some(resource) = &from.resource_field_ref {
        return resource_fields::value(resource, source.pod, source.container, source.node)
            .map(Some);
    }
    let key = match (&from.config_map_key_ref, &from.secret_key_ref) {
        (Some(key), _) => Some((ContentKind::ConfigMap, key)),
        (None, Some(key)) => Some((ContentKind::Secret, key)),
        (None, None) => None,
    };
    if let Some((kind, selector)) = key {
        let optional = selector.optional == Some(true);
        let reference = ContentReference { kind, namespace, name: &selector.name, optional };
        return reference.value(&source.facts.contents, &selector.key);
    }
    match &from.file_key_ref {
        Some(file) if source.node.gates.env_files => from_file(source, file),
        _ => Ok(Some(String::new())),
    }
}

fn from_file(
    source: &EnvironmentSource<'_>,
    file: &pod_model::pod::container::FileKeySelector,
) -> Result<Option<String>, SetupError> {
    let volume = &*file.volume_name;
    let Some(ready) = source.facts.volumes.get(volume) else {
        refuse!("cannot find the volume {volume:?} referenced by FileKeyRef");
    };
    let place = (volume.to_owned(), file.path.to_string());
    let content = source.facts.env_files.get(&place);
    let Some(Ok(value)) = content.map(|bytes| env_file::value(bytes, &file.key)) else {
        refuse!("couldn't parse env file");
    };
    if !value.is_empty() {
        return Ok(Some(value));
    }
    if file.optional == Some(true) {
        return Ok(None);
    }
    let path = format!("{}/{}", ready.path, file.path.trim_start_matches('/'));
    refuse!("environment variable key {:?} not found in file {path:?}", file.key)
}
