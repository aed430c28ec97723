//! Cgroups in this machine's own hierarchies, under a name of the test's, and a systemd that is not
//! there. A real systemd is tested on the machine that has one.

use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use ports::pod_host::MemoryKills as _;

use super::*;
use crate::kernel_log::{KernelLog, Since};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A cgroup of the test's with all below it; removed with the test.
struct Bed {
    host: HostCgroups,
    top: Vec<String>,
}

impl Bed {
    fn new(driver: Driver) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let top = vec![format!("keelsontest{}x{number}", std::process::id())];
        let host = HostCgroups::new(CgroupSetup::detect(driver).unwrap());
        host.learn_driver(None);
        Self { host, top }
    }

    fn name(&self, below: &[&str]) -> Vec<String> {
        let mut name = self.top.clone();
        name.extend(below.iter().map(|word| (*word).to_owned()));
        name
    }

    fn group(&self, below: &[&str]) -> Cgroup {
        let name = CgroupSetup::name(&self.name(below)).unwrap();
        self.host.configured.group(&name).unwrap()
    }

    fn file(&self, below: &[&str], controller: Controller, names: [&str; 2]) -> String {
        let file = names[usize::from(self.host.is_unified())];
        let text = self.group(below).read_file(controller, file).unwrap();
        text.unwrap_or_else(|| panic!("no {file}")).trim().to_owned()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _gone = self.host.configured.remove(&self.top);
    }
}

/// The drivers that this machine can be asked for.
fn drivers() -> Vec<Driver> {
    let mut drivers = vec![Driver::CgroupFs];
    if std::path::Path::new("/run/systemd/private").exists() {
        drivers.push(Driver::Systemd);
    }
    drivers
}

fn limits() -> CgroupLimits {
    CgroupLimits {
        cpu_shares: Some(512),
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        memory_bytes: Some(32 << 20),
        pids: Some(100),
        ..CgroupLimits::default()
    }
}

#[tokio::test]
async fn a_group_is_made_limited_listed_and_removed() {
    for driver in drivers() {
        let bed = Bed::new(driver);
        let pod = ["burstable", "pod12-34"];
        bed.host.apply(&bed.name(&pod[..1]), &CgroupLimits::default()).await.unwrap();
        for _ in 0..2 {
            bed.host.apply(&bed.name(&pod), &limits()).await.unwrap();
        }
        let unified = bed.host.is_unified();
        let shares = bed.file(&pod, Controller::Cpu, ["cpu.shares", "cpu.weight"]);
        assert_eq!(shares, if unified { weight_of(512) } else { "512".to_owned() });
        let quota = bed.file(&pod, Controller::Cpu, ["cpu.cfs_quota_us", "cpu.max"]);
        assert_eq!(quota, if unified { "50000 100000" } else { "50000" });
        let memory = bed.file(&pod, Controller::Memory, ["memory.limit_in_bytes", "memory.max"]);
        assert_eq!(memory, (32 << 20).to_string());
        assert_eq!(bed.file(&pod, Controller::Pids, ["pids.max", "pids.max"]), "100");
        assert_eq!(bed.host.children(&bed.top).await.unwrap(), ["burstable"]);
        assert_eq!(bed.host.children(&bed.name(&pod[..1])).await.unwrap(), ["pod12-34"]);
        assert_eq!(bed.host.memory_kills(&bed.name(&pod)).await.unwrap(), Some(0));
        bed.host.remove(&bed.name(&pod)).await.unwrap();
        bed.host.remove(&bed.name(&pod)).await.unwrap();
        assert!(bed.host.children(&bed.name(&pod[..1])).await.unwrap().is_empty());
        assert_eq!(bed.host.memory_kills(&bed.name(&pod)).await.unwrap(), None);
        bed.host.remove(&bed.top).await.unwrap();
        assert!(!bed.group(&[]).exists_somewhere());
        let told = ports::metrics::text(ports::MetricSource::families(&bed.host));
        for (operation, count) in [("create", 2), ("update", 1), ("destroy", 3)] {
            let line = format!(
                "kubelet_cgroup_manager_duration_seconds_count{{operation_type=\"{operation}\"}} {count}"
            );
            assert!(told.lines().any(|told| told == line), "{line}\nin\n{told}");
        }
    }
}

fn weight_of(shares: u64) -> String {
    weight::of_shares(shares).to_string()
}

