//! What has to be done for each volume of a pod, from its specification.
//!
//! Rule: equal plans mean the same volume; nothing here reads or writes.

use container_setup::inputs::NodeSetupInputs;
use container_setup::memory_volumes;
use pod_manifest::with_default_tag;
use pod_model::pod::container::PullPolicy;
use pod_model::pod::resources::effective_limits;
use pod_model::pod::security::FsGroupChangePolicy;
use pod_model::pod::volume::ImageVolume;
use pod_model::pod::{Container, Pod, Volume, VolumeSource};
use ports::pod_host::{HostVolume, PayloadVolumeKind, VolumeOwnership};
use ports::runtime_objects::ImageSpec;
use std::collections::{BTreeMap, BTreeSet};
use volume_plan::{mount_points, sources};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum VolumePlan {
    /// The machine provides it.
    Host(HostVolume, VolumeOwnership),
    /// The agent writes it, from what the API has.
    Payload(PayloadPlan),
    /// The runtime mounts it.
    Image(Box<ImageSpec>),
    /// It cannot be set up, and why.
    Unsupported(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PayloadPlan {
    pub(super) kind: PayloadVolumeKind,
    pub(super) source: VolumeSource,
    pub(super) ownership: VolumeOwnership,
    /// Limit in bytes where it is in memory.
    pub(super) size: Option<u64>,
    pub(super) mount_points: Vec<String>,
}

/// An image that is a volume of a container.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequiredVolumeImage {
    pub(crate) image: String,
    pub(crate) policy: PullPolicy,
}

fn wanted(pod: &Pod, volume: &Volume, node: &NodeSetupInputs) -> VolumePlan {
    let name = volume.name.to_string();
    match &volume.source {
        None => VolumePlan::Host(HostVolume::EmptyDirectory { name }, ownership(pod)),
        Some(VolumeSource::EmptyDir(empty)) => {
            let size = empty.size_limit.as_ref().and_then(|size| u64::try_from(size.value()).ok());
            let made = match empty.medium.as_str() {
                "" => HostVolume::EmptyDirectory { name },
                "Memory" => HostVolume::MemoryDirectory {
                    name,
                    size: memory_volumes::size(pod, node, size),
                    huge_page_size: None,
                },
                medium if medium.starts_with("HugePages") => match huge_page_size(pod, medium) {
                    Ok(page_size) => {
                        let huge_page_size = Some(page_size);
                        HostVolume::MemoryDirectory { name, size, huge_page_size }
                    }
                    Err(why) => return VolumePlan::Unsupported(why),
                },
                medium => {
                    let why = format!("volume {name:?}: unknown medium {medium:?}");
                    return VolumePlan::Unsupported(why);
                }
            };
            VolumePlan::Host(made, ownership(pod))
        }
        Some(VolumeSource::HostPath(host)) => {
            let kind = host.kind.as_ref().map(ToString::to_string).unwrap_or_default();
            let path = host.path.to_string();
            // The host's own files keep their owner, whatever fsGroup is.
            VolumePlan::Host(HostVolume::HostPath { name, path, kind }, VolumeOwnership::default())
        }
        Some(VolumeSource::Image(image)) => image_plan(pod, &name, image, node),
        Some(source) => match sources::kind(source) {
            Some(kind) => VolumePlan::Payload(PayloadPlan {
                kind,
                source: source.clone(),
                ownership: ownership(pod),
                size: kind.is_in_memory().then(|| memory_volumes::size(pod, node, None)).flatten(),
                mount_points: mount_points::nested_in(pod, &name),
            }),
            None => VolumePlan::Unsupported(format!(
                "volume {name:?} is of kind {}, which this agent does not serve yet",
                source.field()
            )),
        },
    }
}

fn image_plan(pod: &Pod, name: &str, image: &ImageVolume, node: &NodeSetupInputs) -> VolumePlan {
    let Some(tagged) = with_default_tag(&image.reference).filter(|_| node.gates.image_volume)
    else {
        let why = format!("volume {name:?}: {:?} is no image to mount", image.reference);
        return VolumePlan::Unsupported(why);
    };
    let annotations = pod.metadata.annotations.iter();
    VolumePlan::Image(Box::new(ImageSpec {
        image: tagged,
        user_specified_image: image.reference.to_string(),
        runtime_handler: String::new(),
        annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_string())).collect(),
    }))
}

