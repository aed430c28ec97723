//! Requested profiles, loaded profiles and the resulting choice; and a parser that fails.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn security_context(kind: ProfileType, name: &str) -> v1::LinuxContainerSecurityContext {
    let profile = v1::SecurityProfile { profile_type: kind.into(), localhost_ref: name.to_owned() };
    v1::LinuxContainerSecurityContext { apparmor: Some(profile), ..Default::default() }
}

fn named(name: &str) -> ProfileChoice {
    ProfileChoice::Named(name.to_owned())
}

#[test]
fn a_kernel_without_apparmor_refuses_a_requested_profile() {
    assert_eq!(choose(false, &Default::default()).unwrap(), ProfileChoice::Nothing);
    assert_eq!(
        choose(false, &security_context(ProfileType::Unconfined, "")).unwrap(),
        ProfileChoice::Nothing
    );
    for kind in [ProfileType::RuntimeDefault, ProfileType::Localhost] {
        let text = choose(false, &security_context(kind, "web")).unwrap_err().text;
        assert!(text.contains("apparmor is not supported"), "{text}");
    }
}

#[test]
fn a_kernel_with_apparmor_confines_containers_by_default() {
    let choose =
        |security_context: &v1::LinuxContainerSecurityContext| choose(true, security_context);
    assert_eq!(choose(&Default::default()).unwrap(), ProfileChoice::Default { asked: false });
    let default = security_context(ProfileType::RuntimeDefault, "");
    assert_eq!(choose(&default).unwrap(), ProfileChoice::Default { asked: true });
    assert_eq!(
        choose(&security_context(ProfileType::Unconfined, "")).unwrap(),
        ProfileChoice::Nothing
    );
    for mut privileged in [default, v1::LinuxContainerSecurityContext::default()] {
        privileged.privileged = true;
        assert_eq!(choose(&privileged).unwrap(), ProfileChoice::Nothing);
    }
    assert_eq!(choose(&security_context(ProfileType::Localhost, "web")).unwrap(), named("web"));
    assert_eq!(
        choose(&security_context(ProfileType::Localhost, "localhost/web")).unwrap(),
        named("web")
    );
    assert!(choose(&security_context(ProfileType::Unconfined, "web")).is_err());
    assert!(choose(&security_context(ProfileType::RuntimeDefault, "web")).is_err());
}

#[test]
fn profiles_are_matched_by_their_full_name() {
    let all = "web (enforce)\n/usr/bin/odd name (complain)\n";
    assert!(is_loaded(all, "web"));
    assert!(is_loaded(all, "/usr/bin/odd name"));
    for other in ["we", "web (enforce)", "odd name", ""] {
        assert!(!is_loaded(all, other), "{other:?}");
    }
}

#[test]
#[expect(deprecated, reason = "older clients still fill the field")]
fn the_deprecated_profile_field_has_the_same_meaning() {
    let old = |text: &str| v1::LinuxContainerSecurityContext {
        apparmor_profile: text.to_owned(),
        ..Default::default()
    };
    assert_eq!(choose(true, &old("localhost/web")).unwrap(), named("web"));
    assert_eq!(choose(true, &old("unconfined")).unwrap(), ProfileChoice::Nothing);
    assert!(choose(false, &old("runtime/default")).is_err());
    assert!(choose(true, &old("web")).is_err());
}

/// A shell script as the parser.
fn parser(dir: &Path, script: &str) -> std::path::PathBuf {
    let path = dir.join("parser");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn the_parser_reads_the_profile_and_its_error_is_returned() {
    let dir = tempfile::tempdir().unwrap();
    let got = dir.path().join("got");
    let script = format!("echo \"$@\" > {0}; cat >> {0}", got.display());
    load(&parser(dir.path(), &script), "profile x {}", LOADING_LIMIT).unwrap();
    assert_eq!(std::fs::read_to_string(&got).unwrap(), "--replace --skip-cache\nprofile x {}");

    let refusing = parser(dir.path(), "cat > /dev/null; echo line 7 is odd >&2; exit 3");
    let text = load(&refusing, DEFAULT_TEXT, LOADING_LIMIT).unwrap_err().text;
    assert!(text.contains("exit status: 3: line 7 is odd"), "{text}");

    let endless = parser(dir.path(), "exec sleep 1000");
    let text = load(&endless, DEFAULT_TEXT, Duration::from_millis(50)).unwrap_err().text;
    assert!(text.contains("no end within 50ms"), "{text}");

    let missing = dir.path().join("missing");
    assert!(load(&missing, DEFAULT_TEXT, LOADING_LIMIT).is_err());
}
