//! A pod with its supervisor in a temporary directory, removed however the test ends.

use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cgroup_files::{Cgroup, CgroupHierarchies};
use pod_supervisor::launch::SupervisorProgram;
use pod_supervisor::protocol::{ContainerState, Event, EventBody, ProcessExit};
use pod_supervisor::spec::{
    CapabilitySpec, CgroupSpec, ContainerNamespaces, ContainerSpec, MountKind, MountSpec,
    NamespaceMode, PodSpec, ProcessSpec, RootFilesystem, SecuritySpec, StreamsSpec,
};
use pod_supervisor::{ExecOptions, StdioDescriptors, SupervisorClient};
use tokio::sync::mpsc;

const BUSYBOX: &str = "/bin/busybox";
const APPLETS: &[&str] = &[
    "sh", "cat", "echo", "ls", "sleep", "id", "true", "false", "mount", "umount", "grep", "stat",
    "hostname", "kill", "ps", "touch", "mkdir", "mknod", "dd", "chmod", "ip", "seq", "stty", "tty",
    "chown", "head", "tail", "wc", "env", "pwd", "readlink", "trap", "setsid", "ln", "rm",
    "ulimit", "nohup", "tr", "cut", "yes", "test", "chroot", "unshare", "awk", "sed", "usleep",
    "find", "od", "df",
];
/// Default capabilities of containers (CRI's default set).
pub(crate) const DEFAULT_CAPABILITIES: u64 = 0xa804_25fb;

static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

fn program() -> &'static SupervisorProgram {
    static PROGRAM: OnceLock<SupervisorProgram> = OnceLock::new();
    PROGRAM.get_or_init(new_program)
}

pub(crate) fn new_program() -> SupervisorProgram {
    // To test another build: `KEELSON_POD_PROGRAM=PATH cargo test -p pod-supervisor`.
    let other = std::env::var_os("KEELSON_POD_PROGRAM").map(PathBuf::from);
    let path = other.unwrap_or_else(|| env!("CARGO_BIN_EXE_keelson-pod").into());
    let bytes = std::fs::read(&path).expect("the supervisor");
    SupervisorProgram::from_bytes(&bytes).expect("in memory")
}

/// Runs a test under a deadline.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(90), test).await.expect("within 90 seconds");
    });
}

pub(crate) struct PodFixture {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) client: SupervisorClient,
    pub(crate) events: mpsc::Receiver<Event>,
    driver: tokio::task::JoinHandle<pod_supervisor::ClientError>,
    pub(crate) group: Cgroup,
    pub(crate) supervisor: u32,
    seen_events: Vec<Event>,
    execs: u32,
}

pub(crate) fn pod() -> PodSpec {
    PodSpec {
        id: "pod".into(),
        hostname: "pod-name".into(),
        pid: NamespaceMode::Container as i32,
        ..PodSpec::default()
    }
}

impl PodFixture {
    pub(crate) async fn new() -> Self {
        Self::with(pod()).await
    }

    pub(crate) async fn with(mut pod: PodSpec) -> Self {
        let mut fixture = Self::bare().await;
        if pod.network_pin == "PIN" {
            pod.network_pin = fixture.dir.path().join("net").display().to_string();
        }
        fixture.client.create_pod(pod).await.expect("a pod");
        fixture.seen_events.clear();
        fixture
    }

    pub(crate) async fn bare() -> Self {
        Self::bare_from(program()).await
    }

    pub(crate) async fn bare_from(program: &SupervisorProgram) -> Self {
        assert!(rustix::process::getuid().is_root(), "these tests need root");
        let dir = tempfile::tempdir().expect("a folder");
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = format!("/keelson-pods-{}-{number}", std::process::id());
        let group =
            CgroupHierarchies::detect().expect("control groups").group(&path).expect("a path");
        program.launch(dir.path(), None).expect("launched");
        let connection = SupervisorClient::connect(dir.path()).await.expect("connected");
        create_root(&dir.path().join("root"));
        Self {
            dir,
            client: connection.client,
            events: connection.events,
            supervisor: connection.supervisor_pid,
            driver: tokio::spawn(connection.driver.run()),
            group,
            seen_events: Vec::new(),
            execs: 0,
        }
    }

