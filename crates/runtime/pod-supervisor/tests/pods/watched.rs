//! Containers created in view of others: shared PID namespaces.
//!
//! The watcher has the capability to trace any process. It is first tried on a process that it may
//! inspect, and must have seen every process that was entering.

use pod_supervisor::spec::{ContainerSpec, NamespaceMode, PodSpec};

use super::fixture::{DEFAULT_CAPABILITIES, PodFixture, capabilities, pod, process, run};
use super::namespaces::mappings;

const TRACE: u64 = 1 << 19;
/// Each pass prints the processes that it met and every path it could resolve.
const WATCH: &str = "while :; do for p in /proc/[0-9]*; do cd $p 2>/dev/null || continue; \
    { read name < comm; } 2>/dev/null; \
    case $name in sh|ls|sleep) ;; *) echo ${p#/proc/} >> /tmp/met;; esac; \
    ls -ld root cwd exe fd/* fd/*/1/roo[t]/etc/shadow fd/*/etc/shadow root/etc/shadow \
    >> /tmp/seen 2>/dev/null; done; done";

fn read(fixture: &PodFixture, name: &str) -> String {
    std::fs::read_to_string(fixture.root().join("tmp").join(name)).unwrap_or_default()
}

async fn until(fixture: &PodFixture, name: &str, what: impl Fn(&str) -> bool) {
    // Bounded by the test's deadline.
    while !what(&read(fixture, name)) {
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
async fn watch(fixture: &PodFixture, mut watcher: ContainerSpec, mut open: ContainerSpec) {
    for spec in [&mut watcher, &mut open] {
        spec.security.as_mut().expect("security").capabilities =
            Some(capabilities(DEFAULT_CAPABILITIES | TRACE));
    }
    watcher.process = Some(process(WATCH));
    open.process = Some(process("echo > /tmp/known; exec 3< /tmp/known; exec sleep 1000"));
    fixture.start(watcher).await;
    fixture.start(open).await;
    until(fixture, "seen", |found_paths| found_paths.contains("/tmp/known")).await;
}

/// Creates containers that wait for their start longer than a pass of the watcher takes.
async fn create_some(fixture: &PodFixture, spec: impl Fn(&str) -> ContainerSpec) {
    for number in 0..5 {
        let id = format!("made{number}");
        let mut wanted = spec(&id);
        wanted.process = Some(process("true"));
        let state = fixture.client.create(wanted).await.expect("created");
        let pid = inner_pid(state.pid);
        // Twice: the first pass may have begun before it waited.
        let look_count = |met_pids: &str| met_pids.lines().filter(|line| *line == pid).count();
        let before = look_count(&read(fixture, "met"));
        until(fixture, "met", |met_pids| look_count(met_pids) > before + 1).await;
        fixture.client.delete(&id).await.expect("deleted");
    }
    // And quickly, so that some are met at every stage.
    for number in 0..40 {
        let id = format!("quick{number}");
        fixture.client.create(spec(&id)).await.expect("created");
        fixture.client.delete(&id).await.expect("deleted");
    }
}

/// Nothing of the host: no file of the pod, no cgroup, no path to the host's root.
fn assert_nothing_found(fixture: &PodFixture) {
    let found_paths = read(fixture, "seen");
    let dir = fixture.dir.path().display().to_string();
    for word in [dir.as_str(), "cgroup", "shadow", "/ns/", "/net:", "pid:["] {
        let found: Vec<_> =
            found_paths.lines().filter(|line| line.contains(word)).take(5).collect();
        assert!(found.is_empty(), "{word}: {found:#?}");
    }
}

#[test]
fn a_pod_with_a_shared_pid_namespace_finds_no_host_descriptors() {
    run(async {
        let mut fixture =
            PodFixture::with(PodSpec { pid: NamespaceMode::Pod as i32, ..pod() }).await;
        let spec = |id: &str| {
            let mut spec = fixture.spec(id, "sleep 1000");
            spec.namespaces.as_mut().expect("namespaces").pid = NamespaceMode::Pod as i32;
            spec
        };
        watch(&fixture, spec("watcher"), spec("open")).await;
        create_some(&fixture, spec).await;
        assert_nothing_found(&fixture);
        fixture.shut_down().await;
    });
}

#[test]
fn a_container_whose_pid_namespace_is_joined_finds_no_host_descriptors() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let of_target = |id: &str| {
            let mut spec = fixture.spec(id, "sleep 1000");
            let namespaces = spec.namespaces.as_mut().expect("namespaces");
            namespaces.pid = NamespaceMode::Target as i32;
            namespaces.pid_target = "watcher".into();
            spec
        };
        watch(&fixture, fixture.spec("watcher", ""), of_target("open")).await;
        create_some(&fixture, of_target).await;
        assert_nothing_found(&fixture);
        fixture.shut_down().await;
    });
}

/// Here the kernel itself keeps the watcher out: its capabilities end with its user namespace.
#[test]
fn a_pod_with_a_user_namespace_cannot_trace_new_processes() {
    run(async {
        let pod =
            PodSpec { pid: NamespaceMode::Pod as i32, user_namespace: Some(mappings()), ..pod() };
        let mut fixture = PodFixture::with(pod).await;
        let spec = |id: &str| {
            let mut spec = fixture.spec(id, "sleep 1000");
            let namespaces = spec.namespaces.as_mut().expect("namespaces");
            namespaces.pid = NamespaceMode::Pod as i32;
            spec.root.as_mut().expect("root").map_ids = true;
            spec
        };
        watch(&fixture, spec("watcher"), spec("open")).await;
        create_some(&fixture, spec).await;
        assert_nothing_found(&fixture);
        fixture.shut_down().await;
    });
}
