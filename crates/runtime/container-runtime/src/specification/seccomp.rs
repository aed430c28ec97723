//! Which system calls a container may make: the default profile, a profile from a file, or none.
//!
//! Rule: the outcome is a program for the kernel, made before the container is; a profile that
//! cannot be read, understood or compiled is an error of the container, never a weaker filter.
//!
//! upstream: OCI runtime-spec config-linux.md (seccomp)

use std::fs::File;
use std::io::Read as _;

use container_create::spec::SeccompSpec;
use cri_wire::v1;
use cri_wire::v1::security_profile::ProfileType;
use seccomp_filter::{Action, Architecture, Comparison, Condition, Profile, Rule, compile};
use serde::Deserialize;

use super::capabilities;
use crate::failure::{Doing as _, Failure, Result};

mod document;
mod table;
#[cfg(test)]
mod tests;

const LARGEST_PROFILE: u64 = 4 << 20;
const EPERM: u16 = 1;
const ENOSYS: u16 = 38;
/// Flags of clone that make namespaces: mount, cgroup, UTS, IPC, user, PID, network.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
const VSOCK: u64 = 40;
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The filter of a container; none where it is unconfined.
pub(super) fn filter(
    security: &v1::LinuxContainerSecurityContext,
    bounding: u64,
    for_handler: bool,
) -> Result<Option<SeccompSpec>> {
    if security.privileged {
        return Ok(None);
    }
    let Some(profile) = wanted(security)? else { return Ok(None) };
    let profile = match profile {
        Wanted::Default => default_profile(bounding),
        Wanted::File(path) => read_profile(&path)?,
    };
    let program = compile(&profile)
        .map_err(|error| Failure::plain(format!("the seccomp profile: {error}")))?;
    let mut bytes = Vec::with_capacity(program.instructions().len() * 8);
    for instruction in program.instructions() {
        bytes.extend_from_slice(&instruction.code.to_ne_bytes());
        bytes.extend_from_slice(&[instruction.jump_true, instruction.jump_false]);
        bytes.extend_from_slice(&instruction.operand.to_ne_bytes());
    }
    let document = if for_handler { document::write(&profile) } else { String::new() };
    Ok(Some(SeccompSpec { program: bytes, document, ..SeccompSpec::default() }))
}

enum Wanted {
    Default,
    File(String),
}

#[expect(deprecated, reason = "older clients still fill the field")]
fn wanted(security: &v1::LinuxContainerSecurityContext) -> Result<Option<Wanted>> {
    if let Some(profile) = &security.seccomp {
        return match profile.profile_type() {
            ProfileType::RuntimeDefault => Ok(Some(Wanted::Default)),
            ProfileType::Unconfined => Ok(None),
            ProfileType::Localhost => file(&profile.localhost_ref).map(Some),
        };
    }
    match security.seccomp_profile_path.as_str() {
        "" | "unconfined" => Ok(None),
        "runtime/default" | "docker/default" => Ok(Some(Wanted::Default)),
        text => match text.strip_prefix("localhost/") {
            Some(path) => file(path).map(Some),
            None => Err(Failure::plain(format!("invalid seccomp profile {text:?}"))),
        },
    }
}

fn file(path: &str) -> Result<Wanted> {
    if !path.starts_with('/') {
        return Err(Failure::plain(format!(
            "seccomp localhost_ref {path:?} is no absolute path of a profile"
        )));
    }
    Ok(Wanted::File(path.to_owned()))
}

