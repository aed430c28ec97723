//! A full disk under the pod directories, or under the pod logs: the error names what is full,
//! everything else goes on, and all recovers once there is room.
//!
//! Each is its own small file system. Full means: no free block and no free inode.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::Containerd;
use real_tests::standalone::agent::AgentHome;
use rustix::mount::{MountFlags, mount};

use crate::clean_up::remains_in;
use crate::faults::{TOUCHY, poke};
use crate::node::{
    StandaloneNode, WAIT_LIMIT, archives, container_id, containerd, ensure_has, is_ready, keelson,
    only, restarts, wait_for,
};

const FULL: &str = "No space left on device";
const TALKER: &str = r#"
  hostNetwork: true
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "trap 'exit 0' TERM; i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done"]
"#;

#[test]
fn a_full_disk_is_reported_and_affects_only_pods_that_write_to_it() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(300)).run(move |bed| {
        let parts = containerd(bed, &archives)?;
        let logs = bed.create_dir("pod-logs")?;
        let lines = format!("podLogsDir: {}\n", logs.display());
        let home = AgentHome::new(bed, "full", &parts.0.endpoint())?.with(&lines);
        fs::create_dir_all(home.root())?;
        for dir in [&home.root(), &logs] {
            mount("tmpfs", dir, "tmpfs", MountFlags::empty(), c"size=1m,nr_inodes=600,mode=755")
                .with_context(|| dir.display().to_string())?;
        }
        let node = StandaloneNode::of_parts(bed, &keelson, parts, home)?;
        for (name, spec) in [("steady", TOUCHY), ("touchy", TOUCHY), ("talker", TALKER)] {
            node.place(name, spec)?;
            node.until_ready(name)?;
        }
        let node = under_dirs(node).context("no room for pods' folders")?;
        under_logs(&node, &logs).context("no room for logs")?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        let root = node.home.root();
        let mut left = Vec::new();
        wait_for("nothing is left", WAIT_LIMIT, || {
            left = remains_in(&root, &logs)?;
            Ok(left.is_empty())
        })
        .with_context(|| format!("left: {left:#?}"))?;
        node.end()
    })
}

fn under_dirs(node: StandaloneNode<'_>) -> Result<StandaloneNode<'_>> {
    let root = node.home.root();
    let steady = only(&node.runtime, "steady")?.id;
    fill(&root)?;
    node.place("late", TOUCHY)?;
    let output = node.until_explained("late", FULL)?;
    ensure_has(&output, &[&*root.to_string_lossy()])?;
    // A container's exit is observed, and what cannot be written is reported.
    poke(&node, "touchy")?;
    let mut warnings = String::new();
    wait_for("what cannot be written is told", WAIT_LIMIT, || {
        warnings = node.agent.warnings(&["ps"])?;
        Ok(warnings.contains("cannot be written") && warnings.contains(FULL))
    })
    .with_context(|| warnings.clone())?;
    ensure!(only(&node.runtime, "steady")?.id == steady, "what runs runs on");
    let lines = || node.agent.ask(&["logs", "talker", "--tail", "1"]);
    let before = lines()?;
    wait_for("other pods go on", WAIT_LIMIT, || Ok(lines()? != before))?;

    // Nor does a new agent mind.
    let node = node.restart_agent(|_| Ok(()))?;
    node.until_ready("steady")?;
    ensure!(only(&node.runtime, "steady")?.id == steady, "nothing is started again");
    node.until_explained("late", FULL)?;
    make_room(&root)?;
    node.until_ready("late").context("with room again")?;
    node.until("its next life", "touchy", |pod| restarts(pod, "main") >= 1 && is_ready(pod))?;
    wait_for("all is written down", WAIT_LIMIT, || {
        Ok(!node.agent.warnings(&["ps"])?.contains("cannot be written"))
    })?;
    ensure!(only(&node.runtime, "steady")?.id == steady, "what ran runs on");
    Ok(node)
}

fn under_logs(node: &StandaloneNode<'_>, logs: &Path) -> Result<()> {
    let talker = node.until_ready("talker")?;
    let id = container_id(&talker, "main")?;
    fill(logs)?;
    node.place("speechless", TOUCHY)?;
    let output = node.until_explained("speechless", FULL)?;
    ensure_has(&output, &[&*logs.to_string_lossy()])?;
    ensure!(only(&node.runtime, "talker")?.id == id, "who talks is not ended for it");
    make_room(logs)?;
    node.until_ready("speechless").context("with room again")?;
    // The line during which the disk became full may be torn.
    let number = || -> Result<u32> {
        let line = node.agent.ask(&["logs", "talker", "--tail", "1"])?;
        Ok(line.trim().rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default())
    };
    let before = number()?;
    wait_for("the log goes on", WAIT_LIMIT, || Ok(number()? > before))?;
    let talker = node.until_ready("talker")?;
    ensure!(container_id(&talker, "main")? == id && restarts(&talker, "main") == 0, "{talker:#}");
    Ok(())
}

/// Uses all blocks and all inodes.
fn fill(dir: &Path) -> Result<()> {
    let full = |error: &std::io::Error| error.kind() == ErrorKind::StorageFull;
    for number in 0.. {
        let path = dir.join(format!("filler-{number}"));
        let mut file = match File::create(&path) {
            Err(error) if full(&error) => break,
            made => made.with_context(|| path.display().to_string())?,
        };
        loop {
            match file.write(&[0; 4096]) {
                Ok(_) => {}
                Err(error) if full(&error) => break,
                Err(error) => return Err(error).context(path.display().to_string()),
            }
        }
    }
    Ok(())
}

fn make_room(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("filler-") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
