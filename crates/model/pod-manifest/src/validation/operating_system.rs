//! Rules that follow from the operating system of a pod, and from containers that are the host's
//! own processes.

use pod_model::pod::PodSpec;
use pod_model::pod::security::{PodSecurityContext, SecurityContext};
use pod_model::pod::spec::OsName;

use super::ValidationContext;
use super::findings::{FieldPath, PodFindings};

pub(super) fn check(around: &ValidationContext<'_>, findings: &mut PodFindings, path: &FieldPath) {
    let spec = around.spec;
    check_host_process(around, findings, path);
    let Some(os) = &spec.os else { return };
    match os.name {
        OsName::Linux => check_linux(spec, findings, path),
        OsName::Windows => check_windows(spec, findings, path),
        OsName::Other(_) if os.name.is_empty() => {
            findings.required(&path.child("os").child("name"));
        }
        OsName::Other(_) => findings.unsupported(&path.child("os"), &os.name, OsName::KNOWN),
    }
}

fn check_linux(spec: &PodSpec, findings: &mut PodFindings, path: &FieldPath) {
    let why = "may not be set for a Linux pod";
    let context = spec.security_context.as_ref();
    if context.is_some_and(|context| context.windows_options.is_some()) {
        findings.forbidden(&path.child("securityContext").child("windowsOptions"), why);
    }
    for (list, index, container) in spec.all_containers() {
        let context = container.security_context.as_ref();
        if context.is_some_and(|context| context.windows_options.is_some()) {
            let path = path.child(list.field()).index(index).child("securityContext");
            findings.forbidden(&path.child("windowsOptions"), why);
        }
    }
}

fn check_windows(spec: &PodSpec, findings: &mut PodFindings, path: &FieldPath) {
    let why = "may not be set for a Windows pod";
    for (given, field) in [
        (spec.host_users.is_some(), "hostUsers"),
        (spec.host_pid, "hostPID"),
        (spec.host_ipc, "hostIPC"),
        (spec.share_process_namespace.is_some(), "shareProcessNamespace"),
    ] {
        if given {
            findings.forbidden(&path.child(field), why);
        }
    }
    if let Some(context) = &spec.security_context {
        for field in linux_fields_of_pod(context) {
            findings.forbidden(&path.child("securityContext").child(field), why);
        }
    }
    for (list, index, container) in spec.all_containers() {
        let Some(context) = &container.security_context else { continue };
        let path = path.child(list.field()).index(index).child("securityContext");
        for field in linux_fields_of_container(context) {
            findings.forbidden(&path.child(field), why);
        }
    }
}

fn given<const N: usize>(fields: [(bool, &'static str); N]) -> Vec<&'static str> {
    fields.into_iter().filter(|(given, _)| *given).map(|(_, field)| field).collect()
}

fn linux_fields_of_pod(context: &PodSecurityContext) -> Vec<&'static str> {
    given([
        (context.app_armor_profile.is_some(), "appArmorProfile"),
        (context.se_linux_options.is_some(), "seLinuxOptions"),
        (context.seccomp_profile.is_some(), "seccompProfile"),
        (context.fs_group.is_some(), "fsGroup"),
        (context.fs_group_change_policy.is_some(), "fsGroupChangePolicy"),
        (!context.sysctls.is_empty(), "sysctls"),
        (context.run_as_user.is_some(), "runAsUser"),
        (context.run_as_group.is_some(), "runAsGroup"),
        (!context.supplemental_groups.is_empty(), "supplementalGroups"),
        (context.supplemental_groups_policy.is_some(), "supplementalGroupsPolicy"),
        (context.se_linux_change_policy.is_some(), "seLinuxChangePolicy"),
    ])
}

fn linux_fields_of_container(context: &SecurityContext) -> Vec<&'static str> {
    given([
        (context.app_armor_profile.is_some(), "appArmorProfile"),
        (context.se_linux_options.is_some(), "seLinuxOptions"),
        (context.seccomp_profile.is_some(), "seccompProfile"),
        (context.capabilities.is_some(), "capabilities"),
        (context.read_only_root_filesystem.is_some(), "readOnlyRootFilesystem"),
        (context.privileged.is_some(), "privileged"),
        (context.allow_privilege_escalation.is_some(), "allowPrivilegeEscalation"),
        (context.proc_mount.is_some(), "procMount"),
        (context.run_as_user.is_some(), "runAsUser"),
        (context.run_as_group.is_some(), "runAsGroup"),
    ])
}

fn check_host_process(
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let spec = around.spec;
    let of_pod = spec
        .security_context
        .as_ref()
        .and_then(|context| context.windows_options.as_ref()?.host_process);
    let (mut all, mut host) = (0, 0);
    for (list, index, container) in spec.all_containers() {
        let context = container.security_context.as_ref();
        let own = context.and_then(|context| context.windows_options.as_ref()?.host_process);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let path = path.child(list.field()).index(index).child("securityContext");
            let path = path.child("windowsOptions").child("hostProcess");
            findings.invalid(&path, own, "contradicts the pod's value");
        }
        all += 1;
        host += usize::from(own.or(of_pod) == Some(true));
    }
    if host == 0 {
        return;
    }
    if host != all {
        findings.forbidden(path, "either all containers are host processes or none");
    }
    if !spec.host_network {
        findings.invalid(&path.child("hostNetwork"), false, "host processes need true");
    }
    if !around.gates.allow_privileged {
        findings.forbidden(path, "host processes are not allowed here");
    }
}