    /// The server exits and a new one connects.
    pub(crate) async fn reconnect(&mut self) {
        self.driver.abort();
        let _ = (&mut self.driver).await;
        let connection = SupervisorClient::connect(self.dir.path()).await.expect("connected again");
        self.client = connection.client;
        self.events = connection.events;
        self.driver = tokio::spawn(connection.driver.run());
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub(crate) fn log_path(&self, id: &str) -> PathBuf {
        self.dir.path().join(format!("{id}.log"))
    }

    /// A container as the CRI server would create it, running a shell script.
    pub(crate) fn spec(&self, id: &str, script: &str) -> ContainerSpec {
        let mount = |kind: MountKind, target: &str| MountSpec {
            kind: kind as i32,
            target: target.into(),
            no_suid: true,
            no_exec: true,
            no_dev: kind != MountKind::Devpts,
            ..MountSpec::default()
        };
        ContainerSpec {
            id: id.into(),
            root: Some(RootFilesystem {
                path: self.root().display().to_string(),
                ..RootFilesystem::default()
            }),
            process: Some(process(script)),
            security: Some(SecuritySpec {
                capabilities: Some(capabilities(DEFAULT_CAPABILITIES)),
                ..SecuritySpec::default()
            }),
            mounts: vec![
                mount(MountKind::Proc, "/proc"),
                MountSpec {
                    kind: MountKind::Dev as i32,
                    target: "/dev".into(),
                    ..Default::default()
                },
                mount(MountKind::Devpts, "/dev/pts"),
                mount(MountKind::Mqueue, "/dev/mqueue"),
                MountSpec { read_only: true, ..mount(MountKind::Sysfs, "/sys") },
                MountSpec { read_only: true, ..mount(MountKind::Cgroup, "/sys/fs/cgroup") },
            ],
            cgroup: Some(CgroupSpec {
                path: format!("{}/{id}", self.group.path()),
                ..CgroupSpec::default()
            }),
            namespaces: Some(ContainerNamespaces {
                pid: NamespaceMode::Container as i32,
                cgroup: NamespaceMode::Node as i32,
                ..ContainerNamespaces::default()
            }),
            masked_paths: [
                "/proc/kcore",
                "/proc/keys",
                "/proc/timer_list",
                "/proc/scsi",
                "/sys/firmware",
            ]
            .map(str::to_owned)
            .into(),
            read_only_paths: ["/proc/sys", "/proc/irq", "/proc/bus"].map(str::to_owned).into(),
            streams: Some(StreamsSpec {
                log_path: self.log_path(id).display().to_string(),
                ..StreamsSpec::default()
            }),
            ..ContainerSpec::default()
        }
    }

    pub(crate) async fn start(&self, spec: ContainerSpec) -> ContainerState {
        let id = spec.id.clone();
        self.client.create(spec).await.expect("created");
        self.client.start(&id).await.expect("started")
    }

    /// Starts a container, waits for its exit, returns the exit and the log's lines.
    pub(crate) async fn complete(&mut self, spec: ContainerSpec) -> (ProcessExit, Vec<String>) {
        let id = spec.id.clone();
        self.start(spec).await;
        let exit = self.ended(&id).await;
        (exit, self.lines(&id))
    }

    /// Runs a script in a default container; returns its output.
    pub(crate) async fn output(&mut self, id: &str, script: &str) -> Vec<String> {
        let spec = self.spec(id, script);
        self.complete(spec).await.1
    }

    /// The texts of the log without timestamps; parts of a line are joined.
    pub(crate) fn lines(&self, id: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.log_path(id)).expect("a log");
        text.lines().map(|line| line.splitn(4, ' ').nth(3).expect("a text").to_owned()).collect()
    }

    async fn next(&mut self) -> Event {
        tokio::time::timeout(Duration::from_secs(30), self.events.recv())
            .await
            .expect("an event within 30 seconds")
            .expect("the supervisor lives")
    }

    async fn seek<T>(&mut self, find: impl Fn(&Event) -> Option<T>) -> T {
        loop {
            if let Some(found) = self.seen_events.iter().find_map(&find) {
                return found;
            }
            let event = self.next().await;
            self.seen_events.push(event);
        }
    }

