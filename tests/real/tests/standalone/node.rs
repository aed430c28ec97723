//! A containerd with images, the built agent, and short ways to write pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::Bed;
use node_testkit::start::{Containerd, ContainerdOptions};
use node_testkit::{images, programs};
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use real_tests::standalone::runtime::{ListedContainer, RuntimeObserver};
use serde_json::Value;

/// The images must be built before the bed, which cannot reach their sources.
pub(crate) fn archives() -> Result<Vec<PathBuf>> {
    let sandbox = images::pause()?.named(images::CONTAINERD_PAUSE);
    [images::pause()?, sandbox, images::busybox()?]
        .iter()
        .map(images::TestImage::oci_archive)
        .collect()
}

pub(crate) fn keelson() -> Result<AgentKind> {
    Ok(AgentKind::keelson(&programs::build("keelson", "keelson")?))
}

pub(crate) fn containerd(bed: &Bed, archives: &[PathBuf]) -> Result<(Containerd, RuntimeObserver)> {
    let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
    for archive in archives {
        containerd.import(archive)?;
    }
    let runtime = RuntimeObserver::connect(&containerd.endpoint())?;
    Ok((containerd, runtime))
}

/// A pod on the host's network with one container that runs a shell script.
pub(crate) fn pod(name: &str, metadata: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{metadata}}}\nspec:\n  \
         hostNetwork: true\n  terminationGracePeriodSeconds: 2\n  containers:\n  - name: main\n    \
         image: {}\n    imagePullPolicy: IfNotPresent\n    command: [sh, -c, {script:?}]\n",
        images::BUSYBOX
    )
}

/// Sleeps forever and exits at once on SIGTERM.
pub(crate) const STEADY: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";

pub(crate) fn wait_for(
    what: &str,
    limit: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if done()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("{what}: not within {limit:?}")
}

/// Containers by pod.
pub(crate) fn by_pod(seen: Vec<ListedContainer>) -> BTreeMap<String, Vec<ListedContainer>> {
    let mut pods: BTreeMap<String, Vec<ListedContainer>> = BTreeMap::new();
    for one in seen {
        pods.entry(one.pod.clone()).or_default().push(one);
    }
    pods
}

/// The only container of a pod.
pub(crate) fn only(runtime: &RuntimeObserver, pod: &str) -> Result<ListedContainer> {
    let seen = runtime.containers(pod)?;
    match seen.as_slice() {
        [one] => Ok(one.clone()),
        other => bail!("{pod} has {} containers: {other:?}", other.len()),
    }
}

/// A standalone node of one test: containerd, the agent, and how it was started.
pub(crate) struct StandaloneNode<'a> {
    pub(crate) bed: &'a Bed,
    pub(crate) containerd: Containerd,
    pub(crate) runtime: RuntimeObserver,
    pub(crate) home: AgentHome,
    pub(crate) agent: AgentProcess,
    kind: AgentKind,
}

impl<'a> StandaloneNode<'a> {
    pub(crate) fn start(
        bed: &'a Bed,
        kind: &AgentKind,
        archives: &[PathBuf],
        configuration: &str,
    ) -> Result<Self> {
        let parts = containerd(bed, archives)?;
        let home = AgentHome::new(bed, "own", &parts.0.endpoint())?.with(configuration);
        Self::of_parts(bed, kind, parts, home)
    }

    /// From a runtime and an agent root that a test has made itself.
    pub(crate) fn of_parts(
        bed: &'a Bed,
        kind: &AgentKind,
        (containerd, runtime): (Containerd, RuntimeObserver),
        home: AgentHome,
    ) -> Result<Self> {
        let agent = AgentProcess::start(bed, kind, &home)?;
        Ok(Self { bed, containerd, runtime, home, agent, kind: kind.clone() })
    }

    /// Kills the agent, does something without it, and starts the next one.
    pub(crate) fn restart_agent(
        self,
        meanwhile: impl FnOnce(&AgentHome) -> Result<()>,
    ) -> Result<Self> {
        let Self { bed, containerd, runtime, home, agent, kind } = self;
        agent.end()?;
        meanwhile(&home)?;
        let agent = AgentProcess::start(bed, &kind, &home)?;
        Ok(Self { bed, containerd, runtime, home, agent, kind })
    }

    pub(crate) fn place(&self, name: &str, spec: &str) -> Result<()> {
        self.agent.place(name, &manifest(name, spec))
    }

