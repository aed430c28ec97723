//! The agent is killed repeatedly while pods are created, crash, change and are removed.
//!
//! Every crash point of the agent is hit once (it aborts there), and it is also killed at odd
//! instants while it works. However often: no steady container is restarted or reported unready, no
//! container is run twice, restart counts and back-off go on, and in the end nothing is left: by
//! this test's own checks and by the leftover check, a separate program that compares with the
//! state before the run. A terminating pod gets no additional grace period.
//!
//! `cargo xtask test` has a few pods and kills; `KEELSON_KILLS` (`cargo xtask soak`) makes it
//! thirty pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::Containerd;
use real_tests::leftover_check::LeftoverCheck;
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use real_tests::standalone::runtime::{ListedContainer, RuntimeObserver, now};
use serde_json::Value;

use crate::cancelled_starts::CancelledStarts;
use crate::clean_up::remains;
use crate::node::{
    STEADY, archives, by_pod, containerd, ensure_has, is_ready, keelson, pod, wait_for,
};

const CRASHING: &str = "sleep 0.3; exit 1";
const WAIT_LIMIT: Duration = Duration::from_secs(90);

/// How many pods of each kind; one more is added and one removed in every round.
#[derive(Debug, Clone, Copy)]
struct ChurnSize {
    steady: usize,
    crashing: usize,
    changing: usize,
    kills: usize,
}

fn size() -> Result<ChurnSize> {
    let Ok(asked) = std::env::var("KEELSON_KILLS") else {
        return Ok(ChurnSize { steady: 6, crashing: 3, changing: 3, kills: 3 });
    };
    let kills = asked.parse().context("KEELSON_KILLS")?;
    Ok(ChurnSize { steady: 12, crashing: 6, changing: 10, kills })
}

#[test]
fn an_agent_killed_at_any_instant_loses_leaks_and_restarts_nothing() -> Result<()> {
    let (keelson, archives, size) = (keelson()?, archives()?, size()?);
    let limit = Duration::from_secs(300 + 30 * u64::try_from(size.kills)?);
    BedTest::new().needs(Containerd::NEEDS).deadline(limit).run(move |bed| {
        let (containerd, runtime) = containerd(bed, &archives)?;
        let home = AgentHome::new(bed, "kills", &containerd.endpoint())?;
        // The log tells what was begun and not ended.
        let mut keelson = keelson.clone();
        keelson.command.push("--v=4".to_owned());
        let log = AgentProcess::log(bed, &keelson);
        let mut churn = Churn { bed, keelson, home, size, round: 0, log, kills: AgentKills::default() };
        let leftover_check = churn.warm_up(&runtime)?;
        let steady = churn.begin(&runtime)?;
        let mut history = ContainerHistory::default();
        for point in node_agent::crash_points::ALL {
            let began = Instant::now();
            churn.crash_at(point).with_context(|| format!("crash point {point}"))?;
            eprintln!("{point}: reached after {:.1} s", began.elapsed().as_secs_f64());
            history.check(&runtime, &steady).with_context(|| format!("after {point}"))?;
        }
        for number in 0..size.kills {
            // A plain sequence of odd waits: which instant each hits is up to the machine.
            let wait = Duration::from_millis(u64::try_from(number)? * 377 % 1_100);
            churn.kill_after(wait, &steady).with_context(|| format!("kill after {wait:?}"))?;
            history.check(&runtime, &steady).with_context(|| format!("after {wait:?}"))?;
        }
        churn.until_a_restart(&runtime, &steady, &mut history)?;
        // A judge that sees nothing of pods that run could not miss them either.
        let seen = leftover_check.current_leftovers()?;
        ensure_has(&seen, &["process: ", "mount: /run/bed/", "cgroup: ", "folder: /var/log/pods/"])?;
        ensure_has(&seen, &["link: veth", "network namespace: cni-"])?;
        churn.end(&containerd, &runtime, &steady)?;
        let cancelled_starts = CancelledStarts::of(bed)?;
        let by_judge = leftover_check.expect_none_except(|thing| cancelled_starts.has(thing));
        by_judge.context("beside what was there before")?;
        let AgentKills { at_points, odd } = churn.kills;
        let ChurnSize { steady, crashing, changing, .. } = size;
        eprintln!(
            "{} pods; kills at named points: {at_points:?}; at odd instants: {odd:?}; restarts seen: {}",
            steady + crashing + changing + 2,
            history.restarts
        );
        let in_actions = node_agent::crash_points::ALL.len() - BETWEEN_ACTIONS.len();
        ensure!(at_points.interrupting >= in_actions, "the agent's log tells of {at_points:?}");
        // The one or other may fall between two actions.
        let missed = odd.all - odd.interrupting;
        ensure!(missed <= (odd.all / 5).max(1), "at odd instants: {odd:?}");
        ensure!(history.restarts > 0, "nothing crashed, so nothing was shown of restarts");
        Ok(())
    })
}

