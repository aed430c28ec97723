//! What can be tested without booting: apt's sources, payload paths, the status line.

use std::path::Path;

use super::boot::{exit_status, tail};
use super::mirror::{in_lines, in_stanzas};
use super::payload::is_plain;
use super::{Payload, payload};

#[test]
fn mirror_is_read_from_stanzas() {
    let text = "# a comment\nTypes: deb\nURIs: http://old.test/debian\nSuites: bullseye\n\n\
        Types: deb-src\nURIs: http://source.test/debian\nSuites: bookworm\n\n\
        Types: deb\nEnabled: no\nURIs: http://off.test/debian\nSuites: bookworm\n\n\
        Types: deb deb-src\n# between\nURIs: http://one.test/debian http://two.test/debian\n\
        Suites: bookworm bookworm-updates\nComponents: main\n";
    assert_eq!(in_stanzas(text, "bookworm").as_deref(), Some("http://one.test/debian"));
    assert_eq!(in_stanzas(text, "bullseye").as_deref(), Some("http://old.test/debian"));
    assert_eq!(in_stanzas(text, "book"), None);
}

#[test]
fn mirror_is_read_from_lines() {
    let text = "# deb http://off.test/debian bookworm main\n\
        deb-src http://source.test/debian bookworm main\n\
        deb http://security.test/debian bookworm-security main\n\
        deb [arch=amd64 signed-by=/k.gpg] http://one.test/debian bookworm main\n";
    assert_eq!(in_lines(text, "bookworm").as_deref(), Some("http://one.test/debian"));
    assert_eq!(in_lines(text, "trixie"), None);
}

#[test]
fn status_line_is_whole_or_nothing() {
    assert_eq!(exit_status("exit 7\n"), Some(7));
    assert_eq!(exit_status("exit 0\n"), Some(0));
    for broken in ["", "exit 7", "exit \n", "7\n", "exit 7\nexit 8\n"] {
        assert_eq!(exit_status(broken), None, "{broken:?}");
    }
}

#[test]
fn tail_keeps_the_last_lines() {
    let text = (1..=40).map(|number| format!("{number}\n")).collect::<String>();
    assert!(tail(&text).starts_with("11\n"));
    assert!(tail(&text).ends_with("\n40"));
    assert_eq!(tail("one"), "one");
}

#[test]
fn payload_paths_stay_inside() {
    assert!(is_plain(Path::new("bin/containerd")));
    for outside in ["", "/bin/x", "../x", "a/../../x"] {
        assert!(!is_plain(Path::new(outside)), "{outside:?}");
    }
    let files = vec![("../x".into(), "/etc/hostname".into())];
    assert!(payload::pack(&Payload { files, ..Payload::default() }).is_err());
}