    /// The pod of that manifest as v1, if the agent has it.
    pub(crate) fn pod(&self, name: &str) -> Result<Option<Value>> {
        let pods = self.agent.pods()?;
        let items = pods["items"].as_array().context("items")?;
        let full = format!("{name}-node");
        Ok(items.iter().find(|pod| pod["metadata"]["name"] == *full).cloned())
    }

    /// Waits until a condition on a pod holds; returns the pod.
    pub(crate) fn until(
        &self,
        what: &str,
        name: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < WAIT_LIMIT {
            last = self.pod(name)?;
            match last {
                Some(pod) if holds(&pod) => return Ok(pod),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        let explained =
            self.agent.ask(&["explain", name]).unwrap_or_else(|error| error.to_string());
        bail!("{name}: {what}: not within {WAIT_LIMIT:?}\n{explained}\n{last:#?}")
    }

    pub(crate) fn until_ready(&self, name: &str) -> Result<Value> {
        self.until("ready", name, is_ready)
    }

    pub(crate) fn until_phase(&self, name: &str, phase: &str) -> Result<Value> {
        self.until(phase, name, |pod| pod["status"]["phase"] == phase)
    }

    /// Waits until the agent no longer has the pod.
    pub(crate) fn until_gone(&self, name: &str) -> Result<()> {
        wait_for(&format!("{name} is gone"), WAIT_LIMIT, || Ok(self.pod(name)?.is_none()))
    }

    /// The output of `explain`, once it contains these words.
    pub(crate) fn until_explained(&self, name: &str, words: &str) -> Result<String> {
        let mut last = String::new();
        let result = wait_for(&format!("explain {name} says {words:?}"), WAIT_LIMIT, || {
            last = self.agent.ask(&["explain", name]).unwrap_or_default();
            Ok(last.contains(words))
        });
        result.with_context(|| format!("it says: {last}"))?;
        Ok(last)
    }

    /// Runs a shell script in a pod's container and returns its output.
    pub(crate) fn shell(&self, pod: &Value, container: &str, script: &str) -> Result<String> {
        let id = container_id(pod, container)?;
        let endpoint = self.containerd.endpoint();
        let mut words = vec!["cri-client", "--runtime-endpoint", endpoint.as_str(), "exec"];
        words.extend([id.as_str(), "sh", "-c", script]);
        self.agent.ask(&words)
    }

    /// Stops the agent and removes what is left in the runtime.
    pub(crate) fn end(self) -> Result<()> {
        self.agent.end()?;
        self.runtime.remove_all()
    }
}

pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A pod from the lines of its specification, in which `BUSYBOX` stands for the image. The default
/// grace period is one second: a shell as PID 1 ignores SIGTERM.
pub(crate) fn manifest(name: &str, spec: &str) -> String {
    let mut spec = spec.trim_matches('\n').replace("BUSYBOX", images::BUSYBOX);
    if !spec.contains("\n  terminationGracePeriodSeconds:") && !spec.starts_with("  terminationG") {
        spec.push_str("\n  terminationGracePeriodSeconds: 1");
    }
    format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n{spec}\n")
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// The status of one container, init containers included.
pub(crate) fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let all = lists.iter().filter_map(|list| pod["status"][*list].as_array()).flatten();
    all.into_iter().find(|status| status["name"] == name).unwrap_or(&Value::Null)
}

/// The container id without the runtime's prefix.
pub(crate) fn container_id(pod: &Value, name: &str) -> Result<String> {
    let id = container(pod, name)["containerID"].as_str();
    let id = id.and_then(|id| id.split("//").nth(1));
    Ok(id.with_context(|| format!("no container id of {name} in {pod:#}"))?.to_owned())
}

pub(crate) fn restarts(pod: &Value, name: &str) -> u64 {
    container(pod, name)["restartCount"].as_u64().unwrap_or_default()
}

pub(crate) fn uid(pod: &Value) -> Result<String> {
    Ok(pod["metadata"]["uid"].as_str().context("a uid")?.to_owned())
}

/// The error message of one of our verbs.
pub(crate) fn refused(agent: &AgentProcess, arguments: &[&str]) -> Result<String> {
    match agent.ask(arguments) {
        Ok(output) => bail!("keelson {arguments:?} did not refuse: {output}"),
        Err(error) => Ok(error.to_string()),
    }
}

/// Checks that a text contains every one of these words.
pub(crate) fn ensure_has(text: &str, words: &[&str]) -> Result<()> {
    let missing: Vec<&&str> = words.iter().filter(|word| !text.contains(**word)).collect();
    ensure!(missing.is_empty(), "{missing:?} not in:\n{text}");
    Ok(())
}
