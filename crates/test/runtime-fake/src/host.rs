//! Pod directories, cgroups, volumes, records, contents and network probes in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ports::pod_host::{
    AgentRecords, CgroupLimits, HostError, HostFuture, HostVolume, LoadedRecords, PodCgroups,
    PodDirs, PodFile, SubPath, VolumeDriver, VolumeFile, VolumeOwnership,
};
use ports::probing::{NetworkProbeRequest, NetworkProber, ProbeAttemptResult};
use ports::runtime_objects::CgroupDriver;
use ports::{HostAddresses, HostTextFiles, PortFuture, PullRecordKind, PullRecords};
use tokio::sync::watch;

mod log_files;

/// Cheap to clone; clones share one host. It outlives an agent, as a disk does.
#[derive(Clone)]
pub struct FakeHost {
    shared: Arc<Mutex<FakeHostState>>,
    /// The runtime's cgroup driver, each time that the agent reported it.
    drivers: Arc<watch::Sender<Vec<Option<CgroupDriver>>>>,
    /// Number of OOM-killed processes of each container.
    oom_kills: Arc<watch::Sender<BTreeMap<String, u64>>>,
}

impl Default for FakeHost {
    fn default() -> Self {
        Self {
            shared: Arc::default(),
            drivers: Arc::new(watch::Sender::new(Vec::new())),
            oom_kills: Arc::new(watch::Sender::new(BTreeMap::new())),
        }
    }
}

#[derive(Default)]
struct FakeHostState {
    pods: BTreeSet<String>,
    files: BTreeMap<String, Vec<u8>>,
    logs: BTreeMap<String, u32>,
    links: BTreeMap<String, String>,
    cgroups: BTreeMap<Vec<String>, CgroupLimits>,
    volumes: BTreeSet<(String, String)>,
    records: BTreeMap<(String, String), Vec<u8>>,
    /// Operations on records in order, if a test asked for them.
    operations: Option<Vec<String>>,
    is_full: bool,
    refuses_records: bool,
    refuses_cgroups: bool,
    is_cgroup_v1: bool,
    fails_log_removal: bool,
    list_delay: Duration,
    record_write_delay: Duration,
    log_link_delay: Duration,
    /// How many of the next calls that concern a name panic, and how many did.
    pending_panics: BTreeMap<String, u32>,
    /// Names of volumes and UIDs of pods whose set-up and removal do not end.
    hanging: BTreeSet<String>,
    panics: u32,
    answers: VecDeque<ProbeAttemptResult>,
    tries: Vec<NetworkProbeRequest>,
    addresses: Option<Vec<IpAddr>>,
}

impl FakeHostState {
    fn panic_if_injected(&mut self, call: &str, about: &str) {
        let mut bad = self.pending_panics.iter_mut();
        let bad = bad.find(|(name, times)| **times > 0 && about.contains(name.as_str()));
        let Some((_, times)) = bad else { return };
        *times -= 1;
        self.panics += 1;
        panic!("the fake's {call} panics");
    }
}

impl FakeHost {
    fn disk(&self) -> MutexGuard<'_, FakeHostState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runtime's cgroup driver, each time that the agent reported it.
    pub fn drivers(&self) -> Vec<Option<CgroupDriver>> {
        self.drivers.borrow().clone()
    }

    async fn wait_for_driver(&self) {
        let _ = self.drivers.subscribe().wait_for(|drivers| !drivers.is_empty()).await;
    }

    /// Makes this a cgroup v1 host.
    pub fn use_cgroup_v1(&self) {
        self.disk().is_cgroup_v1 = true;
    }

    /// Sets whether creating or limiting a cgroup fails.
    pub fn refuse_cgroups(&self, refuse: bool) {
        self.disk().refuses_cgroups = refuse;
    }

    /// Sets how long listing the pod directories takes.
    pub fn delay_pod_list(&self, takes: Duration) {
        self.disk().list_delay = takes;
    }

    /// Sets how long saving a record takes; a cancelled save writes nothing.
    pub fn delay_record_writes(&self, takes: Duration) {
        self.disk().record_write_delay = takes;
    }

