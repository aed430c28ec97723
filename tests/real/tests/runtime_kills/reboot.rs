//! A simulated reboot of the machine: all processes, mounts, links, nftables rules and cgroups are
//! gone, the root directory is left, and the state directory is empty (as on a tmpfs) or as before.
//!
//! All containers are recovered and their statuses are correct; resources of dead pods are released
//! when the pods are removed; images and new pods can be used at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cri_wire::v1;
use node_testkit::bed::{Bed, BedTest};
use node_testkit::images;
use node_testkit::start::RunningPart;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

use crate::calls::RetryingClient;
use crate::kill_plan::{KillTargets, RandomSequence};
use crate::kills::READY;
use crate::pods::TestPod;
use crate::server::{self, BRIDGE, RuntimeHome};
use crate::slot::{CheckCounts, PodSlot};
use crate::traces;

const PODS: usize = 3;
/// The exit code of a container whose exit was not recorded.
const UNKNOWN: i32 = 255;

/// What a reboot leaves of the state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateDir {
    Wiped,
    Preserved,
}

#[test]
fn after_a_reboot_every_pod_is_listed_with_its_exit_codes() -> Result<()> {
    let programs = server::build()?;
    let busybox = images::busybox()?.build()?;
    BedTest::new().deadline(Duration::from_secs(240)).run(|bed| {
        let archive = bed.dir().join("busybox.tar");
        busybox.write_docker_archive(&archive)?;
        let tasks =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let home = RuntimeHome::new(bed, programs)?;
        tasks.block_on(async {
            for (round, state) in [StateDir::Wiped, StateDir::Preserved].into_iter().enumerate() {
                let mut test = RebootTest::start(bed, &home, u32::try_from(round)? * 100).await?;
                if round == 0 {
                    home.import_whole(&archive)?;
                }
                let rebooted = Box::pin(test.reboot(state)).await;
                rebooted.with_context(|| format!("state {state:?}"))?;
            }
            Ok(())
        })
    })
}

struct RebootTest<'a> {
    bed: &'a Bed,
    home: &'a RuntimeHome,
    caller: RetryingClient,
    server: RunningPart,
    round: u32,
}

/// A container before the reboot, and its expected status afterwards.
struct Expected {
    pod: TestPod,
    id: String,
    name: &'static str,
    state: v1::ContainerState,
    code: i32,
}

impl<'a> RebootTest<'a> {
    async fn start(bed: &'a Bed, home: &'a RuntimeHome, round: u32) -> Result<Self> {
        let server = home.start(bed, None)?;
        let caller = RetryingClient::new(&home.socket());
        let test = Self { bed, home, caller, server, round };
        test.wait_until_answering().await?;
        Ok(test)
    }

