//! One cgroup: create, enter, list, freeze, kill, remove.
//!
//! Rule: a cgroup's path is the same in every hierarchy; operations are idempotent. A kill misses
//! no process, whatever the processes do meanwhile. Does not touch siblings or parents, except that
//! version 2 enables controllers in the parents on creation.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{CgroupError, Result, read, read_if_exists, write};
use crate::hierarchy::{CgroupHierarchies, CgroupLayout, CgroupVersion, Controller};

#[cfg(test)]
mod tests;

/// Version 1 has no call that kills a cgroup; no process that can be killed survives so many
/// rounds.
const MAX_KILL_ROUNDS: u32 = 200;

/// A cgroup by its path, which may or may not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    hierarchy: CgroupHierarchies,
    path: String,
}

impl Cgroup {
    pub(crate) fn new(hierarchy: &CgroupHierarchies, path: &str) -> Result<Self> {
        let invalid = |part: &str| part == "." || part == ".." || part.contains(['\0', '\n']);
        if !path.starts_with('/') || path.split('/').any(invalid) {
            return Err(CgroupError::BadPath(path.to_owned()));
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        Ok(Self { hierarchy: hierarchy.clone(), path: format!("/{}", parts.join("/")) })
    }

    pub fn hierarchy(&self) -> &CgroupHierarchies {
        &self.hierarchy
    }

    /// From the hierarchies' roots.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn is_root(&self) -> bool {
        self.path == "/"
    }

    pub fn child(&self, name: &str) -> Result<Self> {
        Self::new(&self.hierarchy, &format!("{}/{name}", self.path.trim_end_matches('/')))
    }

    pub fn parent(&self) -> Option<Self> {
        let (parent, name) = self.path.rsplit_once('/')?;
        if name.is_empty() {
            return None;
        }
        let path = if parent.is_empty() { "/" } else { parent };
        Some(Self { hierarchy: self.hierarchy.clone(), path: path.to_owned() })
    }

    fn beneath(&self, point: &Path) -> PathBuf {
        point.join(self.path.trim_start_matches('/'))
    }

    /// The directory with a controller's files of this cgroup.
    pub fn dir(&self, controller: Controller) -> Option<PathBuf> {
        self.hierarchy.point(controller).map(|point| self.beneath(point))
    }

    /// The directory, or an error that names the limit that needs the controller.
    pub(crate) fn dir_for(&self, controller: Controller, needed_for: &str) -> Result<PathBuf> {
        self.dir(controller).ok_or_else(|| CgroupError::NoController {
            controller: controller.v1_name(),
            needed_for: needed_for.to_owned(),
        })
    }

    /// The cgroup's directories, one in each hierarchy.
    pub fn dirs(&self) -> Vec<PathBuf> {
        self.hierarchy.points().into_iter().map(|point| self.beneath(point)).collect()
    }

    /// Whether it exists in every hierarchy.
    pub fn exists(&self) -> bool {
        self.dirs().iter().all(|dir| dir.is_dir())
    }

    /// Whether it exists in at least one hierarchy.
    pub fn exists_in_any_hierarchy(&self) -> bool {
        self.dirs().iter().any(|dir| dir.is_dir())
    }

    /// Creates the cgroup and its parents, with every controller that the machine has.
    pub fn create(&self) -> Result<()> {
        match &self.hierarchy.layout {
            CgroupLayout::V2 { root, .. } => self.create_unified(root),
            CgroupLayout::V1 { points, .. } => {
                for dir in self.dirs() {
                    make_dirs(&dir)?;
                }
                match points.get(&Controller::CpuSet) {
                    Some(point) => self.inherit_cpu_set(point),
                    None => Ok(()),
                }
            }
        }
    }

