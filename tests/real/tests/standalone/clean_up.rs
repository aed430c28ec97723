//! Removed pods leave nothing behind; and how many dead containers are kept meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::Containerd;

use crate::node::{StandaloneNode, archives, container_id, keelson, restarts, uid, wait_for};

/// Short back-off, so that there are dead containers soon.
const CONFIGURATION: &str = "featureGates: {KubeletCrashLoopBackOffMax: true}\n\
    crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";
/// A pod that an earlier agent left behind.
const STRANGER: &str = "11111111-2222-3333-4444-555555555555";

#[test]
fn removed_pods_leave_nothing_behind() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        let node = StandaloneNode::start(bed, &keelson, &archives, CONFIGURATION)?;
        node.place("full", FULL)?;
        node.place("while-away", FULL)?;
        node.place("crashing", CRASHING)?;
        let full = node.until_ready("full")?;
        let away = node.until_ready("while-away")?;
        ensure!(!traces(&node, &uid(&full)?)?.is_empty(), "what is looked for below exists now");
        let link = link_of(&full, "full")?;
        ensure!(link.is_symlink(), "{}", link.display());

        node.agent.withdraw("full")?;
        node.until_gone("full")?;
        no_trace(&node, &uid(&full)?).context("of a pod whose manifest went")?;
        wait_for("the log's link is gone", Duration::from_secs(20), || Ok(!link.is_symlink()))?;

        node.until("several lives", "crashing", |pod| restarts(pod, "main") >= 4)?;
        let crashing = node.pod("crashing")?.context("the pod")?;
        // A pod may go while no agent is there to see it, and others may have left things about.
        let node = node.restart_agent(|home| {
            fs::remove_file(home.manifests().join("while-away.yaml"))?;
            let dir = home.root().join("pods").join(STRANGER);
            fs::create_dir_all(dir.join("volumes/kubernetes.io~empty-dir/data"))?;
            fs::write(dir.join("etc-hosts"), "")?;
            fs::create_dir_all(format!("/var/log/pods/default_stranger_{STRANGER}/main"))?;
            for hierarchy in cgroup_tops()? {
                fs::create_dir_all(hierarchy.join(format!("kubepods/besteffort/pod{STRANGER}")))?;
            }
            Ok(())
        })?;
        no_trace(&node, &uid(&away)?).context("of a pod whose manifest went unseen")?;
        no_trace(&node, STRANGER).context("of a pod that nobody knows")?;
        let now = node.pod("crashing")?.context("the pod")?;
        ensure!(restarts(&now, "main") >= restarts(&crashing, "main"), "counts go on: {now:#}");
        dead_are_few(&node)?;
        node.agent.withdraw_all()?;
        node.until_gone("crashing")?;
        no_trace(&node, &uid(&crashing)?).context("of a pod that crashed")?;
        let left = node.runtime.containers("")?;
        ensure!(left.is_empty(), "left in the runtime: {left:?}");
        let groups = leftover_groups()?;
        ensure!(groups.is_empty(), "cgroups: {groups:?}");
        node.end()
    })
}

const FULL: &str = r#"
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "touch /disk/x /part/y /memory/z; exec sleep 1000"]
    volumeMounts:
    - {name: disk, mountPath: /disk}
    - {name: disk, mountPath: /part, subPath: part}
    - {name: memory, mountPath: /memory}
"#;
const CRASHING: &str = r#"
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: BUSYBOX, command: [sh, -c, "sleep 0.2; exit 1"]}]
"#;

/// One dead container is kept for each name: the newest, with its log.
fn dead_are_few(node: &StandaloneNode<'_>) -> Result<()> {
    let mut last = String::new();
    let few = wait_for("one dead container", Duration::from_secs(70), || {
        let lives = node.runtime.containers("crashing")?;
        let dead: Vec<_> = lives.iter().filter(|life| life.finished_at > 0).collect();
        last = format!("{lives:?}");
        // Between an end and the next round there is one more.
        Ok(dead.len() <= 2 && !dead.is_empty())
    });
    few.with_context(|| last.clone())
}

fn link_of(pod: &serde_json::Value, name: &str) -> Result<PathBuf> {
    let id = container_id(pod, "main")?;
    Ok(Path::new("/var/log/containers").join(format!("{name}-node_default_main-{id}.log")))
}

fn no_trace(node: &StandaloneNode<'_>, uid: &str) -> Result<()> {
    let mut left = Vec::new();
    let gone = wait_for("no trace", Duration::from_secs(30), || {
        left = traces(node, uid)?;
        Ok(left.is_empty())
    });
    gone.with_context(|| format!("left: {left:#?}"))
}

/// Everything that names the pod: directories, logs, records, mounts, cgroups.
fn traces(node: &StandaloneNode<'_>, uid: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let root = node.home.root();
    let mut dirs = vec![root.join("pods"), PathBuf::from("/var/log/pods")];
    dirs.push(root.join("keelson/pods"));
    dirs.push(root.join("keelson/uids"));
    for dir in dirs {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries {
            let path = entry?.path();
            let content = if path.is_file() { fs::read_to_string(&path).ok() } else { None };
            let name = path.to_string_lossy().into_owned();
            if name.contains(uid) || content.is_some_and(|content| content.contains(uid)) {
                found.push(name);
            }
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    found.extend(mounts.lines().filter(|line| line.contains(uid)).map(str::to_owned));
    found.extend(leftover_groups()?.into_iter().filter(|group| group.contains(uid)));
    Ok(found)
}

/// Everything that is left of any pod: directories, logs, links, records, mounts, cgroups.
pub(crate) fn remains(root: &Path) -> Result<Vec<String>> {
    remains_in(root, Path::new("/var/log/pods"))
}

/// The same with another log directory.
pub(crate) fn remains_in(root: &Path, logs: &Path) -> Result<Vec<String>> {
    let mut found = leftover_groups()?;
    let records = ["pods", "uids", "manifests", "ending"].map(|dir| root.join("keelson").join(dir));
    let mut dirs = vec![root.join("pods"), logs.to_owned()];
    dirs.extend(records);
    dirs.push(PathBuf::from("/var/log/containers"));
    for dir in dirs {
        match fs::read_dir(&dir) {
            Ok(entries) => {
                for entry in entries {
                    found.push(entry?.path().display().to_string());
                }
            }
            Err(none) if none.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| dir.display().to_string()),
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let below = root.join("pods").display().to_string();
    found.extend(mounts.lines().filter(|line| line.contains(&below)).map(str::to_owned));
    Ok(found)
}

/// Where hierarchies are mounted.
pub(crate) fn cgroup_tops() -> Result<Vec<PathBuf>> {
    let top = Path::new("/sys/fs/cgroup");
    if top.join("cgroup.controllers").exists() {
        return Ok(vec![top.to_owned()]);
    }
    let mut tops = Vec::new();
    for entry in fs::read_dir(top)? {
        let path = entry?.path();
        if path.join("kubepods").is_dir() && !path.is_symlink() {
            tops.push(path);
        }
    }
    if tops.is_empty() {
        bail!("no hierarchy has pods");
    }
    Ok(tops)
}

/// cgroups of pods in every hierarchy.
fn leftover_groups() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for top in cgroup_tops()? {
        for class in ["", "burstable", "besteffort"] {
            let Ok(entries) = fs::read_dir(top.join("kubepods").join(class)) else { continue };
            for entry in entries {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if path.is_dir() && name.starts_with("pod") {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    Ok(found)
}
