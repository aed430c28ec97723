//! Directories of pods under `<root>/pods`, and the links to their logs.
//!
//! Rule: idempotent; created with upstream's modes whatever the umask; a pod's directory is not
//! removed while something is mounted in it, and never through a mount (upstream: kubelet_pods.go,
//! kubelet_volumes.go).

use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host_paths::{
    BlockingPool, OpenDir, PathError, PathErrorExt as _, SymlinkPolicy, WriteDurability,
    check_name, mounts_beneath, remove_tree, write_whole,
};
use ports::pod_host::{HostFuture, PodDirs, PodFile};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::host_error::{from_path_error, from_pool_error};

#[cfg(test)]
mod tests;

/// A local disk that takes longer than this counts as hanging.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Concurrent calls.
const MAX_CALLS: usize = 16;

/// Entries in one of the agent's directories.
pub(crate) const MAX_NAMES: usize = 1 << 20;

/// Files up to this size are compared before they are written again.
const MAX_COMPARED_BYTES: usize = 1 << 20;

/// The three directories that hold a pod's files.
#[derive(Debug)]
pub(crate) struct HostLayout {
    pub(crate) root: PathBuf,
    pub(crate) pod_logs: PathBuf,
    pub(crate) links: PathBuf,
}

#[derive(Debug, Clone)]
pub struct HostPodDirs {
    layout: Arc<HostLayout>,
    blocking_pool: BlockingPool,
}

impl HostPodDirs {
    /// `root` is the kubelet's root directory, `pod_logs` the configuration's `podLogsDir`, `links`
    /// the directory that log shippers read.
    pub fn new(root: &Path, pod_logs: &Path, links: &Path) -> Self {
        let layout = HostLayout {
            root: root.to_owned(),
            pod_logs: pod_logs.to_owned(),
            links: links.to_owned(),
        };
        Self {
            layout: Arc::new(layout),
            blocking_pool: BlockingPool::new("pod-folders", MAX_CALLS, CALL_TIMEOUT),
        }
    }

    pub(crate) fn call<'a, T, F>(&'a self, what: &'static str, call: F) -> HostFuture<'a, T>
    where
        T: Send + 'static,
        F: FnOnce(&HostLayout) -> Result<T, PathError> + Send + 'static,
    {
        self.call_within(CALL_TIMEOUT, what, call)
    }

    pub(crate) fn call_within<'a, T, F>(
        &'a self,
        limit: Duration,
        what: &'static str,
        call: F,
    ) -> HostFuture<'a, T>
    where
        T: Send + 'static,
        F: FnOnce(&HostLayout) -> Result<T, PathError> + Send + 'static,
    {
        let layout = self.layout.clone();
        Box::pin(async move {
            match self.blocking_pool.run_within(limit, move || call(&layout)).await {
                Ok(done) => done.map_err(|path_error| from_path_error(&path_error)),
                Err(error) => Err(from_pool_error(what, &error)),
            }
        })
    }
}

impl HostLayout {
    fn pods(&self) -> Result<OpenDir, PathError> {
        OpenDir::make(&self.root, 0o750)?.make_dir("pods", 0o750)
    }

    fn pod(&self, uid: &str) -> Result<OpenDir, PathError> {
        check_file_name(uid, &self.root.join("pods"))?;
        self.pods()?.make_dir(uid, 0o750)
    }

    /// Creates a log directory, which must be under the directory of pod logs.
    fn make_log_dir(&self, path: &str) -> Result<(), PathError> {
        let logs = OpenDir::make(&self.pod_logs, 0o750)?;
        logs.make_dir(self.below_logs(path)?, 0o755)?;
        Ok(())
    }

