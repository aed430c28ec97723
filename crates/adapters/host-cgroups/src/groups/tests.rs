//! Cgroups in this machine's own hierarchies, under a name of the test's, and a systemd that is not
//! there. A real systemd is tested on the machine that has one.

use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use ports::pod_host::OomKillLog as _;

use super::*;
use crate::kernel_log::{KernelLog, KernelLogStart};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A cgroup of the test's with all below it; removed with the test.
struct CgroupsFixture {
    host: HostCgroups,
    top: Vec<String>,
}

impl CgroupsFixture {
    fn new(driver: CgroupManager) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let top = vec![format!("keelsontest{}x{number}", std::process::id())];
        let host = HostCgroups::new(CgroupSetup::detect(driver).unwrap());
        host.set_driver(None);
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

impl Drop for CgroupsFixture {
    fn drop(&mut self) {
        let _gone = self.host.configured.remove(&self.top);
    }
}

/// The drivers that this machine can be asked for.
fn drivers() -> Vec<CgroupManager> {
    let mut drivers = vec![CgroupManager::CgroupFs];
    if std::path::Path::new("/run/systemd/private").exists() {
        drivers.push(CgroupManager::Systemd);
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
        let fixture = CgroupsFixture::new(driver);
        let pod = ["burstable", "pod12-34"];
        fixture.host.apply(&fixture.name(&pod[..1]), &CgroupLimits::default()).await.unwrap();
        for _ in 0..2 {
            fixture.host.apply(&fixture.name(&pod), &limits()).await.unwrap();
        }
        let unified = fixture.host.is_unified();
        let shares = fixture.file(&pod, Controller::Cpu, ["cpu.shares", "cpu.weight"]);
        assert_eq!(shares, if unified { weight_of(512) } else { "512".to_owned() });
        let quota = fixture.file(&pod, Controller::Cpu, ["cpu.cfs_quota_us", "cpu.max"]);
        assert_eq!(quota, if unified { "50000 100000" } else { "50000" });
        let memory =
            fixture.file(&pod, Controller::Memory, ["memory.limit_in_bytes", "memory.max"]);
        assert_eq!(memory, (32 << 20).to_string());
        assert_eq!(fixture.file(&pod, Controller::Pids, ["pids.max", "pids.max"]), "100");
        assert_eq!(fixture.host.children(&fixture.top).await.unwrap(), ["burstable"]);
        assert_eq!(fixture.host.children(&fixture.name(&pod[..1])).await.unwrap(), ["pod12-34"]);
        assert_eq!(fixture.host.oom_kills(&fixture.name(&pod)).await.unwrap(), Some(0));
        fixture.host.remove(&fixture.name(&pod)).await.unwrap();
        fixture.host.remove(&fixture.name(&pod)).await.unwrap();
        assert!(fixture.host.children(&fixture.name(&pod[..1])).await.unwrap().is_empty());
        assert_eq!(fixture.host.oom_kills(&fixture.name(&pod)).await.unwrap(), None);
        fixture.host.remove(&fixture.top).await.unwrap();
        assert!(!fixture.group(&[]).exists_in_any_hierarchy());
        let received = ports::metrics::text(ports::MetricSource::families(&fixture.host));
        for (operation, count) in [("create", 2), ("update", 1), ("destroy", 3)] {
            let line = format!(
                "kubelet_cgroup_manager_duration_seconds_count{{operation_type=\"{operation}\"}} {count}"
            );
            assert!(received.lines().any(|received| received == line), "{line}\nin\n{received}");
        }
    }
}

fn weight_of(shares: u64) -> String {
    weight::of_shares(shares).to_string()
}

/// A program that enters a cgroup before it is executed.
fn run_in(group: &Cgroup, command: &str) -> std::process::Child {
    let entering: String = group
        .dirs()
        .iter()
        .map(|dir| format!("echo $$ > {}/cgroup.procs; ", dir.display()))
        .collect();
    std::process::Command::new("/bin/sh")
        .args(["-c", &format!("{entering}{command}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn removing_a_cgroup_kills_the_processes_beneath() {
    let fixture = CgroupsFixture::new(CgroupManager::CgroupFs);
    let (pod, container) = (["pod1"], ["pod1", "c"]);
    fixture.host.apply(&fixture.name(&container), &CgroupLimits::default()).await.unwrap();
    let mut child = run_in(&fixture.group(&container), "while :; do sleep 1000 & sleep 0.01; done");
    while fixture.group(&container).processes().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Reaped before the cgroup is removed, so that the test's own child is no zombie in it.
    let reaped = std::thread::spawn(move || child.wait().unwrap());
    fixture.host.remove(&fixture.name(&pod)).await.unwrap();
    assert!(!fixture.group(&pod).exists_in_any_hierarchy());
    assert!(!reaped.join().unwrap().success());
}

#[tokio::test]
async fn an_oom_killed_process_is_counted_and_reported_with_its_pid() {
    let fixture = CgroupsFixture::new(CgroupManager::CgroupFs);
    let mut log = KernelLog::open(KernelLogStart::Now).unwrap();
    let container = ["pod1", "c"];
    fixture.host.apply(&fixture.name(&container), &CgroupLimits::default()).await.unwrap();
    fixture.host.apply(&fixture.name(&["pod1"]), &limits()).await.unwrap();
    let before = std::time::SystemTime::now();
    // Only a child dies; the container itself goes on.
    let mut child = run_in(&fixture.group(&container), "tail /dev/zero; sleep 1000");
    let kill = loop {
        let received = tokio::time::timeout(Duration::from_secs(60), log.next()).await;
        let kill = received.expect("the kernel's log told nothing");
        // Other processes on this machine may run out of memory at the same time.
        if kill.limited_cgroup.contains(&fixture.top[0]) {
            break kill;
        }
    };
    let (limited, victim) = (fixture.group(&["pod1"]), fixture.group(&container));
    assert_eq!(kill.process, "tail");
    assert!(kill.limited_cgroup.ends_with(limited.path()), "{kill:?}");
    assert!(kill.victim_cgroup.ends_with(victim.path()), "{kill:?}");
    // Pages of the program's file may be charged to the cgroup that read them first.
    assert!(kill.resident_bytes > 8 << 20 && kill.resident_bytes <= 40 << 20, "{kill:?}");
    let at = std::time::UNIX_EPOCH + Duration::from_nanos(u64::try_from(kill.at).unwrap());
    let late = Duration::from_secs(120);
    assert!(at + late > before && before + late > at, "{kill:?}");
    assert_eq!(fixture.host.oom_kills(&fixture.name(&["pod1"])).await.unwrap(), Some(1));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn the_cgroup_parent_has_the_form_of_the_runtimes_driver() {
    let name: Vec<String> = ["kubepods", "besteffort", "pod1-2"].map(str::to_owned).to_vec();
    let (files, slice) = ("/kubepods/besteffort/pod1-2", "kubepods-besteffort-pod1_2.slice");
    for (configured, received, expected) in [
        (CgroupManager::CgroupFs, None, files),
        (CgroupManager::Systemd, None, slice),
        (CgroupManager::Systemd, Some(CgroupDriver::Cgroupfs), files),
        (CgroupManager::CgroupFs, Some(CgroupDriver::Systemd), slice),
    ] {
        let host = HostCgroups::new(CgroupSetup::detect(configured).unwrap());
        let early = tokio::time::timeout(Duration::from_millis(20), host.runtime_name(&name));
        assert!(early.await.is_err(), "nobody guesses");
        let waiting = host.clone();
        let (components, asked) = (name.clone(), name.clone());
        let waits = tokio::spawn(async move { waiting.runtime_name(&components).await });
        host.set_driver(received);
        assert_eq!(waits.await.unwrap().unwrap(), expected);
        host.set_driver(Some(CgroupDriver::Cgroupfs));
        assert_eq!(host.runtime_name(&asked).await.unwrap(), expected, "the first holds");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_unreported_driver_times_out() {
    let host = HostCgroups::new(CgroupSetup::detect(CgroupManager::CgroupFs).unwrap());
    let name = vec!["kubepods".to_owned(), "pod1".to_owned()];
    let began = tokio::time::Instant::now();
    let made = host.apply(&name, &CgroupLimits::default()).await;
    let received = host.runtime_name(&name).await.map(|_| ());
    assert_eq!(began.elapsed(), 2 * DRIVER_TIMEOUT);
    for refused in [made, received] {
        let Err(HostError::Transient(why)) = refused else { panic!("{refused:?}") };
        assert!(why.starts_with("control group kubepods/pod1: the container runtime"), "{why}");
    }
    host.set_driver(None);
    assert_eq!(host.runtime_name(&name).await.unwrap(), "/kubepods/pod1", "it is not too late");
}

#[tokio::test]
async fn an_oom_kill_without_a_log_record_is_counted() {
    let fixture = CgroupsFixture::new(CgroupManager::CgroupFs);
    let pod = fixture.name(&["pod1"]);
    let none = BTreeMap::new();
    let early = fixture.host.wait_for_oom_kills(&pod, &none).await;
    assert!(matches!(early, Err(HostError::Permanent(_))), "nothing is there: {early:?}");
    for container in ["quiet", "eater", "half"] {
        let name = fixture.name(&["pod1", container]);
        fixture.host.apply(&name, &CgroupLimits::default()).await.unwrap();
    }
    // As a process that was killed midway leaves it; without separate hierarchies, it is whole.
    let half = format!("/sys/fs/cgroup/memory{}", fixture.group(&["pod1", "half"]).path());
    if std::path::Path::new("/sys/fs/cgroup/memory").exists() {
        std::fs::remove_dir(half).unwrap();
    }
    fixture.host.apply(&pod, &limits()).await.unwrap();
    let (host, asked) = (fixture.host.clone(), pod.clone());
    let first =
        tokio::spawn(async move { host.wait_for_oom_kills(&asked, &BTreeMap::new()).await });
    // Only a child dies; the container itself goes on until it is stopped.
    let group = fixture.group(&["pod1", "eater"]);
    let mut child = run_in(&group, "tail /dev/zero; tail /dev/zero; sleep 1000");
    let timeout = Duration::from_secs(60);
    let first = tokio::time::timeout(timeout, first).await.expect("in time").unwrap().unwrap();
    assert_eq!(first.keys().collect::<Vec<_>>(), ["eater"]);
    let mut known = first;
    while known["eater"] < 2 {
        let more = tokio::time::timeout(timeout, fixture.host.wait_for_oom_kills(&pod, &known));
        known = more.await.expect("in time").unwrap();
    }
    assert_eq!(known, BTreeMap::from([("eater".to_owned(), 2)]));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
    let (host, asked) = (fixture.host.clone(), pod.clone());
    let last = tokio::spawn(async move { host.wait_for_oom_kills(&asked, &known).await });
    fixture.host.remove(&pod).await.unwrap();
    let last = tokio::time::timeout(timeout, last).await.expect("in time").unwrap();
    assert!(last.is_err(), "the groups are gone: {last:?}");
}

#[tokio::test]
async fn invalid_names_and_an_absent_systemd_are_errors() {
    let fixture = CgroupsFixture::new(CgroupManager::CgroupFs);
    for bad in [vec![".."], vec!["a/b"], vec![""]] {
        let bad: Vec<String> = bad.into_iter().map(str::to_owned).collect();
        let refused = fixture.host.apply(&bad, &limits()).await;
        assert!(matches!(refused, Err(HostError::Permanent(_))), "{refused:?}");
    }
    assert!(matches!(fixture.host.remove(&[]).await, Err(HostError::Permanent(_))));
    let mut setup = CgroupSetup::detect(CgroupManager::Systemd).unwrap();
    setup.systemd = vec![SystemdAddress::Private("/nowhere/private".into())];
    let host = HostCgroups::new(setup);
    host.set_driver(None);
    let away = host.apply(&fixture.top, &limits()).await;
    let Err(HostError::Transient(why)) = away else { panic!("{away:?}") };
    assert!(why.contains("/nowhere/private"), "{why}");
}

#[tokio::test]
async fn limit_existing_changes_an_existing_cgroup_and_creates_none() {
    for driver in drivers() {
        let fixture = CgroupsFixture::new(driver);
        let path = CgroupSetup::name(&fixture.top).unwrap().path(driver);
        let missing = fixture.host.set_limits_of_existing(&path, &limits()).await;
        let Err(HostError::Permanent(why)) = missing else { panic!("{missing:?}") };
        assert!(why.contains(&fixture.top[0]), "{why}");
        assert!(!fixture.group(&[]).exists_in_any_hierarchy());
        fixture.host.apply(&fixture.top, &CgroupLimits::default()).await.unwrap();
        let only_cpu = CgroupLimits { cpu_shares: Some(512), ..CgroupLimits::default() };
        fixture.host.set_limits_of_existing(&path, &only_cpu).await.unwrap();
        let shares = fixture.file(&[], Controller::Cpu, ["cpu.shares", "cpu.weight"]);
        assert_eq!(
            shares,
            if fixture.host.is_unified() { weight_of(512) } else { "512".to_owned() }
        );
        let memory = |fixture: &CgroupsFixture| {
            fixture.file(&[], Controller::Memory, ["memory.limit_in_bytes", "memory.max"])
        };
        assert_ne!(memory(&fixture), (32 << 20).to_string(), "what is not said is left alone");
        fixture.host.set_limits_of_existing(&path, &limits()).await.unwrap();
        assert_eq!(memory(&fixture), (32 << 20).to_string());
        for bad in ["", "/", "/.."] {
            let refused = fixture.host.set_limits_of_existing(bad, &limits()).await;
            assert!(matches!(refused, Err(HostError::Permanent(_))), "{bad}: {refused:?}");
        }
    }
}
