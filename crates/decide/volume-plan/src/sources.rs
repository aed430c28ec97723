//! The objects, tokens and fields that a volume is made from.
//!
//! Rule: the first source of a projection counts, as upstream looks at them. A projection with the
//! gates ClusterTrustBundleProjection and PodCertificateRequest off, as they are, has upstream's
//! error.

use std::collections::BTreeSet;

use pod_model::pod::volume::{TokenProjection, VolumeProjection};
use pod_model::pod::{Pod, VolumeSource};
use ports::ContentKind;
use ports::pod_host::PayloadVolumeKind;

#[cfg(test)]
mod tests;

/// A kind of token; volumes and projections that want the same one share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenKey {
    pub audience: Option<String>,
    pub expiration_seconds: Option<i64>,
}

impl From<&TokenProjection> for TokenKey {
    fn from(projection: &TokenProjection) -> Self {
        let audience = Some(projection.audience.to_string()).filter(|name| !name.is_empty());
        Self { audience, expiration_seconds: projection.expiration_seconds }
    }
}

/// What a volume needs before its files can be made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PayloadSources {
    /// In the pod's namespace.
    pub objects: BTreeSet<(ContentKind, String)>,
    pub tokens: BTreeSet<TokenKey>,
    /// Its files change with the pod's own metadata and resources.
    pub uses_pod: bool,
}

/// None for a volume of another kind.
pub fn kind(source: &VolumeSource) -> Option<PayloadVolumeKind> {
    match source {
        VolumeSource::ConfigMap(_) => Some(PayloadVolumeKind::ConfigMap),
        VolumeSource::Secret(_) => Some(PayloadVolumeKind::Secret),
        VolumeSource::DownwardApi(_) => Some(PayloadVolumeKind::DownwardApi),
        VolumeSource::Projected(_) => Some(PayloadVolumeKind::Projected),
        _ => None,
    }
}

pub fn of(source: &VolumeSource) -> PayloadSources {
    let mut found = PayloadSources::default();
    match source {
        VolumeSource::ConfigMap(map) => {
            found.objects.insert((ContentKind::ConfigMap, map.name.to_string()));
        }
        VolumeSource::Secret(secret) => {
            found.objects.insert((ContentKind::Secret, secret.secret_name.to_string()));
        }
        VolumeSource::DownwardApi(_) => found.uses_pod = true,
        VolumeSource::Projected(projected) => {
            for projection in &projected.sources {
                add(projection, &mut found);
            }
        }
        _ => {}
    }
    found
}

fn add(projection: &VolumeProjection, found: &mut PayloadSources) {
    if let Some(secret) = &projection.secret {
        found.objects.insert((ContentKind::Secret, secret.name.to_string()));
    } else if let Some(map) = &projection.config_map {
        found.objects.insert((ContentKind::ConfigMap, map.name.to_string()));
    } else if projection.downward_api.is_some() {
        found.uses_pod = true;
    } else if let Some(token) = &projection.service_account_token {
        found.tokens.insert(TokenKey::from(&**token));
    }
}

/// The objects that a pod's volumes are made from.
pub fn objects_of_pod(pod: &Pod) -> BTreeSet<(ContentKind, String)> {
    let sources = pod.spec.volumes.iter().filter_map(|volume| volume.source.as_ref());
    sources.flat_map(|source| of(source).objects).collect()
}
