//! Rules for security contexts, of the pod and of its containers.

use std::collections::BTreeSet;

use pod_model::pod::PodSpec;
use pod_model::pod::security::{
    FsGroupChangePolicy, PodSecurityContext, ProcMount, ProfileType, SeLinuxChangePolicy,
    SecurityContext, SecurityProfile, SupplementalGroupsPolicy,
};

use super::findings::{FieldPath, PodFindings};
use super::formats::{self, check_descending, check_id};
use super::{ValidationContext, windows_options};

const LONGEST_PROFILE: usize = 4095;

pub(super) fn check_pod(
    context: &PodSecurityContext,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    for (id, field) in [
        (context.fs_group, "fsGroup"),
        (context.run_as_user, "runAsUser"),
        (context.run_as_group, "runAsGroup"),
    ] {
        check_id(findings, &path.child(field), id);
    }
    for (index, group) in context.supplemental_groups.iter().enumerate() {
        check_id(findings, &path.child("supplementalGroups").index(index), Some(*group));
    }
    if around.spec.share_process_namespace == Some(true) && around.spec.host_pid {
        findings.forbidden(&path.child("shareProcessNamespace"), "excludes hostPID");
    }
    check_sysctls(context, around.spec, findings, &path.child("sysctls"));
    if let Some(policy) = context.fs_group_change_policy.as_ref().filter(|it| !it.is_known()) {
        let path = path.child("fsGroupChangePolicy");
        findings.unsupported(&path, policy, FsGroupChangePolicy::KNOWN);
    }
    if let Some(policy) = context.supplemental_groups_policy.as_ref().filter(|it| !it.is_known()) {
        let path = path.child("supplementalGroupsPolicy");
        findings.unsupported(&path, policy, SupplementalGroupsPolicy::KNOWN);
    }
    if let Some(policy) = &context.se_linux_change_policy {
        let path = path.child("seLinuxChangePolicy");
        if !around.gates.se_linux_mount && *policy != SeLinuxChangePolicy::Recursive {
            findings.unsupported(&path, policy, &["Recursive"]);
        } else if !policy.is_known() {
            findings.unsupported(&path, policy, SeLinuxChangePolicy::KNOWN);
        }
    }
    let (seccomp, app_armor) = (&context.seccomp_profile, &context.app_armor_profile);
    check_seccomp(seccomp.as_deref(), findings, &path.child("seccompProfile"));
    check_app_armor(app_armor.as_deref(), findings, &path.child("appArmorProfile"));
    if let Some(options) = &context.windows_options {
        windows_options::check(options, findings, &path.child("windowsOptions"));
    }
}

fn check_sysctls(
    context: &PodSecurityContext,
    spec: &PodSpec,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let mut names = BTreeSet::new();
    for (index, sysctl) in context.sysctls.iter().enumerate() {
        let path = path.index(index).child("name");
        if findings.require(&sysctl.name, &path) {
            match formats::sysctl_name(&sysctl.name) {
                Err(why) => findings.invalid(&path, &sysctl.name, why),
                Ok(()) if names.contains(&*sysctl.name) => findings.duplicate(&path, &sysctl.name),
                Ok(()) => {}
            }
        }
        names.insert(&*sysctl.name);
        match sysctl_namespace(&sysctl.name) {
            Some(SysctlNamespace::Network) if spec.host_network => {
                findings.invalid(&path, &sysctl.name, "belongs to the host with hostNetwork");
            }
            Some(SysctlNamespace::Ipc) if spec.host_ipc => {
                findings.invalid(&path, &sysctl.name, "belongs to the host with hostIPC");
            }
            _ => {}
        }
    }
}

enum SysctlNamespace {
    Network,
    Ipc,
}

