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
    Apart, Doing as _, Folder, Links, Settled, Trouble, check_name, mounts_beneath, remove_tree,
    write_whole,
};
use ports::pod_host::{HostFuture, PodFile, PodFolders};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::failure::{of_apart, of_trouble};

#[cfg(test)]
mod tests;

/// A local disk that takes longer than this counts as hanging.
const LIMIT: Duration = Duration::from_secs(60);

/// Concurrent calls.
const MOST_CALLS: usize = 16;

/// Entries in one of the agent's directories.
pub(crate) const MOST_NAMES: usize = 1 << 20;

/// Files up to this size are compared before they are written again.
const COMPARED: usize = 1 << 20;

/// The three directories that hold a pod's files.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) root: PathBuf,
    pub(crate) pod_logs: PathBuf,
    pub(crate) links: PathBuf,
}

#[derive(Debug, Clone)]
pub struct HostFolders {
    places: Arc<Places>,
    apart: Apart,
}

impl HostFolders {
    /// `root` is the kubelet's root directory, `pod_logs` the configuration's `podLogsDir`, `links`
    /// the directory that log shippers read.
    pub fn new(root: &Path, pod_logs: &Path, links: &Path) -> Self {
        let places = Places {
            root: root.to_owned(),
            pod_logs: pod_logs.to_owned(),
            links: links.to_owned(),
        };
        Self { places: Arc::new(places), apart: Apart::new("pod-folders", MOST_CALLS, LIMIT) }
    }

    pub(crate) fn call<'a, T, F>(&'a self, what: &'static str, call: F) -> HostFuture<'a, T>
    where
        T: Send + 'static,
        F: FnOnce(&Places) -> Result<T, Trouble> + Send + 'static,
    {
        self.call_within(LIMIT, what, call)
    }

    pub(crate) fn call_within<'a, T, F>(
        &'a self,
        limit: Duration,
        what: &'static str,
        call: F,
    ) -> HostFuture<'a, T>
    where
        T: Send + 'static,
        F: FnOnce(&Places) -> Result<T, Trouble> + Send + 'static,
    {
        let places = self.places.clone();
        Box::pin(async move {
            match self.apart.run_within(limit, move || call(&places)).await {
                Ok(done) => done.map_err(|trouble| of_trouble(&trouble)),
                Err(error) => Err(of_apart(what, &error)),
            }
        })
    }
}

impl Places {
    fn pods(&self) -> Result<Folder, Trouble> {
        Folder::make(&self.root, 0o750)?.make_folder("pods", 0o750)
    }

    fn pod(&self, uid: &str) -> Result<Folder, Trouble> {
        named(uid, &self.root.join("pods"))?;
        self.pods()?.make_folder(uid, 0o750)
    }

    /// Creates a log directory, which must be under the directory of pod logs.
    fn make_log_folder(&self, path: &str) -> Result<(), Trouble> {
        let logs = Folder::make(&self.pod_logs, 0o750)?;
        logs.make_folder(self.below_logs(path)?, 0o755)?;
        Ok(())
    }

    pub(crate) fn below_logs<'a>(&self, path: &'a str) -> Result<&'a Path, Trouble> {
        let path = Path::new(path);
        let outside = || {
            let why = format!("not under the directory of pod logs, {}", self.pod_logs.display());
            Trouble::refused("use the log path", path, &why)
        };
        let below = path.strip_prefix(&self.pod_logs).map_err(|_| outside())?;
        let plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if below.as_os_str().is_empty() || !plain { Err(outside()) } else { Ok(below) }
    }

    fn make_pod(&self, uid: &str, log_directory: &str) -> Result<(), Trouble> {
        let pod = self.pod(uid)?;
        for name in ["volumes", "plugins", "containers"] {
            pod.make_folder(name, 0o750)?;
        }
        self.make_log_folder(log_directory)
    }

    fn make_container(
        &self,
        uid: &str,
        container: &str,
        termination_file: &str,
        log_directory: &str,
    ) -> Result<PathBuf, Trouble> {
        self.make_log_folder(log_directory)?;
        if termination_file.is_empty() {
            return Ok(PathBuf::new());
        }
        let containers = self.pod(uid)?.make_folder("containers", 0o750)?;
        named(container, containers.path())?;
        let folder = containers.make_folder(container, 0o750)?;
        named(termination_file, folder.path())?;
        let path = folder.path_of(termination_file);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        match rustix::fs::openat(&folder, termination_file, flags, mode) {
            Ok(file) => rustix::fs::fchmod(&file, mode).doing("set the mode of", &path)?,
            // Created before this agent was restarted; its content may be the termination message.
            Err(Errno::EXIST) => drop(folder.regular(termination_file, Links::Refused)?),
            Err(errno) => return Err(Trouble::new("make", &path, errno)),
        }
        Ok(path)
    }

    fn write(&self, uid: &str, file: &PodFile) -> Result<PathBuf, Trouble> {
        let pod = self.pod(uid)?;
        let path = Path::new(&file.path);
        let whole = pod.path_of(path);
        let Some(name) = path.file_name().filter(|_| !file.path.ends_with('/')) else {
            return Err(Trouble::refused("write", &whole, "not a file's name"));
        };
        let folder = pod.make_folder(path.parent().unwrap_or(Path::new("")), 0o750)?;
        if !is_written(&folder, Path::new(name), file) {
            write_whole(&folder, name, &file.content, file.mode, Settled::Whole)?;
        }
        Ok(whole)
    }

    /// The end of a regular file under one of the roots.
    fn read_tail(&self, path: &str, most: usize) -> Result<Option<Vec<u8>>, Trouble> {
        let path = Path::new(path);
        let (root, below) = [&self.root, &self.pod_logs]
            .into_iter()
            .find_map(|root| Some((root, path.strip_prefix(root).ok()?)))
            .ok_or_else(|| {
                Trouble::refused("read", path, "not under the directories of pods or of pod logs")
            })?;
        let opened = Folder::open(root).and_then(|root| root.regular(below, Links::Refused));
        let mut file = match opened {
            Ok(file) => file,
            Err(trouble) if trouble.is_missing() => return Ok(None),
            Err(trouble) => return Err(trouble),
        };
        let length = file.metadata().doing("look at", path)?.len();
        let start = length.saturating_sub(most as u64);
        file.seek(SeekFrom::Start(start)).doing("read", path)?;
        let mut tail = Vec::new();
        file.take(most as u64).read_to_end(&mut tail).doing("read", path)?;
        Ok(Some(tail))
    }

    fn remove_pod(&self, uid: &str) -> Result<(), Trouble> {
        named(uid, &self.root.join("pods"))?;
        let path = self.root.join("pods").join(uid);
        let mounted = mounts_beneath(&path)?;
        if let Some(first) = mounted.first() {
            // The kernel's error for what is in use.
            let doing = "remove the pod's directory while this is mounted:";
            return Err(Trouble::new(doing, first, Errno::BUSY));
        }
        match Folder::open(&self.root.join("pods")) {
            Ok(pods) => remove_tree(&pods, uid),
            Err(trouble) if trouble.is_missing() => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }
}