/// A program that enters a cgroup before it is executed.
fn run_in(group: &Cgroup, command: &str) -> std::process::Child {
    let entering: String = group
        .folders()
        .iter()
        .map(|folder| format!("echo $$ > {}/cgroup.procs; ", folder.display()))
        .collect();
    std::process::Command::new("/bin/sh")
        .args(["-c", &format!("{entering}{command}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn removing_ends_what_runs_below() {
    let bed = Bed::new(Driver::CgroupFs);
    let (pod, container) = (["pod1"], ["pod1", "c"]);
    bed.host.apply(&bed.name(&container), &CgroupLimits::default()).await.unwrap();
    let mut child = run_in(&bed.group(&container), "while :; do sleep 1000 & sleep 0.01; done");
    while bed.group(&container).processes().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Reaped before the cgroup is removed, so that the test's own child is no zombie in it.
    let reaped = std::thread::spawn(move || child.wait().unwrap());
    bed.host.remove(&bed.name(&pod)).await.unwrap();
    assert!(!bed.group(&pod).exists_somewhere());
    assert!(!reaped.join().unwrap().success());
}

#[tokio::test]
async fn a_process_killed_for_memory_is_counted_and_named() {
    let bed = Bed::new(Driver::CgroupFs);
    let mut log = KernelLog::open(Since::Now).unwrap();
    let container = ["pod1", "c"];
    bed.host.apply(&bed.name(&container), &CgroupLimits::default()).await.unwrap();
    bed.host.apply(&bed.name(&["pod1"]), &limits()).await.unwrap();
    let before = std::time::SystemTime::now();
    // Only a child dies; the container itself goes on.
    let mut child = run_in(&bed.group(&container), "tail /dev/zero; sleep 1000");
    let kill = loop {
        let told = tokio::time::timeout(Duration::from_secs(60), log.next()).await;
        let kill = told.expect("the kernel's log told nothing");
        // Other processes on this machine may run out of memory at the same time.
        if kill.limited_cgroup.contains(&bed.top[0]) {
            break kill;
        }
    };
    let (limited, victim) = (bed.group(&["pod1"]), bed.group(&container));
    assert_eq!(kill.process, "tail");
    assert!(kill.limited_cgroup.ends_with(limited.path()), "{kill:?}");
    assert!(kill.victim_cgroup.ends_with(victim.path()), "{kill:?}");
    // Pages of the program's file may be charged to the cgroup that read them first.
    assert!(kill.resident_bytes > 8 << 20 && kill.resident_bytes <= 40 << 20, "{kill:?}");
    let at = std::time::UNIX_EPOCH + Duration::from_nanos(u64::try_from(kill.at).unwrap());
    let late = Duration::from_secs(120);
    assert!(at + late > before && before + late > at, "{kill:?}");
    assert_eq!(bed.host.memory_kills(&bed.name(&["pod1"])).await.unwrap(), Some(1));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn a_runtime_is_told_its_parent_in_the_form_of_its_own_driver() {
    let name: Vec<String> = ["kubepods", "besteffort", "pod1-2"].map(str::to_owned).to_vec();
    let (files, slice) = ("/kubepods/besteffort/pod1-2", "kubepods-besteffort-pod1_2.slice");
    for (configured, told, expected) in [
        (Driver::CgroupFs, None, files),
        (Driver::Systemd, None, slice),
        (Driver::Systemd, Some(CgroupDriver::Cgroupfs), files),
        (Driver::CgroupFs, Some(CgroupDriver::Systemd), slice),
    ] {
        let host = HostCgroups::new(CgroupSetup::detect(configured).unwrap());
        let early = tokio::time::timeout(Duration::from_millis(20), host.runtime_name(&name));
        assert!(early.await.is_err(), "nobody guesses");
        let waiting = host.clone();
        let (words, asked) = (name.clone(), name.clone());
        let waits = tokio::spawn(async move { waiting.runtime_name(&words).await });
        host.learn_driver(told);
        assert_eq!(waits.await.unwrap().unwrap(), expected);
        host.learn_driver(Some(CgroupDriver::Cgroupfs));
        assert_eq!(host.runtime_name(&asked).await.unwrap(), expected, "the first holds");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever_for_a_driver_that_is_never_told() {
    let host = HostCgroups::new(CgroupSetup::detect(Driver::CgroupFs).unwrap());
    let name = vec!["kubepods".to_owned(), "pod1".to_owned()];
    let began = tokio::time::Instant::now();
    let made = host.apply(&name, &CgroupLimits::default()).await;
    let told = host.runtime_name(&name).await.map(|_| ());
    assert_eq!(began.elapsed(), 2 * DRIVER_LIMIT);
    for refused in [made, told] {
        let Err(HostError::Passing(why)) = refused else { panic!("{refused:?}") };
        assert!(why.starts_with("control group kubepods/pod1: the container runtime"), "{why}");
    }
    host.learn_driver(None);
    assert_eq!(host.runtime_name(&name).await.unwrap(), "/kubepods/pod1", "it is not too late");
}

#[tokio::test]
async fn a_kill_that_nobody_names_is_counted_as_it_comes() {
    let bed = Bed::new(Driver::CgroupFs);
    let pod = bed.name(&["pod1"]);
    let none = BTreeMap::new();
    let early = bed.host.more_memory_kills(&pod, &none).await;
    assert!(matches!(early, Err(HostError::Lasting(_))), "nothing is there: {early:?}");
    for container in ["quiet", "eater", "half"] {
        let name = bed.name(&["pod1", container]);
        bed.host.apply(&name, &CgroupLimits::default()).await.unwrap();
    }
    // As a process that was killed midway leaves it; without separate hierarchies, it is whole.
    let half = format!("/sys/fs/cgroup/memory{}", bed.group(&["pod1", "half"]).path());
    if std::path::Path::new("/sys/fs/cgroup/memory").exists() {
        std::fs::remove_dir(half).unwrap();
    }
    bed.host.apply(&pod, &limits()).await.unwrap();
    let (host, asked) = (bed.host.clone(), pod.clone());
    let first = tokio::spawn(async move { host.more_memory_kills(&asked, &BTreeMap::new()).await });
    // Only a child dies; the container itself goes on until it is stopped.
    let group = bed.group(&["pod1", "eater"]);
    let mut child = run_in(&group, "tail /dev/zero; tail /dev/zero; sleep 1000");
    let patience = Duration::from_secs(60);
    let first = tokio::time::timeout(patience, first).await.expect("in time").unwrap().unwrap();
    assert_eq!(first.keys().collect::<Vec<_>>(), ["eater"]);
    let mut known = first;
    while known["eater"] < 2 {
        let more = tokio::time::timeout(patience, bed.host.more_memory_kills(&pod, &known));
        known = more.await.expect("in time").unwrap();
    }
    assert_eq!(known, BTreeMap::from([("eater".to_owned(), 2)]));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
    let (host, asked) = (bed.host.clone(), pod.clone());
    let last = tokio::spawn(async move { host.more_memory_kills(&asked, &known).await });
    bed.host.remove(&pod).await.unwrap();
    let last = tokio::time::timeout(patience, last).await.expect("in time").unwrap();
    assert!(last.is_err(), "the groups are gone: {last:?}");
}

#[tokio::test]
async fn bad_names_and_an_absent_systemd_are_told() {
    let bed = Bed::new(Driver::CgroupFs);
    for bad in [vec![".."], vec!["a/b"], vec![""]] {
        let bad: Vec<String> = bad.into_iter().map(str::to_owned).collect();
        let refused = bed.host.apply(&bad, &limits()).await;
        assert!(matches!(refused, Err(HostError::Lasting(_))), "{refused:?}");
    }
    assert!(matches!(bed.host.remove(&[]).await, Err(HostError::Lasting(_))));
    let mut setup = CgroupSetup::detect(Driver::Systemd).unwrap();
    setup.systemd = vec![Address::Private("/nowhere/private".into())];
    let host = HostCgroups::new(setup);
    host.learn_driver(None);
    let away = host.apply(&bed.top, &limits()).await;
    let Err(HostError::Passing(why)) = away else { panic!("{away:?}") };
    assert!(why.contains("/nowhere/private"), "{why}");
}

#[tokio::test]
async fn a_group_of_somebody_else_is_limited_where_it_is_there_and_never_made() {
    for driver in drivers() {
        let bed = Bed::new(driver);
        let path = CgroupSetup::name(&bed.top).unwrap().path(driver);
        let missing = bed.host.limit_existing(&path, &limits()).await;
        let Err(HostError::Lasting(why)) = missing else { panic!("{missing:?}") };
        assert!(why.contains(&bed.top[0]), "{why}");
        assert!(!bed.group(&[]).exists_somewhere());
        bed.host.apply(&bed.top, &CgroupLimits::default()).await.unwrap();
        let only_cpu = CgroupLimits { cpu_shares: Some(512), ..CgroupLimits::default() };
        bed.host.limit_existing(&path, &only_cpu).await.unwrap();
        let shares = bed.file(&[], Controller::Cpu, ["cpu.shares", "cpu.weight"]);
        assert_eq!(shares, if bed.host.is_unified() { weight_of(512) } else { "512".to_owned() });
        let memory =
            |bed: &Bed| bed.file(&[], Controller::Memory, ["memory.limit_in_bytes", "memory.max"]);
        assert_ne!(memory(&bed), (32 << 20).to_string(), "what is not said is left alone");
        bed.host.limit_existing(&path, &limits()).await.unwrap();
        assert_eq!(memory(&bed), (32 << 20).to_string());
        for bad in ["", "/", "/.."] {
            let refused = bed.host.limit_existing(bad, &limits()).await;
            assert!(matches!(refused, Err(HostError::Lasting(_))), "{bad}: {refused:?}");
        }
    }
}
