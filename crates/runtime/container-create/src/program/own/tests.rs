//! Every way in which a path leads to a program.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

fn interpreter_of(bytes: &[u8]) -> Option<String> {
    let read = |offset: u64, length: usize| {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        bytes[from..from.saturating_add(length).min(bytes.len())].to_vec()
    };
    interpreter(&read).map(|path| String::from_utf8(path).expect("text"))
}

#[test]
fn interpreters_of_scripts_are_found() {
    for (script, expected) in [
        (&b"#!/bin/sh\necho"[..], Some("/bin/sh")),
        (b"#! \t /proc/self/exe -x\n", Some("/proc/self/exe")),
        (b"#!/proc/self/exe", Some("/proc/self/exe")),
        (b"#!/a\tb", Some("/a")),
        (b"#!/a\0b", Some("/a")),
        (b"#!relative\n", Some("relative")),
        (b"#!\n", None),
        (b"#!   ", None),
        (b"#!", None),
        (b" #!/bin/sh", None),
        (b"", None),
    ] {
        assert_eq!(interpreter_of(script).as_deref(), expected, "{script:?}");
    }
}

/// A program whose second header names an interpreter.
fn elf(wide: bool, big: bool, path: &[u8]) -> Vec<u8> {
    let word = if wide { 8 } else { 4 };
    let mut bytes = vec![0; 512];
    bytes[..4].copy_from_slice(b"\x7fELF");
    (bytes[4], bytes[5]) = (if wide { 2 } else { 1 }, if big { 2 } else { 1 });
    let mut put = |at: usize, value: u64, length: usize| {
        let all = if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let part = if big { &all[8 - length..] } else { &all[..length] };
        bytes[at..at + length].copy_from_slice(part);
    };
    let (table, size) = (100, 56);
    put(if wide { 32 } else { 28 }, table, word);
    put(if wide { 54 } else { 42 }, size, 2);
    put(if wide { 56 } else { 44 }, 2, 2);
    let header = usize::try_from(table + size).expect("small");
    put(header - 56, 1, 4);
    put(header, 3, 4);
    put(header + if wide { 8 } else { 4 }, 300, word);
    put(header + if wide { 32 } else { 16 }, path.len() as u64, word);
    bytes[300..300 + path.len()].copy_from_slice(path);
    bytes
}

#[test]
fn interpreters_of_elf_programs_are_found() {
    for (wide, big) in [(true, false), (false, false), (true, true), (false, true)] {
        let program = elf(wide, big, b"/lib/ld.so\0");
        assert_eq!(interpreter_of(&program).as_deref(), Some("/lib/ld.so"), "{wide} {big}");
        assert_eq!(interpreter_of(&elf(wide, big, b"\0")), None);
        for length in 0..200 {
            // Truncated anywhere: no interpreter, and no panic.
            assert_eq!(interpreter_of(&program[..length]), None, "{length}");
        }
    }
    let own = std::fs::read("/proc/self/exe").expect("this test");
    assert!(
        interpreter_of(&own).is_none_or(|path| path.starts_with("/lib")),
        "as the compiler linked it"
    );
}

#[test]
fn every_path_that_leads_to_the_runtime_is_recognised() {
    let test_dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| test_dir.path().join(name);
    let own = FileIdentity::of_this_program().expect("an identity");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    symlink("/proc/self/exe", at("link")).expect("linked");
    symlink(at("link"), at("link-to-link")).expect("linked");
    std::fs::write(at("script"), "#!/proc/self/exe\n").expect("written");
    std::fs::write(at("by-link"), format!("#! {} x\n", text(&at("link")))).expect("written");
    std::fs::write(at("by-script"), format!("#!{}\n", text(&at("script")))).expect("written");
    std::fs::write(at("program"), elf(true, false, b"/proc/self/exe\0")).expect("written");
    std::fs::write(at("honest"), "#!/bin/sh\n").expect("written");
    std::fs::write(at("endless"), format!("#!{}\n", text(&at("endless")))).expect("written");
    rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .expect("a pipe");
    let leads = |path: &str| leads_to(&CString::new(path).expect("a path"), own);
    let itself = format!("/proc/{}/exe", std::process::id());
    assert!(leads("/proc/self/exe") && leads("/proc/thread-self/exe") && leads(&itself));
    for name in ["link", "link-to-link", "script", "by-link", "by-script", "program"] {
        assert!(leads(&text(&at(name))), "{name}");
    }
    for name in ["honest", "endless", "pipe", "absent", ""] {
        assert!(!leads(&text(&at(name))), "{name}");
    }
    assert!(!leads("/dev/null") && !leads("/bin/sh"));
}
