//! The cluster of a test: its parts, and short ways to act on it and to wait.
//!
//! Rule: every wait has a limit, and an error shows the pod as the API server has it. The parts are
//! stopped in the order of the fields: the agent first.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::Bed;
use node_testkit::images;
use node_testkit::start::ControlPlane;
use serde_json::Value;

use super::node_runtime::{NodeRuntime, RuntimeKind};
use super::objects::is_ready;
use super::rest::RestClient;
use super::rights::NodeRequests;
use crate::embedded::RuntimePrograms;
use crate::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use crate::standalone::runtime::RuntimeObserver;

/// The parts to name in a test's needs.
pub const NEEDS: &[&str] = &[
    "containerd",
    "runc",
    "cni-plugins",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl",
    ControlPlane::SCHEDULER,
];

/// The node's name.
pub const NODE: &str = "node";

/// How long anything may take that should happen.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(100);

/// What must be built before there is a bed, which reaches no network.
#[derive(Debug, Clone)]
pub struct ClusterPrograms {
    pub keelson: AgentKind,
    pub(super) runtime: RuntimePrograms,
    pub(super) archives: Vec<PathBuf>,
}

impl ClusterPrograms {
    /// # Errors
    /// When something cannot be built.
    pub fn build() -> Result<Self> {
        let runtime = RuntimePrograms::build()?;
        let keelson = AgentKind::keelson(&runtime.keelson);
        let sandbox = images::pause()?.named(images::CONTAINERD_PAUSE);
        let archives = [images::pause()?, sandbox, images::busybox()?]
            .iter()
            .map(images::TestImage::oci_archive)
            .collect::<Result<_>>()?;
        Ok(Self { keelson, runtime, archives })
    }
}

/// A cluster with one node.
pub struct JoinedNode<'a> {
    agent: Option<AgentProcess>,
    pub api: RestClient,
    pub runtime: RuntimeObserver,
    pub plane: ControlPlane,
    endpoint: String,
    _node_runtime: NodeRuntime,
    pub requests: NodeRequests,
    pub home: AgentHome,
    pub kind: AgentKind,
    pub bed: &'a Bed,
}

impl<'a> JoinedNode<'a> {
    /// Starts all of it with our agent, and waits until pods can be scheduled.
    ///
    /// # Errors
    /// When a part does not come up.
    pub fn start(bed: &'a Bed, programs: &ClusterPrograms) -> Result<Self> {
        let mut node = Self::without_agent(bed, programs, RuntimeKind::Containerd)?;
        node.start_agent()?;
        node.until_schedulable()?;
        Ok(node)
    }

    /// The same without an agent.
    ///
    /// # Errors
    /// When a part does not come up.
    pub fn without_agent(
        bed: &'a Bed,
        programs: &ClusterPrograms,
        runtime: RuntimeKind,
    ) -> Result<Self> {
        let requests = NodeRequests::new(bed, NODE)?;
        let mut flags = requests.flags();
        // The bed has no name service.
        flags.push("--kubelet-preferred-address-types=InternalIP".to_owned());
        let (plane, node_runtime) = std::thread::scope(|scope| {
            let plane = scope.spawn(|| -> Result<(ControlPlane, RestClient)> {
                let mut plane = ControlPlane::start_with_flags(bed, "*", &flags)?;
                plane.start_scheduler(bed)?;
                let api = RestClient::start(bed, &plane)?;
                Ok((plane, api))
            });
            let node_runtime = NodeRuntime::start(bed, programs, runtime);
            (plane.join(), node_runtime)
        });
        let Ok(plane) = plane else { bail!("starting the control plane panicked") };
        let ((plane, api), node_runtime) = (plane?, node_runtime?);
        let endpoint = node_runtime.endpoint();
        let runtime = RuntimeObserver::connect(&endpoint)?;
        let home = AgentHome::new(bed, "member", &endpoint)?;
        let kind = joining(&plane, programs.keelson.clone())?;
        Ok(Self {
            agent: None,
            api,
            runtime,
            plane,
            endpoint,
            _node_runtime: node_runtime,
            requests,
            home,
            kind,
            bed,
        })
    }

    /// Starts the agent; there must be none.
    ///
    /// # Errors
    /// When it does not become healthy.
    pub fn start_agent(&mut self) -> Result<()> {
        ensure!(self.agent.is_none(), "the agent runs already");
        self.agent = Some(AgentProcess::start(self.bed, &self.kind, &self.home)?);
        Ok(())
    }

    /// The running agent.
    ///
    /// # Errors
    /// When there is none.
    pub fn agent(&self) -> Result<&AgentProcess> {
        self.agent.as_ref().context("no agent runs")
    }