/// Whether the file exists with the content and mode that would be written.
fn is_written(folder: &Folder, name: &Path, file: &PodFile) -> bool {
    let same_mode = folder.look(name).is_ok_and(|found| {
        found.is_some_and(|found| {
            FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
                && found.st_mode & 0o7777 == file.mode & 0o7777
        })
    });
    same_mode
        && file.content.len() < COMPARED
        && folder.read(name, Links::Refused, COMPARED).is_ok_and(|there| there == file.content)
}

pub(crate) fn named(name: &str, folder: &Path) -> Result<(), Trouble> {
    check_name(name).map_err(|why| Trouble::refused("use as a name in", folder, &why))
}

/// Subdirectories of one of the agent's directories; none if it does not exist.
pub(crate) fn folders_in(path: &Path) -> Result<Vec<String>, Trouble> {
    let folder = match Folder::open(path) {
        Ok(folder) => folder,
        Err(trouble) if trouble.is_missing() => return Ok(Vec::new()),
        Err(trouble) => return Err(trouble),
    };
    let mut found = Vec::new();
    for name in folder.names(MOST_NAMES)? {
        let is_folder = folder
            .look(&name)?
            .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        // A name that is not UTF-8 was not created by the agent.
        if let Some(name) = name.to_str().filter(|_| is_folder) {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

impl PodFolders for HostFolders {
    fn make_pod<'a>(&'a self, uid: &'a str, log_directory: &'a str) -> HostFuture<'a, ()> {
        let (uid, log_directory) = (uid.to_owned(), log_directory.to_owned());
        self.call("create a pod's directories", move |places| places.make_pod(&uid, &log_directory))
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
        self.call("create a container's directories", move |places| {
            places.make_container(&uid, &container, &termination_file, &log_directory)
        })
    }

    fn write<'a>(&'a self, uid: &'a str, file: &'a PodFile) -> HostFuture<'a, PathBuf> {
        let (uid, file) = (uid.to_owned(), file.clone());
        self.call("write a pod's file", move |places| places.write(&uid, &file))
    }

    fn link_log<'a>(&'a self, link_name: &'a str, target: &'a str) -> HostFuture<'a, ()> {
        let (link_name, target) = (link_name.to_owned(), target.to_owned());
        self.call("link a log", move |places| places.link_log(&link_name, &target))
    }

    fn read_tail<'a>(&'a self, path: &'a str, most: usize) -> HostFuture<'a, Option<Vec<u8>>> {
        let path = path.to_owned();
        self.call("read the end of a file", move |places| places.read_tail(&path, most))
    }

    fn highest_log_number<'a>(&'a self, log_directory: &'a str) -> HostFuture<'a, Option<u32>> {
        let path = log_directory.to_owned();
        self.call("list a container's logs", move |places| places.highest_log_number(&path))
    }

    fn pods(&self) -> HostFuture<'_, Vec<String>> {
        self.call("list the pods' directories", |places| folders_in(&places.root.join("pods")))
    }

    fn remove_pod<'a>(&'a self, uid: &'a str) -> HostFuture<'a, ()> {
        let uid = uid.to_owned();
        self.call("remove a pod's directory", move |places| places.remove_pod(&uid))
    }

    fn pod_logs(&self) -> HostFuture<'_, Vec<String>> {
        self.call("list the pods' logs", |places| folders_in(&places.pod_logs))
    }

    fn remove_pod_log<'a>(&'a self, folder: &'a str) -> HostFuture<'a, ()> {
        let folder = folder.to_owned();
        self.call("remove a pod's logs", move |places| places.remove_pod_log(&folder))
    }

    fn remove_container_log<'a>(&'a self, path: &'a str) -> HostFuture<'a, ()> {
        let path = path.to_owned();
        self.call("remove a container's log", move |places| places.remove_container_log(&path))
    }

    fn remove_dead_links(&self, keep: BTreeSet<String>) -> HostFuture<'_, ()> {
        self.call("remove dead log links", move |places| places.remove_dead_links(&keep))
    }
}
