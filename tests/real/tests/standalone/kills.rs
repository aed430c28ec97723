//! The agent is killed again and again while pods start, crash, change and go.
//!
//! Every crash point of the agent is hit once (it kills itself there with SIGKILL), and it is
//! killed at random instants besides. However often: no steady container is restarted, no container
//! is run twice, restart counts go on, and in the end nothing is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, Test};
use node_testkit::start::Containerd;
use real_tests::standalone::agent::{Agent, Home, Kind};
use real_tests::standalone::runtime::{Runtime, Seen};

use crate::node::{STEADY, archives, by_pod, containerd, keelson, pod, wait_for};

const STEADY_PODS: usize = 6;
const CRASHING_PODS: usize = 3;
const CHANGING_PODS: usize = 3;
const CRASHING: &str = "sleep 0.3; exit 1";

fn random_kills() -> u64 {
    let asked = std::env::var("KEELSON_KILLS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(2)
}

#[test]
fn an_agent_killed_at_any_instant_loses_leaks_and_restarts_nothing() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    let limit = Duration::from_secs(240 + random_kills() * 10);
    Test::new().needs(Containerd::NEEDS).deadline(limit).run(move |bed| {
        let (containerd, runtime) = containerd(bed, &archives)?;
        let home = Home::new(bed, "kills", &containerd.endpoint())?;
        let mut churn = Churn { bed, keelson, home, round: 0 };
        let steady = churn.begin(&runtime)?;
        let mut hit = Vec::new();
        for point in node_agent::crash_points::ALL {
            churn.crash_at(point).with_context(|| format!("crash point {point}"))?;
            hit.push(*point);
            check(&runtime, &steady).with_context(|| format!("after a crash at {point}"))?;
        }
        for number in 0..random_kills() {
            // A plain sequence of odd waits: which instant each hits is up to the machine.
            let wait = Duration::from_millis(number * 377 % 1_100);
            churn.kill_after(wait).with_context(|| format!("kill after {wait:?}"))?;
            check(&runtime, &steady).with_context(|| format!("after a kill after {wait:?}"))?;
        }
        eprintln!("crash points hit: {}; random kills: {}", hit.join(", "), random_kills());
        churn.end(&runtime)
    })
}

struct Churn<'a> {
    bed: &'a Bed,
    keelson: Kind,
    home: Home,
    round: usize,
}

impl Churn<'_> {
    /// Starts all pods; answers with the steady ones' containers.
    fn begin(&mut self, runtime: &Runtime) -> Result<BTreeSet<String>> {
        let agent = Agent::start(self.bed, &self.keelson, &self.home)?;
        for number in 0..STEADY_PODS {
            let name = format!("steady-{number}");
            agent.place(&name, &pod(&name, "", STEADY))?;
        }
        for number in 0..CRASHING_PODS {
            let name = format!("crashing-{number}");
            agent.place(&name, &pod(&name, "", CRASHING))?;
        }
        runtime.wait_started("steady-", STEADY_PODS, 0)?;
        agent.end()?;
        Ok(runtime.containers("steady-")?.into_iter().map(|seen| seen.id).collect())
    }

    /// Makes every kind of work for the agent: pods that come, change and go.
    fn stir(&mut self, agent: &Agent) -> Result<()> {
        self.round += 1;
        for number in 0..CHANGING_PODS {
            let name = format!("changing-{number}");
            // Another script is another pod of the same name: the old one ends, a new one begins.
            let script = format!("echo {}; {STEADY}", self.round);
            match (self.round + number) % 3 {
                0 if self.home.manifests().join(format!("{name}.yaml")).exists() => {
                    agent.withdraw(&name)?;
                }
                _ => agent.place(&name, &pod(&name, "", &script))?,
            }
        }
        let name = format!("fresh-{}", self.round);
        agent.place(&name, &pod(&name, "", CRASHING))?;
        if self.round > 2 {
            agent.withdraw(&format!("fresh-{}", self.round - 2))?;
        }
        Ok(())
    }

    /// Lets the agent kill itself where it is told.
    fn crash_at(&mut self, point: &str) -> Result<()> {
        let mut kind = self.keelson.clone();
        kind.environment.push(("KEELSON_CRASH_AT".to_owned(), point.to_owned()));
        let mut agent = Agent::start(self.bed, &kind, &self.home)?;
        for _ in 0..4 {
            self.stir(&agent)?;
            let crashed = wait_for("the crash", Duration::from_secs(8), || agent.has_ended());
            if crashed.is_ok() {
                return Ok(());
            }
        }
        agent.end()?;
        anyhow::bail!("the agent never came to {point}")
    }

    fn kill_after(&mut self, wait: Duration) -> Result<()> {
        let agent = Agent::start(self.bed, &self.keelson, &self.home)?;
        self.stir(&agent)?;
        std::thread::sleep(wait);
        agent.end()
    }

    /// Without manifests nothing is left: no container that runs, no folder, no cgroup.
    fn end(&mut self, runtime: &Runtime) -> Result<()> {
        let agent = Agent::start(self.bed, &self.keelson, &self.home)?;
        agent.withdraw_all()?;
        runtime.wait_gone("")?;
        let pods = self.home.root().join("pods");
        wait_for(
            "pod folders are gone",
            Duration::from_secs(60),
            || Ok(entries(&pods)?.is_empty()),
        )
        .with_context(|| format!("left: {:?}", entries(&pods)))?;
        wait_for("pod cgroups are gone", Duration::from_secs(60), || Ok(pod_cgroups()?.is_empty()))
            .with_context(|| format!("left: {:?}", pod_cgroups()))?;
        agent.end()?;
        runtime.remove_all()
    }
}

/// What must hold at any time.
fn check(runtime: &Runtime, steady: &BTreeSet<String>) -> Result<()> {
    let seen = runtime.containers("")?;
    let now: BTreeSet<String> = seen
        .iter()
        .filter(|one| one.pod.starts_with("steady-") && one.finished_at == 0)
        .map(|one| one.id.clone())
        .collect();
    ensure!(now == *steady, "the steady containers were {steady:?}, are {now:?}");
    for (pod, lives) in by_pod(seen) {
        let running: Vec<&Seen> = lives.iter().filter(|one| is_running(one)).collect();
        ensure!(running.len() <= 1, "{pod} runs more than once: {running:?}");
    }
    Ok(())
}

fn is_running(seen: &Seen) -> bool {
    seen.started_at > 0 && seen.finished_at == 0
}

fn entries(folder: &Path) -> Result<Vec<String>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect(),
        Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(other) => Err(other).with_context(|| folder.display().to_string()),
    }
}

/// cgroups of pods in the memory hierarchy of the bed, or in the unified one.
fn pod_cgroups() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for top in ["/sys/fs/cgroup/memory/kubepods", "/sys/fs/cgroup/kubepods"] {
        for class in ["", "burstable", "besteffort"] {
            let names = entries(&Path::new(top).join(class))?;
            found.extend(names.into_iter().filter(|name| name.starts_with("pod")));
        }
    }
    Ok(found)
}
