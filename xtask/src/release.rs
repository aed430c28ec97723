//! `cargo xtask release`: the one small static binary, and the promises about it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::workspace;

#[cfg(test)]
mod tests;

const TARGET: &str = "x86_64-unknown-linux-musl";

/// The promise that stands in SPECIFICATION.md.
const LARGEST_BINARY_KIB: u64 = 22 * 1024;

/// The same for the supervisor, which every pod pays for.
const LARGEST_SUPERVISOR_KIB: u64 = 1088;

/// As a release, but a panic ends it at once and the code for anything else is left out.
const SUPERVISOR_PROFILE: &str = "supervisor";

/// Tells the build of the binary what to carry.
const SUPERVISOR_GIVEN: &str = "KEELSON_SUPERVISOR_PROGRAM";

/// The cryptography (aws-lc) is C, and must be compiled for the same C library as all else.
const COMPILER: &str = "musl-gcc";

pub(crate) fn command() -> Result<()> {
    let compiler = Command::new(COMPILER).arg("--version").output();
    ensure!(
        compiler.is_ok_and(|output| output.status.success()),
        "{COMPILER} is missing: install Debian's musl-tools (./dev setup does)"
    );
    let supervisor = build_supervisor()?;
    eprintln!("==> building for {TARGET}, which takes a few minutes");
    let mut build = workspace::cargo(&["build", "--release", "--target", TARGET]);
    build.args(["--package", "keelson"]).env(SUPERVISOR_GIVEN, &supervisor);
    workspace::run(&mut build)?;
    let binary = binary()?;
    let kib =
        std::fs::metadata(&binary).with_context(|| binary.display().to_string())?.len() / 1024;
    is_static(&binary)?;
    carries(&binary, &supervisor)?;
    loads_a_seccomp_filter(&binary)?;
    println!(
        "{}: {kib} KiB, static, carries its supervisor, loads its own seccomp filter",
        binary.display()
    );
    ensure!(kib <= LARGEST_BINARY_KIB, "{kib} KiB; SPECIFICATION.md promises {LARGEST_BINARY_KIB}");
    Ok(())
}

/// The small program that every pod has one of: static, so that it also runs in a root with nothing
/// in it, and without what only the server's side of it needs.
pub(crate) fn build_supervisor() -> Result<PathBuf> {
    eprintln!("==> building the pods' supervisor");
    let mut build = workspace::cargo(&["build", "--profile", SUPERVISOR_PROFILE]);
    build.args(["--target", TARGET, "--package", "pod-supervisor", "--bin", "keelson-pod"]);
    workspace::run(build.arg("--no-default-features"))?;
    let folder = workspace::target_folder()?.join(TARGET).join(SUPERVISOR_PROFILE);
    let program = folder.join("keelson-pod");
    let kib = std::fs::metadata(&program).with_context(|| program.display().to_string())?.len();
    let kib = kib / 1024;
    is_static(&program)?;
    println!("{}: {kib} KiB, static", program.display());
    ensure!(
        kib <= LARGEST_SUPERVISOR_KIB,
        "{kib} KiB; SPECIFICATION.md promises {LARGEST_SUPERVISOR_KIB}"
    );
    Ok(program)
}

/// The one file that is installed has the other in it, byte for byte.
fn carries(binary: &Path, supervisor: &Path) -> Result<()> {
    let (whole, part) = (std::fs::read(binary)?, std::fs::read(supervisor)?);
    ensure!(contains(&whole, &part), "{} does not carry its supervisor", binary.display());
    Ok(())
}

fn contains(whole: &[u8], part: &[u8]) -> bool {
    // Only where the first page is the same is the rest worth a look.
    let head = part.get(..64).unwrap_or(part);
    whole.windows(head.len().max(1)).enumerate().any(|(at, window)| {
        window == head && whole.get(at..at + part.len()).is_some_and(|found| found == part)
    })
}

/// Where the release build puts the binary.
pub(crate) fn binary() -> Result<PathBuf> {
    Ok(workspace::target_folder()?.join(TARGET).join("release/keelson"))
}

/// A static program asks for no interpreter and no shared library.
fn is_static(binary: &Path) -> Result<()> {
    let bytes = std::fs::read(binary)?;
    if asks_for_interpreter(&bytes).context("not an ELF file of 64 bits")? {
        bail!("{} is not static: it asks for an interpreter", binary.display());
    }
    Ok(())
}

/// Reads the program headers of a little-endian 64-bit ELF file; `None` when it is not one.
fn asks_for_interpreter(elf: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = elf.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |all, byte| (all << 8) | usize::from(*byte)))
    };
    if elf.get(..6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
        return None;
    }
    let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for header in 0..count {
        if number(first + header * size, 4)? == INTERPRETER as usize {
            return Some(true);
        }
    }
    Some(false)
}

/// The very binary that was built compiles and loads a filter and sees it bite.
fn loads_a_seccomp_filter(binary: &Path) -> Result<()> {
    let output = Command::new(binary).args(["doctor", "-o", "json"]).output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("`doctor -o json` said {}", String::from_utf8_lossy(&output.stdout))
    })?;
    let findings = report["findings"].as_array().context("`doctor -o json` has no findings")?;
    let seccomp = findings.iter().find(|c| c["name"] == "seccomp").context("no seccomp finding")?;
    ensure!(seccomp["verdict"] == "good", "seccomp: {seccomp}");
    Ok(())
}
