//! Runs clippy itself on one small file for each kind of forbidden thing.

use std::path::Path;
use std::process::Command;

/// What must be refused in a pure crate: the word of the reason, and code that does it.
const PLANTED: &[(&str, &str)] = &[
    ("clock", "pub fn f() -> std::time::SystemTime { std::time::SystemTime::now() }"),
    ("clock", "pub fn f() -> std::time::Instant { std::time::Instant::now() }"),
    ("clock", "pub fn f() { std::thread::sleep(std::time::Duration::ZERO) }"),
    ("file", "pub fn f() -> bool { std::fs::read(\"x\").is_ok() }"),
    ("file", "pub fn f() -> bool { std::fs::File::open(\"x\").is_ok() }"),
    ("file", "pub fn f() -> bool { std::path::Path::new(\"x\").exists() }"),
    ("socket", "pub fn f() -> bool { std::net::TcpStream::connect(\"x:1\").is_ok() }"),
    ("socket", "pub fn f() -> bool { std::os::unix::net::UnixStream::connect(\"x\").is_ok() }"),
    ("environment", "pub fn f() -> bool { std::env::var(\"X\").is_ok() }"),
    ("environment", "pub fn f() -> usize { std::env::args().count() }"),
    ("process", "pub fn f() -> bool { std::process::Command::new(\"x\").status().is_ok() }"),
    ("process", "pub fn f() { std::process::exit(1) }"),
    ("randomness", "pub fn f() -> std::hash::RandomState { std::hash::RandomState::new() }"),
    ("randomness", "pub fn f(m: &std::collections::HashMap<u8, u8>) -> usize { m.len() }"),
];

/// What clippy says about a file, judged by the rules of the pure layers.
fn clippy_on(code: &str) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("planted.rs");
    std::fs::write(&file, code).expect("the planted file");
    let rules = crate::workspace::root().join("crates/model");
    let output = Command::new("clippy-driver")
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--emit=metadata",
            "-Dclippy::disallowed_methods",
        ])
        .args(["-Dclippy::disallowed_types", "--out-dir"])
        .arg(folder.path())
        .arg(&file)
        .env("CLIPPY_CONF_DIR", rules)
        .env("CARGO_MANIFEST_DIR", folder.path())
        .output()
        .expect("clippy-driver starts");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn every_planted_impurity_is_refused_with_its_reason() {
    for (reason, code) in PLANTED {
        let (accepted, said) = clippy_on(code);
        assert!(!accepted, "clippy let this through: {code}\n{said}");
        assert!(said.contains(&format!("{reason}:")), "{code}: the reason is missing in\n{said}");
    }
}

#[test]
fn pure_code_passes() {
    let (accepted, said) = clippy_on("pub fn f(a: u32) -> u32 { a.wrapping_add(1) }");
    assert!(accepted, "{said}");
}

#[test]
fn every_pure_layer_has_the_same_rules() {
    let crates = crate::workspace::root().join("crates");
    let rules = std::fs::read_to_string(crates.join("model/clippy.toml")).expect("the rules");
    let decide: &Path = &crates.join("decide");
    if decide.is_dir() {
        let others = std::fs::read_to_string(decide.join("clippy.toml")).expect("decide's rules");
        assert_eq!(
            rules, others,
            "crates/decide/clippy.toml differs from crates/model/clippy.toml"
        );
    }
}