    pub(crate) fn below_logs<'a>(&self, path: &'a str) -> Result<&'a Path, PathError> {
        let path = Path::new(path);
        let outside = || {
            let reason =
                format!("not under the directory of pod logs, {}", self.pod_logs.display());
            PathError::refused("use the log path", path, &reason)
        };
        let below = path.strip_prefix(&self.pod_logs).map_err(|_| outside())?;
        let plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if below.as_os_str().is_empty() || !plain { Err(outside()) } else { Ok(below) }
    }

    fn make_pod(&self, uid: &str, log_directory: &str) -> Result<(), PathError> {
        let pod = self.pod(uid)?;
        for name in ["volumes", "plugins", "containers"] {
            pod.make_dir(name, 0o750)?;
        }
        self.make_log_dir(log_directory)
    }

    fn make_container(
        &self,
        uid: &str,
        container: &str,
        termination_file: &str,
        log_directory: &str,
    ) -> Result<PathBuf, PathError> {
        self.make_log_dir(log_directory)?;
        if termination_file.is_empty() {
            return Ok(PathBuf::new());
        }
        let containers = self.pod(uid)?.make_dir("containers", 0o750)?;
        check_file_name(container, containers.path())?;
        let dir = containers.make_dir(container, 0o750)?;
        check_file_name(termination_file, dir.path())?;
        let path = dir.path_of(termination_file);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        match rustix::fs::openat(&dir, termination_file, flags, mode) {
            Ok(file) => rustix::fs::fchmod(&file, mode).operation("set the mode of", &path)?,
            // Created before this agent was restarted; its content may be the termination message.
            Err(Errno::EXIST) => drop(dir.open_regular(termination_file, SymlinkPolicy::Refused)?),
            Err(errno) => return Err(PathError::new("make", &path, errno)),
        }
        Ok(path)
    }

    fn write(&self, uid: &str, file: &PodFile) -> Result<PathBuf, PathError> {
        let pod = self.pod(uid)?;
        let path = Path::new(&file.path);
        let whole = pod.path_of(path);
        let Some(name) = path.file_name().filter(|_| !file.path.ends_with('/')) else {
            return Err(PathError::refused("write", &whole, "not a file's name"));
        };
        let dir = pod.make_dir(path.parent().unwrap_or(Path::new("")), 0o750)?;
        if !is_written(&dir, Path::new(name), file) {
            write_whole(&dir, name, &file.content, file.mode, WriteDurability::Atomic)?;
        }
        Ok(whole)
    }

    /// The end of a regular file under one of the roots.
    fn read_tail(&self, path: &str, most: usize) -> Result<Option<Vec<u8>>, PathError> {
        let path = Path::new(path);
        let (root, below) = [&self.root, &self.pod_logs]
            .into_iter()
            .find_map(|root| Some((root, path.strip_prefix(root).ok()?)))
            .ok_or_else(|| {
                PathError::refused("read", path, "not under the directories of pods or of pod logs")
            })?;
        let opened =
            OpenDir::open(root).and_then(|root| root.open_regular(below, SymlinkPolicy::Refused));
        let mut file = match opened {
            Ok(file) => file,
            Err(path_error) if path_error.is_missing() => return Ok(None),
            Err(path_error) => return Err(path_error),
        };
        let length = file.metadata().operation("look at", path)?.len();
        let start = length.saturating_sub(most as u64);
        file.seek(SeekFrom::Start(start)).operation("read", path)?;
        let mut tail = Vec::new();
        file.take(most as u64).read_to_end(&mut tail).operation("read", path)?;
        Ok(Some(tail))
    }

    fn remove_pod(&self, uid: &str) -> Result<(), PathError> {
        check_file_name(uid, &self.root.join("pods"))?;
        let path = self.root.join("pods").join(uid);
        let mounted = mounts_beneath(&path)?;
        if let Some(first) = mounted.first() {
            // The kernel's error for what is in use.
            let operation = "remove the pod's directory while this is mounted:";
            return Err(PathError::new(operation, first, Errno::BUSY));
        }
        match OpenDir::open(&self.root.join("pods")) {
            Ok(pods) => remove_tree(&pods, uid),
            Err(path_error) if path_error.is_missing() => Ok(()),
            Err(path_error) => Err(path_error),
        }
    }
}

/// Whether the file exists with the content and mode that would be written.
fn is_written(dir: &OpenDir, name: &Path, file: &PodFile) -> bool {
    let same_mode = dir.stat(name).is_ok_and(|found| {
        found.is_some_and(|found| {
            FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
                && found.st_mode & 0o7777 == file.mode & 0o7777
        })
    });
    same_mode
        && file.content.len() < MAX_COMPARED_BYTES
        && dir
            .read(name, SymlinkPolicy::Refused, MAX_COMPARED_BYTES)
            .is_ok_and(|there| there == file.content)
}

