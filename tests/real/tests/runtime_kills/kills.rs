//! Server and supervisors are killed repeatedly while pods are created, run, used and removed, and
//! images are pulled, imported and removed.
//!
//! `cargo xtask test` hits each crash point once and makes a few kills at random instants;
//! `cargo xtask soak` makes two hundred under thirty pods.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use container_runtime::crash_points::ALL;
use cri_wire::v1;
use node_testkit::bed::{Bed, BedTest};
use node_testkit::images::{self, TestImage};
use node_testkit::start::{RegistryOptions, RegistryServer, RunningPart};
use tokio::task::JoinSet;

use crate::calls::RetryingClient;
use crate::image_work::ImageWork;
use crate::kill_plan::{KillStep, KillTargets, RandomSequence, kill_supervisor, plan};
use crate::pods::TestPod;
use crate::server::{self, RuntimeHome};
use crate::slot::{CheckCounts, PodSlot};
use crate::traces;

pub(crate) const READY: Duration = Duration::from_secs(90);
pub(crate) const SPARE: &str = "registry.test/spare:1";

fn asked(name: &str, otherwise: usize) -> Result<usize> {
    std::env::var(name).map_or(Ok(otherwise), |text| text.parse().context(name.to_owned()))
}

#[test]
fn a_runtime_killed_at_any_instant_loses_leaks_and_runs_nothing_twice() -> Result<()> {
    let fight = KillTest::prepare(NetworkProvider::BuiltIn, asked("KEELSON_KILLS", 22)?, 6)?;
    BedTest::new().needs(RegistryServer::NEEDS).deadline(fight.limit()).run(|bed| fight.run(bed))
}

/// The same on real CNI plugins: their addresses, links, host ports and results do not leak either.
/// `cargo xtask test` hits only the crash points of the network.
#[test]
fn a_runtime_with_plugins_killed_at_any_instant_leaks_nothing_of_theirs() -> Result<()> {
    let kills = asked("KEELSON_KILLS", OF_NETWORK.len() + 3)?.min(MOST_WITH_PLUGINS);
    let fight = KillTest::prepare(NetworkProvider::Plugins, kills, 3)?;
    let needs = [RegistryServer::NEEDS, &["cni-plugins"]].concat();
    BedTest::new().needs(&needs).deadline(fight.limit()).run(|bed| fight.run(bed))
}

/// Plugins are processes: each kill takes longer than with the built-in network.
const MOST_WITH_PLUGINS: usize = 60;
/// Crash points at which plugins are half called, or called in vain.
const OF_NETWORK: &[&str] = &[
    "network-planned",
    "pod-made",
    "network-made",
    "stop-recorded",
    "supervisor-ended",
    "network-freed",
];

/// What sets up the pods' networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkProvider {
    BuiltIn,
    Plugins,
}

impl NetworkProvider {
    fn points(self, kills: usize) -> &'static [&'static str] {
        match self {
            Self::Plugins if kills < ALL.len() => OF_NETWORK,
            _ => ALL,
        }
    }
}

/// Inputs that are built before the bed.
struct KillTest {
    way: NetworkProvider,
    kills: usize,
    pods: usize,
    programs: server::KillTestPrograms,
    spare: TestImage,
    archives: [images::BuiltImage; 2],
}

impl KillTest {
    fn prepare(way: NetworkProvider, kills: usize, pods: usize) -> Result<Self> {
        let spare = images::busybox()?.named(SPARE).with_bytes("/spare", 0o644, vec![7; 3 << 20]);
        Ok(Self {
            way,
            kills,
            pods: asked("KEELSON_PODS", pods)?,
            programs: server::build()?,
            archives: [images::busybox()?.build()?, spare.build()?],
            spare,
        })
    }

    fn limit(&self) -> Duration {
        let kill_plan = self.kills.max(self.way.points(self.kills).len() + 4) as u64;
        Duration::from_secs(120 + 12 * kill_plan + 10 * self.pods as u64)
    }