/// Crash points outside of actions: whether one was in progress then depends on the machine.
const BETWEEN_ACTIONS: [&str; 3] = ["uid-saved", "ending-saved", "memory-saved"];

#[derive(Debug, Default)]
struct AgentKills {
    at_points: KillCount,
    odd: KillCount,
}

/// Kills, and those while actions were in progress, by the agent's log.
#[derive(Debug, Default)]
struct KillCount {
    all: usize,
    interrupting: usize,
}

impl KillCount {
    fn add(&mut self, interrupting: bool) {
        self.all += 1;
        self.interrupting += usize::from(interrupting);
    }
}

/// The steady pods: the container of each, and its Ready condition.
struct SteadyPods {
    containers: BTreeSet<String>,
    ready: BTreeMap<String, Value>,
}

struct Churn<'a> {
    bed: &'a Bed,
    keelson: AgentKind,
    home: AgentHome,
    size: ChurnSize,
    round: usize,
    log: PathBuf,
    kills: AgentKills,
}

impl Churn<'_> {
    /// One pod is created and removed, so that what is created once for all pods exists: QoS
    /// cgroups, the network's bridge. Then the leftover check takes its snapshot.
    fn warm_up(&mut self, runtime: &RuntimeObserver) -> Result<LeftoverCheck> {
        let agent = AgentProcess::start(self.bed, &self.keelson, &self.home)?;
        agent.place("first", &networked("first", STEADY))?;
        runtime.wait_started("first", 1, 0)?;
        agent.withdraw_all()?;
        self.until_nothing_is_left(runtime, |_| {})?;
        agent.end()?;
        LeftoverCheck::start()
    }

    /// Starts all pods; returns the steady ones.
    fn begin(&mut self, runtime: &RuntimeObserver) -> Result<SteadyPods> {
        let agent = AgentProcess::start(self.bed, &self.keelson, &self.home)?;
        for number in 0..self.size.steady {
            let name = format!("steady-{number}");
            let text = if number == 0 { networked(&name, STEADY) } else { pod(&name, "", STEADY) };
            let probed =
                "    readinessProbe: {exec: {command: ['true']}, timeoutSeconds: 60}\n    command:";
            agent.place(&name, &text.replacen("    command:", probed, 1))?;
        }
        for number in 0..self.size.crashing {
            let name = format!("crashing-{number}");
            agent.place(&name, &pod(&name, "", CRASHING))?;
        }
        let mut ready = BTreeMap::new();
        wait_for("the steady pods are ready", WAIT_LIMIT, || {
            ready = readiness(&agent)?;
            let all = ready.values().filter(|condition| condition["status"] == "True").count();
            Ok(all == self.size.steady)
        })?;
        agent.end()?;
        let seen = runtime.containers("steady-")?;
        ensure!(seen.len() == self.size.steady, "one container each: {seen:?}");
        Ok(SteadyPods { containers: seen.into_iter().map(|one| one.id).collect(), ready })
    }

    /// Makes every kind of work for the agent: pods are created, changed and removed.
    fn stir(&mut self, agent: &AgentProcess) -> Result<()> {
        self.round += 1;
        for number in 0..self.size.changing {
            let name = format!("changing-{number}");
            // Another script is another pod of the same name: the old one ends, a new one begins.
            let script = format!("echo {}; {STEADY}", self.round);
            match (self.round + number) % 3 {
                0 if self.home.manifests().join(format!("{name}.yaml")).exists() => {
                    agent.withdraw(&name)?;
                }
                _ => agent.place(&name, &networked(&name, &script))?,
            }
        }
        let name = format!("fresh-{}", self.round);
        agent.place(&name, &pod(&name, "", CRASHING))?;
        if self.round > 2 {
            agent.withdraw(&format!("fresh-{}", self.round - 2))?;
        }
        Ok(())
    }

    /// Waits until the agent aborts at its crash point. That may be before it is healthy: there is
    /// work left from the previous round.
    fn crash_at(&mut self, point: &str) -> Result<()> {
        let before = fs::metadata(&self.log).map_or(0, |log| log.len());
        let mut kind = self.keelson.clone();
        kind.environment.push(("KEELSON_CRASH_AT".to_owned(), point.to_owned()));
        let mut agent = AgentProcess::launch(self.bed, &kind, &self.home)?;
        let mut is_alive = agent.until_healthy()?;
        for _ in 0..6 {
            if !is_alive {
                break;
            }
            self.stir(&agent)?;
            is_alive =
                wait_for("the crash", Duration::from_secs(10), || agent.has_ended()).is_err();
        }
        if is_alive {
            agent.end()?;
            anyhow::bail!("the agent never came to {point}");
        }
        ensure!(agent.has_aborted()?, "it ended otherwise");
        // An agent that dies within an action has said that it begins and never that it ended.
        let was_busy = in_flight(&self.log, before)? > 0;
        ensure!(was_busy || BETWEEN_ACTIONS.contains(&point), "nothing was under way at {point}");
        self.kills.at_points.add(was_busy);
        Ok(())
    }

    fn kill_after(&mut self, wait: Duration, steady: &SteadyPods) -> Result<()> {
        let before = fs::metadata(&self.log).map_or(0, |log| log.len());
        let agent = AgentProcess::start(self.bed, &self.keelson, &self.home)?;
        no_flap(&agent, steady)?;
        self.stir(&agent)?;
        std::thread::sleep(wait);
        let is_busy = || Ok(in_flight(&self.log, before)? > 0);
        // An idle agent loses nothing by a kill: something must be under way.
        let _ = wait_for("something is done", Duration::from_secs(5), is_busy);
        agent.end()?;
        let was_busy = is_busy()?;
        self.kills.odd.add(was_busy);
        Ok(())
    }

    /// On a fast machine all kills may fall into the back-off before the second restart, whose
    /// first container is removed by then: the crash loop must be seen to go on.
    fn until_a_restart(
        &self,
        runtime: &RuntimeObserver,
        steady: &SteadyPods,
        history: &mut ContainerHistory,
    ) -> Result<()> {
        let agent = AgentProcess::start(self.bed, &self.keelson, &self.home)?;
        no_flap(&agent, steady)?;
        wait_for("a crashing pod begins again", WAIT_LIMIT, || {
            history.check(runtime, steady)?;
            Ok(history.restarts > 0)
        })?;
        agent.end()
    }

    /// Without manifests nothing is left: no container, directory, record, mount, cgroup, log or
    /// link.
    fn end(
        &mut self,
        containerd: &Containerd,
        runtime: &RuntimeObserver,
        steady: &SteadyPods,
    ) -> Result<()> {
        let agent = AgentProcess::start(self.bed, &self.keelson, &self.home)?;
        no_flap(&agent, steady)?;
        agent.withdraw_all()?;
        let mut freed = BTreeSet::new();
        self.until_nothing_is_left(runtime, |seen| {
            for one in seen.iter().filter(|one| never_ran(one)) {
                if freed.insert(one.id.clone()) {
                    free(containerd, one);
                }
            }
        })?;
        agent.end()?;
        runtime.remove_all()
    }

    fn until_nothing_is_left(
        &self,
        runtime: &RuntimeObserver,
        mut look: impl FnMut(&[ListedContainer]),
    ) -> Result<()> {
        runtime.wait_gone("")?;
        let mut left = Vec::new();
        wait_for("nothing is left", WAIT_LIMIT, || {
            left = remains(&self.home.root())?;
            left.extend(leases()?);
            let seen = runtime.containers("")?;
            look(&seen);
            left.extend(seen.into_iter().map(|one| format!("{one:?}")));
            left.extend(runtime.sandboxes()?);
            Ok(left.is_empty())
        })
        .with_context(|| format!("left: {left:#?}"))
    }
}