fn architectures() -> Vec<Architecture> {
    match Architecture::native() {
        Some(Architecture::X86_64) => {
            vec![Architecture::X86_64, Architecture::X86, Architecture::X32]
        }
        other => other.into_iter().collect(),
    }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// What an ordinary container gets; more where its capabilities would make little sense without.
pub(super) fn default_profile(bounding: u64) -> Profile {
    let allow = |list: &[&str], conditions| Rule {
        syscalls: names(list),
        action: Action::Allow,
        conditions,
    };
    let first = |comparison| vec![Condition { argument: 0, comparison }];
    let mut rules = vec![
        allow(table::EVERYONE, Vec::new()),
        allow(table::MACHINE, Vec::new()),
        allow(&["socket"], first(Comparison::NotEqual(VSOCK))),
    ];
    for personality in PERSONALITIES {
        rules.push(allow(&["personality"], first(Comparison::Equal(personality))));
    }
    for (capability, list) in table::CAPABLE {
        if capabilities::has(bounding, capability) {
            rules.push(allow(list, Vec::new()));
        }
    }
    if !capabilities::has(bounding, "SYS_ADMIN") {
        let plain = Comparison::MaskedEqual { mask: NEW_NAMESPACES, value: 0 };
        rules.push(allow(&["clone"], first(plain)));
        // Its flags lie in memory that a filter cannot see; callers then fall back to clone.
        let clone3 = names(&["clone3"]);
        rules.push(Rule {
            syscalls: clone3,
            action: Action::Errno(ENOSYS),
            conditions: Vec::new(),
        });
    }
    Profile { default_action: Action::Errno(EPERM), architectures: architectures(), rules }
}

/// A profile as OCI writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    default_action: String,
    default_errno_ret: Option<u16>,
    #[serde(default)]
    architectures: Vec<String>,
    #[serde(default)]
    syscalls: Vec<DocumentRule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DocumentRule {
    #[serde(default)]
    names: Vec<String>,
    action: String,
    errno_ret: Option<u16>,
    #[serde(default)]
    args: Option<Vec<DocumentArgument>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DocumentArgument {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

fn read_profile(path: &str) -> Result<Profile> {
    let mut bytes = Vec::new();
    let file = File::open(path).doing(format!("opening the seccomp profile {path}"))?;
    file.take(LARGEST_PROFILE + 1)
        .read_to_end(&mut bytes)
        .doing(format!("reading the seccomp profile {path}"))?;
    if bytes.len() as u64 > LARGEST_PROFILE {
        return Err(Failure::plain(format!("the seccomp profile {path} has over 4 MiB")));
    }
    parse(&bytes).map_err(|why| Failure::plain(format!("the seccomp profile {path}: {why}")))
}

pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Profile, String> {
    let document: Document = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut wanted = Vec::new();
    for name in &document.architectures {
        wanted.extend(architecture(name));
    }
    // A profile for other machines only, or for none in particular, means this one.
    if wanted.is_empty() {
        wanted = architectures();
    }
    let native = Architecture::native();
    if !native.is_some_and(|native| wanted.contains(&native)) {
        wanted.extend(native);
    }
    let rules: std::result::Result<Vec<Rule>, String> =
        document.syscalls.into_iter().map(rule).collect();
    Ok(Profile {
        default_action: action(&document.default_action, document.default_errno_ret)?,
        architectures: wanted,
        rules: rules?,
    })
}

fn architecture(name: &str) -> Option<Architecture> {
    match name {
        "SCMP_ARCH_X86_64" => Some(Architecture::X86_64),
        "SCMP_ARCH_X86" => Some(Architecture::X86),
        "SCMP_ARCH_X32" => Some(Architecture::X32),
        "SCMP_ARCH_AARCH64" => Some(Architecture::Aarch64),
        _ => None,
    }
}

fn action(name: &str, errno: Option<u16>) -> std::result::Result<Action, String> {
    Ok(match name {
        "SCMP_ACT_ALLOW" => Action::Allow,
        "SCMP_ACT_ERRNO" => Action::Errno(errno.unwrap_or(EPERM)),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Action::KillThread,
        "SCMP_ACT_KILL_PROCESS" => Action::KillProcess,
        "SCMP_ACT_TRAP" => Action::Trap,
        "SCMP_ACT_LOG" => Action::Log,
        "SCMP_ACT_TRACE" => Action::Trace(errno.unwrap_or(EPERM)),
        other => return Err(format!("the action {other:?} is unknown or cannot be served")),
    })
}

fn rule(document: DocumentRule) -> std::result::Result<Rule, String> {
    let conditions: std::result::Result<Vec<Condition>, String> =
        document.args.unwrap_or_default().iter().map(condition).collect();
    Ok(Rule {
        syscalls: document.names,
        action: action(&document.action, document.errno_ret)?,
        conditions: conditions?,
    })
}

fn condition(document: &DocumentArgument) -> std::result::Result<Condition, String> {
    let value = document.value;
    let comparison = match document.op.as_str() {
        "SCMP_CMP_EQ" => Comparison::Equal(value),
        "SCMP_CMP_NE" => Comparison::NotEqual(value),
        "SCMP_CMP_LT" => Comparison::Less(value),
        "SCMP_CMP_LE" => Comparison::LessOrEqual(value),
        "SCMP_CMP_GT" => Comparison::Greater(value),
        "SCMP_CMP_GE" => Comparison::GreaterOrEqual(value),
        "SCMP_CMP_MASKED_EQ" => Comparison::MaskedEqual { mask: value, value: document.value_two },
        other => return Err(format!("the comparison {other:?} is unknown")),
    };
    Ok(Condition { argument: document.index, comparison })
}