pub(crate) fn check_file_name(name: &str, dir: &Path) -> Result<(), PathError> {
    check_name(name)
        .map_err(|error| PathError::refused("use as a name in", dir, &error.to_string()))
}

/// Subdirectories of one of the agent's directories; none if it does not exist.
pub(crate) fn dirs_in(path: &Path) -> Result<Vec<String>, PathError> {
    let dir = match OpenDir::open(path) {
        Ok(dir) => dir,
        Err(path_error) if path_error.is_missing() => return Ok(Vec::new()),
        Err(path_error) => return Err(path_error),
    };
    let mut found = Vec::new();
    for name in dir.names(MAX_NAMES)? {
        let is_dir = dir
            .stat(&name)?
            .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        // A name that is not UTF-8 was not created by the agent.
        if let Some(name) = name.to_str().filter(|_| is_dir) {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

impl PodDirs for HostPodDirs {
    fn make_pod<'a>(&'a self, uid: &'a str, log_directory: &'a str) -> HostFuture<'a, ()> {
        let (uid, log_directory) = (uid.to_owned(), log_directory.to_owned());
        self.call("create a pod's directories", move |layout| layout.make_pod(&uid, &log_directory))
    }

    fn make_container<'a>(
        &'a self,
        uid: &'a str,
        container: &'a str,
        termination_file: &'a str,
        log_directory: &'a str,
    ) -> HostFuture<'a, PathBuf> {
        let [uid, container, termination_file, log_directory] =
            [uid, container, termination_file, log_directory].map(str::to_owned);
        self.call("create a container's directories", move |layout| {
            layout.make_container(&uid, &container, &termination_file, &log_directory)
        })
    }

    fn write<'a>(&'a self, uid: &'a str, file: &'a PodFile) -> HostFuture<'a, PathBuf> {
        let (uid, file) = (uid.to_owned(), file.clone());
        self.call("write a pod's file", move |layout| layout.write(&uid, &file))
    }

    fn link_log<'a>(&'a self, link_name: &'a str, target: &'a str) -> HostFuture<'a, ()> {
        let (link_name, target) = (link_name.to_owned(), target.to_owned());
        self.call("link a log", move |layout| layout.link_log(&link_name, &target))
    }

    fn read_tail<'a>(&'a self, path: &'a str, most: usize) -> HostFuture<'a, Option<Vec<u8>>> {
        let path = path.to_owned();
        self.call("read the end of a file", move |layout| layout.read_tail(&path, most))
    }

    fn highest_log_number<'a>(&'a self, log_directory: &'a str) -> HostFuture<'a, Option<u32>> {
        let path = log_directory.to_owned();
        self.call("list a container's logs", move |layout| layout.highest_log_number(&path))
    }

    fn pods(&self) -> HostFuture<'_, Vec<String>> {
        self.call("list the pods' directories", |layout| dirs_in(&layout.root.join("pods")))
    }

    fn remove_pod<'a>(&'a self, uid: &'a str) -> HostFuture<'a, ()> {
        let uid = uid.to_owned();
        self.call("remove a pod's directory", move |layout| layout.remove_pod(&uid))
    }

    fn pod_logs(&self) -> HostFuture<'_, Vec<String>> {
        self.call("list the pods' logs", |layout| dirs_in(&layout.pod_logs))
    }

    fn remove_pod_log<'a>(&'a self, dir: &'a str) -> HostFuture<'a, ()> {
        let dir = dir.to_owned();
        self.call("remove a pod's logs", move |layout| layout.remove_pod_log(&dir))
    }

    fn remove_container_log<'a>(&'a self, path: &'a str) -> HostFuture<'a, ()> {
        let path = path.to_owned();
        self.call("remove a container's log", move |layout| layout.remove_container_log(&path))
    }

    fn remove_dead_links(&self, keep: BTreeSet<String>) -> HostFuture<'_, ()> {
        self.call("remove dead log links", move |layout| layout.remove_dead_links(&keep))
    }
}
