//! A container's security context: the pod's and its own, merged.
//!
//! Rule: the container's settings override the pod's, field by field. A field that neither sets
//! stays unset, except where the reference has a default (seccomp, masked paths).
//!
//! upstream: pkg/securitycontext/util.go, pkg/kubelet/kuberuntime/security_context.go

use pod_model::pod::security::{
    PodSecurityContext, ProcMount, SeLinuxOptions, SecurityContext, SupplementalGroupsPolicy,
};
use pod_model::pod::{Container, Pod};
use ports::runtime_objects::{self as runtime, ContainerSecurity, SandboxSecurity, SeLinuxLabel};

use crate::inputs::{ContainerSetupInputs, NodeSecurity, NodeSetupInputs, PodSetupInputs};
use crate::user::ImageUser;
use crate::{SetupError, namespaces, profiles, refuse, user};

#[cfg(test)]
mod tests;

/// Hidden from a container unless it uses an unmasked `/proc`.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Read-only for a container unless it uses an unmasked `/proc`.
const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The settings of a pod and a container as one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EffectiveSecurity<'a> {
    pub(crate) run_as_user: Option<i64>,
    pub(crate) run_as_group: Option<i64>,
    pub(crate) run_as_non_root: Option<bool>,
    selinux: Option<&'a SeLinuxOptions>,
    own: Option<&'a SecurityContext>,
}

impl<'a> EffectiveSecurity<'a> {
    pub(crate) fn of(pod: &'a Pod, container: &'a Container) -> Self {
        let shared = pod.spec.security_context.as_deref();
        let own = container.security_context.as_deref();
        Self {
            run_as_user: first(own, |it| it.run_as_user, shared, |it| it.run_as_user),
            run_as_group: first(own, |it| it.run_as_group, shared, |it| it.run_as_group),
            run_as_non_root: first(own, |it| it.run_as_non_root, shared, |it| it.run_as_non_root),
            selinux: first(
                own,
                |it| it.se_linux_options.as_deref(),
                shared,
                |it| it.se_linux_options.as_deref(),
            ),
            own,
        }
    }
}

/// The container's setting or, failing that, the pod's.
fn first<'a, T>(
    own: Option<&'a SecurityContext>,
    of_own: impl FnOnce(&'a SecurityContext) -> Option<T>,
    shared: Option<&'a PodSecurityContext>,
    of_shared: impl FnOnce(&'a PodSecurityContext) -> Option<T>,
) -> Option<T> {
    own.and_then(of_own).or_else(|| shared.and_then(of_shared))
}

/// A container's security settings for the runtime. Fails where `runAsNonRoot` is violated.
pub fn of_container(
    pod: &Pod,
    container: &Container,
    node: &NodeSetupInputs,
    pod_facts: &PodSetupInputs,
    facts: &ContainerSetupInputs,
) -> Result<ContainerSecurity, SetupError> {
    let image_user = user::of_image(&facts.image);
    user::check_non_root(pod, container, &image_user)?;
    let effective = EffectiveSecurity::of(pod, container);
    let own = effective.own;
    let capabilities = own.and_then(|own| own.capabilities.as_deref());
    let texts = |texts: Option<&Vec<Box<str>>>| -> Vec<String> {
        texts.into_iter().flatten().map(ToString::to_string).collect()
    };
    let (run_as_user, run_as_username) = match (effective.run_as_user, image_user) {
        (Some(uid), _) | (None, ImageUser::Number(uid)) => (Some(uid), String::new()),
        (None, ImageUser::Name(name)) => (None, name),
    };
    let unmasked = own.and_then(|own| own.proc_mount.as_ref()) == Some(&ProcMount::Unmasked);
    Ok(ContainerSecurity {
        capabilities_add: texts(capabilities.map(|it| &it.add)),
        capabilities_drop: texts(capabilities.map(|it| &it.drop)),
        privileged: own.is_some_and(SecurityContext::is_privileged),
        namespaces: namespaces::of_container(pod, pod_facts, facts.target_id.as_deref())?,
        selinux: effective.selinux.map(label),
        run_as_user,
        run_as_group: effective.run_as_group,
        run_as_username,
        readonly_rootfs: own.and_then(|own| own.read_only_root_filesystem) == Some(true),
        supplemental_groups: container_groups(pod, pod_facts),
        supplemental_groups_policy: groups_policy(pod)?,
        no_new_privs: own.and_then(|own| own.allow_privilege_escalation) == Some(false),
        masked_paths: if unmasked { Vec::new() } else { masked(&node.security) },
        readonly_paths: if unmasked { Vec::new() } else { READ_ONLY.map(str::to_owned).into() },
        seccomp: Some(profiles::seccomp(pod, container, &node.security)?),
        apparmor: profiles::apparmor(pod, container)?,
    })
}

fn masked(security: &NodeSecurity) -> Vec<String> {
    let always = MASKED.iter().map(|path| (*path).to_owned());
    always.chain(security.thermal_throttle_paths.iter().cloned()).collect()
}

/// A sandbox's security settings. Its own process gets the runtime's seccomp profile whatever the
/// pod sets, so that a strict profile of the pod need not allow what only that process does.
pub fn of_sandbox(pod: &Pod, facts: &PodSetupInputs) -> Result<SandboxSecurity, SetupError> {
    let mut security = SandboxSecurity {
        privileged: pod.spec.all_containers().any(|(_, _, container)| {
            container.security_context.as_deref().is_some_and(SecurityContext::is_privileged)
        }),
        seccomp: Some(runtime::SecurityProfile::RuntimeDefault),
        namespaces: namespaces::of_pod(pod, facts)?,
        ..SandboxSecurity::default()
    };
    if let Some(shared) = pod.spec.security_context.as_deref() {
        security.run_as_user = shared.run_as_user;
        security.run_as_group = shared.run_as_group;
        security.selinux = shared.se_linux_options.as_deref().map(label);
        let own = shared.supplemental_groups.iter();
        security.supplemental_groups =
            shared.fs_group.iter().chain(&facts.volume_groups).chain(own).copied().collect();
        security.supplemental_groups_policy = groups_policy(pod)?;
    }
    Ok(security)
}

fn container_groups(pod: &Pod, facts: &PodSetupInputs) -> Vec<i64> {
    let shared = pod.spec.security_context.as_deref();
    let own = shared.into_iter().flat_map(|it| it.fs_group.iter().chain(&it.supplemental_groups));
    own.chain(&facts.volume_groups).copied().collect()
}

fn groups_policy(pod: &Pod) -> Result<runtime::SupplementalGroupsPolicy, SetupError> {
    let shared = pod.spec.security_context.as_deref();
    match shared.and_then(|it| it.supplemental_groups_policy.as_ref()) {
        None | Some(SupplementalGroupsPolicy::Merge) => {
            Ok(runtime::SupplementalGroupsPolicy::Merge)
        }
        Some(SupplementalGroupsPolicy::Strict) => Ok(runtime::SupplementalGroupsPolicy::Strict),
        Some(other) => refuse!("unsupported supplementalGroupsPolicy: {other}"),
    }
}

fn label(options: &SeLinuxOptions) -> SeLinuxLabel {
    SeLinuxLabel {
        user: options.user.to_string(),
        role: options.role.to_string(),
        kind: options.kind.to_string(),
        level: options.level.to_string(),
    }
}