/// A pod with its own network and mount.
fn networked(name: &str, script: &str) -> String {
    let text = pod(name, "", script).replace("hostNetwork: true", "hostNetwork: false");
    format!(
        "{text}    volumeMounts: [{{name: fast, mountPath: /fast}}]\n  \
         volumes: [{{name: fast, emptyDir: {{medium: Memory}}}}]\n"
    )
}

/// Addresses that the network plugin holds for pods.
fn leases() -> Result<Vec<String>> {
    let dir = Path::new("/var/lib/cni/networks/bed");
    let names = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let names = names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.starts_with("10.88.")).collect())
}

/// How long a container that never ran may take to be removed before containerd is suspected.
const SUSPICIOUS: i64 = 20_000_000_000;

fn never_ran(one: &ListedContainer) -> bool {
    one.started_at == 0 && one.finished_at > 0 && now() - one.finished_at > SUSPICIOUS
}

/// containerd v2.2 loses a task whose start was cancelled half-way (a kill cut our connection): it
/// reports the container as exited and refuses forever to remove it, since its task lives. The
/// agent retries, which is all that it can do; an administrator kills the task. Where there is no
/// such task this changes nothing, and the test fails.
fn free(containerd: &Containerd, one: &ListedContainer) {
    match containerd.run_ctr(&["--namespace", "k8s.io", "tasks", "delete", "--force", &one.id]) {
        Ok(_) => eprintln!("{}: containerd forgot a task whose start was cut off; ended", one.pod),
        Err(error) => eprintln!("{}: {error:#}", one.pod),
    }
}