    /// Makes every removal of a container log fail.
    pub fn fail_log_removal(&self) {
        self.disk().fails_log_removal = true;
    }

    /// Sets how long creating a log symlink takes.
    pub fn delay_log_links(&self, takes: Duration) {
        self.disk().log_link_delay = takes;
    }

    /// Counts an OOM kill in the cgroup with this last path component, without a kernel log record.
    pub fn count_oom_kill(&self, group: &str) {
        self.oom_kills
            .send_modify(|oom_kills| *oom_kills.entry(group.to_owned()).or_default() += 1);
    }

    /// Sets whether writes fail with ENOSPC.
    pub fn set_disk_full(&self, full: bool) {
        self.disk().is_full = full;
    }

    /// The next so many looks for the highest log number of a pod of this name (its worker makes them
    /// itself), or set-ups of a volume of this name, panic.
    pub fn panic_on_name(&self, name: &str, times: u32) {
        self.disk().pending_panics.insert(name.to_owned(), times);
    }

    /// Makes the set-up of a volume of this name, or the removal of the volumes of a pod with this
    /// UID, hang, or go on again.
    pub fn set_hanging(&self, name: &str, hangs: bool) {
        let mut disk = self.disk();
        if hangs {
            disk.hanging.insert(name.to_owned());
        } else {
            disk.hanging.remove(name);
        }
    }

    async fn wait_while_hanging(&self, name: &str) {
        while self.disk().hanging.contains(name) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    pub fn panics(&self) -> u32 {
        self.disk().panics
    }

    /// A file that a container may have written.
    pub fn put_file(&self, path: &str, content: &[u8]) {
        self.disk().files.insert(path.to_owned(), content.to_vec());
    }

    /// The files below a directory by relative path, each with its content.
    pub fn files_below(&self, dir: &str) -> Vec<(String, String)> {
        let disk = self.disk();
        let below = disk.files.iter().filter_map(|(path, content)| {
            let name = path.strip_prefix(dir)?.trim_start_matches('/');
            Some((name.to_owned(), String::from_utf8_lossy(content).into_owned()))
        });
        below.collect()
    }

    /// The log symlinks by name, each with its target.
    pub fn links(&self) -> BTreeMap<String, String> {
        self.disk().links.clone()
    }

    pub fn clear_links(&self) {
        self.disk().links.clear();
    }

    /// Adds a cgroup that the agent did not create.
    pub fn insert_cgroup(&self, path: &str) {
        let name = path.split('/').skip(1).map(str::to_owned).collect();
        self.disk().cgroups.insert(name, CgroupLimits::default());
    }

    pub fn cgroup(&self, path: &str) -> Option<CgroupLimits> {
        let name: Vec<String> = path.split('/').skip(1).map(str::to_owned).collect();
        self.disk().cgroups.get(&name).cloned()
    }

    /// What an earlier agent left of a pod.
    pub fn put_pod_dir(&self, uid: &str) {
        self.disk().pods.insert(uid.to_owned());
    }

    pub fn pod_dirs(&self) -> Vec<String> {
        self.disk().pods.iter().cloned().collect()
    }

    pub fn cgroup_names(&self) -> Vec<String> {
        self.disk().cgroups.keys().map(|name| name.join("/")).collect()
    }

    pub fn volumes_of(&self, uid: &str) -> Vec<String> {
        let disk = self.disk();
        disk.volumes.iter().filter(|(of, _)| of == uid).map(|(_, name)| name.clone()).collect()
    }

    pub fn record_names(&self, dir: &str) -> Vec<String> {
        let disk = self.disk();
        disk.records.keys().filter(|(of, _)| of == dir).map(|(_, name)| name.clone()).collect()
    }

    pub fn record(&self, dir: &str, name: &str) -> Option<Vec<u8>> {
        self.disk().records.get(&(dir.to_owned(), name.to_owned())).cloned()
    }

    /// From now on the order in which records are written and removed is recorded.
    pub fn record_operations(&self) {
        self.disk().operations = Some(Vec::new());
    }

    /// Sets whether saving a record fails permanently.
    pub fn refuse_records(&self, refuse: bool) {
        self.disk().refuses_records = refuse;
    }

    /// `save pods`, `refuse pods`, `remove uids`, …
    pub fn recorded_operations(&self) -> Vec<String> {
        self.disk().operations.clone().unwrap_or_default()
    }

    /// Adds a record as an earlier agent may have left it.
    pub fn put_record(&self, dir: &str, name: &str, content: &[u8]) {
        self.disk().records.insert((dir.to_owned(), name.to_owned()), content.to_vec());
    }

    /// Sets the host's addresses; the default is 192.0.2.1.
    pub fn set_addresses(&self, addresses: &[IpAddr]) {
        self.disk().addresses = Some(addresses.to_vec());
    }

    /// Sets the results of the next network probes; later ones succeed.
    pub fn answer_tries(&self, answers: impl IntoIterator<Item = ProbeAttemptResult>) {
        self.disk().answers.extend(answers);
    }

    pub fn tries(&self) -> Vec<NetworkProbeRequest> {
        self.disk().tries.clone()
    }

    fn done<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce(&mut FakeHostState) -> T + Send + 'a,
    ) -> HostFuture<'a, T> {
        Box::pin(async move { Ok(work(&mut self.disk())) })
    }

    fn written<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce(&mut FakeHostState) -> T + Send + 'a,
    ) -> HostFuture<'a, T> {
        Box::pin(async move {
            let mut disk = self.disk();
            if disk.is_full {
                return Err(HostError::Transient("no space left on device".to_owned()));
            }
            Ok(work(&mut disk))
        })
    }
}

