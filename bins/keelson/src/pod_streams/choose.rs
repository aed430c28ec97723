//! The container of a pod that is meant, and its streams in the manifest.
//!
//! Rule: an explicit name wins, then kubectl's annotation, then the only container. Pure.

use anyhow::{Result, bail};
use ports::local_api::{LocalContainer, LocalPod};
use serde_json::Value;

// upstream: kubectl's podcmd.DefaultContainerAnnotationName
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// A container's stream settings in its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DeclaredStreams {
    pub(crate) stdin: bool,
    pub(crate) tty: bool,
}

/// The running container of that name, or the default one.
pub(crate) fn running<'a>(pod: &'a LocalPod, name: Option<&str>) -> Result<&'a LocalContainer> {
    let names: Vec<&str> =
        specs(pod, "containers").filter_map(|one| one["name"].as_str()).collect();
    let annotated = pod.object["metadata"]["annotations"][DEFAULT_CONTAINER].as_str();
    let name = match (name.or(annotated), names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => {
            bail!("{} has several containers; say -c with one of {}", pod.name, names.join(", "))
        }
    };
    let found = pod.containers.iter().find(|one| one.name == name && one.state == "running");
    if let Some(found) = found {
        return Ok(found);
    }
    let is_known = ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| specs(pod, list))
        .any(|one| one["name"] == name);
    if is_known {
        bail!("container {name} of {0} does not run; see keelson explain {0}", pod.name)
    }
    bail!("{} has no container {name}; it has {}", pod.name, names.join(", "))
}

pub(crate) fn declared_streams(pod: &LocalPod, container: &str) -> DeclaredStreams {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let spec =
        lists.into_iter().flat_map(|list| specs(pod, list)).find(|one| one["name"] == container);
    spec.map_or_else(DeclaredStreams::default, |spec| DeclaredStreams {
        stdin: spec["stdin"] == true,
        tty: spec["tty"] == true,
    })
}

fn specs<'a>(pod: &'a LocalPod, list: &str) -> impl Iterator<Item = &'a Value> {
    pod.object["spec"][list].as_array().into_iter().flatten()
}
