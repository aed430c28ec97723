//! A pod's volumes: from its specification to directories that containers can mount.
//!
//! Rules: each volume is set up on its own; a failed one is retried with growing delays and delays
//! only its pod. A volume type that is not supported yet is an error and is retried too, as nothing
//! else could be done. `wanted` knows the types; the driver sets them up.

use crate::back_off::ExponentialBackOff;
use crate::worker_events::{WorkerEvent, WorkerEventSender};
use container_setup::inputs::{NodeSetupInputs, ReadyVolume};
use container_setup::memory_volumes;
use pod_lifecycle::{EventType, PodEvent};
use pod_model::pod::resources::effective_limits;
use pod_model::pod::security::FsGroupChangePolicy;
use pod_model::pod::{Pod, Volume, VolumeSource};
use ports::pod_host::{HostVolume, VolumeDriver, VolumeOwnership};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(122);
/// The driver's own deadlines are shorter.
const SET_UP_TIMEOUT: Duration = Duration::from_secs(600);

/// By name.
pub(crate) type ReadyVolumes = BTreeMap<String, ReadyVolume>;

/// A volume as the driver needs it, or why it cannot be set up.
type VolumePlan = Result<(HostVolume, VolumeOwnership), String>;

/// The volumes to set up.
pub(crate) struct WantedVolumes {
    /// Version of the pod's volumes; updates carry it.
    pub(crate) version: u64,
    pub(crate) uid: String,
    pub(crate) volumes: Vec<(String, VolumePlan)>,
    /// The volumes that are ready already.
    pub(crate) ready: ReadyVolumes,
}

/// The result of a setup, sent to the pod worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VolumeUpdate {
    pub(crate) version: u64,
    pub(crate) state: VolumeState,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum VolumeState {
    Ready(ReadyVolumes),
    /// Some are missing; retried without a new request.
    Failed {
        message: String,
        event: PodEvent,
    },
}

fn wanted(pod: &Pod, volume: &Volume, node: &NodeSetupInputs) -> VolumePlan {
    let name = volume.name.to_string();
    match &volume.source {
        None => Ok((HostVolume::EmptyDirectory { name }, ownership(pod))),
        Some(VolumeSource::EmptyDir(empty)) => {
            let size = empty.size_limit.as_ref().and_then(|size| u64::try_from(size.value()).ok());
            let made = match empty.medium.as_str() {
                "" => HostVolume::EmptyDirectory { name },
                "Memory" => HostVolume::MemoryDirectory {
                    name,
                    size: memory_volumes::size(pod, node, size),
                    huge_page_size: None,
                },
                medium if medium.starts_with("HugePages") => HostVolume::MemoryDirectory {
                    name,
                    size,
                    huge_page_size: Some(huge_page_size(pod, medium)?),
                },
                medium => return Err(format!("volume {name:?}: unknown medium {medium:?}")),
            };
            Ok((made, ownership(pod)))
        }
        Some(VolumeSource::HostPath(host)) => {
            let kind = host.kind.as_ref().map(ToString::to_string).unwrap_or_default();
            let path = host.path.to_string();
            // The host's own files keep their owner, whatever fsGroup is.
            Ok((HostVolume::HostPath { name, path, kind }, VolumeOwnership::default()))
        }
        Some(other) => Err(format!(
            "volume {name:?} is of kind {}, which this agent does not serve yet",
            other.field()
        )),
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

/// Names of the pod's volumes.
pub(crate) fn names(pod: &Pod) -> Vec<String> {
    pod.spec.volumes.iter().map(|volume| volume.name.to_string()).collect()
}

/// All volumes of a pod.
pub(crate) fn all(pod: &Pod, node: &NodeSetupInputs) -> Vec<(String, VolumePlan)> {
    let volumes = pod.spec.volumes.iter();
    volumes.map(|volume| (volume.name.to_string(), wanted(pod, volume, node))).collect()
}

/// Names of the volumes that are equal in two versions of a pod.
pub(crate) fn same(one: &Pod, other: &Pod, node: &NodeSetupInputs) -> BTreeSet<String> {
    let known: BTreeMap<String, VolumePlan> = all(one, node).into_iter().collect();
    let volumes = all(other, node).into_iter();
    volumes.filter(|(name, wanted)| known.get(name) == Some(wanted)).map(|(name, _)| name).collect()
}

/// Sets up every volume of the pod, however long it takes, and reports the result.
pub(crate) async fn set_up(
    driver: Arc<dyn VolumeDriver>,
    wanted: WantedVolumes,
    worker_events: WorkerEventSender,
) {
    let WantedVolumes { version, uid, volumes, mut ready } = wanted;
    let send_update = async |state| {
        let _ = worker_events
            .send(Box::new(WorkerEvent::Volumes(VolumeUpdate { version, state })))
            .await;
    };
    let mut back_off = ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY);
    loop {
        let mut failures = Vec::new();
        for (name, wanted) in &volumes {
            if ready.contains_key(name) {
                continue;
            }
            match set_up_one(&*driver, &uid, wanted).await {
                Ok(made) => {
                    ready.insert(name.clone(), made);
                }
                Err(why) => failures.push((name.clone(), why)),
            }
        }
        let Some((name, why)) = failures.first() else {
            return send_update(VolumeState::Ready(ready)).await;
        };
        let text = format!("MountVolume.SetUp failed for volume {name:?} : {why}");
        let event = PodEvent {
            kind: EventType::Warning,
            reason: "FailedMount".to_owned(),
            message: text,
            field_path: None,
        };
        let texts: Vec<&str> = failures.iter().map(|(_, why)| why.as_str()).collect();
        send_update(VolumeState::Failed { message: texts.join("; "), event }).await;
        tokio::time::sleep(back_off.pause()).await;
    }
}

async fn set_up_one(
    driver: &dyn VolumeDriver,
    uid: &str,
    wanted: &VolumePlan,
) -> Result<ReadyVolume, String> {
    let (made, ownership) = wanted.as_ref().map_err(Clone::clone)?;
    let call = driver.set_up(uid, made, ownership);
    match tokio::time::timeout(SET_UP_TIMEOUT, call).await {
        Ok(Ok(path)) => Ok(ReadyVolume {
            path: path.display().to_string(),
            selinux_relabel: !matches!(made, HostVolume::HostPath { .. }),
            ..ReadyVolume::default()
        }),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("it was not ready within {SET_UP_TIMEOUT:?}")),
    }
}