    async fn wait_until_answering(&self) -> Result<()> {
        let begun = Instant::now();
        while !self.caller.is_answering().await {
            ensure!(begun.elapsed() < READY, "no answer within {READY:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.caller.mark_up();
        Ok(())
    }

    fn slot(&self, slot: usize, round: u32) -> PodSlot {
        PodSlot {
            caller: self.caller.clone(),
            kill_targets: Arc::new(KillTargets::default()),
            pod: TestPod { slot, round: self.round + round },
            dice: RandomSequence(17),
            tally: CheckCounts::default(),
            wanted: BTreeMap::new(),
        }
    }

    async fn reboot(&mut self, state: StateDir) -> Result<()> {
        // The first pod creates what the runtime keeps on purpose, so the snapshot comes after it.
        Box::pin(self.slot(1, 50).life()).await?;
        let before = self.snapshot()?;
        let expected = self.populate(state).await?;
        let images = self.images().await?;
        self.server.kill()?;
        self.caller.mark_down();
        self.release_late_containers(&expected).await?;
        self.simulate_reboot(state)?;
        self.server = self.home.start(self.bed, None)?;
        self.wait_until_answering().await?;
        for container in &expected {
            let context = || format!("{} of {:?}", container.name, container.pod);
            self.check(container).await.with_context(context)?;
        }
        ensure!(self.images().await? == images, "images before: {images:?}");
        for slot in 0..PODS {
            let mut old = self.slot(slot, 0);
            let found = old.sandboxes().await?;
            ensure!(found.len() == 1, "the sandboxes of slot {slot}: {found:?}");
            ensure!(found[0].state() == v1::PodSandboxState::SandboxNotready, "{found:?}");
            old.remove().await?;
        }
        // A new pod can have the same names and host port, and gets an address.
        let mut new = self.slot(0, 1);
        new.kill_targets.end();
        Box::pin(new.life()).await.context("a new pod")?;
        let left = traces::left(&before, || self.snapshot())?;
        ensure!(left.is_empty(), "{} left behind: {left:#?}", left.len());
        println!("{state:?}: {} containers reported correctly", expected.len());
        self.caller.mark_down();
        self.server.kill()
    }

    /// In each pod one container that runs, one that has exited, one that was never started, and
    /// one that exits while no server runs.
    async fn populate(&self, state: StateDir) -> Result<Vec<Expected>> {
        use v1::ContainerState::{ContainerCreated, ContainerExited};
        let mut expected = Vec::new();
        for number in 0..PODS {
            let mut slot = self.slot(number, 0);
            let pod = slot.pod;
            let mut expect = |id, name, state, code| {
                expected.push(Expected { pod, id, name, state, code });
            };
            let id = slot.make(pod.steady(), (None, true)).await?;
            expect(id, "steady", ContainerExited, UNKNOWN);
            let id = slot.make(pod.brief("brief", 7, 0), (Some(7), true)).await?;
            wait_until("its exit", || async {
                let status = slot.status(&id).await??;
                Ok(status.state() == ContainerExited)
            })
            .await?;
            expect(id, "brief", ContainerExited, 7);
            let id = slot.make(pod.brief("created", 8, 0), (Some(8), false)).await?;
            expect(id, "created", ContainerCreated, 0);
            let wait = format!("while [ ! -e {}/late ]; do usleep 10000; done", crate::pods::RUNS);
            let id =
                slot.make(pod.container("late", &format!("{wait}; exit 9")), (None, true)).await?;
            expect(
                id,
                "late",
                ContainerExited,
                if state == StateDir::Preserved { 9 } else { UNKNOWN },
            );
        }
        Ok(expected)
    }

    /// Lets the `late` containers exit while no server runs, and waits until their supervisors have
    /// recorded it.
    async fn release_late_containers(&self, expected: &[Expected]) -> Result<()> {
        let release_file = Path::new(crate::pods::RUNS).join("late");
        let state_files: Vec<(PathBuf, u64)> = expected
            .iter()
            .filter(|container| container.name == "late")
            .map(|container| {
                let state_file = self.state_file_of(&container.id)?;
                let size = std::fs::metadata(&state_file)?.len();
                Ok((state_file, size))
            })
            .collect::<Result<_>>()?;
        std::fs::write(&release_file, "")?;
        for (state_file, size) in state_files {
            wait_until("the record of an exit", || async {
                Ok(std::fs::metadata(&state_file)?.len() != size)
            })
            .await?;
        }
        std::fs::remove_file(release_file).context("remove the file that lets containers exit")
    }

    /// The file in which the supervisor records a container's state.
    fn state_file_of(&self, id: &str) -> Result<PathBuf> {
        let pods = self.home.state().join("pods");
        for pod in std::fs::read_dir(&pods).with_context(|| pods.display().to_string())? {
            let state_file = pod?.path().join("containers").join(format!("{id}.state"));
            if state_file.exists() {
                return Ok(state_file);
            }
        }
        anyhow::bail!("no supervisor has a state file of {id}")
    }

    /// Puts the machine into the state after a reboot.
    fn simulate_reboot(&self, state: StateDir) -> Result<()> {
        kill_processes()?;
        let table = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mut mount_points: Vec<&str> =
            table.lines().filter_map(|line| line.split(' ').nth(4)).collect();
        mount_points.sort_by_key(|path| std::cmp::Reverse(path.len()));
        let dir = self.home.state();
        for path in mount_points.into_iter().filter(|path| Path::new(path).starts_with(&dir)) {
            unmount(path, UnmountFlags::DETACH).with_context(|| path.to_owned())?;
        }
        for (program, arguments) in
            [("ip", &["link", "delete", BRIDGE][..]), ("nft", &["flush", "ruleset"])]
        {
            let status = Command::new(program).args(arguments).status().context(program)?;
            ensure!(status.success(), "{program} {arguments:?}: {status}");
        }
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup")? {
            for cgroup in ["kills", "keelson"] {
                remove_cgroups(&hierarchy.as_ref().map_err(clone_error)?.path().join(cgroup))?;
            }
        }
        match state {
            StateDir::Wiped => std::fs::remove_dir_all(&dir).context("remove the state directory"),
            StateDir::Preserved => {
                std::fs::write(dir.join("boot"), "another boot\n").context("write another boot ID")
            }
        }
    }

    async fn check(&self, expected: &Expected) -> Result<()> {
        let status = self.slot(expected.pod.slot, 0).status(&expected.id).await??;
        ensure!(
            status.state() == expected.state && status.exit_code == expected.code,
            "reported as {:?} with {} ({}); expected {:?} with {}",
            status.state(),
            status.exit_code,
            status.reason,
            expected.state,
            expected.code
        );
        let unknown = expected.code == UNKNOWN;
        ensure!((status.reason == "Unknown") == unknown, "the reason is {:?}", status.reason);
        Ok(())
    }

    async fn images(&self) -> Result<Vec<(String, Vec<String>)>> {
        let request = v1::ListImagesRequest::default();
        let answer = self.caller.images().list_images(request).await?.into_inner();
        Ok(answer.images.into_iter().map(|image| (image.id, image.repo_tags)).collect())
    }

    fn snapshot(&self) -> Result<std::collections::BTreeSet<String>> {
        let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
        let mut known = vec![std::process::id(), self.server.process_id()];
        known.extend(parent.map(i32::unsigned_abs));
        let (root, state) = (self.home.root(), self.home.state());
        traces::look(&[root.as_path(), state.as_path()], &known)
    }
}

fn clone_error(error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), error.to_string())
}

async fn wait_until<F: Future<Output = Result<bool>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> Result<()> {
    let begun = Instant::now();
    while !ask().await? {
        ensure!(begun.elapsed() < READY, "{what} is missing after {READY:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Kills every process in the bed except its init, this test and its parent.
fn kill_processes() -> Result<()> {
    let own = [std::process::id(), 1];
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
    let begun = Instant::now();
    loop {
        let mut left = 0;
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let is_spared = own.contains(&pid.unsigned_abs()) || Some(pid) == parent;
            // A zombie has no command line.
            let is_zombie =
                std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty());
            if let Some(pid) = Pid::from_raw(pid).filter(|_| !is_spared && !is_zombie) {
                let _ = kill_process(pid, Signal::KILL);
                left += 1;
            }
        }
        if left == 0 {
            return Ok(());
        }
        ensure!(begun.elapsed() < READY, "{left} processes do not exit");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn remove_cgroups(dir: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_cgroups(&entry.path())?;
        }
    }
    let begun = Instant::now();
    // Killed processes take a little time to exit.
    while std::fs::remove_dir(dir).is_err() {
        ensure!(begun.elapsed() < READY, "{} cannot be removed", dir.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