impl PodDirs for FakeHost {
    fn make_pod<'a>(&'a self, uid: &'a str, _log_directory: &'a str) -> HostFuture<'a, ()> {
        self.written(move |disk| {
            disk.pods.insert(uid.to_owned());
        })
    }
    fn make_container<'a>(
        &'a self,
        uid: &'a str,
        container: &'a str,
        termination_file: &'a str,
        _log_directory: &'a str,
    ) -> HostFuture<'a, PathBuf> {
        self.written(move |_| {
            PathBuf::from(format!("/pods/{uid}/containers/{container}/{termination_file}"))
        })
    }
    fn write<'a>(&'a self, uid: &'a str, file: &'a PodFile) -> HostFuture<'a, PathBuf> {
        self.written(move |disk| {
            let path = format!("/pods/{uid}/{}", file.path);
            disk.files.insert(path.clone(), file.content.clone());
            PathBuf::from(path)
        })
    }
    fn link_log<'a>(&'a self, link_name: &'a str, target: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let takes = self.disk().log_link_delay;
            tokio::time::sleep(takes).await;
            let link = |disk: &mut FakeHostState| {
                disk.links.insert(link_name.to_owned(), target.to_owned())
            };
            self.written(link).await.map(drop)
        })
    }
    fn read_tail<'a>(&'a self, path: &'a str, most: usize) -> HostFuture<'a, Option<Vec<u8>>> {
        self.done(move |disk| {
            let bytes = disk.files.get(path)?;
            Some(bytes.iter().copied().skip(bytes.len().saturating_sub(most)).collect())
        })
    }
    fn highest_log_number<'a>(&'a self, log_directory: &'a str) -> HostFuture<'a, Option<u32>> {
        self.done(move |disk| {
            disk.panic_if_injected("highest_log_number", log_directory);
            disk.logs.get(log_directory).copied()
        })
    }
    fn pods(&self) -> HostFuture<'_, Vec<String>> {
        Box::pin(async move {
            let takes = self.disk().list_delay;
            tokio::time::sleep(takes).await;
            Ok(self.disk().pods.iter().cloned().collect())
        })
    }
    fn remove_pod<'a>(&'a self, uid: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let mut disk = self.disk();
            if disk.volumes.iter().any(|(of, _)| of == uid) {
                return Err(HostError::Transient(format!("something is mounted in pods/{uid}")));
            }
            disk.pods.remove(uid);
            Ok(())
        })
    }
    fn pod_logs(&self) -> HostFuture<'_, Vec<String>> {
        self.done(|_| Vec::new())
    }
    fn remove_pod_log<'a>(&'a self, _dir: &'a str) -> HostFuture<'a, ()> {
        self.done(|_| ())
    }
    fn remove_container_log<'a>(&'a self, path: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let kept = self.disk().fails_log_removal;
            if kept { Err(HostError::Permanent(format!("{path} lies elsewhere"))) } else { Ok(()) }
        })
    }
    fn remove_dead_links(&self, _keep: BTreeSet<String>) -> HostFuture<'_, ()> {
        self.done(|_| ())
    }
}