    /// Enables the controllers in each parent. One that cannot be enabled is skipped: setting a
    /// limit of it then fails because its file is missing.
    fn create_unified(&self, root: &Path) -> Result<()> {
        let mut dir = root.to_owned();
        for part in self.path.split('/').filter(|part| !part.is_empty()) {
            let offered = read(&dir.join("cgroup.controllers"))?;
            let control = dir.join("cgroup.subtree_control");
            let passed = read_if_exists(&control)?.unwrap_or_default();
            for name in offered.split_whitespace() {
                if !passed.split_whitespace().any(|one| one == name) {
                    let _ = write(&control, &format!("+{name}"));
                }
            }
            dir.push(part);
            make_dirs(&dir)?;
        }
        Ok(())
    }

    /// A new cpuset of version 1 has no CPUs, and no process can enter it before it has some.
    fn inherit_cpu_set(&self, point: &Path) -> Result<()> {
        let mut dir = point.to_owned();
        for part in self.path.split('/').filter(|part| !part.is_empty()) {
            let parent = dir.clone();
            dir.push(part);
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let own = read_if_exists(&dir.join(file))?;
                if own.is_some_and(|own| own.trim().is_empty()) {
                    write(&dir.join(file), read(&parent.join(file))?.trim())?;
                }
            }
        }
        Ok(())
    }

    /// Moves a process with all its threads into the cgroup.
    pub fn add_process(&self, pid: u32) -> Result<()> {
        self.procs_files()?.attach(pid)
    }

    /// The cgroup's membership files, held open: they still work for a process that has entered
    /// other namespaces, and for a caller that no longer sees the files.
    pub fn procs_files(&self) -> Result<CgroupProcsFiles> {
        self.dirs()
            .into_iter()
            .map(|dir| CgroupProcsFiles::open_procs_file(&dir, PROCESSES))
            .collect::<Result<_>>()
            .map(|files: Vec<(PathBuf, File)>| CgroupProcsFiles { files })
    }

    /// The membership file of one controller only (version 1); of the cgroup (version 2).
    pub fn procs_files_of(&self, controller: Controller) -> Result<CgroupProcsFiles> {
        let dir = self.dir_for(controller, "entering it")?;
        Ok(CgroupProcsFiles { files: vec![CgroupProcsFiles::open_procs_file(&dir, PROCESSES)?] })
    }

    /// The files by which the calling thread moves itself in, with the processes that it starts
    /// afterwards; `beneath` is a cgroup in the freezer hierarchy only. `None` on version 2.
    ///
    /// Moving another process waits until the kernel has stopped all forks and exits on the
    /// machine, some ten milliseconds each time. A thread that moves itself does not wait.
    pub fn task_files_for_caller(
        &self,
        beneath: Option<&Cgroup>,
    ) -> Result<Option<CgroupProcsFiles>> {
        if self.hierarchy.version() == CgroupVersion::V2 {
            return Ok(None);
        }
        let mut dirs = self.dirs();
        if let Some(beneath) = beneath {
            let frozen = self.dir(Controller::Freezer);
            dirs.retain(|dir| Some(dir) != frozen.as_ref());
            dirs.push(beneath.dir_for(Controller::Freezer, "entering it")?);
        }
        let files = dirs
            .iter()
            .map(|dir| CgroupProcsFiles::open_procs_file(dir, THREADS))
            .collect::<Result<_>>()?;
        Ok(Some(CgroupProcsFiles { files }))
    }

    /// Processes in the cgroup itself, not in its descendants. Those that the current PID namespace
    /// cannot see are left out.
    pub fn processes(&self) -> Result<Vec<u32>> {
        processes_in(&self.listing_dir())
    }

    /// Processes in the cgroup and its descendants, including those whose names are not UTF-8.
    pub fn processes_beneath(&self) -> Result<Vec<u32>> {
        // Every process is also in the hierarchy that is listed.
        let mut all = Vec::new();
        let mut open = vec![self.listing_dir()];
        while let Some(dir) = open.pop() {
            all.extend(processes_in(&dir)?);
            open.extend(dirs_in(&dir)?);
        }
        Ok(all)
    }

    /// The child cgroups, in any hierarchy: a process that is killed while it creates or removes
    /// one leaves it in some of them. One whose name is not UTF-8 is not the agent's and is left
    /// out.
    pub fn children(&self) -> Result<Vec<Self>> {
        let mut names = BTreeSet::new();
        for folder in &self.dirs() {
            let dirs = dirs_in(folder)?;
            let own = dirs.iter().filter_map(|dir| dir.file_name()?.to_str());
            names.extend(own.map(str::to_owned));
        }
        names.iter().map(|name| self.child(name)).collect()
    }

    /// Version 1: the hierarchy that is listed. The freezer, because a kill needs it; otherwise
    /// any.
    fn listing_dir(&self) -> PathBuf {
        self.dir(Controller::Freezer)
            .filter(|dir| dir.is_dir())
            .or_else(|| self.dirs().into_iter().find(|dir| dir.is_dir()))
            .unwrap_or_else(|| {
                self.beneath(self.hierarchy.points().first().copied().unwrap_or(Path::new("/")))
            })
    }

    /// Freezes or thaws every process. Returns before all have stopped.
    pub fn set_frozen(&self, frozen: bool) -> Result<()> {
        match self.hierarchy.version() {
            CgroupVersion::V2 => {
                let dir = self.dir_for(Controller::Freezer, "freezing")?;
                write(&dir.join("cgroup.freeze"), if frozen { "1" } else { "0" })
            }
            CgroupVersion::V1 => {
                let dir = self.dir_for(Controller::Freezer, "freezing")?;
                write(&dir.join("freezer.state"), if frozen { "FROZEN" } else { "THAWED" })
            }
        }
    }

    fn is_frozen(&self) -> Result<bool> {
        let Some(dir) = self.dir(Controller::Freezer) else { return Ok(false) };
        match self.hierarchy.version() {
            CgroupVersion::V1 => Ok(read(&dir.join("freezer.state"))?.trim() == "FROZEN"),
            CgroupVersion::V2 => {
                Ok(read(&dir.join("cgroup.events"))?.lines().any(|line| line == "frozen 1"))
            }
        }
    }

    /// SIGKILL to every process in the cgroup and its descendants, also to those that are being
    /// forked. Returns when each has got it. On version 1 this may block for a while: do not call
    /// it from async code.
    pub fn kill(&self) -> Result<()> {
        if !self.exists_in_any_hierarchy() {
            return Ok(());
        }
        if self.hierarchy.version() == CgroupVersion::V2 {
            let file = self.listing_dir().join("cgroup.kill");
            if file.exists() {
                return write(&file, "1");
            }
        }
        self.kill_in_rounds()
    }

    fn kill_in_rounds(&self) -> Result<()> {
        for round in 0..MAX_KILL_ROUNDS {
            if self.processes_beneath()?.is_empty() {
                return Ok(());
            }
            // Frozen processes do not fork; without a freezer the rounds must win the race.
            if self.set_frozen(true).is_ok() {
                let until = Instant::now() + Duration::from_millis(50);
                while !self.is_frozen().unwrap_or(true) && Instant::now() < until {
                    sleep(Duration::from_micros(200));
                }
            }
            for pid in self.processes_beneath()? {
                if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            let _ = self.set_frozen(false);
            sleep(Duration::from_micros(200 + 100 * u64::from(round)));
        }
        if self.processes_beneath()?.is_empty() {
            return Ok(());
        }
        Err(CgroupError::ProcessesRemain { path: self.listing_dir(), rounds: MAX_KILL_ROUNDS })
    }

    /// The cgroup that a further process can be moved into: this one, or, if a program in it
    /// enabled controllers for its children (version 2 then lets no process in), that of its first
    /// process.
    pub fn attachable_cgroup(&self, first_process: u32) -> Self {
        let passes_down = || {
            let dir = self.dir(Controller::Freezer)?;
            let passed = read_if_exists(&dir.join("cgroup.subtree_control")).ok()??;
            (!passed.trim().is_empty()).then_some(())
        };
        if self.hierarchy.version() == CgroupVersion::V1 || passes_down().is_none() {
            return self.clone();
        }
        self.hierarchy
            .path_of(first_process)
            .and_then(|path| Self::new(&self.hierarchy, &path))
            .ok()
            .filter(|group| group.path.starts_with(&format!("{}/", self.path)))
            .unwrap_or_else(|| self.clone())
    }

    /// Whether any process is left in the cgroup or its descendants.
    pub fn is_populated(&self) -> Result<bool> {
        if self.hierarchy.version() == CgroupVersion::V2
            && let Some(events) = read_if_exists(&self.listing_dir().join("cgroup.events"))?
        {
            return Ok(events.lines().any(|line| line == "populated 1"));
        }
        Ok(!self.processes_beneath()?.is_empty())
    }

    /// Removes the cgroup with its descendants. Fails while a process is in one of them.
    pub fn remove(&self) -> Result<()> {
        self.dirs().iter().try_for_each(|dir| remove_dirs(dir))
    }

    /// Removes it, and retries until `limit` while it is busy: killed processes need time to exit.
    pub fn remove_within(&self, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        let mut pause = Duration::from_micros(500);
        loop {
            match self.remove() {
                Err(CgroupError::Remove { source, .. })
                    if source.kind() == std::io::ErrorKind::ResourceBusy
                        && Instant::now() < until =>
                {
                    sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                outcome => return outcome,
            }
        }
    }

    /// Kills the processes and removes the cgroup, again and again until `limit`: on a busy machine
    /// killed processes take time to exit.
    pub fn kill_and_remove_within(&self, limit: Duration) -> Result<()> {
        const ATTEMPT_INTERVAL: Duration = Duration::from_millis(500);
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let killed = self.kill();
            match self.remove_within(ATTEMPT_INTERVAL.min(left)) {
                Ok(()) => return Ok(()),
                Err(error) if left.is_zero() => return killed.and(Err(error)),
                Err(_) => {}
            }
        }
    }
}

