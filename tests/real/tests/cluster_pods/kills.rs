//! The agent is killed at each crash point of its work with the API server, and at odd instants,
//! while pods are created, finish and are deleted.
//!
//! Whatever the instant: no steady container is restarted, none runs twice, a pod that has finished
//! keeps its exit code, and in the end every pod is gone from the API server and from the runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::BedTest;
use real_tests::cluster::{
    ClusterPrograms, JoinedNode, NEEDS, NODE, container_state, is_ready, pod_object, shell,
};
use real_tests::standalone::agent::AgentProcess;
use serde_json::{Value, json};

const STEADY: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";
const STEADY_PODS: usize = 4;
/// Kills at odd instants; `KEELSON_KILLS` (`cargo xtask soak`) asks for more.
const KILLS: u64 = 4;
/// Rounds of work in which a crash point must be reached.
const ROUNDS_TO_A_POINT: usize = 4;

#[test]
fn an_agent_killed_at_any_instant_loses_no_pod_of_the_api_server() -> Result<()> {
    let programs = ClusterPrograms::build()?;
    let kills = match std::env::var("KEELSON_KILLS") {
        Ok(asked) => asked.parse().context("KEELSON_KILLS")?,
        Err(_) => KILLS,
    };
    let limit = Duration::from_secs(420 + 30 * kills);
    BedTest::new().needs(NEEDS).deadline(limit).run(move |bed| {
        let node = JoinedNode::start(bed, &programs)?;
        let mut churn = Churn::begin(node)?;
        for point in node_agent::crash_points::OF_CLUSTER {
            churn.crash_at(point).with_context(|| format!("crash point {point}"))?;
            churn.check().with_context(|| format!("after {point}"))?;
        }
        for number in 0..kills {
            // A plain sequence of odd waits: which instant each hits is up to the machine.
            let wait = Duration::from_millis(number * 477 % 1_300);
            churn.kill_after(wait).with_context(|| format!("kill after {wait:?}"))?;
            churn.check().with_context(|| format!("after a kill after {wait:?}"))?;
        }
        churn.end()
    })
}

struct Churn<'a> {
    node: JoinedNode<'a>,
    /// The container of each steady pod.
    steady: BTreeSet<String>,
    /// Pods that finish by themselves, and their exit codes.
    finite: BTreeMap<String, u64>,
    /// A line for each run of a container, by pod.
    runs: PathBuf,
    round: usize,
}

/// The specification of a pod whose container writes down that it runs.
fn counted(runs: &Path, name: &str, script: &str) -> Value {
    let mut container = shell(&format!("echo run >> /runs/{name}; {script}"));
    container["volumeMounts"] = json!([{"name": "runs", "mountPath": "/runs"}]);
    let volume = json!({"name": "runs", "hostPath": {"path": runs}});
    json!({"containers": [container], "volumes": [volume]})
}

impl<'a> Churn<'a> {
    /// Starts the steady pods and ends the agent.
    fn begin(mut node: JoinedNode<'a>) -> Result<Self> {
        let runs = node.bed.create_dir("runs")?;
        for number in 0..STEADY_PODS {
            let name = format!("steady-{number}");
            node.create_bound(&pod_object(&name, counted(&runs, &name, STEADY)))?;
        }
        for number in 0..STEADY_PODS {
            node.until_ready(&format!("steady-{number}"))?;
        }
        node.kill_agent()?;
        let steady: BTreeSet<String> =
            node.runtime.containers("steady-")?.into_iter().map(|one| one.id).collect();
        ensure!(steady.len() == STEADY_PODS, "one container each: {steady:?}");
        Ok(Self { node, steady, finite: BTreeMap::new(), runs, round: 0 })
    }

    /// Every kind of work for the agent: a pod that stays for two rounds, one that finishes, a
    /// static one that comes and goes.
    fn stir(&mut self, agent: &AgentProcess) -> Result<()> {
        self.round += 1;
        let round = self.round;
        let fresh = format!("fresh-{round}");
        self.node.create_bound(&pod_object(&fresh, counted(&self.runs, &fresh, STEADY)))?;
        if round > 1 {
            self.node.delete_pod(&format!("fresh-{}", round - 1), None)?;
        }
        let (name, code) = (format!("finite-{round}"), round as u64 % 5);
        let script = format!("sleep 0.2; exit {code}");
        let mut finite = counted(&self.runs, &name, &script);
        finite["restartPolicy"] = "Never".into();
        self.node.create_bound(&pod_object(&name, finite))?;
        self.finite.insert(name, code);
        if round.is_multiple_of(2) {
            agent.withdraw("fixed")
        } else {
            let pod = pod_object("fixed", json!({"containers": [shell(STEADY)]}));
            agent.place("fixed", &pod.to_string())
        }
    }