/// The Ready condition of each steady pod that the agent knows.
fn readiness(agent: &AgentProcess) -> Result<BTreeMap<String, Value>> {
    let pods = agent.pods()?;
    let mut ready = BTreeMap::new();
    for pod in pods["items"].as_array().context("items")? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let conditions = pod["status"]["conditions"].as_array();
        let condition = conditions.into_iter().flatten().find(|one| one["type"] == "Ready");
        if let Some(condition) = condition.filter(|_| name.starts_with("steady-")) {
            ensure!(is_ready(pod) == (condition["status"] == "True"), "{pod:#}");
            ready.insert(name.to_owned(), condition.clone());
        }
    }
    Ok(ready)
}

/// A new agent reports the same status of the steady pods as the one before it, eventually of all.
fn no_flap(agent: &AgentProcess, steady: &SteadyPods) -> Result<()> {
    wait_for("the agent tells of every steady pod", WAIT_LIMIT, || {
        let now = readiness(agent)?;
        for (name, condition) in &now {
            let before = &steady.ready[name];
            ensure!(condition == before, "{name}: was {before}, is {condition}");
        }
        Ok(now.len() == steady.ready.len())
    })
}

/// The number of actions that have begun and not ended, by the agent's log from this offset.
fn in_flight(log: &PathBuf, since: u64) -> Result<usize> {
    let bytes = fs::read(log)?.split_off(usize::try_from(since)?);
    let text = String::from_utf8_lossy(&bytes);
    let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    Ok(count("\"Starting an action\"").saturating_sub(count("\"Action ended\"")))
}

/// All containers that were ever observed: the runtime removes them.
#[derive(Default)]
struct ContainerHistory {
    lives: BTreeMap<String, ListedContainer>,
    restarts: usize,
}

impl ContainerHistory {
    /// What must hold at any time; nothing is being changed meanwhile.
    fn check(&mut self, runtime: &RuntimeObserver, steady: &SteadyPods) -> Result<()> {
        let seen = runtime.containers("")?;
        let now: BTreeSet<String> = seen
            .iter()
            .filter(|one| one.pod.starts_with("steady-") && one.finished_at == 0)
            .map(|one| one.id.clone())
            .collect();
        let before = &steady.containers;
        ensure!(now == *before, "the steady containers were {before:?}, are {now:?}");
        for (pod, lives) in by_pod(seen.clone()) {
            let running: Vec<&ListedContainer> =
                lives.iter().filter(|one| is_running(one)).collect();
            ensure!(running.len() <= 1, "{pod} runs more than once: {running:?}");
        }
        self.lives.extend(seen.into_iter().map(|one| (one.id.clone(), one)));
        self.back_off()
    }

    /// A crash loop continues where it was: the first restart at once, then after 10 s, 20 s...
    fn back_off(&mut self) -> Result<()> {
        let crashing = self.lives.values().filter(|one| one.pod.starts_with("crashing-"));
        let lives = by_pod(crashing.filter(|one| one.started_at > 0).cloned().collect());
        self.restarts = 0;
        for (pod, mut lives) in lives {
            lives.sort_by_key(|one| one.started_at);
            for pair in lives.windows(2) {
                let [old, new] = pair else { continue };
                ensure!(new.attempt > old.attempt, "{pod}: counts go on: {lives:?}");
                self.restarts += 1;
                // A container in between that was not observed proves nothing.
                if new.attempt != old.attempt + 1 || new.attempt < 2 || old.finished_at == 0 {
                    continue;
                }
                let least = 10_000_000_000_i64 << (new.attempt - 2).min(4);
                let gap = new.started_at - old.finished_at;
                ensure!(gap >= least, "{pod}: restarted after {gap} ns, not {least}: {lives:?}");
            }
        }
        Ok(())
    }
}