fn make_dirs(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)
        .map_err(|source| CgroupError::Create { path: dir.to_owned(), source })
}

fn processes_in(dir: &Path) -> Result<Vec<u32>> {
    let text = read_if_exists(&dir.join(PROCESSES))?.unwrap_or_default();
    Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect())
}

/// The child directories; none if it is gone.
fn dirs_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source| CgroupError::Read { path: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Depth first; directories only, for a cgroup's files cannot be removed.
fn remove_dirs(dir: &Path) -> Result<()> {
    let failed = |source| CgroupError::Remove { path: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_dirs(&entry.path())?;
        }
    }
    match std::fs::remove_dir(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

const PROCESSES: &str = "cgroup.procs";
/// Of version 1.
const THREADS: &str = "tasks";

/// The files of a cgroup by which processes are moved in, of every hierarchy, open for writing.
#[derive(Debug)]
pub struct CgroupProcsFiles {
    files: Vec<(PathBuf, File)>,
}

impl CgroupProcsFiles {
    fn open_procs_file(dir: &Path, file: &str) -> Result<(PathBuf, File)> {
        let path = dir.join(file);
        let file = File::options().write(true).open(&path).map_err(|source| {
            CgroupError::Write { path: path.clone(), value: String::new(), source }
        })?;
        Ok((path, file))
    }

    /// `pid` in the caller's PID namespace; 0 is the caller.
    pub fn attach(&self, pid: u32) -> Result<()> {
        for (path, file) in &self.files {
            let value = pid.to_string();
            let mut file = file;
            file.write_all(value.as_bytes()).map_err(|source| CgroupError::Write {
                path: path.clone(),
                value,
                source,
            })?;
        }
        Ok(())
    }

    /// The files of both, one after the other.
    pub fn and(mut self, other: Self) -> Self {
        self.files.extend(other.files);
        self
    }
}
