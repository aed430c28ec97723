//! Runs clippy itself on one file that does every forbidden thing once. Each entry of the rules must
//! be reported there with its reason, and an entry without a planted violation fails.

use std::process::Command;

/// What each entry forbids, done once: the entry's path, and an expression or a signature.
const PLANTED: &[(&str, &str)] = &[
    (
        "std::time::SystemTime::now",
        "fn f() -> std::time::SystemTime { std::time::SystemTime::now() }",
    ),
    (
        "std::time::SystemTime::elapsed",
        "fn f(t: std::time::SystemTime) -> bool { t.elapsed().is_ok() }",
    ),
    ("std::time::Instant::now", "fn f() -> std::time::Instant { std::time::Instant::now() }"),
    (
        "std::time::Instant::elapsed",
        "fn f(t: std::time::Instant) -> std::time::Duration { t.elapsed() }",
    ),
    ("std::thread::sleep", "fn f() { std::thread::sleep(std::time::Duration::ZERO) }"),
    (
        "std::thread::park_timeout",
        "fn f() { std::thread::park_timeout(std::time::Duration::ZERO) }",
    ),
    ("std::fs::canonicalize", "fn f() -> bool { std::fs::canonicalize(\"x\").is_ok() }"),
    ("std::fs::copy", "fn f() -> bool { std::fs::copy(\"x\", \"y\").is_ok() }"),
    ("std::fs::create_dir", "fn f() -> bool { std::fs::create_dir(\"x\").is_ok() }"),
    ("std::fs::create_dir_all", "fn f() -> bool { std::fs::create_dir_all(\"x\").is_ok() }"),
    ("std::fs::exists", "fn f() -> bool { std::fs::exists(\"x\").is_ok() }"),
    ("std::fs::hard_link", "fn f() -> bool { std::fs::hard_link(\"x\", \"y\").is_ok() }"),
    ("std::fs::metadata", "fn f() -> bool { std::fs::metadata(\"x\").is_ok() }"),
    ("std::fs::read", "fn f() -> bool { std::fs::read(\"x\").is_ok() }"),
    ("std::fs::read_dir", "fn f() -> bool { std::fs::read_dir(\"x\").is_ok() }"),
    ("std::fs::read_link", "fn f() -> bool { std::fs::read_link(\"x\").is_ok() }"),
    ("std::fs::read_to_string", "fn f() -> bool { std::fs::read_to_string(\"x\").is_ok() }"),
    ("std::fs::remove_dir", "fn f() -> bool { std::fs::remove_dir(\"x\").is_ok() }"),
    ("std::fs::remove_dir_all", "fn f() -> bool { std::fs::remove_dir_all(\"x\").is_ok() }"),
    ("std::fs::remove_file", "fn f() -> bool { std::fs::remove_file(\"x\").is_ok() }"),
    ("std::fs::rename", "fn f() -> bool { std::fs::rename(\"x\", \"y\").is_ok() }"),
    (
        "std::fs::set_permissions",
        "fn f(p: std::fs::Permissions) -> bool { std::fs::set_permissions(\"x\", p).is_ok() }",
    ),
    ("std::fs::symlink_metadata", "fn f() -> bool { std::fs::symlink_metadata(\"x\").is_ok() }"),
    ("std::fs::write", "fn f() -> bool { std::fs::write(\"x\", \"y\").is_ok() }"),
    (
        "std::os::unix::fs::symlink",
        "fn f() -> bool { std::os::unix::fs::symlink(\"x\", \"y\").is_ok() }",
    ),
    (
        "std::path::Path::canonicalize",
        "fn f(p: &std::path::Path) -> bool { p.canonicalize().is_ok() }",
    ),
    ("std::path::Path::exists", "fn f(p: &std::path::Path) -> bool { p.exists() }"),
    ("std::path::Path::is_dir", "fn f(p: &std::path::Path) -> bool { p.is_dir() }"),
    ("std::path::Path::is_file", "fn f(p: &std::path::Path) -> bool { p.is_file() }"),
    ("std::path::Path::is_symlink", "fn f(p: &std::path::Path) -> bool { p.is_symlink() }"),
    ("std::path::Path::metadata", "fn f(p: &std::path::Path) -> bool { p.metadata().is_ok() }"),
    ("std::path::Path::read_dir", "fn f(p: &std::path::Path) -> bool { p.read_dir().is_ok() }"),
    ("std::path::Path::read_link", "fn f(p: &std::path::Path) -> bool { p.read_link().is_ok() }"),
    (
        "std::path::Path::symlink_metadata",
        "fn f(p: &std::path::Path) -> bool { p.symlink_metadata().is_ok() }",
    ),
    ("std::path::Path::try_exists", "fn f(p: &std::path::Path) -> bool { p.try_exists().is_ok() }"),
    ("std::io::stdin", "fn f() -> std::io::Stdin { std::io::stdin() }"),
    ("std::io::stdout", "fn f() -> std::io::Stdout { std::io::stdout() }"),
    ("std::io::stderr", "fn f() -> std::io::Stderr { std::io::stderr() }"),
    ("std::env::args", "fn f() -> usize { std::env::args().count() }"),
    ("std::env::args_os", "fn f() -> usize { std::env::args_os().count() }"),
    ("std::env::current_dir", "fn f() -> bool { std::env::current_dir().is_ok() }"),
    ("std::env::current_exe", "fn f() -> bool { std::env::current_exe().is_ok() }"),
    ("std::env::temp_dir", "fn f() -> std::path::PathBuf { std::env::temp_dir() }"),
    ("std::env::var", "fn f() -> bool { std::env::var(\"X\").is_ok() }"),
    ("std::env::var_os", "fn f() -> bool { std::env::var_os(\"X\").is_some() }"),
    ("std::env::vars", "fn f() -> usize { std::env::vars().count() }"),
    ("std::env::vars_os", "fn f() -> usize { std::env::vars_os().count() }"),
    ("std::process::abort", "fn f() { std::process::abort() }"),
    ("std::process::exit", "fn f() { std::process::exit(1) }"),
    ("std::process::id", "fn f() -> u32 { std::process::id() }"),
    ("std::thread::scope", "fn f() { std::thread::scope(|_| {}) }"),
    ("std::thread::spawn", "fn f() { drop(std::thread::spawn(|| {})) }"),
    ("std::hash::RandomState::new", "fn f() { drop(std::hash::RandomState::new()) }"),
    (
        "std::net::ToSocketAddrs::to_socket_addrs",
        "fn f() -> bool { std::net::ToSocketAddrs::to_socket_addrs(&\"x:1\").is_ok() }",
    ),
    ("std::fs::File", "fn f(_: &std::fs::File) {}"),
    ("std::fs::OpenOptions", "fn f(_: &std::fs::OpenOptions) {}"),
    ("std::process::Command", "fn f(_: &std::process::Command) {}"),
    ("std::thread::Builder", "fn f(_: &std::thread::Builder) {}"),
    ("std::net::TcpStream", "fn f(_: &std::net::TcpStream) {}"),
    ("std::net::TcpListener", "fn f(_: &std::net::TcpListener) {}"),
    ("std::net::UdpSocket", "fn f(_: &std::net::UdpSocket) {}"),
    ("std::os::unix::net::UnixStream", "fn f(_: &std::os::unix::net::UnixStream) {}"),
    ("std::os::unix::net::UnixListener", "fn f(_: &std::os::unix::net::UnixListener) {}"),
    ("std::os::unix::net::UnixDatagram", "fn f(_: &std::os::unix::net::UnixDatagram) {}"),
    ("std::collections::HashMap", "fn f(_: &std::collections::HashMap<u8, u8>) {}"),
    ("std::collections::HashSet", "fn f(_: &std::collections::HashSet<u8>) {}"),
    ("std::hash::RandomState", "fn f(_: &std::hash::RandomState) {}"),
    ("std::sync::Mutex", "fn f(_: &std::sync::Mutex<u8>) {}"),
    ("std::sync::RwLock", "fn f(_: &std::sync::RwLock<u8>) {}"),
    ("std::sync::OnceLock", "fn f(_: &std::sync::OnceLock<u8>) {}"),
    ("std::sync::atomic::AtomicBool", "fn f(_: &std::sync::atomic::AtomicBool) {}"),
    ("std::sync::atomic::AtomicU64", "fn f(_: &std::sync::atomic::AtomicU64) {}"),
    ("std::sync::atomic::AtomicUsize", "fn f(_: &std::sync::atomic::AtomicUsize) {}"),
    ("std::print", "fn f() { print!(\"x\") }"),
    ("std::println", "fn f() { println!(\"x\") }"),
    ("std::eprint", "fn f() { eprint!(\"x\") }"),
    ("std::eprintln", "fn f() { eprintln!(\"x\") }"),
    ("std::thread_local", "fn f() { std::thread_local!(static X: u8 = const { 1 }); }"),
];