    pub(crate) async fn ended(&mut self, id: &str) -> ProcessExit {
        self.seek(|event| match &event.body {
            Some(EventBody::ContainerExited(state)) if state.id == id => state.exit,
            _ => None,
        })
        .await
    }

    pub(crate) async fn exec_ended(&mut self, exec: &str) -> ProcessExit {
        self.seek(|event| match &event.body {
            Some(EventBody::ExecExited(state)) if state.exec == exec => state.exit,
            _ => None,
        })
        .await
    }

    pub(crate) async fn out_of_memory(&mut self, id: &str) -> u64 {
        self.seek(|event| match &event.body {
            Some(EventBody::OutOfMemory(state)) if state.id == id => {
                Some(state.out_of_memory_kills)
            }
            _ => None,
        })
        .await
    }

    /// Runs a script in a running container: exit, standard output, standard error.
    pub(crate) async fn exec(&mut self, id: &str, script: &str) -> (ProcessExit, String, String) {
        self.exec_within(id, script, None).await
    }

    pub(crate) async fn exec_within(
        &mut self,
        id: &str,
        script: &str,
        timeout: Option<Duration>,
    ) -> (ProcessExit, String, String) {
        self.execs += 1;
        let exec = format!("exec-{}", self.execs);
        let ((out_read, out_write), (err_read, err_write)) = (pipe(), pipe());
        let request = ExecOptions {
            container: id.into(),
            exec: exec.clone(),
            process: process(script),
            timeout,
            stdio: StdioDescriptors {
                stdin: None,
                stdout: Some(out_write),
                stderr: Some(err_write),
            },
            user: None,
        };
        self.client.exec(request).await.expect("an exec");
        let read = |pipe: OwnedFd| {
            tokio::task::spawn_blocking(move || {
                let mut text = String::new();
                File::from(pipe).read_to_string(&mut text).expect("text");
                text
            })
        };
        let (out, err) = (read(out_read), read(err_read));
        let exit = self.exec_ended(&exec).await;
        (exit, out.await.expect("read"), err.await.expect("read"))
    }

    pub(crate) async fn shut_down(&mut self) {
        self.client.shutdown().await.expect("shut down");
        assert!(!self.dir.path().join("supervisor.sock").exists());
        let left = self.group.children().expect("listed");
        assert!(left.is_empty(), "groups are left: {left:?}");
    }
}

impl Drop for PodFixture {
    fn drop(&mut self) {
        self.driver.abort();
        let pid = i32::try_from(self.supervisor).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid
            && std::fs::read_to_string(format!("/proc/{}/comm", self.supervisor)).is_ok_and(
                |name| name.trim() == "keelson-pod" || name.trim().parse::<u32>().is_ok(),
            )
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.group.kill();
        if let Err(error) = self.group.remove_within(Duration::from_secs(10)) {
            println!("left over: {error}");
        }
        let pin = self.dir.path().join("net");
        let _ = rustix::mount::unmount(&pin, rustix::mount::UnmountFlags::DETACH);
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.path().join("supervisor.log"));
            println!("supervisor.log: {}", log.unwrap_or_default());
        }
    }
}

pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe")
}

pub(crate) fn process(script: &str) -> ProcessSpec {
    ProcessSpec {
        arguments: ["sh", "-c", script].map(str::to_owned).into(),
        environment: vec!["PATH=/bin".into(), "GREETING=hello".into()],
        ..ProcessSpec::default()
    }
}

pub(crate) fn capabilities(bits: u64) -> CapabilitySpec {
    CapabilitySpec { bounding: bits, effective: bits, permitted: bits, inheritable: 0, ambient: 0 }
}

fn create_root(root: &Path) {
    for dir in ["bin", "etc", "tmp", "proc", "sys", "dev"] {
        std::fs::create_dir_all(root.join(dir)).expect("made");
    }
    std::fs::copy(BUSYBOX, root.join("bin/busybox")).expect("busybox-static is installed");
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet)).expect("linked");
    }
    std::fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").expect("written");
}
