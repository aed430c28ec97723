//! The default profile's shape, and foreign profiles.

use super::*;

fn decides(profile: &SeccompProfile, name: &str) -> Option<SeccompAction> {
    let rule = profile.rules.iter().find(|rule| {
        rule.conditions.is_empty() && rule.syscalls.iter().any(|syscall| syscall == name)
    });
    rule.map(|rule| rule.action)
}

#[test]
fn the_default_profile_allows_more_with_capabilities() {
    let plain = default_profile(0);
    assert_eq!(plain.default_action, SeccompAction::Errno(EPERM));
    assert_eq!(decides(&plain, "read"), Some(SeccompAction::Allow));
    assert_eq!(decides(&plain, "clone3"), Some(SeccompAction::Errno(ENOSYS)));
    for name in ["mount", "unshare", "bpf", "reboot", "init_module", "kexec_load", "add_key"] {
        assert_eq!(decides(&plain, name), None, "{name}");
    }
    let admin = default_profile(1 << 21);
    for name in ["mount", "unshare", "clone", "clone3"] {
        assert_eq!(decides(&admin, name), Some(SeccompAction::Allow), "{name}");
    }
    assert!(compile(&plain).is_ok() && compile(&admin).is_ok());
}

#[test]
fn the_flags_of_a_profile_reach_the_kernel_and_a_handler() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("profile.json");
    let given = |flags: &str| {
        let text = format!(r#"{{"defaultAction":"SCMP_ACT_ALLOW"{flags}}}"#);
        std::fs::write(&path, text).unwrap();
        let localhost_ref = path.display().to_string();
        let seccomp = v1::SecurityProfile { profile_type: 2, localhost_ref };
        let security = v1::LinuxContainerSecurityContext {
            seccomp: Some(seccomp),
            ..v1::LinuxContainerSecurityContext::default()
        };
        filter(&security, 0, true)
    };
    let plain = given("").unwrap().unwrap();
    assert!(!plain.log && !plain.allow_speculation && !plain.document.contains("flags"));
    let names = r#"["SECCOMP_FILTER_FLAG_LOG","SECCOMP_FILTER_FLAG_SPEC_ALLOW"]"#;
    let both = given(&format!(r#","flags":{names}"#)).unwrap().unwrap();
    assert!(both.log && both.allow_speculation && both.document.contains(names));
    let error = given(r#","flags":["SECCOMP_FILTER_FLAG_ODD"]"#).unwrap_err().to_string();
    assert!(error.contains("SECCOMP_FILTER_FLAG_ODD"), "{error}");
}

#[test]
fn profiles_of_others_are_read_strictly_where_it_matters() {
    let text = r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,
        "architectures":["SCMP_ARCH_X86_64","SCMP_ARCH_MIPS"],
        "syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW","args":null},
        {"names":["socket"],"action":"SCMP_ACT_ALLOW",
         "args":[{"index":0,"value":40,"op":"SCMP_CMP_NE"}]}]}"#;
    let profile = document::parse(text.as_bytes()).unwrap();
    assert_eq!(profile.default_action, SeccompAction::Errno(38));
    assert_eq!(profile.rules.len(), 2);
    assert_eq!(profile.rules[1].conditions[0].comparison, ArgumentComparison::NotEqual(40));
    for wrong in [
        "",
        "{}",
        r#"{"defaultAction":"SCMP_ACT_MAYBE"}"#,
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["x"],"action":"NO"}]}"#,
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["x"],"action":"SCMP_ACT_LOG",
           "args":[{"index":0,"value":1,"op":"ABOUT"}]}]}"#,
    ] {
        assert!(document::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
}