    /// Waits until the agent aborts at its crash point.
    fn crash_at(&mut self, point: &str) -> Result<()> {
        let mut agent = self.node.start_agent_to_crash_at(point)?;
        let mut is_alive = agent.until_healthy()?;
        for _ in 0..ROUNDS_TO_A_POINT {
            if !is_alive {
                break;
            }
            self.stir(&agent)?;
            let limit = Duration::from_secs(10);
            let ended =
                self.node.within(limit, "the crash", || Ok(agent.has_ended()?.then_some(())));
            is_alive = ended.is_err();
        }
        if is_alive {
            agent.end()?;
            bail!("the agent never came to {point}");
        }
        ensure!(agent.has_aborted()?, "it ended otherwise");
        Ok(())
    }

    fn kill_after(&mut self, wait: Duration) -> Result<()> {
        let kind = self.node.kind.clone();
        let agent = AgentProcess::start(self.node.bed, &kind, &self.node.home)?;
        self.stir(&agent)?;
        std::thread::sleep(wait);
        agent.end()
    }

    /// What must hold at any time, without an agent.
    fn check(&self) -> Result<()> {
        let seen = self.node.runtime.containers("")?;
        let steady: BTreeSet<String> = seen
            .iter()
            .filter(|one| one.pod.starts_with("steady-") && one.finished_at == 0)
            .map(|one| one.id.clone())
            .collect();
        ensure!(
            steady == self.steady,
            "the steady containers were {:?}, are {steady:?}",
            self.steady
        );
        let mut starts: BTreeMap<&str, usize> = BTreeMap::new();
        for one in seen.iter().filter(|one| one.started_at > 0) {
            *starts.entry(&one.pod).or_default() += 1;
        }
        let again: Vec<_> = starts
            .iter()
            .filter(|(pod, count)| pod.starts_with("f") && !pod.starts_with("fixed") && **count > 1)
            .collect();
        ensure!(again.is_empty(), "started more than once: {again:?}");
        for number in 0..STEADY_PODS {
            let pod = self.node.pod(&format!("steady-{number}"))?.context("a steady pod")?;
            ensure!(is_ready(&pod), "{:#}", pod["status"]);
        }
        Ok(())
    }

    /// Exit codes are kept; a mirror is there if and only if its static pod is; then all of it
    /// is deleted, and nothing is left.
    fn end(mut self) -> Result<()> {
        self.node.start_agent()?;
        for (name, code) in &self.finite {
            let has_ended = |pod: &Value| {
                pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
            };
            let pod = self.node.until_pod(name, "finished", has_ended)?;
            let ended = &container_state(&pod, "main")["terminated"];
            // containerd makes an error of a start that a kill cut off, and the pod never restarts.
            let is_kept = ended["exitCode"] == *code || ended["reason"] == "StartError";
            ensure!(is_kept, "{name}: expected {code}: {ended}");
            let phase = if ended["exitCode"] == 0 { "Succeeded" } else { "Failed" };
            ensure!(pod["status"]["phase"] == phase, "{name}: {:#}", pod["status"]);
        }
        let mirror = format!("fixed-{NODE}");
        if self.round.is_multiple_of(2) {
            self.node.until_gone(&mirror)?;
        } else {
            self.node.until_ready(&mirror)?;
            self.node.agent()?.withdraw("fixed")?;
            self.node.until_gone(&mirror)?;
        }
        // By what ran: containerd ends a container whose start a kill cut off, so one that was
        // started meanwhile may begin once more; steady ones were there before.
        let pods: Vec<Value> = self.node.api.items("/api/v1/namespaces/default/pods")?;
        for pod in &pods {
            let name = pod["metadata"]["name"].as_str().context("its name")?;
            let runs = std::fs::read_to_string(self.runs.join(name)).context(name.to_owned())?;
            let most = if name.starts_with("steady-") { 1 } else { 2 };
            let count = runs.lines().count();
            ensure!((1..=most).contains(&count), "{name} ran {count} times");
        }
        self.node.delete_all_pods()?;
        self.node.end()
    }
}