fn sysctl_namespace(name: &str) -> Option<SysctlNamespace> {
    let name = dotted_sysctl(name);
    let name = name.split('*').next().unwrap_or_default();
    match name {
        "kernel.sem"
        | "kernel.shmall"
        | "kernel.shmmax"
        | "kernel.shmmni"
        | "kernel.shm_rmid_forced"
        | "kernel.shm"
        | "kernel.msgmax"
        | "kernel.msgmnb"
        | "kernel.msgmni"
        | "kernel.msg" => Some(SysctlNamespace::Ipc),
        _ if name.starts_with("net.") => Some(SysctlNamespace::Network),
        _ if name.starts_with("fs.mqueue.") => Some(SysctlNamespace::Ipc),
        _ => None,
    }
}

/// A sysctl may be written with slashes; then dots in it stand for slashes, and the reverse.
fn dotted_sysctl(name: &str) -> String {
    match name.find(['.', '/']).and_then(|at| name.as_bytes().get(at)) {
        Some(b'/') => name
            .chars()
            .map(|each| match each {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

pub(super) fn check_container(
    context: &SecurityContext,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    if context.is_privileged() && !around.gates.allow_privileged {
        findings.forbidden(&path.child("privileged"), "privileged containers are not allowed here");
    }
    check_id(findings, &path.child("runAsUser"), context.run_as_user);
    check_id(findings, &path.child("runAsGroup"), context.run_as_group);
    if let Some(mount) = &context.proc_mount {
        let path = path.child("procMount");
        if !mount.is_known() {
            findings.unsupported(&path, mount, ProcMount::KNOWN);
        }
        if *mount == ProcMount::Unmasked && !around.spec.has_user_namespace() {
            findings.invalid(&path, mount, "needs hostUsers: false");
        }
    }
    let (seccomp, app_armor) = (&context.seccomp_profile, &context.app_armor_profile);
    check_seccomp(seccomp.as_deref(), findings, &path.child("seccompProfile"));
    check_app_armor(app_armor.as_deref(), findings, &path.child("appArmorProfile"));
    if context.allow_privilege_escalation == Some(false) {
        if context.is_privileged() {
            findings.forbidden(path, "a privileged container may always gain privileges");
        }
        let added = context.capabilities.iter().flat_map(|capabilities| &capabilities.add);
        for _ in added.filter(|capability| &***capability == "CAP_SYS_ADMIN") {
            findings.forbidden(path, "CAP_SYS_ADMIN may always gain privileges");
        }
    }
    if let Some(options) = &context.windows_options {
        windows_options::check(options, findings, &path.child("windowsOptions"));
    }
}

fn check_seccomp(profile: Option<&SecurityProfile>, findings: &mut PodFindings, path: &FieldPath) {
    let Some(profile) = profile else { return };
    if !profile.kind.is_known() {
        findings.unsupported(&path.child("type"), &profile.kind, ProfileType::KNOWN);
    }
    let file = path.child("localhostProfile");
    match (&profile.kind, &profile.localhost_profile) {
        (ProfileType::Localhost, None) => findings.required(&file),
        (ProfileType::Localhost, Some(name)) => check_descending(findings, &file, name),
        (_, Some(name)) => findings.invalid(&file, name, "is for type Localhost only"),
        (_, None) => {}
    }
}

fn check_app_armor(
    profile: Option<&SecurityProfile>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let Some(profile) = profile else { return };
    let file = path.child("localhostProfile");
    match (&profile.kind, &profile.localhost_profile) {
        (ProfileType::Other(_), _) => {
            findings.unsupported(&path.child("type"), &profile.kind, ProfileType::KNOWN);
        }
        (ProfileType::Localhost, None) => findings.required(&file),
        (ProfileType::Localhost, Some(name)) => {
            if name.trim() != &**name {
                findings.invalid(&file, name, "has spaces around it");
            } else if name.is_empty() {
                findings.required(&file);
            }
            if name.len() > LONGEST_PROFILE {
                findings.forbidden(&file, format!("expected at most {LONGEST_PROFILE} bytes"));
            }
        }
        (_, Some(name)) => findings.invalid(&file, name, "is for type Localhost only"),
        (_, None) => {}
    }
}
