//! Containers created by an OCI command-line runtime such as runc or crun.
//!
//! Rule: every call runs in its own helper with a deadline. The supervisor reaps the runtime's
//! processes, writes their output and keeps their exit codes as for its own containers. While the
//! runtime runs, the helper is the subreaper, so that no process can exit before the supervisor
//! knows it. The runtime's state is in the pod's directory and is removed with it.
//!
//! upstream: OCI runtime-spec runtime.md; the command line of runc

mod command;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cgroup_files::Cgroup;
use container_create::exchange::CreateReporter;
use container_create::spec::{
    ContainerSpec, HandlerSpec, NamespaceMode, ProcessSpec, SecuritySpec,
};
use container_create::{CreateError, CreateErrorKind, PodNamespaces, system};
use oci_bundle::NamespacePaths;
use rustix::process::{Pid, PidfdFlags};

use super::RequestOrigin;
use super::Supervisor;
use super::cgroup_jobs::AfterJob;
use super::pending_creates::in_helper;
use crate::protocol::{Kill, RequestErrorKind};
use command::{ConsoleSocket, RuntimeCommand, RuntimeInvocation, Stdio};

/// Shorter than the supervisor's own timeout for a create, so that the client gets the reason.
const CREATE_TIMEOUT: Duration = Duration::from_secs(100);
/// Shorter than a server's timeout for a signal.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(15);
/// How long killed processes may take to leave the cgroup.
const CGROUP_EMPTY_TIMEOUT: Duration = Duration::from_secs(10);

/// A container's OCI runtime: its program, arguments and files.
#[derive(Debug, Clone)]
pub(super) struct OciHandler {
    spec: HandlerSpec,
    /// The pod's directory.
    pod: PathBuf,
    id: String,
    systemd: bool,
}

impl OciHandler {
    /// None if the container is created without an OCI runtime.
    pub(super) fn of(spec: &ContainerSpec, pod: &Path) -> Option<Self> {
        let systemd = spec.cgroup.as_ref().is_some_and(|cgroup| !cgroup.systemd_unit.is_empty());
        let (id, pod) = (spec.id.clone(), pod.to_owned());
        spec.handler.clone().map(|spec| Self { spec, pod, id, systemd })
    }

    fn bundle(&self) -> PathBuf {
        self.pod.join("bundles").join(&self.id)
    }

    /// A socket address holds 107 bytes of path.
    fn console_path(&self, of: &str) -> PathBuf {
        self.pod.join(format!("{}.tty", of.get(..16).unwrap_or(of)))
    }

    /// Runs in a helper.
    fn make(
        &self,
        spec: &ContainerSpec,
        paths: &NamespacePaths,
        streams: Option<[OwnedFd; 3]>,
        reporter: &CreateReporter,
    ) -> Result<(), CreateError> {
        let text = oci_bundle::configuration(spec, paths).map_err(|why| CreateError {
            kind: CreateErrorKind::InvalidSpec,
            message: why.to_string(),
        })?;
        let bundle = self.bundle();
        let prepared = fs::create_dir_all(&bundle)
            .and_then(|()| fs::write(bundle.join(oci_bundle::CONFIGURATION), text));
        prepared
            .map_err(|error| other(format!("writing the bundle {}: {error}", bundle.display())))?;
        let arguments = ["create".into(), "--bundle".into(), bundle.clone().into_os_string()];
        let process =
            HandlerProcess { what: "create", pid_file: bundle.join("pid"), arguments: &arguments };
        self.create_process(&process, streams, &self.console_path(&self.id), reporter)
    }

    /// Runs in a helper.
    fn enter(&self, exec: &HandlerExec<'_>, reporter: &CreateReporter) -> Result<(), CreateError> {
        let text = oci_bundle::process(exec.process, exec.security).map_err(|why| CreateError {
            kind: CreateErrorKind::InvalidSpec,
            message: why.to_string(),
        })?;
        let file = self.bundle().join(format!("exec-{}.json", exec.id));
        fs::write(&file, text)
            .map_err(|error| other(format!("writing {}: {error}", file.display())))?;
        let pid_file = file.with_extension("pid");
        let arguments =
            ["exec".into(), "--detach".into(), "--process".into(), file.clone().into_os_string()];
        let process =
            HandlerProcess { what: "exec", pid_file: pid_file.clone(), arguments: &arguments };
        let streams = exec
            .streams
            .as_ref()
            .map(copies)
            .transpose()
            .map_err(|error| other(error.to_string()))?;
        let outcome = self.create_process(&process, streams, &self.console_path(exec.id), reporter);
        for file in [file, pid_file] {
            let _ = fs::remove_file(file);
        }
        outcome
    }

