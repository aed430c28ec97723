//! Which system calls a container may make: the default profile, a profile from a file, or none.
//!
//! Rule: the result is a BPF program, compiled before the container is created; a profile that
//! cannot be read, parsed or compiled is an error of the container, never a weaker filter.
//!
//! upstream: OCI runtime-spec config-linux.md (seccomp)

use std::fs::File;
use std::io::Read as _;

use container_create::spec::SeccompSpec;
use cri_wire::v1;
use cri_wire::v1::security_profile::ProfileType;
use oci_bundle::seccomp as document;
use seccomp_filter::{
    ArgumentComparison, ArgumentCondition, FilterFlags, SeccompAction, SeccompProfile, SyscallRule,
    compile,
};

use super::capabilities;
use crate::failure::{CallContext as _, CriError, Result};

mod table;
#[cfg(test)]
mod tests;

const MAX_PROFILE_SIZE: u64 = 4 << 20;
const EPERM: u16 = 1;
const ENOSYS: u16 = 38;
/// Flags of clone that create namespaces: mount, cgroup, UTS, IPC, user, PID, network.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
const VSOCK: u64 = 40;
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The filter of a container; none if it is unconfined.
pub(super) fn filter(
    security: &v1::LinuxContainerSecurityContext,
    bounding: u64,
    for_handler: bool,
) -> Result<Option<SeccompSpec>> {
    if security.privileged {
        return Ok(None);
    }
    let Some(profile) = requested_profile(security)? else { return Ok(None) };
    let profile = match profile {
        ProfileSource::Default => default_profile(bounding),
        ProfileSource::File(path) => read_profile(&path)?,
    };
    let program = compile(&profile)
        .map_err(|error| CriError::plain(format!("the seccomp profile: {error}")))?;
    let mut bytes = Vec::with_capacity(program.instructions().len() * 8);
    for instruction in program.instructions() {
        bytes.extend_from_slice(&instruction.code.to_ne_bytes());
        bytes.extend_from_slice(&[instruction.jump_true, instruction.jump_false]);
        bytes.extend_from_slice(&instruction.operand.to_ne_bytes());
    }
    let document = if for_handler { document::write(&profile) } else { String::new() };
    let FilterFlags { log, allow_speculation } = profile.flags.unwrap_or_default();
    Ok(Some(SeccompSpec { program: bytes, log, allow_speculation, document }))
}

enum ProfileSource {
    Default,
    File(String),
}

#[expect(deprecated, reason = "older clients still fill the field")]
fn requested_profile(
    security: &v1::LinuxContainerSecurityContext,
) -> Result<Option<ProfileSource>> {
    if let Some(profile) = &security.seccomp {
        return match profile.profile_type() {
            ProfileType::RuntimeDefault => Ok(Some(ProfileSource::Default)),
            ProfileType::Unconfined => Ok(None),
            ProfileType::Localhost => file(&profile.localhost_ref).map(Some),
        };
    }
    match security.seccomp_profile_path.as_str() {
        "" | "unconfined" => Ok(None),
        "runtime/default" | "docker/default" => Ok(Some(ProfileSource::Default)),
        text => match text.strip_prefix("localhost/") {
            Some(path) => file(path).map(Some),
            None => Err(CriError::plain(format!("invalid seccomp profile {text:?}"))),
        },
    }
}

fn file(path: &str) -> Result<ProfileSource> {
    if !path.starts_with('/') {
        return Err(CriError::plain(format!(
            "seccomp localhost_ref {path:?} is no absolute path of a profile"
        )));
    }
    Ok(ProfileSource::File(path.to_owned()))
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// The default profile; it allows more with capabilities that would be useless otherwise.
pub(super) fn default_profile(bounding: u64) -> SeccompProfile {
    let allow = |list: &[&str], conditions| SyscallRule {
        syscalls: names(list),
        action: SeccompAction::Allow,
        conditions,
    };
    let first = |comparison| vec![ArgumentCondition { argument: 0, comparison }];
    let mut rules = vec![
        allow(table::ALWAYS_ALLOWED, Vec::new()),
        allow(table::NATIVE_ARCHITECTURE, Vec::new()),
        allow(&["socket"], first(ArgumentComparison::NotEqual(VSOCK))),
    ];
    for personality in PERSONALITIES {
        rules.push(allow(&["personality"], first(ArgumentComparison::Equal(personality))));
    }
    for (capability, list) in table::ALLOWED_BY_CAPABILITY {
        if capabilities::has(bounding, capability) {
            rules.push(allow(list, Vec::new()));
        }
    }
    if !capabilities::has(bounding, "SYS_ADMIN") {
        let plain = ArgumentComparison::MaskedEqual { mask: NEW_NAMESPACES, value: 0 };
        rules.push(allow(&["clone"], first(plain)));
        // Its flags are in memory that a filter cannot read; callers then fall back to clone.
        let clone3 = names(&["clone3"]);
        rules.push(SyscallRule {
            syscalls: clone3,
            action: SeccompAction::Errno(ENOSYS),
            conditions: Vec::new(),
        });
    }
    SeccompProfile {
        default_action: SeccompAction::Errno(EPERM),
        architectures: document::architectures(),
        rules,
        flags: None,
    }
}

fn read_profile(path: &str) -> Result<SeccompProfile> {
    let mut bytes = Vec::new();
    let file = File::open(path).doing(format!("opening the seccomp profile {path}"))?;
    file.take(MAX_PROFILE_SIZE + 1)
        .read_to_end(&mut bytes)
        .doing(format!("reading the seccomp profile {path}"))?;
    if bytes.len() as u64 > MAX_PROFILE_SIZE {
        return Err(CriError::plain(format!("the seccomp profile {path} has over 4 MiB")));
    }
    document::parse(&bytes)
        .map_err(|reason| CriError::plain(format!("the seccomp profile {path}: {reason}")))
}
