//! A full disk under the pod directories, or under the pod logs: the error names what is full,
//! everything else goes on, and all recovers once there is room.
//!
//! Each is its own small file system. Full means: no free block and no free inode.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::Test;
use node_testkit::start::Containerd;
use real_tests::standalone::agent::Home;
use rustix::mount::{MountFlags, mount};

use crate::clean_up::remains_in;
use crate::faults::{TOUCHY, poke};
use crate::node::{
    Node, PATIENCE, archives, container_id, containerd, ensure_has, is_ready, keelson, only,
    restarts, wait_for,
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
fn a_full_disk_is_named_and_costs_nothing_but_what_needs_it() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    Test::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(300)).run(move |bed| {
        let parts = containerd(bed, &archives)?;
        let logs = bed.make_folder("pod-logs")?;
        let lines = format!("podLogsDir: {}\n", logs.display());
        let home = Home::new(bed, "full", &parts.0.endpoint())?.with(&lines);
        fs::create_dir_all(home.root())?;
        for folder in [&home.root(), &logs] {
            mount("tmpfs", folder, "tmpfs", MountFlags::empty(), c"size=1m,nr_inodes=600,mode=755")
                .with_context(|| folder.display().to_string())?;
        }
        let node = Node::of_parts(bed, &keelson, parts, home)?;
        for (name, spec) in [("steady", TOUCHY), ("touchy", TOUCHY), ("talker", TALKER)] {
            node.place(name, spec)?;
            node.until_ready(name)?;
        }
        let node = under_folders(node).context("no room for pods' folders")?;
        under_logs(&node, &logs).context("no room for logs")?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        let root = node.home.root();
        let mut left = Vec::new();
        wait_for("nothing is left", PATIENCE, || {
            left = remains_in(&root, &logs)?;
            Ok(left.is_empty())
        })
        .with_context(|| format!("left: {left:#?}"))?;
        node.end()
    })
}

fn under_folders(node: Node<'_>) -> Result<Node<'_>> {
    let root = node.home.root();
    let steady = only(&node.runtime, "steady")?.id;
    fill(&root)?;
    node.place("late", TOUCHY)?;
    let said = node.until_explained("late", FULL)?;
    ensure_has(&said, &[&*root.to_string_lossy()])?;
    // A container's exit is observed, and what cannot be written is reported.
    poke(&node, "touchy")?;
    let mut told = String::new();
    wait_for("what cannot be written is told", PATIENCE, || {
        told = node.agent.warnings(&["ps"])?;
        Ok(told.contains("cannot be written") && told.contains(FULL))
    })
    .with_context(|| told.clone())?;
    ensure!(only(&node.runtime, "steady")?.id == steady, "what runs runs on");
    let lines = || node.agent.ask(&["logs", "talker", "--tail", "1"]);
    let before = lines()?;
    wait_for("other pods go on", PATIENCE, || Ok(lines()? != before))?;

    // Nor does a new agent mind.
    let node = node.restart_agent(|_| Ok(()))?;
    node.until_ready("steady")?;
    ensure!(only(&node.runtime, "steady")?.id == steady, "nothing is started again");
    node.until_explained("late", FULL)?;
    make_room(&root)?;
    node.until_ready("late").context("with room again")?;
    node.until("its next life", "touchy", |pod| restarts(pod, "main") >= 1 && is_ready(pod))?;
    wait_for("all is written down", PATIENCE, || {
        Ok(!node.agent.warnings(&["ps"])?.contains("cannot be written"))
    })?;
    ensure!(only(&node.runtime, "steady")?.id == steady, "what ran runs on");
    Ok(node)
}

fn under_logs(node: &Node<'_>, logs: &Path) -> Result<()> {
    let talker = node.until_ready("talker")?;
    let id = container_id(&talker, "main")?;
    fill(logs)?;
    node.place("speechless", TOUCHY)?;
    let said = node.until_explained("speechless", FULL)?;
    ensure_has(&said, &[&*logs.to_string_lossy()])?;
    ensure!(only(&node.runtime, "talker")?.id == id, "who talks is not ended for it");
    make_room(logs)?;
    node.until_ready("speechless").context("with room again")?;
    // The line during which the disk became full may be torn.
    let number = || -> Result<u32> {
        let line = node.agent.ask(&["logs", "talker", "--tail", "1"])?;
        Ok(line.trim().rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default())
    };
    let before = number()?;
    wait_for("the log goes on", PATIENCE, || Ok(number()? > before))?;
    let talker = node.until_ready("talker")?;
    ensure!(container_id(&talker, "main")? == id && restarts(&talker, "main") == 0, "{talker:#}");
    Ok(())
}

/// Uses all blocks and all inodes.
fn fill(folder: &Path) -> Result<()> {
    let full = |error: &std::io::Error| error.kind() == ErrorKind::StorageFull;
    for number in 0.. {
        let path = folder.join(format!("filler-{number}"));
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

fn make_room(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("filler-") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
