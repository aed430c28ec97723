//! Security contexts of a pod and of a container.
//!
//! Plain declarations; how the two combine is decided where containers are made.

use super::codec::{object, string_enum};

string_enum! {
    pub enum ProfileType { Localhost, RuntimeDefault, Unconfined }
    pub enum FsGroupChangePolicy { Always, OnRootMismatch }
    pub enum SupplementalGroupsPolicy { Merge, Strict }
    pub enum SeLinuxChangePolicy { MountOption, Recursive }
    pub enum ProcMount { Default, Unmasked }
}

object! {
    pub struct PodSecurityContext {
        "seLinuxOptions" se_linux_options: Option<Box<SeLinuxOptions>>;
        "windowsOptions" windows_options: Option<Box<WindowsOptions>>;
        "runAsUser" run_as_user: Option<i64>;
        "runAsGroup" run_as_group: Option<i64>;
        "runAsNonRoot" run_as_non_root: Option<bool>;
        "supplementalGroups" supplemental_groups: Vec<i64>;
        "supplementalGroupsPolicy" supplemental_groups_policy: Option<SupplementalGroupsPolicy>;
        "fsGroup" fs_group: Option<i64>;
        "sysctls" sysctls: Vec<Sysctl>;
        "fsGroupChangePolicy" fs_group_change_policy: Option<FsGroupChangePolicy>;
        "seccompProfile" seccomp_profile: Option<Box<SecurityProfile>>;
        "appArmorProfile" app_armor_profile: Option<Box<SecurityProfile>>;
        "seLinuxChangePolicy" se_linux_change_policy: Option<SeLinuxChangePolicy>;
    }

    pub struct SecurityContext {
        "capabilities" capabilities: Option<Box<Capabilities>>;
        "privileged" privileged: Option<bool>;
        "seLinuxOptions" se_linux_options: Option<Box<SeLinuxOptions>>;
        "windowsOptions" windows_options: Option<Box<WindowsOptions>>;
        "runAsUser" run_as_user: Option<i64>;
        "runAsGroup" run_as_group: Option<i64>;
        "runAsNonRoot" run_as_non_root: Option<bool>;
        "readOnlyRootFilesystem" read_only_root_filesystem: Option<bool>;
        "allowPrivilegeEscalation" allow_privilege_escalation: Option<bool>;
        "procMount" proc_mount: Option<ProcMount>;
        "seccompProfile" seccomp_profile: Option<Box<SecurityProfile>>;
        "appArmorProfile" app_armor_profile: Option<Box<SecurityProfile>>;
    }

    pub struct Capabilities {
        "add" add: Vec<Box<str>>;
        "drop" drop: Vec<Box<str>>;
    }

    pub struct SeLinuxOptions {
        "user" user: Box<str>;
        "role" role: Box<str>;
        "type" kind: Box<str>;
        "level" level: Box<str>;
    }

    pub struct WindowsOptions {
        "gmsaCredentialSpecName" gmsa_credential_spec_name: Option<Box<str>>;
        "gmsaCredentialSpec" gmsa_credential_spec: Option<Box<str>>;
        "runAsUserName" run_as_user_name: Option<Box<str>>;
        "hostProcess" host_process: Option<bool>;
    }

    /// A seccomp or an AppArmor profile: both have the same fields.
    pub struct SecurityProfile {
        "type" kind: ProfileType, always;
        "localhostProfile" localhost_profile: Option<Box<str>>;
    }

    pub struct Sysctl {
        "name" name: Box<str>, always;
        "value" value: Box<str>, always;
    }
}

impl SecurityContext {
    pub fn is_privileged(&self) -> bool {
        self.privileged == Some(true)
    }
}

/// A sysctl name in dotted form: where the first separator is a slash, slashes and dots are
/// swapped.
// upstream: component-helpers/node/util/sysctl
pub fn sysctl_name(written: &str) -> String {
    let first = written.find(['.', '/']).and_then(|at| written.as_bytes().get(at));
    if first != Some(&b'/') {
        return written.to_owned();
    }
    let swapped = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    written.chars().map(swapped).collect()
}

#[cfg(test)]
mod tests;
