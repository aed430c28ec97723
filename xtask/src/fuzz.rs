//! `cargo xtask fuzz`: libFuzzer guided by coverage, on the pinned stable compiler. The targets
//! are a package of their own in fuzz/, so that no ordinary build pays for them; every landing
//! replays the corpus through ordinary tests.

use anyhow::{Result, bail};

use crate::workspace;

/// Named, so that the flags below reach the targets only and not the build scripts.
const HOST: &str = "x86_64-unknown-linux-gnu";

const TARGETS: &[&str] = &[
    "quantity",
    "duration",
    "config",
    "flags",
    "container-log",
    "layer",
    "image-document",
    "cni",
    "spdy",
    "websocket",
    "authority",
    "cdi",
    "seccomp",
    "challenge",
    "reference",
    "manifest",
    "archive",
    "users",
];

/// What makes the compiler count edges for libFuzzer; the sanitizers would need a nightly one.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions \
    -Coverflow-checks --cfg=fuzzing";

pub(crate) fn command(target: Option<&str>, runs: u64) -> Result<()> {
    if let Some(name) = target
        && !TARGETS.contains(&name)
    {
        bail!("no fuzz target {name}; there are {}", TARGETS.join(", "));
    }
    let dir = workspace::root().join("fuzz");
    for name in TARGETS.iter().filter(|name| target.is_none_or(|t| t == **name)) {
        eprintln!("==> {name}: {runs} inputs");
        let corpus = dir.join("corpus").join(name);
        let found = workspace::target_dir()?.join("fuzz-corpus").join(name);
        let artifacts = workspace::target_dir()?.join("fuzz-artifacts").join(name);
        for dir in [&found, &artifacts] {
            std::fs::create_dir_all(dir)?;
        }
        let mut command = workspace::cargo(&[
            "run",
            "--release",
            "--quiet",
            "--target",
            HOST,
            "--bin",
            name,
            "--",
        ]);
        command.current_dir(&dir).env("RUSTFLAGS", COVERAGE);
        command.arg(found).arg(corpus).arg(format!("-runs={runs}"));
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.args(["-max_len=4096", "-timeout=10", "-print_final_stats=1", "-verbosity=1"]);
        workspace::run(&mut command)?;
    }
    Ok(())
}
