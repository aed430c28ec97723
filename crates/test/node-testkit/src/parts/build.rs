//! Builds one part with Go into the cache.
//!
//! Rule: a part's directory appears whole, by one rename, or not at all; while one process builds a
//! part, others wait for it. A part that exists costs a few file reads and no Go.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio, id};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::table::{GoBuildMode, RealPart};
use super::{BuiltPart, modules_dir, pin};
use crate::cache;

/// Where a part is, or would be, in the cache.
pub(super) fn location(part: &RealPart) -> Result<BuiltPart> {
    let version = part.version()?;
    let key = key(part, &version)?;
    let bin = cache::root()?.join("parts").join(key).join("bin");
    Ok(BuiltPart { name: part.name, version, bin })
}

/// `<name>-<version>-<hash>`; the hash covers flags and every pinned dependency.
fn key(part: &RealPart, version: &str) -> Result<String> {
    let module = modules_dir()?.join(part.dir);
    let shape = format!("{part:?} {}", part.linker_arguments(version));
    let mut pinned = Vec::new();
    for file in ["go.mod", "go.sum"] {
        let path = module.join(file);
        pinned.push(fs::read(&path).with_context(|| path.display().to_string())?);
    }
    let pieces = pinned.iter().map(Vec::as_slice).chain([shape.as_bytes()]);
    Ok(format!("{}-{version}-{}", part.name, pin::short_hash(pieces)))
}

/// The part, built if it is missing.
pub(super) fn ensure(part: &'static RealPart) -> Result<BuiltPart> {
    let built = location(part)?;
    if built.bin.is_dir() {
        return Ok(built);
    }
    let finished = built.bin.parent().context("a part's folder has a parent")?.to_owned();
    let parts = finished.parent().context("the folder of parts has a parent")?.to_owned();
    fs::create_dir_all(&parts).with_context(|| format!("make {}", parts.display()))?;
    let lock_path = finished.with_added_extension("lock");
    let lock = File::create(&lock_path).with_context(|| format!("make {}", lock_path.display()))?;
    if lock.try_lock().is_err() {
        eprintln!("parts: {} {} is being built by another, waiting", part.name, built.version);
        lock.lock().with_context(|| format!("lock {}", lock_path.display()))?;
    }
    if built.bin.is_dir() {
        return Ok(built);
    }
    remove_abandoned(&finished)?;
    let unfinished = finished.with_added_extension(format!("building-{}", id()));
    let outcome = build(part, &built.version, &unfinished).and_then(|()| {
        fs::rename(&unfinished, &finished)
            .with_context(|| format!("move {} into place", unfinished.display()))
    });
    if outcome.is_err() {
        // Best effort: what stays is removed by the next build of this part.
        let _ = fs::remove_dir_all(&unfinished);
    }
    outcome.map(|()| built)
}

/// Removes what an interrupted build of this part left. The caller holds the part's lock.
fn remove_abandoned(finished: &Path) -> Result<()> {
    let (Some(parts), Some(name)) = (finished.parent(), finished.file_name()) else {
        bail!("{} is no part's folder", finished.display());
    };
    let prefix = format!("{}.building-", name.to_string_lossy());
    for entry in fs::read_dir(parts).with_context(|| parts.display().to_string())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

fn build(part: &RealPart, version: &str, unfinished: &Path) -> Result<()> {
    let bin = unfinished.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("make {}", bin.display()))?;
    let log_path = unfinished
        .parent()
        .context("an unfinished part has a parent")?
        .join(format!("{}-{version}.log", part.name));
    let mut log =
        File::create(&log_path).with_context(|| format!("make {}", log_path.display()))?;
    let began = Instant::now();
    eprintln!("parts: building {} {version}", part.name);
    for (program, package) in part.programs {
        let mut go = go_command(part, version, package, &bin.join(program))?;
        writeln!(log, "{go:?}")?;
        let output = go.stdin(Stdio::null()).output().map_err(|error| {
            anyhow::anyhow!("cannot run go ({error}): the parts are built with Go, see README")
        })?;
        log.write_all(&output.stdout)?;
        log.write_all(&output.stderr)?;
        if !output.status.success() || !bin.join(program).is_file() {
            bail!(failure_message(
                part,
                version,
                &String::from_utf8_lossy(&output.stderr),
                &log_path
            ));
        }
    }
    eprintln!("parts: built {} {version} in {:.0} s", part.name, began.elapsed().as_secs_f64());
    let _ = fs::remove_file(&log_path);
    Ok(())
}

fn go_command(part: &RealPart, version: &str, package: &str, output: &Path) -> Result<Command> {
    let mut go = Command::new("go");
    match part.how {
        GoBuildMode::Program => go.arg("build"),
        GoBuildMode::TestProgram => go.args(["test", "-c"]),
    };
    go.args(["-mod=readonly", "-buildvcs=false", "-trimpath"]);
    if !part.tags.is_empty() {
        go.arg("-tags").arg(part.tags.join(","));
    }
    go.arg("-ldflags").arg(part.linker_arguments(version));
    go.arg("-o").arg(output).arg(package);
    go.current_dir(modules_dir()?.join(part.dir))
        .env("CGO_ENABLED", if part.cgo { "1" } else { "0" })
        .env("GOWORK", "off");
    Ok(go)
}

/// One line with what failed, what may be missing and where the log is.
fn failure_message(part: &RealPart, version: &str, output: &str, log: &Path) -> String {
    let reason = output
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("go: down"))
        .unwrap_or("go said nothing");
    let needs = if part.debian_packages.is_empty() {
        String::new()
    } else {
        format!("; it needs the Debian packages {}", part.debian_packages.join(", "))
    };
    format!(
        "cannot build part {} {version}: {reason}{needs}; all of it in {}",
        part.name,
        log.display()
    )
}
