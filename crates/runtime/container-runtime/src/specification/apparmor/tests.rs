//! Requested profiles, loaded profiles and the resulting choice; and a parser that fails.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn wish(kind: ProfileType, name: &str) -> v1::LinuxContainerSecurityContext {
    let profile = v1::SecurityProfile { profile_type: kind.into(), localhost_ref: name.to_owned() };
    v1::LinuxContainerSecurityContext { apparmor: Some(profile), ..Default::default() }
}

fn named(name: &str) -> Choice {
    Choice::Named(name.to_owned())
}

#[test]
fn a_kernel_without_it_refuses_what_was_asked_for() {
    assert_eq!(choose(false, &Default::default()).unwrap(), Choice::Nothing);
    assert_eq!(choose(false, &wish(ProfileType::Unconfined, "")).unwrap(), Choice::Nothing);
    for kind in [ProfileType::RuntimeDefault, ProfileType::Localhost] {
        let text = choose(false, &wish(kind, "web")).unwrap_err().text;
        assert!(text.contains("apparmor is not supported"), "{text}");
    }
}

#[test]
fn a_kernel_with_it_confines_whom_nobody_freed() {
    let choose = |wish: &v1::LinuxContainerSecurityContext| choose(true, wish);
    assert_eq!(choose(&Default::default()).unwrap(), Choice::Default { asked: false });
    let default = wish(ProfileType::RuntimeDefault, "");
    assert_eq!(choose(&default).unwrap(), Choice::Default { asked: true });
    assert_eq!(choose(&wish(ProfileType::Unconfined, "")).unwrap(), Choice::Nothing);
    for mut privileged in [default, v1::LinuxContainerSecurityContext::default()] {
        privileged.privileged = true;
        assert_eq!(choose(&privileged).unwrap(), Choice::Nothing);
    }
    assert_eq!(choose(&wish(ProfileType::Localhost, "web")).unwrap(), named("web"));
    assert_eq!(choose(&wish(ProfileType::Localhost, "localhost/web")).unwrap(), named("web"));
    assert!(choose(&wish(ProfileType::Unconfined, "web")).is_err());
    assert!(choose(&wish(ProfileType::RuntimeDefault, "web")).is_err());
}

#[test]
fn profiles_are_known_by_their_whole_name() {
    let all = "web (enforce)\n/usr/bin/odd name (complain)\n";
    assert!(is_loaded(all, "web"));
    assert!(is_loaded(all, "/usr/bin/odd name"));
    for other in ["we", "web (enforce)", "odd name", ""] {
        assert!(!is_loaded(all, other), "{other:?}");
    }
}

#[test]
#[expect(deprecated, reason = "older clients still fill the field")]
fn the_old_field_says_the_same() {
    let old = |text: &str| v1::LinuxContainerSecurityContext {
        apparmor_profile: text.to_owned(),
        ..Default::default()
    };
    assert_eq!(choose(true, &old("localhost/web")).unwrap(), named("web"));
    assert_eq!(choose(true, &old("unconfined")).unwrap(), Choice::Nothing);
    assert!(choose(false, &old("runtime/default")).is_err());
    assert!(choose(true, &old("web")).is_err());
}

/// A shell script as the parser.
fn parser(folder: &Path, script: &str) -> std::path::PathBuf {
    let path = folder.join("parser");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn the_parser_gets_the_profile_and_its_refusal_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let got = folder.path().join("got");
    let script = format!("echo \"$@\" > {0}; cat >> {0}", got.display());
    load(&parser(folder.path(), &script), "profile x {}", LOADING_LIMIT).unwrap();
    assert_eq!(std::fs::read_to_string(&got).unwrap(), "--replace --skip-cache\nprofile x {}");

    let refusing = parser(folder.path(), "cat > /dev/null; echo line 7 is odd >&2; exit 3");
    let text = load(&refusing, DEFAULT_TEXT, LOADING_LIMIT).unwrap_err().text;
    assert!(text.contains("exit status: 3: line 7 is odd"), "{text}");

    let endless = parser(folder.path(), "exec sleep 1000");
    let text = load(&endless, DEFAULT_TEXT, Duration::from_millis(50)).unwrap_err().text;
    assert!(text.contains("no end within 50ms"), "{text}");

    let missing = folder.path().join("missing");
    assert!(load(&missing, DEFAULT_TEXT, LOADING_LIMIT).is_err());
}
