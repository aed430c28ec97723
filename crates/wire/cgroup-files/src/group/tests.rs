//! Cgroups on the machine's own kernel; needs root and a writable cgroup file system.

use super::*;
use crate::limits::Limits;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command};

struct Scratch(Cgroup);

impl Scratch {
    fn new(name: &str) -> Option<Self> {
        let hierarchy = Hierarchy::detect().ok()?;
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

impl Drop for Scratch {
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
    let Some(scratch) = Scratch::new("kill") else { return };
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
    assert!(!group.exists_somewhere());
    group.kill().expect("nothing to kill is fine");
    group.remove().expect("nothing to remove is fine");
}

#[test]
fn limits_reach_the_kernel_and_come_back_as_stats() {
    let Some(scratch) = Scratch::new("limits") else { return };
    let limits = Limits {
        memory: Some(64 << 20),
        pids: Some(7),
        cpu_shares: Some(512),
        cpu_quota: Some(20_000),
        cpu_period: Some(100_000),
        ..Limits::default()
    };
    scratch.0.apply(&limits).expect("applied");
    let stats = scratch.0.stats().expect("read");
    assert_eq!(stats.memory.limit, Some(64 << 20));
    assert_eq!(stats.pids.limit, Some(7));
    assert_eq!(stats.pids.current, Some(0));
    assert_eq!(scratch.0.out_of_memory_kills().expect("read"), 0);
    let watch = crate::MemoryWatch::new(&scratch.0).expect("watched");
    watch.acknowledge();
}

#[test]
fn a_group_without_controllers_below_takes_processes_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("cgroup.controllers"), "memory").expect("written");
    std::fs::create_dir(folder.path().join("a")).expect("made");
    let group = Hierarchy::unified(folder.path()).expect("v2").group("/a").expect("a path");
    assert_eq!(group.open_to_processes(std::process::id()), group, "no such file");
    let control = folder.path().join("a/cgroup.subtree_control");
    for passed in ["\n", "memory\n"] {
        // This process is in none of its descendants.
        std::fs::write(&control, passed).expect("written");
        assert_eq!(group.open_to_processes(std::process::id()), group, "{passed:?}");
    }
}

/// On version 1 a cgroup is created and removed hierarchy by hierarchy, and a kill may come in
/// between.
#[test]
fn a_group_that_is_only_in_some_hierarchies_is_listed_and_goes() {
    let Some(scratch) = Scratch::new("partial") else { return };
    let left = scratch.0.child("left").expect("a path");
    for folder in left.folders() {
        std::fs::create_dir(&folder).expect("made");
        let children = scratch.0.children().expect("listed");
        assert_eq!(children, std::slice::from_ref(&left), "{}", folder.display());
        left.remove().expect("removed");
        assert!(scratch.0.children().expect("listed").is_empty(), "{}", folder.display());
    }
}

#[test]
fn a_thread_goes_in_itself_and_takes_along_what_it_starts() {
    let Some(scratch) = Scratch::new("caller") else { return };
    let group = scratch.0.clone();
    let beneath = group.child("beneath").expect("a path");
    let Some(frozen) = beneath.folder(Controller::Freezer) else { return };
    if group.hierarchy().version() == Version::V2 {
        assert!(group.door_of_caller(None).expect("opened").is_none());
        return;
    }
    std::fs::create_dir(&frozen).expect("made");
    let inside = std::thread::spawn(move || {
        let door = group.door_of_caller(Some(&beneath)).expect("opened").expect("there is one");
        door.admit(0).expect("gone in");
        sleeper()
    });
    let mut child = inside.join().expect("joined");
    let told = std::fs::read_to_string(format!("/proc/{}/cgroup", child.id())).expect("read");
    let path = scratch.0.path();
    for line in told.lines().filter(|line| !line.starts_with("0::")) {
        let below = if line.contains(":freezer:") { "/beneath" } else { "" };
        assert!(line.ends_with(&format!("{path}{below}")), "{line}");
    }
    child.kill().expect("killed");
    child.wait().expect("waited");
    std::fs::remove_dir(&frozen).expect("removed");
}

/// A program with rights over its cgroup chooses the names of its children.
#[test]
fn a_process_in_a_group_whose_name_is_not_utf_8_is_killed_with_the_others() {
    let Some(scratch) = Scratch::new("bytes") else { return };
    let mut child = sleeper();
    for folder in scratch.0.folders() {
        let odd = folder.join(OsStr::from_bytes(b"\xff\xfe"));
        std::fs::create_dir(&odd).expect("made");
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(value) = std::fs::read(folder.join(file)) {
                std::fs::write(odd.join(file), value).expect("written");
            }
        }
        std::fs::write(odd.join("cgroup.procs"), child.id().to_string()).expect("admitted");
    }
    assert_eq!(scratch.0.processes_beneath().expect("listed"), [child.id()]);
    assert!(scratch.0.children().expect("listed").is_empty());
    scratch.0.kill_in_rounds().expect("killed");
    assert_eq!(child.wait().expect("ended").code(), None);
    scratch.0.remove_within(Duration::from_secs(5)).expect("removed");
}
