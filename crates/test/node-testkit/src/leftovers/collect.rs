//! Collects what is on the host, one function for each kind.
//!
//! Rule: each returns lines that are equal when the thing is the same. What vanishes while being
//! read does not count.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use mount_table::MountTable;

use super::ownership::SearchScope;
use super::{ownership, traces};
use crate::bed::{ROLE_VARIABLE, beds_dir, is_occupied, mounted_hierarchies};

const LINKS: &str = "/sys/class/net";

type LineSet = BTreeSet<String>;
type Collector = fn() -> Result<LineSet>;

/// Everything that is collected.
pub(super) const KINDS: &[(&str, Collector)] = &[
    ("process", processes),
    ("mount", mounts),
    ("cgroup", cgroups),
    ("link", links),
    ("address", addresses),
    ("network namespace", network_namespaces),
    ("nftables rule", nftables),
    ("folder", dirs),
];

fn processes() -> Result<LineSet> {
    let mut found = LineSet::new();
    for entry in fs::read_dir("/proc").context("/proc")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(process) = name.to_str().filter(|name| name.parse::<u32>().is_ok()) else {
            continue;
        };
        if let Some(line) = describe_process(process) {
            found.insert(line);
        }
    }
    Ok(found)
}

/// One process that belongs to a bed not in use, or is a part. Kernel threads and zombies have no
/// executable and are left out.
fn describe_process(process: &str) -> Option<String> {
    let dir = Path::new("/proc").join(process);
    let executable = fs::read_link(dir.join("exe")).ok()?;
    let program = executable.file_name()?.to_string_lossy();
    let program = program.trim_end_matches(" (deleted)");
    let cgroups = fs::read_to_string(dir.join("cgroup")).ok()?;
    let bed = ownership::bed_in(&cgroups);
    if bed.is_some_and(is_occupied) {
        return None;
    }
    let environment = fs::read(dir.join("environ")).ok()?;
    let mut role = environment.split(|byte| *byte == 0).filter_map(|one| {
        std::str::from_utf8(one).ok()?.strip_prefix(ROLE_VARIABLE)?.strip_prefix('=')
    });
    let role = role.next();
    // A warden is in no bed's cgroup; as long as its test process lives, it is at work.
    if role == Some("warden") && parent_has_program(&dir, &executable) {
        return None;
    }
    let is_ours = ownership::is_our_process(SearchScope::here(), program, &cgroups);
    if bed.is_none() && role.is_none() && !is_ours {
        return None;
    }
    let stat = fs::read_to_string(dir.join("stat")).ok()?;
    let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?;
    let command = fs::read(dir.join("cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    Some(format!("{process} started at {started}: {}", command.trim()))
}

/// Whether the process's parent runs the same executable: an orphan's parent is some init.
fn parent_has_program(process: &Path, executable: &Path) -> bool {
    let parent = || {
        let status = fs::read_to_string(process.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        fs::read_link(Path::new("/proc").join(line.trim()).join("exe")).ok()
    };
    parent().is_some_and(|found| found == executable)
}

fn mounts() -> Result<LineSet> {
    let table = MountTable::read().context(mount_table::PATH)?;
    Ok(traces::mounts(&table, (SearchScope::here(), &std::env::temp_dir()), is_occupied))
}

fn cgroups() -> Result<LineSet> {
    let (mut found, scope) = (LineSet::new(), SearchScope::here());
    for hierarchy in mounted_hierarchies()? {
        let top = hierarchy.mount_point.clone();
        let own = below(&top, &hierarchy.own);
        let mut dirs = vec![top.clone()];
        while let Some(dir) = dirs.pop() {
            let Ok(entries) = fs::read_dir(&dir) else { continue };
            for entry in entries.flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let path = below(&top, &entry.path());
                let in_use = ownership::bed_in(&path).is_some_and(is_occupied);
                if !in_use && !ownership::is_foreign_cgroup(scope, &path, &own) {
                    found.insert(entry.path().display().to_string());
                }
                dirs.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// A path below a mount point, as `/a/b`.
fn below(top: &Path, path: &Path) -> String {
    format!("/{}", path.strip_prefix(top).unwrap_or(path).display())
}

fn links() -> Result<LineSet> {
    Ok(names_in(Path::new(LINKS))?.into_iter().filter(|name| is_our_link(name)).collect())
}

fn is_our_link(name: &str) -> bool {
    let master = fs::read_link(Path::new(LINKS).join(name).join("master"));
    let master = master.ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    ownership::is_our_link(SearchScope::here(), name, master.as_deref())
}

fn addresses() -> Result<LineSet> {
    let text = output("ip", &["-oneline", "address", "show"])?
        .context("ip is missing (Debian package iproute2)")?;
    Ok(traces::addresses(&text, is_our_link))
}

fn network_namespaces() -> Result<LineSet> {
    let names = names_in(Path::new(ownership::NETWORK_NAMESPACES))?;
    let scope = SearchScope::here();
    Ok(names.into_iter().filter(|name| ownership::is_our_network_namespace(scope, name)).collect())
}

fn nftables() -> Result<LineSet> {
    // Stateless: counters run.
    let text = output("nft", &["--stateless", "list", "ruleset"])?.unwrap_or_default();
    Ok(traces::rules(SearchScope::here(), &text, is_our_link))
}

fn dirs() -> Result<LineSet> {
    let (mut found, scope) = (LineSet::new(), SearchScope::here());
    let beds = beds_dir();
    for identity in names_in(&beds)? {
        // The lock that all beds share stays.
        if identity != ".lock" && !is_occupied(&identity) {
            found.insert(beds.join(identity).display().to_string());
        }
    }
    let temp = std::env::temp_dir();
    for name in names_in(&temp)? {
        if ownership::is_ours_in_temp(scope, &name) && temp.join(&name) != beds {
            found.insert(temp.join(name).display().to_string());
        }
    }
    for dir in ownership::parts_dirs(scope).iter().map(Path::new) {
        if dir.exists() {
            found.insert(dir.display().to_string());
            found.extend(
                names_in(dir)?.into_iter().map(|name| dir.join(name).display().to_string()),
            );
        }
    }
    Ok(found)
}

fn names_in(dir: &Path) -> Result<LineSet> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(LineSet::new()),
        Err(error) => return Err(error).with_context(|| dir.display().to_string()),
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()
        .with_context(|| dir.display().to_string())
}

/// What a program printed, or `None` if the machine does not have it.
fn output(program: &str, arguments: &[&str]) -> Result<Option<String>> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| program.to_owned()),
    };
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}