    fn run(&self, bed: &Bed) -> Result<()> {
        let files = ["busybox.tar", "spare.tar"].map(|name| bed.dir().join(name));
        for (archive, file) in self.archives.iter().zip(&files) {
            archive.write_docker_archive(file)?;
        }
        let seed = asked("KEELSON_SEED", 0x5eed_0005)? as u64;
        let (way, kills, pods) = (self.way, self.kills, self.pods);
        println!("{kills} kills under {pods} pods, {way:?}, seed {seed}");
        let tasks =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let home = match way {
            NetworkProvider::BuiltIn => RuntimeHome::new(bed, self.programs.clone())?,
            NetworkProvider::Plugins => RuntimeHome::on_plugins(bed, self.programs.clone())?,
        };
        tasks.block_on(async {
            let mut world = KillRun::begin(bed, (way, home), &files, &self.spare).await?;
            let outcome = Box::pin(world.struggle(RandomSequence(seed), kills, pods)).await;
            outcome.with_context(|| format!("seed {seed}"))
        })
    }
}

struct KillRun<'a> {
    bed: &'a Bed,
    way: NetworkProvider,
    home: RuntimeHome,
    caller: RetryingClient,
    server: RunningPart,
    _registry: RegistryServer,
    registry_pid: u32,
    pulled: String,
    spare_archive: PathBuf,
    kill_targets: Arc<KillTargets>,
    /// The point at which a server died during its recovery, before it answered.
    early: Option<&'static str>,
    /// A plugin's address was in use at a kill, so the later search for leaked addresses is
    /// meaningful.
    address_seen: bool,
    /// The calls in flight at each kill.
    hits: Vec<(KillStep, Vec<String>)>,
}

impl<'a> KillRun<'a> {
    async fn begin(
        bed: &'a Bed,
        (way, home): (NetworkProvider, RuntimeHome),
        files: &[PathBuf; 2],
        spare: &TestImage,
    ) -> Result<Self> {
        let mut registry = RegistryServer::start(bed, RegistryOptions::default())?;
        let registry_pid = registry.process().process_id();
        images::push(registry.address(), spare)?;
        let pulled = format!("{}/spare:1", registry.address());
        let server = home.start(bed, None)?;
        let mut world = Self {
            bed,
            way,
            caller: RetryingClient::new(&home.socket()),
            home,
            server,
            registry_pid,
            _registry: registry,
            pulled,
            spare_archive: files[1].clone(),
            kill_targets: Arc::default(),
            early: None,
            address_seen: false,
            hits: Vec::new(),
        };
        world.until_it_answers().await?;
        world.home.import_whole(&files[0])?;
        // What the first pod and the first pull leave on purpose is no leftover.
        world.one_of_each().await?;
        let mut first_with_a_port =
            world.slot(TestPod { slot: 1002, round: 0 }, RandomSequence(1), &world.kill_targets);
        Box::pin(first_with_a_port.life()).await?;
        Ok(world)
    }

