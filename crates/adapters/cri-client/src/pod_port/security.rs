//! Namespaces, profiles, labels, groups and resources as CRI messages, and resources back.
//!
//! Rule: a translation of closed lists is an exhaustive match; values of CRI's beyond its list are
//! handled too.

use cri_wire::v1;
use ports::runtime_objects::{
    ContainerSecurity, IdMapping, LinuxResources, NamespaceMode, NamespaceOptions, SeLinuxLabel,
    SecurityProfile, SupplementalGroupsPolicy, UserNamespace,
};
use v1::security_profile::ProfileType;

pub(super) fn number_to_wire(value: i64) -> v1::Int64Value {
    v1::Int64Value { value }
}

fn mode_to_wire(mode: NamespaceMode) -> i32 {
    match mode {
        NamespaceMode::Pod => v1::NamespaceMode::Pod,
        NamespaceMode::Container => v1::NamespaceMode::Container,
        NamespaceMode::Node => v1::NamespaceMode::Node,
        NamespaceMode::Target => v1::NamespaceMode::Target,
    }
    .into()
}

pub(super) fn id_mapping_to_wire(mapping: &IdMapping) -> v1::IdMapping {
    let IdMapping { host_id, container_id, length } = *mapping;
    v1::IdMapping { host_id, container_id, length }
}

fn user_namespace_to_wire(user: &UserNamespace) -> v1::UserNamespace {
    v1::UserNamespace {
        mode: mode_to_wire(user.mode),
        uids: user.uids.iter().map(id_mapping_to_wire).collect(),
        gids: user.gids.iter().map(id_mapping_to_wire).collect(),
    }
}

pub(super) fn namespaces_to_wire(options: &NamespaceOptions) -> v1::NamespaceOption {
    v1::NamespaceOption {
        network: mode_to_wire(options.network),
        pid: mode_to_wire(options.pid),
        ipc: mode_to_wire(options.ipc),
        target_id: options.target_id.clone(),
        userns_options: options.user.as_ref().map(user_namespace_to_wire),
    }
}

pub(super) fn selinux_to_wire(label: &SeLinuxLabel) -> v1::SeLinuxOption {
    v1::SeLinuxOption {
        user: label.user.clone(),
        role: label.role.clone(),
        r#type: label.kind.clone(),
        level: label.level.clone(),
    }
}

pub(super) fn profile_to_wire(profile: &SecurityProfile) -> v1::SecurityProfile {
    let (kind, localhost) = match profile {
        SecurityProfile::RuntimeDefault => (ProfileType::RuntimeDefault, ""),
        SecurityProfile::Unconfined => (ProfileType::Unconfined, ""),
        SecurityProfile::Localhost(reference) => (ProfileType::Localhost, reference.as_str()),
    };
    v1::SecurityProfile { profile_type: kind.into(), localhost_ref: localhost.to_owned() }
}

pub(super) fn groups_policy_to_wire(policy: SupplementalGroupsPolicy) -> i32 {
    match policy {
        SupplementalGroupsPolicy::Merge => v1::SupplementalGroupsPolicy::Merge,
        SupplementalGroupsPolicy::Strict => v1::SupplementalGroupsPolicy::Strict,
    }
    .into()
}

#[allow(deprecated, reason = "older runtimes read only the old field")]
pub(super) fn container_to_wire(security: &ContainerSecurity) -> v1::LinuxContainerSecurityContext {
    let has_capabilities =
        !(security.capabilities_add.is_empty() && security.capabilities_drop.is_empty());
    v1::LinuxContainerSecurityContext {
        capabilities: has_capabilities.then(|| v1::Capability {
            add_capabilities: security.capabilities_add.clone(),
            drop_capabilities: security.capabilities_drop.clone(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: security.privileged,
        namespace_options: Some(namespaces_to_wire(&security.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux_to_wire),
        run_as_user: security.run_as_user.map(number_to_wire),
        run_as_group: security.run_as_group.map(number_to_wire),
        run_as_username: security.run_as_username.clone(),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy_to_wire(security.supplemental_groups_policy),
        no_new_privs: security.no_new_privs,
        masked_paths: security.masked_paths.clone(),
        readonly_paths: security.readonly_paths.clone(),
        seccomp: security.seccomp.as_ref().map(profile_to_wire),
        apparmor: security.apparmor.as_ref().map(profile_to_wire),
        apparmor_profile: security.apparmor.as_ref().map(old_apparmor).unwrap_or_default(),
        ..Default::default()
    }
}

/// The deprecated AppArmor field, which older runtimes read.
fn old_apparmor(profile: &SecurityProfile) -> String {
    match profile {
        SecurityProfile::RuntimeDefault => "runtime/default".to_owned(),
        SecurityProfile::Unconfined => "unconfined".to_owned(),
        SecurityProfile::Localhost(name) => format!("localhost/{name}"),
    }
}

pub(super) fn resources_to_wire(resources: &LinuxResources) -> v1::LinuxContainerResources {
    let hugepages = resources.hugepage_limits.iter();
    v1::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpuset_cpus.clone(),
        cpuset_mems: resources.cpuset_mems.clone(),
        hugepage_limits: hugepages
            .map(|(size, limit)| v1::HugepageLimit { page_size: size.clone(), limit: *limit })
            .collect(),
        unified: resources.unified.clone(),
        memory_swap_limit_in_bytes: resources.memory_swap_limit,
    }
}

pub(super) fn resources_from_wire(resources: v1::LinuxContainerResources) -> LinuxResources {
    let hugepages = resources.hugepage_limits.into_iter();
    LinuxResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit: resources.memory_limit_in_bytes,
        memory_swap_limit: resources.memory_swap_limit_in_bytes,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpuset_cpus,
        cpuset_mems: resources.cpuset_mems,
        hugepage_limits: hugepages.map(|limit| (limit.page_size, limit.limit)).collect(),
        unified: resources.unified,
    }
}