/// The images that a container mounts, each once.
pub(crate) fn image_volumes(pod: &Pod, container: &Container) -> Vec<RequiredVolumeImage> {
    let mut found: Vec<RequiredVolumeImage> = Vec::new();
    for volume in &pod.spec.volumes {
        let Some(VolumeSource::Image(image)) = &volume.source else { continue };
        let required =
            RequiredVolumeImage { image: image.reference.to_string(), policy: policy_of(image) };
        let is_mounted = container.volume_mounts.iter().any(|mount| mount.name == volume.name);
        if is_mounted && !image.reference.is_empty() && !found.contains(&required) {
            found.push(required);
        }
    }
    found
}

/// The API server fills it in; a manifest on the node may leave it out.
fn policy_of(image: &ImageVolume) -> PullPolicy {
    if !image.pull_policy.as_str().is_empty() {
        return image.pull_policy.clone();
    }
    match with_default_tag(&image.reference) {
        Some(tagged) if !tagged.ends_with(":latest") => PullPolicy::IfNotPresent,
        _ => PullPolicy::Always,
    }
}

fn ownership(pod: &Pod) -> VolumeOwnership {
    let context = pod.spec.security_context.as_deref();
    let policy = context.and_then(|context| context.fs_group_change_policy.as_ref());
    VolumeOwnership {
        group: context.and_then(|context| context.fs_group),
        only_when_root_differs: policy == Some(&FsGroupChangePolicy::OnRootMismatch),
    }
}

/// `HugePages-2Mi` names the size; `HugePages` alone means the only one that the pod requests.
fn huge_page_size(pod: &Pod, medium: &str) -> Result<String, String> {
    if let Some(size) = medium.strip_prefix("HugePages-") {
        return Ok(size.to_owned());
    }
    let limits = effective_limits(&pod.spec);
    let sizes: Vec<&str> =
        limits.keys().filter_map(|name| name.strip_prefix("hugepages-")).collect();
    match sizes.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err("medium HugePages, but no container asks for huge pages".to_owned()),
        _ => Err("medium HugePages needs a page size: the pod asks for several".to_owned()),
    }
}

/// The volumes that some container uses. The others are never set up: a pod runs without the Secret
/// of a volume that nothing mounts.
///
/// upstream: pkg/kubelet/volumemanager/populator
fn used(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (_, _, container) in pod.spec.all_containers() {
        names.extend(container.volume_mounts.iter().map(|mount| &*mount.name));
        names.extend(container.volume_devices.iter().map(|device| &*device.name));
    }
    pod.spec.volumes.iter().filter(move |volume| names.contains(&*volume.name))
}

/// Names of the pod's volumes that are used.
pub(crate) fn names(pod: &Pod) -> Vec<String> {
    used(pod).map(|volume| volume.name.to_string()).collect()
}

/// All volumes of a pod that are used.
pub(crate) fn all(pod: &Pod, node: &NodeSetupInputs) -> Vec<(String, VolumePlan)> {
    used(pod).map(|volume| (volume.name.to_string(), wanted(pod, volume, node))).collect()
}

/// Whether some volume's content changes while the pod runs.
pub(crate) fn are_updated(pod: &Pod) -> bool {
    let mut sources = used(pod).filter_map(|volume| volume.source.as_ref());
    sources.any(|source| sources::kind(source).is_some())
}

/// Names of the volumes that are equal in two versions of a pod.
pub(crate) fn same(one: &Pod, other: &Pod, node: &NodeSetupInputs) -> BTreeSet<String> {
    let known: BTreeMap<String, VolumePlan> = all(one, node).into_iter().collect();
    let volumes = all(other, node).into_iter();
    volumes.filter(|(name, wanted)| known.get(name) == Some(wanted)).map(|(name, _)| name).collect()
}