    async fn until_it_answers(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !self.caller.is_answering().await {
            if !self.server.is_alive()? {
                let log = std::fs::read_to_string(self.server.log()).unwrap_or_default();
                let end: Vec<&str> = log.lines().rev().take(20).collect();
                bail!("the server ended at its start; its last words, newest first: {end:#?}");
            }
            ensure!(begun.elapsed() < READY, "no answer within {READY:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.caller.mark_up();
        Ok(())
    }

    /// One pod, one pull and one import, each to its end.
    async fn one_of_each(&mut self) -> Result<()> {
        let kill_targets = Arc::new(KillTargets::default());
        let pod = TestPod { slot: 1001, round: u32::try_from(self.caller.life())? };
        let mut slot = self.slot(pod, RandomSequence(1), &kill_targets);
        Box::pin(slot.life()).await?;
        let images = self.image_work();
        images.pull_and_remove().await?;
        images.import_and_remove(None).await
    }

    fn slot(&self, pod: TestPod, dice: RandomSequence, kill_targets: &Arc<KillTargets>) -> PodSlot {
        PodSlot {
            caller: self.caller.clone(),
            kill_targets: Arc::clone(kill_targets),
            pod,
            dice,
            tally: CheckCounts::default(),
            wanted: BTreeMap::new(),
        }
    }

    fn image_work(&self) -> ImageWork {
        ImageWork {
            caller: self.caller.clone(),
            home: self.home.clone(),
            pulled: self.pulled.clone(),
            archive: self.spare_archive.clone(),
        }
    }

    fn look(&self) -> Result<BTreeSet<String>> {
        let known = [std::process::id(), self.server.process_id()];
        let (root, state) = (self.home.root(), self.home.state());
        let own: Vec<u32> = known.into_iter().chain(self.others()).collect();
        let (leases, results) = (self.home.leases(), self.home.results());
        let dirs = [root, state, leases, results];
        let mut found = traces::look(&dirs.each_ref().map(PathBuf::as_path), &own)?;
        if self.way == NetworkProvider::Plugins {
            found.extend(traces::host_ports()?);
            // A bridge gets this one by itself, whenever its first link comes up.
            found.retain(|line| !line.contains(" inet6 fe80:"));
        }
        Ok(found)
    }

    /// Processes of the bed that are not the runtime's: the registry, and the test's parent.
    fn others(&self) -> Vec<u32> {
        let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
        let parent = parent.map(i32::unsigned_abs);
        parent.into_iter().chain([self.registry_pid]).collect()
    }

    async fn struggle(
        &mut self,
        mut dice: RandomSequence,
        kills: usize,
        pods: usize,
    ) -> Result<()> {
        let before = self.look()?;
        let mut slots = JoinSet::new();
        for number in 0..pods {
            let seed = RandomSequence(dice.below(u64::MAX) | 1);
            slots.spawn(
                self.slot(TestPod { slot: number, round: 0 }, seed, &self.kill_targets).run(),
            );
        }
        let images = self.image_work();
        let image_dice = RandomSequence(dice.below(u64::MAX) | 1);
        let pulls = tokio::spawn(images.run(Arc::clone(&self.kill_targets), image_dice));
        let plan = plan(self.way.points(kills), kills, &mut dice);
        for at in 0..plan.len() {
            let next = plan.get(at + 1).copied();
            tokio::select! {
                outcome = self.strike(plan[at], next, &mut dice) => {
                    outcome.with_context(|| format!("blow {at}, {:?}", plan[at]))?;
                }
                ended = slots.join_next() => match ended {
                    Some(Ok(Err(error))) => return Err(error),
                    other => bail!("a slot ended early: {other:?}"),
                },
            }
        }
        self.kill_targets.end();
        let mut all = CheckCounts::default();
        while let Some(ended) = slots.join_next().await {
            let tally = ended??;
            all.pods += tally.pods;
            all.exits += tally.exits;
            all.execs += tally.execs;
            all.unknown += tally.unknown;
        }
        let (pulled, imported) = pulls.await??;
        ensure!(
            self.address_seen == (self.way == NetworkProvider::Plugins),
            "whose network was it?"
        );
        self.judge(&before).await?;
        let line = self.summarize(&plan, all, (pulled, imported))?;
        println!("{line}");
        self.report(&line)
    }

    /// One kill, and the next server if the kill ended one. `next` sets that server's crash point.
    async fn strike(
        &mut self,
        kill_step: KillStep,
        next: Option<KillStep>,
        dice: &mut RandomSequence,
    ) -> Result<()> {
        let crash_at: Option<&'static str> = match next {
            Some(KillStep::CrashAt(point)) => Some(point),
            _ => None,
        };
        match kill_step {
            KillStep::CrashAt(point) if self.early.take() == Some(point) => {
                self.mark_down(None);
                self.server.kill()?;
                self.restart(crash_at).await
            }
            KillStep::CrashAt(point) => {
                let begun = Instant::now();
                while self.server.is_alive()? {
                    // The first server was started before the plan was known.
                    if self.hits.is_empty() && begun.elapsed() > Duration::from_millis(300) {
                        self.mark_down(None);
                        self.server.kill()?;
                        self.server = self.home.start(self.bed, Some(point))?;
                        self.until_it_answers().await?;
                        self.hits.push((KillStep::Server, vec!["the beginning".to_owned()]));
                    }
                    ensure!(begun.elapsed() < READY, "the server never came to {point}");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                self.note(kill_step);
                self.mark_down(None);
                self.restart(crash_at).await
            }
            KillStep::Server => {
                self.wait(dice).await;
                self.note(kill_step);
                self.mark_down(None);
                self.server.kill()?;
                self.restart(crash_at).await
            }
            KillStep::Supervisor => {
                let Some(sandbox) = self.victim(dice, false).await? else { return Ok(()) };
                self.note(kill_step);
                kill_supervisor(&sandbox)?;
                self.wait_until_settled(&sandbox).await?;
                // A crash point that comes next needs a server of its own.
                if crash_at.is_some() {
                    self.mark_down(None);
                    self.server.kill()?;
                    self.restart(crash_at).await?;
                }
                Ok(())
            }
            KillStep::Both => {
                let Some(sandbox) = self.victim(dice, true).await? else { return Ok(()) };
                self.note(kill_step);
                self.mark_down(Some(&sandbox));
                self.server.kill()?;
                kill_supervisor(&sandbox)?;
                self.restart(crash_at).await
            }
        }
    }

    /// Announces to all that the server dies, and this pod's supervisor with it.
    fn mark_down(&self, alone: Option<&str>) {
        self.kill_targets.server_dies(alone);
        self.caller.mark_down();
    }

    async fn wait(&self, dice: &mut RandomSequence) {
        tokio::time::sleep(Duration::from_millis(dice.below(500))).await;
    }

    /// A pod whose supervisor is to die; waits until a slot has created one.
    async fn victim(&self, dice: &mut RandomSequence, lossy: bool) -> Result<Option<String>> {
        self.wait(dice).await;
        let begun = Instant::now();
        loop {
            if let Some(sandbox) = self.kill_targets.choose(dice, lossy) {
                return Ok(Some(sandbox));
            }
            ensure!(begun.elapsed() < READY, "no pod to strike");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn note(&mut self, kill_step: KillStep) {
        let in_flight = self.caller.in_flight();
        println!("{kill_step:?} hit {}", in_flight.join(", "));
        let leases =
            std::fs::read_dir(self.home.leases().join("kills")).into_iter().flatten().flatten();
        let mut names = leases.map(|entry| entry.file_name().to_string_lossy().into_owned());
        self.address_seen |= names.any(|name| name.parse::<std::net::IpAddr>().is_ok());
        self.hits.push((kill_step, in_flight));
    }

    async fn restart(&mut self, crash_at: Option<&'static str>) -> Result<()> {
        // One that died by itself is waited for as well.
        let _ = self.server.kill();
        self.server = self.home.start(self.bed, crash_at)?;
        let Some(point) = crash_at else { return self.until_it_answers().await };
        let begun = Instant::now();
        while !self.caller.is_answering().await {
            ensure!(begun.elapsed() < READY, "no answer within {READY:?}");
            if !self.server.is_alive()? {
                self.note(KillStep::CrashAt(point));
                self.early = Some(point);
                self.server = self.home.start(self.bed, None)?;
                return self.until_it_answers().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.caller.mark_up();
        Ok(())
    }

    /// Waits until the server has handled a pod without a supervisor; only then may it die itself.
    async fn wait_until_settled(&self, sandbox: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            if self.is_settled(sandbox).await? {
                return Ok(());
            }
            ensure!(begun.elapsed() < READY, "the pod or one of its containers is told as running");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn is_settled(&self, sandbox: &str) -> Result<bool> {
        let request =
            v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: false };
        let status = match self.caller.runtime().pod_sandbox_status(request).await {
            Err(status) if status.code() == tonic::Code::NotFound => return Ok(true),
            Err(status) => bail!("the status of a pod without supervisor: {status}"),
            Ok(answer) => answer.into_inner().status.unwrap_or_default(),
        };
        let running =
            v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
        let filter = v1::ContainerFilter {
            pod_sandbox_id: sandbox.to_owned(),
            state: Some(running),
            ..Default::default()
        };
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let answer = self.caller.runtime().list_containers(request).await;
        let left = answer.context("the containers of a pod without supervisor")?.into_inner();
        let is_over = status.state() == v1::PodSandboxState::SandboxNotready;
        Ok(is_over && left.containers.is_empty())
    }

    /// After all pods are removed: the machine is as before, and everything still works.
    async fn judge(&mut self, before: &BTreeSet<String>) -> Result<()> {
        self.one_of_each().await.context("after all kills")?;
        // What an import that was killed has half unpacked is swept by the next server.
        let swept_later = |line: &String| line.contains("/images/snapshots/.unfinished-");
        let look = || Ok(self.look()?.into_iter().filter(|line| !swept_later(line)).collect());
        let left = traces::left(before, look)?;
        ensure!(left.is_empty(), "{} left behind: {left:#?}", left.len());
        // And what a further server thinks of it.
        self.mark_down(None);
        self.server.kill()?;
        self.restart(None).await?;
        self.one_of_each().await.context("with a last server")?;
        let left = traces::left(before, || self.look())?;
        ensure!(left.is_empty(), "{} left behind at the end: {left:#?}", left.len());
        Ok(())
    }

    fn summarize(
        &self,
        plan: &[KillStep],
        all: CheckCounts,
        images: (usize, usize),
    ) -> Result<String> {
        let reached: BTreeSet<&str> = self
            .hits
            .iter()
            .filter_map(|(kill_step, _)| match kill_step {
                KillStep::CrashAt(point) => Some(*point),
                _ => None,
            })
            .collect();
        let points: BTreeSet<&str> = plan
            .iter()
            .filter_map(|kill_step| match kill_step {
                KillStep::CrashAt(point) => Some(*point),
                _ => None,
            })
            .collect();
        let missing: Vec<_> = points.difference(&reached).collect();
        ensure!(missing.is_empty(), "crash points that were not hit: {missing:?}");
        let busy = self.hits.iter().filter(|(_, in_flight)| !in_flight.is_empty()).count();
        ensure!(busy * 5 >= self.hits.len() * 4, "{busy} of {} interrupted", self.hits.len());
        let of =
            |kind: fn(&KillStep) -> bool| plan.iter().filter(|kill_step| kind(kill_step)).count();
        let on = if self.way == NetworkProvider::Plugins {
            "runtime kills on CNI plugins"
        } else {
            "runtime kills"
        };
        Ok(format!(
            "{on}: {} ({} at {} crash points, {} of the server, {} of a supervisor, {} of \
             both), {busy} interrupted an action; {} pods, {} exits right, {} of them unknown, {} \
             execs right, {} pulls, {} imports; nothing left behind",
            self.hits.len(),
            of(|kill_step| matches!(kill_step, KillStep::CrashAt(_))),
            points.len(),
            of(|kill_step| *kill_step == KillStep::Server),
            of(|kill_step| *kill_step == KillStep::Supervisor),
            of(|kill_step| *kill_step == KillStep::Both),
            all.pods,
            all.exits,
            all.unknown,
            all.execs,
            images.0,
            images.1,
        ))
    }

    /// A bed's output is kept only when the test fails.
    fn report(&self, line: &str) -> Result<()> {
        let Some(path) = std::env::var_os("KEELSON_KILL_REPORT") else { return Ok(()) };
        let mut text = match self.way {
            NetworkProvider::BuiltIn => String::new(),
            NetworkProvider::Plugins => std::fs::read_to_string(&path).unwrap_or_default(),
        };
        text.push_str(line);
        text.push('\n');
        std::fs::write(&path, text).context("the report")
    }
}