const LINTS: [&str; 3] = ["disallowed_methods", "disallowed_types", "disallowed_macros"];

/// clippy's output for a file, with the rules of the pure layers.
fn clippy_on(code: &str) -> (bool, String) {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("planted.rs");
    std::fs::write(&file, code).expect("the planted file");
    let output = Command::new("clippy-driver")
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--cap-lints=forbid"])
        .args(LINTS.map(|lint| format!("-Dclippy::{lint}")))
        .arg("--out-dir")
        .arg(dir.path())
        .arg(&file)
        .env("CLIPPY_CONF_DIR", crate::workspace::root().join("crates/model"))
        .env("CARGO_MANIFEST_DIR", dir.path())
        .output()
        .expect("clippy-driver starts");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Every `path = "…"` of the rules, with the word that its reason begins with.
fn rules() -> Vec<(String, String)> {
    let file = crate::workspace::root().join("crates/model/clippy.toml");
    let text = std::fs::read_to_string(file).expect("the rules");
    let between = |line: &str, from: &str, to: &str| -> Option<String> {
        let rest = line.split_once(from)?.1;
        Some(rest.split_once(to)?.0.to_owned())
    };
    text.lines()
        .filter_map(|line| {
            Some((between(line, "path = \"", "\"")?, between(line, "reason = \"", ":")?))
        })
        .collect()
}

#[test]
fn every_rule_has_a_planted_violation_that_is_refused_with_its_reason() {
    let rules = rules();
    assert!(rules.len() > 60, "only {} rules were read", rules.len());
    let mut code = String::new();
    for (number, (_, planted)) in PLANTED.iter().enumerate() {
        code.push_str(&format!("pub mod m{number} {{ pub {planted} }}\n"));
    }
    let (accepted, printed) = clippy_on(&code);
    assert!(!accepted, "clippy let all of it through");
    for (path, reason) in &rules {
        let at = PLANTED.iter().position(|(planted, _)| planted == path);
        let at = at.unwrap_or_else(|| panic!("{path}: no violation is planted for this rule"));
        let complaint = printed.split("\n\n").find(|part| {
            part.contains(&format!("`{path}`")) && part.contains(&format!("planted.rs:{}:", at + 1))
        });
        let complaint = complaint.unwrap_or_else(|| panic!("{path}: not refused in\n{printed}"));
        assert!(complaint.contains(&format!("{reason}:")), "{path}: no reason in\n{complaint}");
    }
}

#[test]
fn pure_code_passes() {
    let (accepted, printed) = clippy_on("pub fn f(a: u32) -> u32 { a.wrapping_add(1) }");
    assert!(accepted, "{printed}");
}

#[test]
fn every_pure_layer_has_the_same_rules() {
    let crates = crate::workspace::root().join("crates");
    let read = |layer: &str| std::fs::read_to_string(crates.join(layer).join("clippy.toml"));
    assert_eq!(read("model").expect("model's rules"), read("decide").expect("decide's rules"));
}