impl PodCgroups for FakeHost {
    fn set_driver(&self, driver: Option<CgroupDriver>) {
        self.drivers.send_modify(|known| known.push(driver));
    }
    fn apply<'a>(&'a self, name: &'a [String], limits: &'a CgroupLimits) -> HostFuture<'a, ()> {
        Box::pin(async move {
            self.wait_for_driver().await;
            let mut disk = self.disk();
            if disk.refuses_cgroups {
                return Err(HostError::Transient("no cgroups today".to_owned()));
            }
            disk.cgroups.insert(name.to_vec(), limits.clone());
            Ok(())
        })
    }
    fn set_limits_of_existing<'a>(
        &'a self,
        path: &'a str,
        limits: &'a CgroupLimits,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let name: Vec<String> = path.split('/').skip(1).map(str::to_owned).collect();
            match self.disk().cgroups.get_mut(&name) {
                Some(there) => *there = limits.clone(),
                None => return Err(HostError::Permanent(format!("there is no cgroup {path}"))),
            }
            Ok(())
        })
    }
    fn remove<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, ()> {
        self.done(move |disk| disk.cgroups.retain(|known, _| !known.starts_with(name)))
    }
    fn children<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, Vec<String>> {
        self.done(move |disk| {
            let below = disk.cgroups.keys().filter_map(|known| known.strip_prefix(name));
            below.filter_map(|rest| rest.first().cloned()).collect()
        })
    }
    fn runtime_name<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, String> {
        Box::pin(async move {
            self.wait_for_driver().await;
            Ok(format!("/{}", name.join("/")))
        })
    }
    fn wait_for_oom_kills<'a>(
        &'a self,
        _name: &'a [String],
        known: &'a BTreeMap<String, u64>,
    ) -> HostFuture<'a, BTreeMap<String, u64>> {
        Box::pin(async move {
            let is_more = |oom_kills: &BTreeMap<String, u64>| {
                oom_kills.iter().any(|(group, count)| known.get(group).is_none_or(|k| k < count))
            };
            let mut oom_kills = self.oom_kills.subscribe();
            let more = oom_kills.wait_for(is_more).await.map(|oom_kills| oom_kills.clone());
            more.map_err(|_| HostError::Permanent("this host is gone".to_owned()))
        })
    }
    fn oom_kills<'a>(&'a self, _name: &'a [String]) -> HostFuture<'a, Option<u64>> {
        self.done(|_| None)
    }
    fn is_unified(&self) -> bool {
        !self.disk().is_cgroup_v1
    }
}

impl VolumeDriver for FakeHost {
    fn set_up<'a>(
        &'a self,
        uid: &'a str,
        volume: &'a HostVolume,
        _ownership: &'a VolumeOwnership,
    ) -> HostFuture<'a, PathBuf> {
        let written = self.written(move |disk| {
            disk.panic_if_injected("set_up", volume.name());
            disk.volumes.insert((uid.to_owned(), volume.name().to_owned()));
            let path = format!("/pods/{uid}/volumes/{}", volume.name());
            if let HostVolume::Payload { files, .. } = volume {
                disk.files.retain(|file, _| !file.starts_with(&format!("{path}/")));
                let files = files.iter().map(|it| (format!("{path}/{}", it.path), it));
                disk.files.extend(files.map(|(path, file)| (path, file.content.clone())));
            }
            PathBuf::from(path)
        });
        Box::pin(async move {
            self.wait_while_hanging(volume.name()).await;
            written.await
        })
    }
    fn pin_sub_path<'a>(&'a self, _uid: &'a str, request: &'a SubPath) -> HostFuture<'a, PathBuf> {
        self.written(move |_| request.volume_path.join(&request.sub_path))
    }
    fn read_file<'a>(&'a self, file: &'a VolumeFile) -> HostFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let path = file.volume_path.join(&file.path).display().to_string();
            let found = self.disk().files.get(&path).cloned();
            found.ok_or_else(|| HostError::Permanent(format!("{path} is not there")))
        })
    }
    fn release_sub_paths<'a>(&'a self, _uid: &'a str, _container: &'a str) -> HostFuture<'a, ()> {
        self.done(|_| ())
    }
    fn tear_down<'a>(&'a self, uid: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move {
            self.wait_while_hanging(uid).await;
            self.disk().volumes.retain(|(of, _)| of != uid);
            Ok(())
        })
    }
}

