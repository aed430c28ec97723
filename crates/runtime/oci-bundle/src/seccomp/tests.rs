//! Parsing, writing and rejecting profiles.

use super::*;

fn full() -> SeccompProfile {
    let comparisons = [
        ArgumentComparison::Equal(0),
        ArgumentComparison::NotEqual(u64::MAX),
        ArgumentComparison::Less(1),
        ArgumentComparison::LessOrEqual(2),
        ArgumentComparison::Greater(3),
        ArgumentComparison::GreaterOrEqual(4),
        ArgumentComparison::MaskedEqual { mask: 5, value: 6 },
    ];
    let conditions: Vec<ArgumentCondition> = comparisons
        .into_iter()
        .map(|comparison| ArgumentCondition { argument: 1, comparison })
        .collect();
    let actions = [
        SeccompAction::Allow,
        SeccompAction::Errno(38),
        SeccompAction::KillProcess,
        SeccompAction::KillThread,
        SeccompAction::Trap,
        SeccompAction::Log,
        SeccompAction::Trace(3),
    ];
    let rules = actions.into_iter().map(|action| SyscallRule {
        syscalls: vec!["ptrace".to_owned(), "clone".to_owned()],
        action,
        conditions: conditions.clone(),
    });
    SeccompProfile {
        default_action: SeccompAction::Errno(1),
        architectures: architectures(),
        rules: rules.collect(),
        flags: None,
    }
}

#[test]
fn a_written_profile_is_read_back_unchanged() {
    let mut profile = full();
    assert_eq!(parse(write(&profile).as_bytes()).unwrap(), profile);
    profile.default_action = SeccompAction::Allow;
    assert!(!write(&profile).contains("defaultErrnoRet"));
    assert_eq!(parse(write(&profile).as_bytes()).unwrap(), profile);
    for (log, allow_speculation) in [(false, false), (true, false), (false, true), (true, true)] {
        profile.flags = Some(FilterFlags { log, allow_speculation });
        assert_eq!(parse(write(&profile).as_bytes()).unwrap(), profile);
    }
}

#[test]
fn flags_are_kept_without_effect_or_refused() {
    let read = |list: &str| {
        let text = format!(r#"{{"defaultAction":"SCMP_ACT_ALLOW"{list}}}"#);
        parse(text.as_bytes()).map(|profile| profile.flags)
    };
    let set = |log, allow_speculation| Ok(Some(FilterFlags { log, allow_speculation }));
    assert_eq!(read(""), Ok(None));
    assert_eq!(read(r#","flags":null"#), Ok(None));
    assert_eq!(read(r#","flags":[]"#), set(false, false));
    assert_eq!(read(r#","flags":["SECCOMP_FILTER_FLAG_LOG"]"#), set(true, false));
    assert_eq!(
        read(r#","flags":["SECCOMP_FILTER_FLAG_SPEC_ALLOW","SECCOMP_FILTER_FLAG_TSYNC"]"#),
        set(false, true)
    );
    assert_eq!(read(r#","flags":["SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"]"#), set(false, false));
    let error = read(r#","flags":["SECCOMP_FILTER_FLAG_NEW_LISTENER"]"#).unwrap_err();
    assert!(error.to_string().contains("SECCOMP_FILTER_FLAG_NEW_LISTENER"), "{error}");
}

#[test]
fn unknown_actions_flags_and_operators_are_refused() {
    for text in [
        r#"{}"#,
        r#"{"defaultAction":"SCMP_ACT_NOTHING"}"#,
        r#"{"defaultAction":"SCMP_ACT_NOTIFY"}"#,
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["a"],"action":"x"}]}"#,
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["a"],
            "action":"SCMP_ACT_LOG","args":[{"index":0,"value":1,"op":"SCMP_CMP_ODD"}]}]}"#,
    ] {
        assert!(parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn the_native_architecture_is_always_included() {
    let Some(native) = Architecture::native() else { return };
    for text in [
        r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#,
        r#"{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_S390X"]}"#,
        r#"{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86"]}"#,
    ] {
        assert!(parse(text.as_bytes()).unwrap().architectures.contains(&native), "{text}");
    }
}