    /// Has the runtime create a process and reports its PID to the supervisor.
    fn create_process(
        &self,
        process: &HandlerProcess<'_>,
        streams: Option<[OwnedFd; 3]>,
        console_path: &Path,
        reporter: &CreateReporter,
    ) -> Result<(), CreateError> {
        system::become_reaper().map_err(|error| other(format!("becoming the reaper: {error}")))?;
        let console = match streams {
            Some(_) => None,
            None => Some(ConsoleSocket::listen(console_path).map_err(|error| {
                other(format!("listening for a terminal at {}: {error}", console_path.display()))
            })?),
        };
        let mut arguments = process.arguments.to_vec();
        arguments.extend(["--pid-file".into(), process.pid_file.clone().into_os_string()]);
        if console.is_some() {
            arguments.extend(["--console-socket".into(), console_path.as_os_str().to_owned()]);
        }
        let stdio = streams.map_or(Stdio::Null, Stdio::Descriptors);
        self.call(process.what, &arguments, stdio, CREATE_TIMEOUT).map_err(|message| {
            let kind = match message.contains("executable file not found") {
                true => CreateErrorKind::ProgramNotFound,
                false => CreateErrorKind::Other,
            };
            CreateError { kind, message }
        })?;
        let terminal = console.map(|console| console.master()).transpose();
        let terminal = terminal.map_err(|error| other(format!("no terminal came: {error}")))?;
        let pid = read_pid_file(&process.pid_file)?;
        let pidfd = Pid::from_raw(pid.cast_signed())
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
            .map_err(|error| other(format!("taking hold of the process {pid}: {error}")))?;
        let reported = reporter.started(pid, pidfd.as_fd()).and_then(|()| {
            let terminal: Vec<_> = terminal.iter().map(AsFd::as_fd).collect();
            reporter.ready(Vec::new(), &terminal)
        });
        reported.map_err(|error| other(format!("telling the supervisor: {error}")))
    }

    /// Runs `what` with the container's id as the last argument; an error holds the runtime's
    /// message.
    fn call(
        &self,
        what: &str,
        arguments: &[OsString],
        stdio: Stdio,
        limit: Duration,
    ) -> Result<(), String> {
        let runtime_command = RuntimeCommand { arguments, id: &self.id, after_id: &[] };
        self.run_command(what, &runtime_command, stdio, limit)
    }

    /// The signal comes after the id.
    fn signal(&self, signal: i32) -> Result<(), String> {
        let after_id = [signal.to_string().into()];
        let runtime_command =
            RuntimeCommand { arguments: &["kill".into()], id: &self.id, after_id: &after_id };
        self.run_command("kill", &runtime_command, Stdio::Null, SIGNAL_TIMEOUT)
    }

    fn run_command(
        &self,
        what: &str,
        runtime_command: &RuntimeCommand<'_>,
        stdio: Stdio,
        limit: Duration,
    ) -> Result<(), String> {
        // Calls may overlap; each helper has its own log file.
        let own = rustix::process::getpid().as_raw_nonzero();
        let call = RuntimeInvocation {
            handler: &self.spec,
            root: &self.pod.join("oci"),
            log: &self.bundle().join(format!("log-{own}.json")),
            systemd: self.systemd,
        };
        call.run(runtime_command, stdio, limit)
            .map_err(|why| format!("OCI runtime {what} failed: {why}"))
    }

    /// Runs in a helper: the runtime deletes the container, and its files are removed.
    fn delete(&self, group: Option<&Cgroup>) -> Result<(), String> {
        let deleted = if self.bundle().exists() {
            self.call("delete", &["delete".into(), "--force".into()], Stdio::Null, CREATE_TIMEOUT)
        } else {
            Ok(())
        };
        // Whether or not the runtime failed: remaining processes are killed and the cgroup removed.
        if let Some(group) = group.filter(|group| group.exists_in_any_hierarchy()) {
            group
                .kill_and_remove_within(CGROUP_EMPTY_TIMEOUT)
                .map_err(|error| error.to_string())?;
        }
        deleted?;
        match fs::remove_dir_all(self.bundle()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("removing the bundle {}: {error}", self.bundle().display()))
            }
            _ => Ok(()),
        }
    }
}

/// A process that the runtime is to create.
struct HandlerProcess<'a> {
    what: &'static str,
    pid_file: PathBuf,
    arguments: &'a [OsString],
}

/// Inputs of an exec.
pub(super) struct HandlerExec<'a> {
    pub(super) id: &'a str,
    pub(super) process: &'a ProcessSpec,
    pub(super) security: &'a SecuritySpec,
    /// None with a terminal.
    pub(super) streams: Option<[OwnedFd; 3]>,
}