fn is_running(seen: &ListedContainer) -> bool {
    seen.started_at > 0 && seen.finished_at == 0
}

const GRACE: Duration = Duration::from_secs(14);
const SPENT: Duration = Duration::from_secs(5);

/// Ignores SIGTERM, and writes when it came.
const STUBBORN: &str =
    "trap 'echo told > /told/now' TERM; echo up > /told/up; while :; do sleep 0.1; done";

#[test]
fn grace_period_spent_before_a_kill_is_not_granted_again() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        let marker_dir = bed.create_dir("told")?;
        let (containerd, runtime) = containerd(bed, &archives)?;
        let home = AgentHome::new(bed, "grace", &containerd.endpoint())?;
        let agent = AgentProcess::start(bed, &keelson, &home)?;
        let text = pod("stubborn", "", STUBBORN)
            .replace("PeriodSeconds: 2", &format!("PeriodSeconds: {}", GRACE.as_secs()));
        let mounts = format!(
            "    volumeMounts: [{{name: told, mountPath: /told}}]\n  volumes:\n  \
             - {{name: told, hostPath: {{path: {}}}}}\n",
            marker_dir.display()
        );
        agent.place("stubborn", &format!("{text}{mounts}"))?;
        // The script runs: a signal before the trap would have no effect and leave no trace.
        wait_for("its script runs", WAIT_LIMIT, || Ok(marker_dir.join("up").exists()))?;
        agent.withdraw("stubborn")?;
        wait_for("it is told to end", WAIT_LIMIT, || Ok(marker_dir.join("now").exists()))?;
        let asked = Instant::now();
        std::thread::sleep(SPENT);
        agent.end()?;
        let agent = AgentProcess::start(bed, &keelson, &home)?;
        let (back, away) = (Instant::now(), asked.elapsed().saturating_sub(SPENT));
        runtime.wait_gone("stubborn")?;
        // All of the grace again would be this long; what is left of it is much less.
        let took = back.elapsed();
        ensure!(took < GRACE - Duration::from_secs(1), "{took:?} after {SPENT:?} of {GRACE:?}");
        let left = GRACE - SPENT - Duration::from_secs(2);
        ensure!(away + took >= left, "{took:?} after {away:?} away cuts its grace short");
        eprintln!("of {GRACE:?}: {SPENT:?} spent, {away:?} without an agent, {took:?} more");
        withdrawn_unseen(KillScenario {
            bed,
            kind: &keelson,
            home: &home,
            runtime: &runtime,
            agent,
            marker_dir: &marker_dir,
        })?;
        runtime.remove_all()
    })
}

/// Writes a message in its hook.
const POLITE: &str =
    "    lifecycle: {preStop: {exec: {command: [sh, -c, 'echo bye > /told/bye']}}}\n";

/// A running agent that is to be ended and started again.
struct KillScenario<'a> {
    bed: &'a Bed,
    kind: &'a AgentKind,
    home: &'a AgentHome,
    runtime: &'a RuntimeObserver,
    agent: AgentProcess,
    /// Its pods leave their markers here.
    marker_dir: &'a Path,
}

/// A manifest that is removed while no agent runs: its pod still gets its grace period.
fn withdrawn_unseen(scenario: KillScenario<'_>) -> Result<()> {
    let KillScenario { bed, kind, home, runtime, agent, marker_dir } = scenario;
    let mounts = format!(
        "    volumeMounts: [{{name: told, mountPath: /told}}]\n  volumes:\n  \
         - {{name: told, hostPath: {{path: {}}}}}\n",
        marker_dir.display()
    );
    agent.place("polite", &format!("{}{POLITE}{mounts}", pod("polite", "", STEADY)))?;
    let has_record = |dir: &str| {
        let path = home.root().join("keelson").join(dir);
        fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some())
    };
    runtime.wait_started("polite", 1, 0)?;
    agent.end()?;
    fs::remove_file(home.manifests().join("polite.yaml"))?;
    let agent = AgentProcess::start(bed, kind, home)?;
    wait_for("its hook runs", WAIT_LIMIT, || Ok(marker_dir.join("bye").exists()))?;
    runtime.wait_gone("polite")?;
    wait_for("nothing is remembered", WAIT_LIMIT, || {
        Ok(!["ending", "uids", "manifests"].into_iter().any(has_record))
    })?;
    agent.end()
}
