//! OCI seccomp profiles, parsed and written. Pure.
//!
//! Rule: an unknown action, comparison or flag is an error of the whole profile, never a weaker
//! filter. An unknown architecture is one of other machines and ignored; the native one is always
//! included. Does not compile profiles, and does not read files.
//!
//! upstream: OCI runtime-spec config-linux.md (seccomp)

use seccomp_filter::{
    Architecture, ArgumentComparison, ArgumentCondition, FilterFlags, SeccompAction,
    SeccompProfile, SyscallRule,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

const EPERM: u16 = 1;

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeccompProfileError {
    /// In the parser's words.
    #[error("{0}")]
    Json(String),
    #[error("the flag {name:?} is unknown or not supported")]
    Flag { name: String },
    #[error("the action {name:?} is unknown or not supported")]
    Action { name: String },
    #[error("the comparison {name:?} is unknown")]
    Comparison { name: String },
}

/// A profile in its JSON form.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeccompDocument {
    default_action: String,
    default_errno_ret: Option<u16>,
    #[serde(default)]
    architectures: Vec<String>,
    flags: Option<Vec<String>>,
    #[serde(default)]
    syscalls: Vec<SeccompDocumentRule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeccompDocumentRule {
    #[serde(default)]
    names: Vec<String>,
    action: String,
    errno_ret: Option<u16>,
    #[serde(default)]
    args: Option<Vec<SeccompDocumentArgument>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeccompDocumentArgument {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

/// The native architectures, used by a profile without any.
pub fn architectures() -> Vec<Architecture> {
    match Architecture::native() {
        Some(Architecture::X86_64) => {
            vec![Architecture::X86_64, Architecture::X86, Architecture::X32]
        }
        other => other.into_iter().collect(),
    }
}

/// Parses a profile; an error names the defect.
pub fn parse(bytes: &[u8]) -> Result<SeccompProfile, SeccompProfileError> {
    let document: SeccompDocument = serde_json::from_slice(bytes)
        .map_err(|error| SeccompProfileError::Json(error.to_string()))?;
    let mut wanted = Vec::new();
    for name in &document.architectures {
        wanted.extend(architecture(name));
    }
    // A profile for other architectures only, or for none, applies to the native ones.
    if wanted.is_empty() {
        wanted = architectures();
    }
    let native = Architecture::native();
    if !native.is_some_and(|native| wanted.contains(&native)) {
        wanted.extend(native);
    }
    let rules: Result<Vec<SyscallRule>, SeccompProfileError> =
        document.syscalls.into_iter().map(rule).collect();
    Ok(SeccompProfile {
        default_action: action(&document.default_action, document.default_errno_ret)?,
        architectures: wanted,
        rules: rules?,
        flags: document.flags.as_deref().map(flags).transpose()?,
    })
}

fn flags(names: &[String]) -> Result<FilterFlags, SeccompProfileError> {
    let mut flags = FilterFlags::default();
    for name in names {
        match name.as_str() {
            "SECCOMP_FILTER_FLAG_LOG" => flags.log = true,
            "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => flags.allow_speculation = true,
            // The process that loads the filter has one thread.
            "SECCOMP_FILTER_FLAG_TSYNC" => {}
            // Concerns the listener of SCMP_ACT_NOTIFY, which is refused.
            "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV" => {}
            other => return Err(SeccompProfileError::Flag { name: other.to_owned() }),
        }
    }
    Ok(flags)
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

fn action(name: &str, errno: Option<u16>) -> Result<SeccompAction, SeccompProfileError> {
    Ok(match name {
        "SCMP_ACT_ALLOW" => SeccompAction::Allow,
        "SCMP_ACT_ERRNO" => SeccompAction::Errno(errno.unwrap_or(EPERM)),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => SeccompAction::KillThread,
        "SCMP_ACT_KILL_PROCESS" => SeccompAction::KillProcess,
        "SCMP_ACT_TRAP" => SeccompAction::Trap,
        "SCMP_ACT_LOG" => SeccompAction::Log,
        "SCMP_ACT_TRACE" => SeccompAction::Trace(errno.unwrap_or(EPERM)),
        other => return Err(SeccompProfileError::Action { name: other.to_owned() }),
    })
}

fn rule(document: SeccompDocumentRule) -> Result<SyscallRule, SeccompProfileError> {
    let conditions: Result<Vec<ArgumentCondition>, SeccompProfileError> =
        document.args.unwrap_or_default().iter().map(condition).collect();
    Ok(SyscallRule {
        syscalls: document.names,
        action: action(&document.action, document.errno_ret)?,
        conditions: conditions?,
    })
}

fn condition(document: &SeccompDocumentArgument) -> Result<ArgumentCondition, SeccompProfileError> {
    let value = document.value;
    let comparison = match document.op.as_str() {
        "SCMP_CMP_EQ" => ArgumentComparison::Equal(value),
        "SCMP_CMP_NE" => ArgumentComparison::NotEqual(value),
        "SCMP_CMP_LT" => ArgumentComparison::Less(value),
        "SCMP_CMP_LE" => ArgumentComparison::LessOrEqual(value),
        "SCMP_CMP_GT" => ArgumentComparison::Greater(value),
        "SCMP_CMP_GE" => ArgumentComparison::GreaterOrEqual(value),
        "SCMP_CMP_MASKED_EQ" => {
            ArgumentComparison::MaskedEqual { mask: value, value: document.value_two }
        }
        other => return Err(SeccompProfileError::Comparison { name: other.to_owned() }),
    };
    Ok(ArgumentCondition { argument: document.index, comparison })
}

/// The profile as a document that reads as the same profile.
pub fn write(profile: &SeccompProfile) -> String {
    let (action, errno) = action_name(profile.default_action);
    let architectures: Vec<&str> =
        profile.architectures.iter().copied().map(architecture_name).collect();
    let rules: Vec<Value> = profile.rules.iter().map(rule_value).collect();
    let mut all = json!({
        "defaultAction": action,
        "architectures": architectures,
        "syscalls": rules,
    });
    if let Some(errno) = errno {
        all["defaultErrnoRet"] = json!(errno);
    }
    if let Some(flags) = profile.flags {
        all["flags"] = json!(flag_names(flags));
    }
    all.to_string()
}

fn flag_names(flags: FilterFlags) -> Vec<&'static str> {
    let names = [
        (flags.log, "SECCOMP_FILTER_FLAG_LOG"),
        (flags.allow_speculation, "SECCOMP_FILTER_FLAG_SPEC_ALLOW"),
    ];
    names.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect()
}

fn architecture_name(one: Architecture) -> &'static str {
    match one {
        Architecture::X86_64 => "SCMP_ARCH_X86_64",
        Architecture::X86 => "SCMP_ARCH_X86",
        Architecture::X32 => "SCMP_ARCH_X32",
        Architecture::Aarch64 => "SCMP_ARCH_AARCH64",
    }
}

fn action_name(action: SeccompAction) -> (&'static str, Option<u16>) {
    match action {
        SeccompAction::Allow => ("SCMP_ACT_ALLOW", None),
        SeccompAction::Errno(number) => ("SCMP_ACT_ERRNO", Some(number)),
        SeccompAction::KillProcess => ("SCMP_ACT_KILL_PROCESS", None),
        SeccompAction::KillThread => ("SCMP_ACT_KILL_THREAD", None),
        SeccompAction::Trap => ("SCMP_ACT_TRAP", None),
        SeccompAction::Log => ("SCMP_ACT_LOG", None),
        SeccompAction::Trace(number) => ("SCMP_ACT_TRACE", Some(number)),
        SeccompAction::Notify => ("SCMP_ACT_NOTIFY", None),
    }
}

fn rule_value(rule: &SyscallRule) -> Value {
    let (action, errno) = action_name(rule.action);
    let conditions: Vec<Value> = rule
        .conditions
        .iter()
        .map(|condition| {
            let (op, value, two) = match condition.comparison {
                ArgumentComparison::Equal(value) => ("SCMP_CMP_EQ", value, 0),
                ArgumentComparison::NotEqual(value) => ("SCMP_CMP_NE", value, 0),
                ArgumentComparison::Less(value) => ("SCMP_CMP_LT", value, 0),
                ArgumentComparison::LessOrEqual(value) => ("SCMP_CMP_LE", value, 0),
                ArgumentComparison::Greater(value) => ("SCMP_CMP_GT", value, 0),
                ArgumentComparison::GreaterOrEqual(value) => ("SCMP_CMP_GE", value, 0),
                ArgumentComparison::MaskedEqual { mask, value } => {
                    ("SCMP_CMP_MASKED_EQ", mask, value)
                }
            };
            json!({ "index": condition.argument, "value": value, "valueTwo": two, "op": op })
        })
        .collect();
    let mut all = json!({ "names": rule.syscalls, "action": action });
    if let Some(errno) = errno {
        all["errnoRet"] = json!(errno);
    }
    if !conditions.is_empty() {
        all["args"] = json!(conditions);
    }
    all
}
