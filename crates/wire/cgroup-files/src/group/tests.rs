//! Cgroups on the machine's own kernel; needs root and a writable cgroup file system.

use super::*;
use crate::limits::CgroupResources;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command};

struct TestCgroup(Cgroup);

impl TestCgroup {
    fn new(name: &str) -> Option<Self> {
        let hierarchy = CgroupHierarchies::detect().ok()?;
        let path = format!("/keelson-test-{}-{name}", std::process::id());
        let group = hierarchy.group(&path).expect("a path");
        match group.create() {
            Ok(()) => Some(Self(group)),
            Err(error) => {
                println!("could-not-run: {error}");
                None
            }
        }
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.remove_within(Duration::from_secs(5));
    }
}

fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().expect("started")
}

#[test]
fn a_process_enters_and_is_killed_with_the_group() {
    let Some(scratch) = TestCgroup::new("kill") else { return };
    let group = &scratch.0;
    let inner = group.child("inner").expect("a path");
    inner.create().expect("made");
    let mut children = [sleeper(), sleeper()];
    group.add_process(children[0].id()).expect("placed");
    inner.add_process(children[1].id()).expect("placed");
    assert_eq!(group.processes().expect("listed"), [children[0].id()]);
    assert_eq!(group.processes_beneath().expect("listed").len(), 2);
    let reaper = std::thread::spawn(move || {
        children.iter_mut().map(|child| child.wait().expect("waited").code()).collect::<Vec<_>>()
    });
    group.kill().expect("killed");
    assert_eq!(reaper.join().expect("joined"), [None, None]);
    group.remove_within(Duration::from_secs(5)).expect("removed");
    assert!(!group.exists_in_any_hierarchy());
    group.kill().expect("nothing to kill is fine");
    group.remove().expect("nothing to remove is fine");
}

#[test]
fn limits_reach_the_kernel_and_come_back_as_stats() {
    let Some(scratch) = TestCgroup::new("limits") else { return };
    let limits = CgroupResources {
        memory: Some(64 << 20),
        pids: Some(7),
        cpu_shares: Some(512),
        cpu_quota: Some(20_000),
        cpu_period: Some(100_000),
        ..CgroupResources::default()
    };
    scratch.0.apply(&limits).expect("applied");
    let stats = scratch.0.stats().expect("read");
    assert_eq!(stats.memory.limit, Some(64 << 20));
    assert_eq!(stats.pids.limit, Some(7));
    assert_eq!(stats.pids.current, Some(0));
    assert_eq!(scratch.0.oom_kill_count().expect("read"), 0);
    let watch = crate::MemoryEventsWatch::new(&scratch.0).expect("watched");
    watch.rearm();
}

#[test]
fn a_group_without_controllers_below_takes_processes_itself() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("cgroup.controllers"), "memory").expect("written");
    std::fs::create_dir(dir.path().join("a")).expect("made");
    let group = CgroupHierarchies::unified(dir.path()).expect("v2").group("/a").expect("a path");
    assert_eq!(group.attachable_cgroup(std::process::id()), group, "no such file");
    let control = dir.path().join("a/cgroup.subtree_control");
    for passed in ["\n", "memory\n"] {
        // This process is in none of its descendants.
        std::fs::write(&control, passed).expect("written");
        assert_eq!(group.attachable_cgroup(std::process::id()), group, "{passed:?}");
    }
}

/// On version 1 a cgroup is created and removed hierarchy by hierarchy, and a kill may come in
/// between.
#[test]
fn a_cgroup_that_exists_in_only_some_hierarchies_is_listed_and_removed() {
    let Some(scratch) = TestCgroup::new("partial") else { return };
    let left = scratch.0.child("left").expect("a path");
    for dir in left.dirs() {
        std::fs::create_dir(&dir).expect("made");
        let children = scratch.0.children().expect("listed");
        assert_eq!(children, std::slice::from_ref(&left), "{}", dir.display());
        left.remove().expect("removed");
        assert!(scratch.0.children().expect("listed").is_empty(), "{}", dir.display());
    }
}

#[test]
fn a_thread_that_attaches_itself_takes_its_children_along() {
    let Some(scratch) = TestCgroup::new("caller") else { return };
    let group = scratch.0.clone();
    let beneath = group.child("beneath").expect("a path");
    let Some(frozen) = beneath.dir(Controller::Freezer) else { return };
    if group.hierarchy().version() == CgroupVersion::V2 {
        assert!(group.task_files_for_caller(None).expect("opened").is_none());
        return;
    }
    std::fs::create_dir(&frozen).expect("made");
    let inside = std::thread::spawn(move || {
        let procs_files =
            group.task_files_for_caller(Some(&beneath)).expect("opened").expect("there is one");
        procs_files.attach(0).expect("gone in");
        sleeper()
    });
    let mut child = inside.join().expect("joined");
    let cgroup_file =
        std::fs::read_to_string(format!("/proc/{}/cgroup", child.id())).expect("read");
    let path = scratch.0.path();
    for line in cgroup_file.lines().filter(|line| !line.starts_with("0::")) {
        let below = if line.contains(":freezer:") { "/beneath" } else { "" };
        assert!(line.ends_with(&format!("{path}{below}")), "{line}");
    }
    child.kill().expect("killed");
    child.wait().expect("waited");
    std::fs::remove_dir(&frozen).expect("removed");
}

/// A program with rights over its cgroup chooses the names of its children.
#[test]
fn a_process_in_a_cgroup_with_a_non_utf_8_name_is_killed_too() {
    let Some(scratch) = TestCgroup::new("bytes") else { return };
    let mut child = sleeper();
    for dir in scratch.0.dirs() {
        let invalid = dir.join(OsStr::from_bytes(b"\xff\xfe"));
        std::fs::create_dir(&invalid).expect("made");
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(value) = std::fs::read(dir.join(file)) {
                std::fs::write(invalid.join(file), value).expect("written");
            }
        }
        std::fs::write(invalid.join("cgroup.procs"), child.id().to_string()).expect("admitted");
    }
    assert_eq!(scratch.0.processes_beneath().expect("listed"), [child.id()]);
    assert!(scratch.0.children().expect("listed").is_empty());
    scratch.0.kill_in_rounds().expect("killed");
    assert_eq!(child.wait().expect("ended").code(), None);
    scratch.0.remove_within(Duration::from_secs(5)).expect("removed");
}
