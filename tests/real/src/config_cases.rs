//! Gives the table of configuration cases to the reference kubelet: does it accept what the agent
//! accepts, and refuse what the agent refuses?
//!
//! The rule it keeps: each case runs in its own namespaces (mounts, network, processes), with its
//! files in a temporary directory and empty file systems over the directories that a kubelet writes
//! to. A case counts as accepted when the kubelet logs that it has started, and as refused when the
//! kubelet exits. A stand-in for the runtime answers a kubelet's first calls: the kubelet then
//! reads all of its configuration, but never sees a ready runtime and so never touches cgroups.
//!
//! It needs root. It does not compare effective values; that is done elsewhere.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::version_only_runtime::VersionOnlyRuntime;

#[path = "../../../crates/model/node-config/tests/case_table/mod.rs"]
pub mod case_table;

use case_table::{CaseText, ConfigCase};

/// How long one kubelet may take to start or exit.
const DEADLINE: Duration = Duration::from_secs(60);
const AT_ONCE: usize = 2;
/// Logged by the kubelet once it has accepted its configuration.
const STARTED: &str = "Started kubelet";
/// Directories that a kubelet writes to whatever its flags say.
const WRITTEN_DIRS: [&str; 4] = ["/var/lib", "/var/log", "/usr/libexec", "/run"];

/// What the reference did with a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeletVerdict {
    Accepted,
    /// The last lines of its log.
    Refused(String),
    /// It neither started nor exited in time.
    Undecided(String),
}

/// One case with the expectation of the table and the reference's verdict.
#[derive(Debug, Clone)]
pub struct Compared {
    pub name: String,
    pub accepted_by_table: bool,
    pub verdict: KubeletVerdict,
    pub difference: Option<String>,
}

impl Compared {
    /// Whether both verdicts are the same, or differ as the table says.
    pub fn is_as_listed(&self) -> bool {
        let alike = match self.verdict {
            KubeletVerdict::Accepted => self.accepted_by_table,
            KubeletVerdict::Refused(_) => !self.accepted_by_table,
            KubeletVerdict::Undecided(_) => return false,
        };
        alike == self.difference.is_none()
    }
}

/// Runs every case whose name contains `filter` on the kubelet at `kubelet`.
pub fn compare_with_reference(kubelet: &Path, table: &Path, filter: &str) -> Result<Vec<Compared>> {
    let mut cases = case_table::read_all(table).map_err(anyhow::Error::msg)?;
    cases.retain(|(name, _)| name.contains(filter));
    if cases.is_empty() {
        bail!("no case in {} has {filter:?} in its name", table.display());
    }
    let dir = tempfile::tempdir().context("a folder for the runtime's socket")?;
    let runtime = VersionOnlyRuntime::start(&dir.path().join("runtime.sock"))?;
    let waiting = Mutex::new(cases.iter());
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let next = waiting.lock().ok().and_then(|mut waiting| waiting.next());
                        let Some((name, case)) = next else { return Ok(()) };
                        let verdict = try_case(kubelet, case, runtime.socket())
                            .with_context(|| format!("case {name}"))?;
                        let compared = Compared {
                            name: name.clone(),
                            accepted_by_table: case.is_accepted(),
                            verdict,
                            difference: case.difference.clone(),
                        };
                        if let Ok(mut results) = results.lock() {
                            results.push(compared);
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        }
        Ok(())
    })?;
    let mut results = results.into_inner().map_err(|_| anyhow::anyhow!("a worker panicked"))?;
    results.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(results)
}

fn try_case(kubelet: &Path, case: &ConfigCase, socket: &Path) -> Result<KubeletVerdict> {
    let dir = tempfile::tempdir()?;
    write_files(case, dir.path())?;
    let log = dir.path().join("log");
    let mut child = start(kubelet, case, dir.path(), socket, &log)?;
    let verdict = watch(&mut child, &log);
    // Ends the outermost process; everything in its process namespace goes with it.
    child.kill().ok();
    child.wait()?;
    verdict
}

fn write_files(case: &ConfigCase, dir: &Path) -> Result<()> {
    let place = dir.to_string_lossy();
    let content = |text: &CaseText| text.content().replace("{folder}", &place);
    if let Some(config) = &case.config {
        fs::write(ConfigCase::config_path(&place), content(config))?;
    }
    for (name, text) in &case.drop_ins {
        let path = PathBuf::from(ConfigCase::drop_in_dir(&place)).join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, content(text))?;
    }
    for (name, lines) in &case.files {
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, lines.join("\n"))?;
    }
    // A server that does not exist: enough to leave standalone mode.
    let kubeconfig = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
        "users": [{"name": "here", "user": {}}]}"#;
    fs::write(dir.join("kubeconfig"), kubeconfig)?;
    Ok(())
}

fn start(
    kubelet: &Path,
    case: &ConfigCase,
    dir: &Path,
    socket: &Path,
    log: &Path,
) -> Result<Child> {
    let place = dir.to_string_lossy();
    let log = fs::File::create(log)?;
    let mounts: String = WRITTEN_DIRS.map(|dir| format!("mount -t tmpfs none {dir} && ")).concat();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["sh", "-c", &format!("{mounts} exec \"$@\""), "sh"])
        .arg(kubelet)
        .args(bed_flags(case, &place, socket))
        .args(case.command_line(&place))
        .current_dir(dir)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    command.spawn().context("unshare")
}

/// The test's own flags; those of the case follow and therefore take precedence.
fn bed_flags(case: &ConfigCase, place: &str, socket: &Path) -> Vec<String> {
    let mut flags = vec![
        format!("--root-dir={place}/root"),
        format!("--cert-dir={place}/pki"),
        // The bed may have cgroup v1; whether that is refused is a fact of the machine.
        "--fail-cgroupv1=false".to_owned(),
    ];
    if !case.keeps_endpoint {
        flags.push(format!("--container-runtime-endpoint=unix://{}", socket.display()));
    }
    flags
}

fn watch(child: &mut Child, log: &Path) -> Result<KubeletVerdict> {
    let begin = Instant::now();
    loop {
        let ended = child.try_wait()?;
        let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
        if text.contains(STARTED) {
            return Ok(KubeletVerdict::Accepted);
        }
        if ended.is_some() {
            return Ok(KubeletVerdict::Refused(last_words(&text)));
        }
        if begin.elapsed() > DEADLINE {
            return Ok(KubeletVerdict::Undecided(last_words(&text)));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The log lines with the reason of the exit, shortened.
fn last_words(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let complaint = |line: &&str| line.contains("err=") || line.starts_with("panic:");
    let from = lines.iter().rposition(complaint).unwrap_or(lines.len().saturating_sub(1));
    lines[from..].join(" ").chars().take(400).collect()
}
