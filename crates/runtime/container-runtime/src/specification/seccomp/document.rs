//! A profile as OCI writes it: for runtimes that compile it themselves. Pure.

use seccomp_filter::{Action, Architecture, Comparison, Profile, Rule};
use serde_json::{Value, json};

pub(super) fn write(profile: &Profile) -> String {
    let (action, errno) = action(profile.default_action);
    let architectures: Vec<&str> =
        profile.architectures.iter().copied().map(architecture).collect();
    let rules: Vec<Value> = profile.rules.iter().map(rule).collect();
    let mut all = json!({
        "defaultAction": action,
        "architectures": architectures,
        "syscalls": rules,
    });
    if let Some(errno) = errno {
        all["defaultErrnoRet"] = json!(errno);
    }
    all.to_string()
}

fn architecture(one: Architecture) -> &'static str {
    match one {
        Architecture::X86_64 => "SCMP_ARCH_X86_64",
        Architecture::X86 => "SCMP_ARCH_X86",
        Architecture::X32 => "SCMP_ARCH_X32",
        Architecture::Aarch64 => "SCMP_ARCH_AARCH64",
    }
}

fn action(action: Action) -> (&'static str, Option<u16>) {
    match action {
        Action::Allow => ("SCMP_ACT_ALLOW", None),
        Action::Errno(number) => ("SCMP_ACT_ERRNO", Some(number)),
        Action::KillProcess => ("SCMP_ACT_KILL_PROCESS", None),
        Action::KillThread => ("SCMP_ACT_KILL_THREAD", None),
        Action::Trap => ("SCMP_ACT_TRAP", None),
        Action::Log => ("SCMP_ACT_LOG", None),
        Action::Trace(number) => ("SCMP_ACT_TRACE", Some(number)),
        Action::Notify => ("SCMP_ACT_NOTIFY", None),
    }
}

fn rule(rule: &Rule) -> Value {
    let (action, errno) = action(rule.action);
    let conditions: Vec<Value> = rule
        .conditions
        .iter()
        .map(|condition| {
            let (op, value, two) = match condition.comparison {
                Comparison::Equal(value) => ("SCMP_CMP_EQ", value, 0),
                Comparison::NotEqual(value) => ("SCMP_CMP_NE", value, 0),
                Comparison::Less(value) => ("SCMP_CMP_LT", value, 0),
                Comparison::LessOrEqual(value) => ("SCMP_CMP_LE", value, 0),
                Comparison::Greater(value) => ("SCMP_CMP_GT", value, 0),
                Comparison::GreaterOrEqual(value) => ("SCMP_CMP_GE", value, 0),
                Comparison::MaskedEqual { mask, value } => ("SCMP_CMP_MASKED_EQ", mask, value),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_as_the_same_profile() {
        let mut profile = super::super::default_profile(0);
        for action in
            [Action::KillProcess, Action::KillThread, Action::Trap, Action::Log, Action::Trace(3)]
        {
            let comparisons = [
                Comparison::Less(1),
                Comparison::LessOrEqual(2),
                Comparison::Greater(3),
                Comparison::GreaterOrEqual(4),
            ];
            let conditions = comparisons
                .into_iter()
                .map(|comparison| seccomp_filter::Condition { argument: 1, comparison })
                .collect();
            profile.rules.push(Rule { syscalls: vec!["ptrace".to_owned()], action, conditions });
        }
        assert_eq!(super::super::parse(write(&profile).as_bytes()).unwrap(), profile);
        profile.default_action = Action::Allow;
        assert!(!write(&profile).contains("defaultErrnoRet"));
    }
}
