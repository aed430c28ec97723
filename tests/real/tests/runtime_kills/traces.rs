//! What a runtime can leave behind, read from the kernel and the disk, not from the runtime.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// Everything that exists, a line each.
pub(crate) fn look(dirs: &[&Path], known: &[u32]) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    processes(known, &mut found)?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("the mount table")?;
    found.extend(mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let kind = right.split(' ').next()?;
        Some(format!("mount: {} ({kind})", left.split(' ').nth(4)?))
    }));
    walk(Path::new("/sys/fs/cgroup"), "cgroup", true, &mut found)?;
    for dir in dirs {
        walk(dir, "file", false, &mut found)?;
    }
    for (what, program, arguments) in [
        ("link", "ip", &["-oneline", "link", "show"][..]),
        ("address", "ip", &["-oneline", "address", "show"]),
        ("rule", "nft", &["list", "ruleset"]),
    ] {
        let output = Command::new(program).args(arguments).output().context(program)?;
        ensure!(output.status.success(), "{program} {arguments:?}: {}", output.status);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        found.extend(text.lines().map(|line| match what {
            // Numbers and states of links change; names do not.
            "rule" => format!("{what}: {}", without_counts(line)),
            "link" => format!("{what}: {}", line.split(": ").nth(1).unwrap_or(line)),
            _ => {
                let words: Vec<&str> = line.split_whitespace().skip(1).take(3).collect();
                format!("{what}: {}", words.join(" "))
            }
        }));
    }
    Ok(found)
}

/// Host ports of the portmap plugin, a line each.
pub(crate) fn host_ports() -> Result<Vec<String>> {
    let output = Command::new("iptables-save").args(["-t", "nat"]).output();
    let output = output.context("iptables-save")?;
    ensure!(output.status.success(), "iptables-save: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let of_ports = text.lines().filter(|line| line.contains("CNI-DN-"));
    Ok(of_ports.map(|line| format!("host port: {}", without_counts(line))).collect())
}

/// A rule without its counters.
fn without_counts(line: &str) -> String {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    for at in 1..words.len() {
        if matches!(words[at - 1], "packets" | "bytes") {
            words[at] = "-";
        }
    }
    words.join(" ")
}

/// All processes but those that are known, and those that are exiting.
fn processes(known: &[u32], found: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir("/proc").context("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == 1 || known.contains(&pid) {
            continue;
        }
        let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        if !line.is_empty() {
            let text = String::from_utf8_lossy(&line).replace('\0', " ");
            found.insert(format!("process: {pid} {text}"));
        }
    }
    Ok(())
}

fn walk(dir: &Path, what: &str, only: bool, found: &mut BTreeSet<String>) -> Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| dir.display().to_string())?,
    };
    for entry in entries {
        // A process that has exited since the directory was opened.
        let Ok(entry) = entry else { continue };
        let Ok(kind) = entry.file_type() else { continue };
        if !only || kind.is_dir() {
            found.insert(format!("{what}: {}", entry.path().display()));
        }
        if kind.is_dir() {
            walk(&entry.path(), what, only, found)?;
        }
    }
    Ok(())
}

/// What exists now and did not before; what is just ending gets time to end.
pub(crate) fn left(
    before: &BTreeSet<String>,
    look: impl Fn() -> Result<BTreeSet<String>>,
) -> Result<Vec<String>> {
    let begun = Instant::now();
    loop {
        let now = look()?;
        let left: Vec<String> = now.difference(before).cloned().collect();
        if left.is_empty() || begun.elapsed() > WAIT_LIMIT {
            return Ok(left);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
