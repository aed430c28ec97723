//! The ConfigMaps and Secrets that a pod refers to.
//!
//! The rule it keeps: an object is required if one reference to it is not optional. Pull secrets are
//! never required: a pull is attempted without a missing one.

use pod_model::pod::container::{EnvFromSource, EnvVar};
use pod_model::pod::volume::VolumeProjection;
use pod_model::pod::{Pod, VolumeSource};
use ports::ContentKind;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// An object in the pod's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReferencedContent {
    pub kind: ContentKind,
    pub name: String,
    pub is_required: bool,
}

/// Each object once.
pub fn content_references(pod: &Pod) -> Vec<ReferencedContent> {
    let mut found = References::default();
    for (_, _, container) in pod.spec.all_containers() {
        container.env_from.iter().for_each(|from| found.add_all_keys(from));
        container.env.iter().for_each(|variable| found.add_key(variable));
    }
    for source in pod.spec.volumes.iter().filter_map(|volume| volume.source.as_ref()) {
        found.add_volume(source);
    }
    for secret in &pod.spec.image_pull_secrets {
        found.add(ContentKind::Secret, &secret.name, Some(true));
    }
    let found = found.0.into_iter();
    found.map(|((kind, name), is_required)| ReferencedContent { kind, name, is_required }).collect()
}

/// Whether each is required.
#[derive(Default)]
struct References(BTreeMap<(ContentKind, String), bool>);

impl References {
    fn add(&mut self, kind: ContentKind, name: &str, optional: Option<bool>) {
        if !name.is_empty() {
            let is_required = self.0.entry((kind, name.to_owned())).or_default();
            *is_required |= optional != Some(true);
        }
    }

    fn add_all_keys(&mut self, from: &EnvFromSource) {
        if let Some(map) = &from.config_map_ref {
            self.add(ContentKind::ConfigMap, &map.name, map.optional);
        }
        if let Some(secret) = &from.secret_ref {
            self.add(ContentKind::Secret, &secret.name, secret.optional);
        }
    }

    fn add_key(&mut self, variable: &EnvVar) {
        let Some(source) = &variable.value_from else { return };
        if let Some(key) = &source.config_map_key_ref {
            self.add(ContentKind::ConfigMap, &key.name, key.optional);
        }
        if let Some(key) = &source.secret_key_ref {
            self.add(ContentKind::Secret, &key.name, key.optional);
        }
    }

    fn add_volume(&mut self, source: &VolumeSource) {
        match source {
            VolumeSource::ConfigMap(map) => {
                self.add(ContentKind::ConfigMap, &map.name, map.optional);
            }
            VolumeSource::Secret(secret) => {
                self.add(ContentKind::Secret, &secret.secret_name, secret.optional);
            }
            VolumeSource::Projected(projected) => {
                projected.sources.iter().for_each(|projection| self.add_projection(projection));
            }
            _ => {}
        }
    }

    fn add_projection(&mut self, projection: &VolumeProjection) {
        if let Some(map) = &projection.config_map {
            self.add(ContentKind::ConfigMap, &map.name, map.optional);
        }
        if let Some(secret) = &projection.secret {
            self.add(ContentKind::Secret, &secret.name, secret.optional);
        }
    }
}
