//! containerd starts in a bed, answers, and runs a container.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::parts;
use node_testkit::start::{Containerd, ContainerdOptions};

#[test]
fn containerd_answers_with_its_pinned_version() -> Result<()> {
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(60)).run(|bed| {
        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        let answer = containerd.run_ctr(&["version"])?;
        let version = parts::version("containerd")?;
        ensure!(answer.matches(&version).count() == 2, "client and server {version}: {answer}");
        let plugins = containerd.run_ctr(&["plugins", "ls"])?;
        let cri = plugins.lines().find(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("io.containerd.grpc.v1") && words.next() == Some("cri")
        });
        ensure!(cri.is_some_and(|line| line.trim_end().ends_with("ok")), "CRI: {plugins}");
        Ok(())
    })
}

#[test]
fn container_runs_below_the_beds_own_cgroup() -> Result<()> {
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(90)).run(|bed| {
        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        run_container(bed, &containerd, "sleeper", &["sleep", "1000"])?;
        let found = containerd.run_ctr(&["tasks", "ls"])?;
        let process = found
            .lines()
            .find_map(|line| line.strip_prefix("sleeper")?.split_whitespace().next())
            .with_context(|| format!("no sleeper in {found}"))?;
        let cgroups = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
        ensure!(cgroups.contains("/default/sleeper"), "{cgroups}");
        ensure!(!cgroups.contains("keelson-bed"), "the host shows through: {cgroups}");
        Ok(())
    })
}

/// Runs static busybox from the host in a container, in the background.
pub(crate) fn run_container(
    bed: &Bed,
    containerd: &Containerd,
    name: &str,
    command: &[&str],
) -> Result<()> {
    let root = bed.create_dir(&format!("{name}-root"))?;
    for dir in ["bin", "proc", "sys", "dev", "etc", "run"] {
        fs::create_dir_all(root.join(dir))?;
    }
    let busybox = root.join("bin/busybox");
    fs::copy(host_busybox()?, &busybox)?;
    fs::set_permissions(&busybox, fs::Permissions::from_mode(0o755))?;
    let root = root.to_string_lossy();
    let mut arguments = vec!["run", "--detach", "--rootfs", &root, name, "/bin/busybox"];
    arguments.extend_from_slice(command);
    containerd.run_ctr(&arguments)?;
    let tasks = containerd.run_ctr(&["tasks", "ls"])?;
    ensure!(
        tasks.lines().any(|line| line.starts_with(name) && line.contains("RUNNING")),
        "{name} does not run: {tasks}"
    );
    Ok(())
}

fn host_busybox() -> Result<PathBuf> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.is_file())
        .context("no busybox on this machine (Debian package busybox-static)")
}
