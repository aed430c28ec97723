//! References of a static pod to API objects, which are not allowed.
//!
//! The rule it keeps: the first reference in the reference's order is named; an unknown source
//! counts as one, since what it needs is not known.

use pod_model::pod::container::Container;
use pod_model::pod::volume::VolumeProjection;
use pod_model::pod::{Pod, Volume, VolumeSource};

/// A reference to an API object: what it is, and the field that makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiReference {
    pub resource: &'static str,
    pub field: String,
}

/// The first reference to an API object in a pod.
pub fn api_reference(pod: &Pod) -> Option<ApiReference> {
    let spec = &pod.spec;
    let found = |resource, field: String| Some(ApiReference { resource, field });
    if !spec.service_account_name.is_empty() {
        return found("serviceaccounts", "spec.serviceAccountName".to_owned());
    }
    if let Some(at) = spec.image_pull_secrets.iter().position(|each| !each.name.is_empty()) {
        return found("secrets", format!("spec.imagePullSecrets[{at}]"));
    }
    let in_containers = |of: fn(&Container) -> Option<String>| {
        spec.all_containers().find_map(|(list, at, container)| {
            of(container).map(|field| format!("spec.{}[{at}].{field}", list.field()))
        })
    };
    let in_volumes = |of: fn(&VolumeSource) -> bool| {
        let uses = |volume: &Volume| volume.source.as_ref().is_some_and(of);
        spec.volumes.iter().position(uses).map(|at| format!("spec.volumes[{at}]"))
    };
    if let Some(field) = in_containers(container_secret).or_else(|| in_volumes(names_secret)) {
        return found("secrets", field);
    }
    if let Some(field) =
        in_containers(container_config_map).or_else(|| in_volumes(names_config_map))
    {
        return found("configmaps", field);
    }
    claim_or_volume(pod, |_| true)
}

/// The first reference to an API object that is neither a ConfigMap nor a Secret.
pub fn reference_beyond_contents(pod: &Pod) -> Option<ApiReference> {
    if !pod.spec.service_account_name.is_empty() {
        let field = "spec.serviceAccountName".to_owned();
        return Some(ApiReference { resource: "serviceaccounts", field });
    }
    claim_or_volume(pod, |resource| {
        !matches!(
            resource,
            CONFIG_MAP_VOLUME | SECRET_VOLUME | CONFIG_MAP_PROJECTION | SECRET_PROJECTION
        )
    })
}

const CONFIG_MAP_VOLUME: &str = "configmaps (via configmap volumes)";
const SECRET_VOLUME: &str = "secrets (via secret volumes)";
const CONFIG_MAP_PROJECTION: &str = "configmaps (via projected volumes)";
const SECRET_PROJECTION: &str = "secrets (via projected volumes)";

fn claim_or_volume(pod: &Pod, counts: fn(&str) -> bool) -> Option<ApiReference> {
    let spec = &pod.spec;
    if !spec.resource_claims.is_empty() {
        let field = "spec.resourceClaims".to_owned();
        return Some(ApiReference { resource: "resourceclaims", field });
    }
    spec.volumes.iter().enumerate().find_map(|(at, volume)| {
        let (resource, inner) = volume_reference(volume.source.as_ref()?, counts)?;
        Some(ApiReference { resource, field: format!("spec.volumes[{at}].{inner}") })
    })
}

fn container_secret(container: &Container) -> Option<String> {
    let from = container.env_from.iter().position(|each| {
        each.secret_ref.as_ref().is_some_and(|reference| !reference.name.is_empty())
    });
    let one = || {
        container.env.iter().position(|each| {
            let source = each.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref());
            source.is_some_and(|reference| !reference.name.is_empty())
        })
    };
    from.map(|at| format!("envFrom[{at}]")).or_else(|| one().map(|at| format!("env[{at}]")))
}

