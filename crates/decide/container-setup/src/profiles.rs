//! Which seccomp and AppArmor profile a container runs under.
//!
//! Rule: the container's field, then (for AppArmor) the old annotation, then the pod's field, then
//! the node's default. A `Localhost` seccomp profile is beneath the node's seccomp directory.
//!
//! upstream: pkg/kubelet/kuberuntime/helpers.go, pkg/security/apparmor/helpers.go

use pod_model::pod::security::{ProfileType, SecurityProfile};
use pod_model::pod::{Container, Pod};
use ports::runtime_objects::SecurityProfile as RuntimeProfile;

use crate::inputs::NodeSecurity;
use crate::{SetupError, log_paths, refuse};

#[cfg(test)]
mod tests;

const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

pub fn seccomp(
    pod: &Pod,
    container: &Container,
    node: &NodeSecurity,
) -> Result<RuntimeProfile, SetupError> {
    let own = container.security_context.as_deref().and_then(|it| it.seccomp_profile.as_deref());
    let shared = pod.spec.security_context.as_deref().and_then(|it| it.seccomp_profile.as_deref());
    let Some(profile) = own.or(shared) else {
        let default = node.seccomp_default;
        return Ok(if default {
            RuntimeProfile::RuntimeDefault
        } else {
            RuntimeProfile::Unconfined
        });
    };
    match &profile.kind {
        ProfileType::RuntimeDefault => Ok(RuntimeProfile::RuntimeDefault),
        ProfileType::Localhost => match profile.localhost_profile.as_deref() {
            None | Some("") => {
                refuse!("localhostProfile must be set if seccompProfile type is Localhost.")
            }
            Some(name) => Ok(RuntimeProfile::Localhost(beneath(&node.seccomp_root, name)?)),
        },
        ProfileType::Unconfined | ProfileType::Other(_) => Ok(RuntimeProfile::Unconfined),
    }
}

/// Validation has rejected paths that lead out already; this also covers a static pod of an agent
/// that skipped it.
fn beneath(root: &str, name: &str) -> Result<String, SetupError> {
    if name.starts_with('/') || name.split('/').any(|part| part == "..") {
        refuse!("localhostProfile {name:?}: expected a path beneath {root}");
    }
    Ok(log_paths::join(root, name))
}

pub fn apparmor(pod: &Pod, container: &Container) -> Result<Option<RuntimeProfile>, SetupError> {
    let own = container.security_context.as_deref().and_then(|it| it.app_armor_profile.as_deref());
    if let Some(profile) = own {
        return from_field(profile).map(Some);
    }
    let key = format!("{APPARMOR_ANNOTATION}{}", container.name);
    if let Some(profile) = pod.metadata.annotations.get(&key).and_then(|it| from_annotation(it)) {
        return Ok(Some(profile));
    }
    let shared = pod.spec.security_context.as_deref();
    shared.and_then(|it| it.app_armor_profile.as_deref()).map(from_field).transpose()
}

fn from_field(profile: &SecurityProfile) -> Result<RuntimeProfile, SetupError> {
    match (&profile.kind, profile.localhost_profile.as_deref()) {
        (ProfileType::RuntimeDefault, _) => Ok(RuntimeProfile::RuntimeDefault),
        (ProfileType::Unconfined, _) => Ok(RuntimeProfile::Unconfined),
        (ProfileType::Localhost, Some(name)) => Ok(RuntimeProfile::Localhost(name.to_owned())),
        (ProfileType::Localhost, None) => refuse!("missing localhost apparmor profile name"),
        (ProfileType::Other(kind), _) => refuse!("unknown apparmor profile type: {kind:?}"),
    }
}

/// Static pods may still use the annotation.
fn from_annotation(value: &str) -> Option<RuntimeProfile> {
    match value {
        "runtime/default" => Some(RuntimeProfile::RuntimeDefault),
        "unconfined" => Some(RuntimeProfile::Unconfined),
        _ => {
            let name = value.strip_prefix("localhost/")?;
            Some(RuntimeProfile::Localhost(name.to_owned()))
        }
    }
}