impl AgentRecords for FakeHost {
    fn load<'a>(&'a self, dir: &'a str) -> HostFuture<'a, LoadedRecords> {
        self.done(move |disk| LoadedRecords {
            records: disk
                .records
                .iter()
                .filter(|((of, _), _)| of == dir)
                .map(|((_, name), content)| (name.clone(), content.clone()))
                .collect(),
            unreadable: Vec::new(),
        })
    }
    fn save<'a>(&'a self, dir: &'a str, name: &'a str, content: Vec<u8>) -> HostFuture<'a, ()> {
        let saved = self.written(move |disk| {
            let refuses = disk.refuses_records;
            let done = if refuses { "refuse" } else { "save" };
            disk.operations
                .iter_mut()
                .for_each(|operations| operations.push(format!("{done} {dir}")));
            if !refuses {
                disk.records.insert((dir.to_owned(), name.to_owned()), content);
            }
            !refuses
        });
        Box::pin(async move {
            let takes = self.disk().record_write_delay;
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            let refused = || HostError::Permanent("records are not written here".to_owned());
            saved.await?.then_some(()).ok_or_else(refused)
        })
    }
    fn remove<'a>(&'a self, dir: &'a str, name: &'a str) -> HostFuture<'a, ()> {
        self.done(move |disk| {
            disk.operations
                .iter_mut()
                .for_each(|operations| operations.push(format!("remove {dir}")));
            disk.records.remove(&(dir.to_owned(), name.to_owned()));
        })
    }
}

/// The subject is the name.
impl PullRecords for FakeHost {
    fn digest(&self, text: &[u8]) -> String {
        format!("digest of {} bytes", text.len())
    }
    fn read<'a>(
        &'a self,
        kind: PullRecordKind,
        subject: &'a str,
    ) -> HostFuture<'a, Option<Vec<u8>>> {
        self.done(move |disk| disk.records.get(&(pull_dir(kind), subject.to_owned())).cloned())
    }
    fn all(&self, kind: PullRecordKind) -> HostFuture<'_, LoadedRecords> {
        Box::pin(async move { AgentRecords::load(self, &pull_dir(kind)).await })
    }
    fn save<'a>(
        &'a self,
        kind: PullRecordKind,
        subject: &'a str,
        content: Vec<u8>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move { AgentRecords::save(self, &pull_dir(kind), subject, content).await })
    }
    fn remove<'a>(&'a self, kind: PullRecordKind, subject: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { AgentRecords::remove(self, &pull_dir(kind), subject).await })
    }
}

fn pull_dir(kind: PullRecordKind) -> String {
    match kind {
        PullRecordKind::Intent => "pulling".to_owned(),
        PullRecordKind::Pulled => "pulled".to_owned(),
    }
}

impl HostAddresses for FakeHost {
    fn now(&self) -> Vec<IpAddr> {
        self.disk().addresses.clone().unwrap_or_else(|| vec![IpAddr::from([192, 0, 2, 1])])
    }
}

impl HostTextFiles for FakeHost {
    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, Option<String>> {
        self.done(move |disk| {
            disk.files.get(path).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        })
    }
}

impl NetworkProber for FakeHost {
    fn attempt<'a>(
        &'a self,
        what: &'a NetworkProbeRequest,
        _limit: Duration,
    ) -> PortFuture<'a, ProbeAttemptResult> {
        Box::pin(async move {
            let mut disk = self.disk();
            disk.tries.push(what.clone());
            disk.answers.pop_front().unwrap_or_else(|| ProbeAttemptResult::Success(String::new()))
        })
    }
}