    /// Starts the agent so that it aborts at a crash point, which may be before it is healthy.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_agent_to_crash_at(&mut self, point: &str) -> Result<AgentProcess> {
        ensure!(self.agent.is_none(), "the agent runs already");
        let mut kind = self.kind.clone();
        kind.environment.push(("KEELSON_CRASH_AT".to_owned(), point.to_owned()));
        AgentProcess::launch(self.bed, &kind, &self.home)
    }

    /// Kills the agent.
    ///
    /// # Errors
    /// When there is none.
    pub fn kill_agent(&mut self) -> Result<()> {
        self.agent.take().context("no agent runs")?.end()
    }

    /// Puts another agent of this kind in place of the one that runs, on another root directory.
    ///
    /// # Errors
    /// When it does not become healthy.
    pub fn replace_agent(&mut self, kind: AgentKind) -> Result<()> {
        if let Some(agent) = self.agent.take() {
            agent.end()?;
        }
        self.home = AgentHome::new(self.bed, kind.name, &self.endpoint)?;
        self.kind = joining(&self.plane, kind)?;
        self.start_agent()
    }

    /// Ends the agent, checks that the node asked for nothing that it may not have, and clears the
    /// runtime.
    ///
    /// # Errors
    /// When it did, or when the runtime cannot be cleared.
    pub fn end(mut self) -> Result<()> {
        if self.agent.is_some() {
            self.kill_agent()?;
        }
        self.requests.expect_none_forbidden()?;
        self.runtime.remove_all()
    }

    /// Waits until the node is ready and without taints.
    ///
    /// # Errors
    /// When it does not become so.
    pub fn until_schedulable(&self) -> Result<()> {
        let path = format!("/api/v1/nodes/{NODE}");
        self.until("the node is schedulable", || {
            let node = self.api.find(&path)?.unwrap_or_default();
            let is_untainted = node["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
            Ok((is_ready(&node) && is_untainted).then_some(()))
        })
    }

    /// Polls until there is a result.
    ///
    /// # Errors
    /// When there is none within a minute, or asking fails.
    pub fn until<T>(&self, what: &str, ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        self.within(WAIT_LIMIT, what, ask)
    }

    /// The same with another limit.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub fn within<T>(
        &self,
        limit: Duration,
        what: &str,
        mut ask: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let begun = Instant::now();
        loop {
            if let Some(result) = ask().with_context(|| what.to_owned())? {
                return Ok(result);
            }
            ensure!(begun.elapsed() < limit, "{what}: not within {limit:?}");
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// Creates a pod that is bound to this node without the scheduler.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn create_bound(&self, pod: &Value) -> Result<Value> {
        let mut pod = pod.clone();
        pod["spec"]["nodeName"] = NODE.into();
        self.api.create(PODS, &pod)
    }

    /// A pod of the default namespace, if it exists.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn pod(&self, name: &str) -> Result<Option<Value>> {
        self.api.find(&pod_path(name))
    }

    /// Waits until a condition on a pod holds; returns the pod.
    ///
    /// # Errors
    /// When it does not within a minute; with the pod and its events.
    pub fn until_pod(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let mut last = None;
        let result = self.until(&format!("{name}: {what}"), || {
            last = self.pod(name)?;
            Ok(last.clone().filter(|pod| holds(pod)))
        });
        result.with_context(|| {
            let events = self.events(name).unwrap_or_default();
            format!("{:#}\nevents: {events:#?}", last.unwrap_or_default()["status"])
        })
    }

    /// Waits until a pod is ready.
    ///
    /// # Errors
    /// As [`Self::until_pod`].
    pub fn until_ready(&self, name: &str) -> Result<Value> {
        self.until_pod(name, "ready", is_ready)
    }

    /// Waits until a pod is no longer in the API.
    ///
    /// # Errors
    /// When it still is after a minute.
    pub fn until_gone(&self, name: &str) -> Result<()> {
        let mut last = None;
        let gone = self.until(&format!("{name} is gone"), || {
            last = self.pod(name)?;
            Ok(last.is_none().then_some(()))
        });
        gone.with_context(|| format!("{:#}", last.unwrap_or_default()))
    }

    /// Deletes a pod of the default namespace.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn delete_pod(&self, name: &str, grace_seconds: Option<u32>) -> Result<()> {
        self.api.delete(&pod_path(name), grace_seconds)
    }

    /// The events of a pod, as `Type Reason message`, without repetitions.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn events(&self, pod: &str) -> Result<Vec<String>> {
        let selector = format!("?fieldSelector=involvedObject.name%3D{pod}");
        let mut events = self.api.items(&format!("/api/v1/namespaces/default/events{selector}"))?;
        events.sort_by_key(|event| event["firstTimestamp"].as_str().map(str::to_owned));
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or("").to_owned();
        let lines = events.iter().map(|event| {
            format!("{} {} {}", text(event, "type"), text(event, "reason"), text(event, "message"))
        });
        let mut known = Vec::new();
        for line in lines {
            if !known.contains(&line) {
                known.push(line);
            }
        }
        Ok(known)
    }

    /// The pods of the default namespace with this label.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn labelled(&self, label: &str) -> Result<Vec<Value>> {
        self.api.items(&format!("{PODS}?labelSelector={}", label.replace('=', "%3D")))
    }

    /// Deletes every pod of the default namespace, and waits until the API server and the runtime
    /// have none.
    ///
    /// # Errors
    /// When something stays for more than a minute.
    pub fn delete_all_pods(&self) -> Result<()> {
        for pod in self.api.items(PODS)? {
            self.delete_pod(pod["metadata"]["name"].as_str().unwrap_or_default(), None)?;
        }
        self.until("all pods are gone from the API", || {
            Ok(self.api.items(PODS)?.is_empty().then_some(()))
        })?;
        self.until("all sandboxes are gone", || {
            Ok(self.runtime.sandboxes()?.is_empty().then_some(()))
        })
    }
}

/// The collection of the pods of the tests.
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod_path(name: &str) -> String {
    format!("{PODS}/{name}")
}

/// An agent with the node's certificate.
fn joining(plane: &ControlPlane, mut kind: AgentKind) -> Result<AgentKind> {
    let kubeconfig = plane.node_kubeconfig(NODE)?;
    kind.command.push(format!("--kubeconfig={}", kubeconfig.display()));
    Ok(kind)
}
