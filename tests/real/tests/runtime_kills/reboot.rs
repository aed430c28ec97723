//! A reboot of the machine: all processes, mounts, links, rules and cgroups are gone, the root
//! directory is there, and the state directory is empty (as on a tmpfs) or as before.
//!
//! Everything is recovered and reported truthfully; resources of dead pods are released when the
//! pods are removed; images and new pods work at once.

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
                let mut machine =
                    RebootTest::start(bed, &home, u32::try_from(round)? * 100).await?;
                if round == 0 {
                    home.import_whole(&archive)?;
                }
                let rebooted = Box::pin(machine.reboot(state)).await;
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
        let machine = Self { bed, home, caller, server, round };
        machine.until_it_answers().await?;
        Ok(machine)
    }

    async fn until_it_answers(&self) -> Result<()> {
        let begun = Instant::now();
        while !self.caller.is_answering().await {
            ensure!(begun.elapsed() < READY, "no answer within {READY:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.caller.mark_up();
        Ok(())
    }

    fn slot(&self, slot: usize, later: u32) -> PodSlot {
        PodSlot {
            caller: self.caller.clone(),
            kill_targets: Arc::new(KillTargets::default()),
            pod: TestPod { slot, round: self.round + later },
            dice: RandomSequence(17),
            tally: CheckCounts::default(),
            wanted: BTreeMap::new(),
        }
    }

    async fn reboot(&mut self, state: StateDir) -> Result<()> {
        // What the first pod leaves on purpose is no leftover.
        Box::pin(self.slot(1, 50).life()).await?;
        let before = self.look()?;
        let expected = self.populate(state).await?;
        let images = self.images().await?;
        self.server.kill()?;
        self.caller.mark_down();
        self.end_late(&expected).await?;
        self.lose_everything(state)?;
        self.server = self.home.start(self.bed, None)?;
        self.until_it_answers().await?;
        for one in &expected {
            self.check(one).await.with_context(|| format!("{} of {:?}", one.name, one.pod))?;
        }
        ensure!(self.images().await? == images, "images before: {images:?}");
        for slot in 0..PODS {
            let mut old = self.slot(slot, 0);
            let found = old.sandboxes().await?;
            ensure!(found.len() == 1, "the sandboxes of slot {slot}: {found:?}");
            ensure!(found[0].state() == v1::PodSandboxState::SandboxNotready, "{found:?}");
            old.remove().await?;
        }
        // The same names and host port, and an address.
        let mut new = self.slot(0, 1);
        new.kill_targets.end();
        Box::pin(new.life()).await.context("a new pod")?;
        let left = traces::left(&before, || self.look())?;
        ensure!(left.is_empty(), "{} left behind: {left:#?}", left.len());
        println!("{state:?}: {} containers told truthfully", expected.len());
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
            until("its end", || async {
                let status = slot.status(&id).await??;
                Ok(status.state() == ContainerExited)
            })
            .await?;
            expect(id, "brief", ContainerExited, 7);
            let id = slot.make(pod.brief("made", 8, 0), (Some(8), false)).await?;
            expect(id, "made", ContainerCreated, 0);
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

    /// Lets those containers exit that exit without a server, and waits until their supervisors
    /// have recorded it.
    async fn end_late(&self, expected: &[Expected]) -> Result<()> {
        let late = Path::new(crate::pods::RUNS).join("late");
        let notes: Vec<(PathBuf, u64)> = expected
            .iter()
            .filter(|one| one.name == "late")
            .map(|one| {
                let note = self.note_of(&one.id)?;
                let size = std::fs::metadata(&note)?.len();
                Ok((note, size))
            })
            .collect::<Result<_>>()?;
        std::fs::write(&late, "")?;
        for (note, size) in notes {
            until("the note of an exit", || async { Ok(std::fs::metadata(&note)?.len() != size) })
                .await?;
        }
        std::fs::remove_file(late).context("the sign to end")
    }

    /// Where a supervisor has recorded a container's exit.
    fn note_of(&self, id: &str) -> Result<PathBuf> {
        let pods = self.home.state().join("pods");
        for pod in std::fs::read_dir(&pods).with_context(|| pods.display().to_string())? {
            let note = pod?.path().join("containers").join(format!("{id}.state"));
            if note.exists() {
                return Ok(note);
            }
        }
        anyhow::bail!("no supervisor has written about {id}")
    }

    /// Puts the machine into the state after a reboot.
    fn lose_everything(&self, state: StateDir) -> Result<()> {
        end_processes()?;
        let table = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mut places: Vec<&str> =
            table.lines().filter_map(|line| line.split(' ').nth(4)).collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.len()));
        let dir = self.home.state();
        for place in places.into_iter().filter(|place| Path::new(place).starts_with(&dir)) {
            unmount(place, UnmountFlags::DETACH).with_context(|| place.to_owned())?;
        }
        for (program, arguments) in
            [("ip", &["link", "delete", BRIDGE][..]), ("nft", &["flush", "ruleset"])]
        {
            let status = Command::new(program).args(arguments).status().context(program)?;
            ensure!(status.success(), "{program} {arguments:?}: {status}");
        }
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup")? {
            for group in ["kills", "keelson"] {
                remove_groups(&hierarchy.as_ref().map_err(copied)?.path().join(group))?;
            }
        }
        match state {
            StateDir::Wiped => std::fs::remove_dir_all(&dir).context("the state folder"),
            StateDir::Preserved => {
                std::fs::write(dir.join("boot"), "another life\n").context("the boot's note")
            }
        }
    }

    async fn check(&self, one: &Expected) -> Result<()> {
        let status = self.slot(one.pod.slot, 0).status(&one.id).await??;
        ensure!(
            status.state() == one.state && status.exit_code == one.code,
            "told as {:?} with {} ({}); expected {:?} with {}",
            status.state(),
            status.exit_code,
            status.reason,
            one.state,
            one.code
        );
        let unknown = one.code == UNKNOWN;
        ensure!((status.reason == "Unknown") == unknown, "its reason is {:?}", status.reason);
        Ok(())
    }

    async fn images(&self) -> Result<Vec<(String, Vec<String>)>> {
        let request = v1::ListImagesRequest::default();
        let answer = self.caller.images().list_images(request).await?.into_inner();
        Ok(answer.images.into_iter().map(|image| (image.id, image.repo_tags)).collect())
    }

    fn look(&self) -> Result<std::collections::BTreeSet<String>> {
        let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
        let mut known = vec![std::process::id(), self.server.process_id()];
        known.extend(parent.map(i32::unsigned_abs));
        let (root, state) = (self.home.root(), self.home.state());
        traces::look(&[root.as_path(), state.as_path()], &known)
    }
}

fn copied(error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), error.to_string())
}

async fn until<F: Future<Output = Result<bool>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> Result<()> {
    let begun = Instant::now();
    while !ask().await? {
        ensure!(begun.elapsed() < READY, "{what} did not come within {READY:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Kills everything in the bed but its init and this test.
fn end_processes() -> Result<()> {
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
            let spared = own.contains(&pid.unsigned_abs()) || Some(pid) == parent;
            // A zombie has no command line.
            let gone = std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|it| it.is_empty());
            if let Some(pid) = Pid::from_raw(pid).filter(|_| !spared && !gone) {
                let _ = kill_process(pid, Signal::KILL);
                left += 1;
            }
        }
        if left == 0 {
            return Ok(());
        }
        ensure!(begun.elapsed() < READY, "{left} processes do not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn remove_groups(dir: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_groups(&entry.path())?;
        }
    }
    let begun = Instant::now();
    // Killed processes take a little time to exit.
    while std::fs::remove_dir(dir).is_err() {
        ensure!(begun.elapsed() < READY, "{} stays", dir.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
