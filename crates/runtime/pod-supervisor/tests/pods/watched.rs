//! Containers created in view of others: shared PID namespaces.
//!
//! The watcher has the capability to trace any process. It is first tried on a process that it may
//! inspect, and must have seen every process that was entering.

use pod_supervisor::spec::{ContainerSpec, NamespaceMode, PodSpec};

use super::bed::{Bed, USUAL_CAPABILITIES, capabilities, pod, process, run};
use super::namespaces::mappings;

const TRACE: u64 = 1 << 19;
/// Each pass prints the processes that it met and every path it could resolve.
const WATCH: &str = "while :; do for p in /proc/[0-9]*; do cd $p 2>/dev/null || continue; \
    { read name < comm; } 2>/dev/null; \
    case $name in sh|ls|sleep) ;; *) echo ${p#/proc/} >> /tmp/met;; esac; \
    ls -ld root cwd exe fd/* fd/*/1/roo[t]/etc/shadow fd/*/etc/shadow root/etc/shadow \
    >> /tmp/seen 2>/dev/null; done; done";

fn read(bed: &Bed, name: &str) -> String {
    std::fs::read_to_string(bed.root().join("tmp").join(name)).unwrap_or_default()
}

async fn until(bed: &Bed, name: &str, what: impl Fn(&str) -> bool) {
    // Bounded by the test's deadline.
    while !what(&read(bed, name)) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// A process's PID in its own PID namespace.
fn inner_pid(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find(|line| line.starts_with("NSpid:")).expect("a line");
    line.split_whitespace().last().expect("a number").to_owned()
}

/// Starts the watcher and checks that it finds a descriptor where it is allowed to.
async fn watch(bed: &Bed, mut watcher: ContainerSpec, mut open: ContainerSpec) {
    for spec in [&mut watcher, &mut open] {
        spec.security.as_mut().expect("security").capabilities =
            Some(capabilities(USUAL_CAPABILITIES | TRACE));
    }
    watcher.process = Some(process(WATCH));
    open.process = Some(process("echo > /tmp/known; exec 3< /tmp/known; exec sleep 1000"));
    bed.start(watcher).await;
    bed.start(open).await;
    until(bed, "seen", |seen| seen.contains("/tmp/known")).await;
}

/// Creates containers that wait for their start longer than a pass of the watcher takes.
async fn make_some(bed: &Bed, spec: impl Fn(&str) -> ContainerSpec) {
    for number in 0..5 {
        let id = format!("made{number}");
        let mut wanted = spec(&id);
        wanted.process = Some(process("true"));
        let state = bed.client.create(wanted).await.expect("created");
        let pid = inner_pid(state.pid);
        // Twice: the first pass may have begun before it waited.
        let looks = |met: &str| met.lines().filter(|line| *line == pid).count();
        let before = looks(&read(bed, "met"));
        until(bed, "met", |met| looks(met) > before + 1).await;
        bed.client.delete(&id).await.expect("deleted");
    }
    // And quickly, so that some are met at every stage.
    for number in 0..40 {
        let id = format!("quick{number}");
        bed.client.create(spec(&id)).await.expect("created");
        bed.client.delete(&id).await.expect("deleted");
    }
}

/// Nothing of the host: no file of the pod, no cgroup, no path to the host's root.
fn saw_nothing(bed: &Bed) {
    let seen = read(bed, "seen");
    let folder = bed.folder.path().display().to_string();
    for word in [folder.as_str(), "cgroup", "shadow", "/ns/", "/net:", "pid:["] {
        let found: Vec<_> = seen.lines().filter(|line| line.contains(word)).take(5).collect();
        assert!(found.is_empty(), "{word}: {found:#?}");
    }
}

#[test]
fn a_pod_that_shares_its_processes_sees_nothing_of_the_machine() {
    run(async {
        let mut bed = Bed::with(PodSpec { pid: NamespaceMode::Pod as i32, ..pod() }).await;
        let spec = |id: &str| {
            let mut spec = bed.spec(id, "sleep 1000");
            spec.namespaces.as_mut().expect("namespaces").pid = NamespaceMode::Pod as i32;
            spec
        };
        watch(&bed, spec("watcher"), spec("open")).await;
        make_some(&bed, spec).await;
        saw_nothing(&bed);
        bed.shut_down().await;
    });
}

#[test]
fn a_container_that_is_another_ones_target_sees_nothing_of_the_machine() {
    run(async {
        let mut bed = Bed::new().await;
        let of_target = |id: &str| {
            let mut spec = bed.spec(id, "sleep 1000");
            let namespaces = spec.namespaces.as_mut().expect("namespaces");
            namespaces.pid = NamespaceMode::Target as i32;
            namespaces.pid_target = "watcher".into();
            spec
        };
        watch(&bed, bed.spec("watcher", ""), of_target("open")).await;
        make_some(&bed, of_target).await;
        saw_nothing(&bed);
        bed.shut_down().await;
    });
}

/// Here the kernel itself keeps the watcher out: its capabilities end with its user namespace.
#[test]
fn a_pod_with_a_user_namespace_cannot_look_at_all() {
    run(async {
        let pod =
            PodSpec { pid: NamespaceMode::Pod as i32, user_namespace: Some(mappings()), ..pod() };
        let mut bed = Bed::with(pod).await;
        let spec = |id: &str| {
            let mut spec = bed.spec(id, "sleep 1000");
            let namespaces = spec.namespaces.as_mut().expect("namespaces");
            namespaces.pid = NamespaceMode::Pod as i32;
            spec.root.as_mut().expect("root").map_ids = true;
            spec
        };
        watch(&bed, spec("watcher"), spec("open")).await;
        make_some(&bed, spec).await;
        saw_nothing(&bed);
        bed.shut_down().await;
    });
}
