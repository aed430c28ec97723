//! A temporary root directory, a free port, a notification socket, and agents that cannot outlive
//! their test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// For anything that must come. Generous: the machine may be busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(20);

pub(crate) fn keelson() -> &'static OsStr {
    OsStr::new(env!("CARGO_BIN_EXE_keelson"))
}

/// What one or more agents need.
pub(crate) struct KubeletBed {
    dir: tempfile::TempDir,
    health_port: u16,
    agents: std::cell::Cell<u32>,
}

impl KubeletBed {
    /// A configuration with `more` lines at its end; a line there wins over the bed's own.
    pub(crate) fn new(more: &str) -> KubeletBed {
        let dir = tempfile::tempdir().unwrap();
        let health_port = free_port();
        let own = format!("healthzPort: {health_port}\n");
        let own = if more.contains("healthzPort") { "" } else { &own };
        // The defaults refuse machines with swap or cgroup version 1; these tests are not about that.
        let anywhere = if more.contains("failCgroupV1") {
            ""
        } else {
            "failCgroupV1: false\nfailSwapOn: false\n"
        };
        // Agents at once on one machine share neither cgroups nor pod logs.
        let text = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             authentication: {{webhook: {{enabled: false}}}}\nauthorization: {{mode: AlwaysAllow}}\n\
             containerRuntimeEndpoint: unix://{dir}/none.sock\npodLogsDir: {dir}/logs\n\
             cgroupsPerQOS: false\nenforceNodeAllocatable: [none]\n{anywhere}{own}{more}",
            dir = dir.path().display()
        );
        fs::write(dir.path().join("kubelet.yaml"), text).unwrap();
        KubeletBed { dir, health_port, agents: 0.into() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path("root")
    }

    pub(crate) fn health_port(&self) -> u16 {
        self.health_port
    }

    /// A kubelet on this bed, not started; it has no service manager.
    pub(crate) fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(keelson());
        command
            .arg("kubelet")
            .arg(format!("--config={}", self.path("kubelet.yaml").display()))
            .arg(format!("--root-dir={}", self.root().display()))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "RUST_BACKTRACE"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn start(&self, flags: &[&str]) -> TestAgent {
        self.start_with(flags, |_| {})
    }

    pub(crate) fn start_with(
        &self,
        flags: &[&str],
        adjust: impl FnOnce(&mut Command),
    ) -> TestAgent {
        let mut command = self.command(flags);
        adjust(&mut command);
        let log = self.path(&format!("log-{}", self.agents.get()));
        command.stderr(File::create(log).unwrap());
        TestAgent::of(command, self)
    }

    /// The body of a response with status 200 from the health port, waiting for it to open.
    pub(crate) fn health(&self, path: &str) -> Option<String> {
        let end = Instant::now() + TIMEOUT;
        while Instant::now() < end {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.health_port)) {
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    .unwrap();
                let mut reply = String::new();
                stream.read_to_string(&mut reply).unwrap();
                let (head, body) = reply.split_once("\r\n\r\n").unwrap();
                return head.starts_with("HTTP/1.1 200 ").then(|| body.to_owned());
            }
            std::thread::sleep(STEP);
        }
        None
    }
}

impl Drop for KubeletBed {
    fn drop(&mut self) {
        // The agent makes its root a shared mount, which would hold the directory.
        let _ = rustix::mount::unmount(self.root(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// A running agent with a fake service manager. Killed when dropped.
pub(crate) struct TestAgent {
    child: Child,
    socket: UnixDatagram,
    notifications: Vec<String>,
    read: usize,
    log: PathBuf,
}

impl TestAgent {
    pub(crate) fn of(mut command: Command, bed: &KubeletBed) -> TestAgent {
        let number = bed.agents.get();
        bed.agents.set(number + 1);
        let name = bed.path(&format!("notify-{number}"));
        let socket = UnixDatagram::bind(&name).unwrap();
        socket.set_nonblocking(true).unwrap();
        let child = command.env("NOTIFY_SOCKET", &name).spawn().unwrap();
        let log = bed.path(&format!("log-{number}"));
        TestAgent { child, socket, notifications: Vec::new(), read: 0, log }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let process = i32::try_from(self.child.id()).unwrap();
        let process = rustix::process::Pid::from_raw(process).unwrap();
        rustix::process::kill_process(process, signal).unwrap();
    }

    /// Every message so far.
    pub(crate) fn notifications(&mut self) -> &[String] {
        let mut buffer = [0_u8; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            self.notifications.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        &self.notifications
    }

    /// Waits for a message with this prefix, after those that were waited for before.
    pub(crate) fn wait_for(&mut self, start: &str) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let read = self.read;
            let found =
                self.notifications()[read..].iter().position(|message| message.starts_with(start));
            if let Some(position) = found {
                // A status may come between any two messages and is not part of the order.
                if !start.starts_with("STATUS") {
                    self.read += position + 1;
                }
                return;
            }
            let ended = self.child.try_wait().unwrap();
            let late = Instant::now() >= end;
            assert!(
                !late && ended.is_none()
                    || self.notifications()[read..].iter().any(|m| m.starts_with(start)),
                "no {start} among {:?}; {ended:?}; log:\n{}",
                self.notifications,
                self.log()
            );
            std::thread::sleep(STEP);
        }
    }

    pub(crate) fn wait_for_log(&self, part: &str) {
        let end = Instant::now() + TIMEOUT;
        while !self.log().contains(part) {
            assert!(Instant::now() < end, "no {part:?} in\n{}", self.log());
            std::thread::sleep(STEP);
        }
    }

    pub(crate) fn status(&mut self) -> ExitStatus {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "still running; log:\n{}", self.log());
            std::thread::sleep(STEP);
        }
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.status().code()
    }

    /// None while it runs.
    pub(crate) fn exit_code_within(&mut self, time: Duration) -> Option<i32> {
        std::thread::sleep(time);
        self.child.try_wait().unwrap().and_then(|status| status.code())
    }

    pub(crate) fn close_standard_error(&mut self) {
        drop(self.child.stderr.take());
    }

    /// How often its threads went to sleep by themselves.
    pub(crate) fn voluntary_switches(&self) -> u64 {
        let tasks = Path::new("/proc").join(self.child.id().to_string()).join("task");
        let mut sum = 0;
        for task in fs::read_dir(tasks).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
            let count = line.and_then(|line| line.split_whitespace().last()).unwrap();
            sum += count.parse::<u64>().unwrap();
        }
        sum
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