fn container_config_map(container: &Container) -> Option<String> {
    let from = container.env_from.iter().position(|each| {
        each.config_map_ref.as_ref().is_some_and(|reference| !reference.name.is_empty())
    });
    let one = || {
        container.env.iter().position(|each| {
            let source = each.value_from.as_ref().and_then(|from| from.config_map_key_ref.as_ref());
            source.is_some_and(|reference| !reference.name.is_empty())
        })
    };
    from.map(|at| format!("envFrom[{at}]")).or_else(|| one().map(|at| format!("env[{at}]")))
}

fn names_secret(source: &VolumeSource) -> bool {
    let reference = match source {
        VolumeSource::AzureFile(file) => return !file.secret_name.is_empty(),
        VolumeSource::Secret(secret) => return !secret.secret_name.is_empty(),
        VolumeSource::Projected(projected) => {
            let secret = |each: &VolumeProjection| each.secret.as_ref().map(|it| it.name.clone());
            return projected.sources.iter().filter_map(secret).any(|name| !name.is_empty());
        }
        VolumeSource::CephFs(volume) => &volume.secret_ref,
        VolumeSource::Cinder(volume) => &volume.secret_ref,
        VolumeSource::FlexVolume(volume) => &volume.secret_ref,
        VolumeSource::Rbd(volume) => &volume.secret_ref,
        VolumeSource::ScaleIo(volume) => &volume.secret_ref,
        VolumeSource::Iscsi(volume) => &volume.secret_ref,
        VolumeSource::StorageOs(volume) => &volume.secret_ref,
        VolumeSource::Csi(volume) => &volume.node_publish_secret_ref,
        _ => return false,
    };
    reference.as_ref().is_some_and(|reference| !reference.name.is_empty())
}

fn names_config_map(source: &VolumeSource) -> bool {
    match source {
        VolumeSource::ConfigMap(map) => !map.name.is_empty(),
        VolumeSource::Projected(projected) => {
            let map = |each: &VolumeProjection| each.config_map.as_ref().map(|it| it.name.clone());
            projected.sources.iter().filter_map(map).any(|name| !name.is_empty())
        }
        _ => false,
    }
}

/// The API object that a volume refers to, and its field.
fn volume_reference(
    source: &VolumeSource,
    counts: fn(&str) -> bool,
) -> Option<(&'static str, String)> {
    let resource = match source {
        VolumeSource::ConfigMap(_) => CONFIG_MAP_VOLUME,
        VolumeSource::Secret(_) => SECRET_VOLUME,
        VolumeSource::Csi(_) => "csidrivers (via CSI volumes)",
        VolumeSource::Glusterfs(_) => "endpoints (via glusterFS volumes)",
        VolumeSource::PersistentVolumeClaim(_) => "persistentvolumeclaims",
        VolumeSource::Ephemeral(_) => "persistentvolumeclaims (via ephemeral volumes)",
        VolumeSource::AzureFile(_) => "secrets (via azureFile volumes)",
        VolumeSource::Projected(projected) => {
            return projected.sources.iter().enumerate().find_map(|(at, each)| {
                let resource = projection_reference(each).filter(|resource| counts(resource))?;
                Some((resource, format!("projected.sources[{at}]")))
            });
        }
        _ => return None,
    };
    counts(resource).then(|| (resource, source.field().to_owned()))
}

fn projection_reference(projection: &VolumeProjection) -> Option<&'static str> {
    if projection.config_map.is_some() {
        Some(CONFIG_MAP_PROJECTION)
    } else if projection.secret.is_some() {
        Some(SECRET_PROJECTION)
    } else if projection.service_account_token.is_some() {
        Some("serviceaccounts (via projected volumes)")
    } else if projection.cluster_trust_bundle.is_some() {
        Some("clustertrustbundles")
    } else if projection.pod_certificate.is_some() {
        Some("podcertificates")
    } else if projection.downward_api.is_some() {
        None
    } else {
        Some("a source of an unknown kind")
    }
}