fn copies(streams: &[OwnedFd; 3]) -> io::Result<[OwnedFd; 3]> {
    let [one, two, three] = streams;
    Ok([one.try_clone()?, two.try_clone()?, three.try_clone()?])
}

fn other(message: impl Into<String>) -> CreateError {
    CreateError { kind: CreateErrorKind::Other, message: message.into() }
}

fn read_pid_file(file: &Path) -> Result<u32, CreateError> {
    let odd = |why: String| other(format!("the PID file {}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| odd(error.to_string()))?;
    text.trim().parse().map_err(|_| odd(format!("{text:?} is no number")))
}

/// The pod's namespaces, as files in `/proc` of the process that holds them open: this one.
fn namespace_paths(
    spec: &ContainerSpec,
    pod: &PodNamespaces,
    target: Option<&OwnedFd>,
) -> NamespacePaths {
    let own = rustix::process::getpid().as_raw_nonzero();
    let path = |one: &OwnedFd| format!("/proc/{own}/fd/{}", one.as_raw_fd());
    let wanted = spec.namespaces.as_ref();
    let by_target = wanted.is_some_and(|wanted| wanted.pid() == NamespaceMode::Target);
    NamespacePaths {
        network: pod.network.as_ref().map(path),
        ipc: pod.ipc.as_ref().map(path),
        uts: pod.uts.as_ref().map(path),
        pid: if by_target { target.map(path) } else { pod.pid.as_ref().map(path) },
    }
}

/// Forks a helper for a runtime call and reports its error.
fn in_handler_helper(
    work: impl FnOnce(&CreateReporter) -> Result<(), CreateError>,
) -> io::Result<(OwnedFd, i32)> {
    in_helper(|reporter| {
        let outcome = system::reset_signals()
            .and_then(|()| system::die_with_parent())
            .map_err(|error| other(format!("beginning: {error}")))
            .and_then(|()| work(&reporter));
        if let Err(trouble) = outcome {
            let _ = reporter.failed(&trouble);
        }
    })
}

/// Creates a container with the OCI runtime.
pub(super) fn make(
    handler: &OciHandler,
    spec: &ContainerSpec,
    pod: &PodNamespaces,
    target: Option<&OwnedFd>,
    streams: Option<[OwnedFd; 3]>,
) -> io::Result<(OwnedFd, i32)> {
    in_handler_helper(|reporter| {
        handler.make(spec, &namespace_paths(spec, pod, target), streams, reporter)
    })
}

/// Creates a process in a running container.
pub(super) fn enter(handler: &OciHandler, exec: &HandlerExec<'_>) -> io::Result<(OwnedFd, i32)> {
    in_handler_helper(|reporter| handler.enter(exec, reporter))
}

/// Starts a container; the helper reports ready when its program runs.
pub(super) fn start(handler: &OciHandler) -> io::Result<(OwnedFd, i32)> {
    in_handler_helper(|reporter| {
        handler.call("start", &["start".into()], Stdio::Null, CREATE_TIMEOUT).map_err(other)?;
        reporter.ready(Vec::new(), &[]).map_err(|error| other(error.to_string()))
    })
}

impl Supervisor {
    /// True: the container has an OCI runtime, which sends the signal; the response follows.
    pub(super) fn kill_by_handler(&mut self, origin: RequestOrigin, kill: &Kill) -> bool {
        let Some(container) = self.containers.get(&kill.id).filter(|_| kill.exec.is_empty()) else {
            return false;
        };
        let (Some(handler), Some(pidfd)) = (&container.handler, &container.pidfd) else {
            return false;
        };
        let group = self.group_of(container).filter(|_| kill.all);
        let helper = in_handler_helper(|_| {
            let signalled = handler.signal(kill.signal);
            if let Some(group) = &group {
                group.kill().map_err(|error| other(error.to_string()))?;
            }
            // A process that has exited needs no signal.
            if has_ended(pidfd) { Ok(()) } else { signalled.map_err(other) }
        });
        match helper {
            Ok(helper) => self.add_cgroup_job(AfterJob::Respond(origin), Ok(helper)),
            Err(error) => {
                let message = format!("starting a helper: {error}");
                self.connections.refuse(origin, RequestErrorKind::Other, message);
            }
        }
        true
    }

    /// Deletes a container that has exited or is half created, with its cgroup.
    pub(super) fn delete_by_handler(
        &mut self,
        handler: &OciHandler,
        group: Option<&Cgroup>,
        after: AfterJob,
    ) {
        let helper = in_handler_helper(|_| handler.delete(group).map_err(other));
        self.add_cgroup_job(after, helper);
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut watched = [rustix::event::PollFd::new(pidfd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
}
