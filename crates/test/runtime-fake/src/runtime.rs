//! Sandboxes, containers and images in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ports::PortFuture;
use ports::container_runtime::{
    ContainerRuntime, ContainerRuntimeError, RuntimeCondition, RuntimeConditionKind, RuntimeStatus,
    RuntimeVersion, UnavailableCause,
};
use ports::pod_runtime::{PodRuntime, RuntimeFuture, RuntimeSignals};
use ports::runtime_objects::{
    CgroupDriver, ContainerConfig, ContainerRecord, ContainerState, ContainerUsage, ExecOutput,
    FilesystemUsage, HandlerFeatures, ImageRecord, ImageSpec, LinuxResources, ListedPods,
    PullRequest, RuntimeEventKind, RuntimePods, SandboxConfig, SandboxRecord, UnreadablePod,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::behaviour::{Behaviour, Fault};
use crate::events::{EventQueue, FakeEventStream};

/// Half of a call's latency: no call returns at once, and its work is done halfway.
const HALF_LATENCY: Duration = Duration::from_millis(2);
/// How long observing all pods waits for pods that do not answer.
const OBSERVE_ALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Cheap to clone; clones share one runtime.
#[derive(Clone)]
pub struct FakeRuntime {
    pub(crate) shared: Arc<FakeRuntimeShared>,
}

pub(crate) struct FakeRuntimeShared {
    state: Mutex<FakeRuntimeState>,
    pub(crate) changed: Notify,
    pub(crate) now: Box<dyn Fn() -> i64 + Send + Sync>,
}

#[derive(Default)]
pub(crate) struct FakeRuntimeState {
    pub(crate) sandboxes: BTreeMap<String, SandboxRecord>,
    pub(crate) containers: BTreeMap<String, CreatedContainer>,
    pub(crate) images: BTreeMap<String, ImageRecord>,
    pub(crate) pullable: bool,
    /// The sandbox configurations that pulls were made for, in order.
    pub(crate) pull_sandbox_configs: Vec<Option<SandboxConfig>>,
    /// By container name: the variables of the one that was created last.
    pub(crate) environments: BTreeMap<String, Vec<(String, String)>>,
    pub(crate) behaviours: BTreeMap<String, Behaviour>,
    pub(crate) execs: BTreeMap<String, ExecOutput>,
    pub(crate) faults: BTreeMap<String, VecDeque<Fault>>,
    pub(crate) calls: Vec<String>,
    pub(crate) call_counts: BTreeMap<&'static str, usize>,
    /// The names of all calls, in order.
    pub(crate) call_names: Vec<&'static str>,
    /// UIDs of pods that cannot be observed.
    pub(crate) unanswered: BTreeSet<String>,
    pub(crate) is_unavailable: bool,
    pub(crate) is_network_down: bool,
    /// Addresses of every sandbox with a network of its own; if empty, each gets its own address.
    pub(crate) addresses: Vec<String>,
    pub(crate) created: u32,
    pub(crate) events: EventQueue,
}

pub(crate) struct CreatedContainer {
    pub(crate) record: ContainerRecord,
    pub(crate) uid: String,
    pub(crate) behaviour: Behaviour,
    pub(crate) exits_at: Option<(Instant, i32)>,
}

impl FakeRuntimeShared {
    pub(crate) fn state(&self) -> MutexGuard<'_, FakeRuntimeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeRuntimeState {
    /// Ends the containers that are due to end by themselves.
    pub(crate) fn advance_to_now(&mut self, shared: &FakeRuntimeShared) {
        let now = Instant::now();
        let clock_lag = i64::try_from(self.events.clock_lag.as_nanos()).unwrap_or(i64::MAX);
        self.events.now = (shared.now)().saturating_sub(clock_lag);
        self.events.advance_to_now();
        for created in self.containers.values_mut() {
            let Some((at, code)) = created.exits_at else { continue };
            if at <= now {
                mark_exited(created, code, (shared.now)());
                self.events.push_exit(&created.record, &created.uid);
            }
        }
    }

    /// All pods; of those that cannot be observed, only the identity.
    fn all_pods(&self) -> RuntimePods {
        let is_read = |uid: &str| !self.unanswered.contains(uid);
        let (read, unreadable_pods): (Vec<_>, Vec<_>) =
            self.sandboxes.values().cloned().partition(|sandbox| is_read(&sandbox.uid));
        let unreadable_pods = unreadable_pods.into_iter().map(|sandbox| UnreadablePod {
            is_kubelet_pod: sandbox.labels.contains_key("io.kubernetes.pod.uid"),
            uid: sandbox.uid,
            namespace: sandbox.namespace,
            name: sandbox.name,
            why: "no answer".to_owned(),
        });
        let containers = self.containers.values().filter(|created| is_read(&created.uid));
        RuntimePods {
            sandboxes: read,
            containers: containers.map(|created| created.record.clone()).collect(),
            unreadable_pods: unreadable_pods.collect(),
        }
    }

    pub(crate) fn next_exit(&self) -> Option<Instant> {
        let exits =
            self.containers.values().filter_map(|created| created.exits_at.map(|(at, _)| at));
        exits.chain(self.events.next()).min()
    }
}

pub(crate) fn mark_exited(created: &mut CreatedContainer, code: i32, now: i64) {
    created.exits_at = None;
    created.record.state = ContainerState::Exited;
    created.record.exit_code = code;
    created.record.finished_at = now;
    created.record.reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
}

impl FakeRuntime {
    /// `now` is wall time in nanoseconds, as the agent's clock shows it.
    pub fn new(now: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        let shared = FakeRuntimeShared {
            state: Mutex::default(),
            changed: Notify::new(),
            now: Box::new(now),
        };
        Self { shared: Arc::new(shared) }
    }

    fn record_call(&self, call: String) {
        self.shared.state().calls.push(call);
    }

    /// Applies a call's injected fault; `work` runs if the call does its work at all.
    async fn call<T>(
        &self,
        call: &'static str,
        work: impl FnOnce(&mut FakeRuntimeState, i64) -> Result<T, ContainerRuntimeError>,
    ) -> Result<T, ContainerRuntimeError> {
        let fault = {
            let mut state = self.shared.state();
            if state.is_unavailable {
                return Err(ContainerRuntimeError::Unavailable {
                    call,
                    endpoint: "fake".to_owned(),
                    cause: UnavailableCause::NotListening,
                    message: "it is away".to_owned(),
                });
            }
            *state.call_counts.entry(call).or_default() += 1;
            state.call_names.push(call);
            state.faults.get_mut(call).and_then(VecDeque::pop_front)
        };
        match fault {
            Some(Fault::Refuses(message)) => {
                return Err(refused(call, message));
            }
            Some(Fault::Lacks) => {
                let message = format!("unknown method {call}");
                return Err(ContainerRuntimeError::Unimplemented { call, message });
            }
            Some(Fault::Hangs) => std::future::pending::<()>().await,
            Some(Fault::Panics) => panic!("the fake's {call} panics"),
            Some(Fault::AnswersLate(_) | Fault::LosesAnswer) | None => {}
        }
        tokio::time::sleep(HALF_LATENCY).await;
        let done = {
            let mut state = self.shared.state();
            state.advance_to_now(&self.shared);
            work(&mut state, (self.shared.now)())
        };
        self.shared.changed.notify_one();
        tokio::time::sleep(HALF_LATENCY).await;
        if let Some(Fault::AnswersLate(delay)) = fault {
            tokio::time::sleep(delay).await;
        }
        match fault {
            Some(Fault::LosesAnswer) => {
                let limit = Duration::from_secs(1);
                Err(ContainerRuntimeError::DeadlineExceeded { call, limit })
            }
            _ => done,
        }
    }
}

fn refused(call: &'static str, message: impl Into<String>) -> ContainerRuntimeError {
    ContainerRuntimeError::Refused { call, code: "Unknown".to_owned(), message: message.into() }
}

fn not_found(call: &'static str, id: &str) -> ContainerRuntimeError {
    ContainerRuntimeError::NotFound { call, message: id.to_owned() }
}

impl ContainerRuntime for FakeRuntime {
    fn version(&self) -> PortFuture<'_, Result<RuntimeVersion, ContainerRuntimeError>> {
        Box::pin(self.call("version", |_, _| {
            Ok(RuntimeVersion {
                runtime_name: "fake".to_owned(),
                runtime_version: "1".to_owned(),
                interface_version: "v1".to_owned(),
            })
        }))
    }

    fn status(&self) -> PortFuture<'_, Result<RuntimeStatus, ContainerRuntimeError>> {
        Box::pin(self.call("status", |state, _| {
            let condition = |kind, met| RuntimeCondition {
                kind,
                met,
                reason: "Asked".to_owned(),
                message: String::new(),
            };
            Ok(RuntimeStatus {
                conditions: vec![
                    condition(RuntimeConditionKind::RuntimeReady, true),
                    condition(RuntimeConditionKind::NetworkReady, !state.is_network_down),
                ],
                strict_supplemental_groups: true,
            })
        }))
    }
}

impl PodRuntime for FakeRuntime {
    fn observe_all(&self) -> RuntimeFuture<'_, RuntimePods> {
        Box::pin(async move {
            let hangs = !self.shared.state().unanswered.is_empty();
            if hangs {
                tokio::time::sleep(OBSERVE_ALL_TIMEOUT).await;
            }
            self.call("observe_all", |state, _| Ok(state.all_pods())).await
        })
    }

    fn observe_pod<'a>(&'a self, uid: &'a str) -> RuntimeFuture<'a, RuntimePods> {
        Box::pin(async move {
            let hangs = self.shared.state().unanswered.contains(uid);
            if hangs {
                self.call("observe_pod", |_, _| Ok(())).await?;
                std::future::pending::<()>().await;
            }
            self.call("observe_pod", move |state, _| {
                let of_pod = |created: &&CreatedContainer| created.uid == uid;
                Ok(RuntimePods {
                    sandboxes: state
                        .sandboxes
                        .values()
                        .filter(|it| it.uid == uid)
                        .cloned()
                        .collect(),
                    containers: state
                        .containers
                        .values()
                        .filter(of_pod)
                        .map(|it| it.record.clone())
                        .collect(),
                    ..RuntimePods::default()
                })
            })
            .await
        })
    }

    fn list_pods(&self) -> RuntimeFuture<'_, ListedPods> {
        Box::pin(self.call("list_pods", |state, _| {
            let mut pods = ListedPods::new();
            for sandbox in state.sandboxes.values() {
                let word = format!("{} {}", sandbox.id, sandbox.ready);
                pods.entry(sandbox.uid.clone()).or_default().insert(word);
            }
            for created in state.containers.values() {
                let word = format!("{} {:?}", created.record.id, created.record.state);
                pods.entry(created.uid.clone()).or_default().insert(word);
            }
            Ok(pods)
        }))
    }

    fn signals(&self) -> Box<dyn RuntimeSignals> {
        Box::new(FakeEventStream { shared: self.shared.clone(), connected_sent: false })
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> RuntimeFuture<'a, String> {
        self.record_call(format!("run_sandbox {}", config.uid));
        Box::pin(self.call("run_sandbox", move |state, now| {
            state.created += 1;
            let id = format!("sandbox-{}", state.created);
            let host =
                config.security.namespaces.network == ports::runtime_objects::NamespaceMode::Node;
            let record = SandboxRecord {
                id: id.clone(),
                name: config.name.clone(),
                namespace: config.namespace.clone(),
                uid: config.uid.clone(),
                attempt: config.attempt,
                ready: true,
                created_at: now,
                ips: match (host, state.addresses.as_slice()) {
                    (true, _) => Vec::new(),
                    (false, []) => vec![format!("10.0.0.{}", state.created)],
                    (false, given) => given.to_vec(),
                },
                host_network: Some(host),
                runtime_handler: config.runtime_handler.clone(),
                labels: config.labels.clone(),
                annotations: config.annotations.clone(),
            };
            state.sandboxes.insert(id.clone(), record);
            state.events.push(RuntimeEventKind::Started, &id, &config.uid);
            Ok(id)
        }))
    }

    fn stop_sandbox<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()> {
        self.record_call(format!("stop_sandbox {id}"));
        Box::pin(self.call("stop_sandbox", move |state, now| {
            let Some(sandbox) = state.sandboxes.get_mut(id) else { return Ok(()) };
            sandbox.ready = false;
            sandbox.ips.clear();
            let uid = sandbox.uid.clone();
            for created in state.containers.values_mut() {
                if created.record.sandbox_id == id
                    && created.record.state == ContainerState::Running
                {
                    mark_exited(created, 137, now);
                }
            }
            state.events.push(RuntimeEventKind::Stopped, id, &uid);
            Ok(())
        }))
    }

    fn remove_sandbox<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()> {
        self.record_call(format!("remove_sandbox {id}"));
        Box::pin(self.call("remove_sandbox", move |state, _| {
            state.containers.retain(|_, created| created.record.sandbox_id != id);
            if let Some(sandbox) = state.sandboxes.remove(id) {
                state.events.push(RuntimeEventKind::Deleted, id, &sandbox.uid);
            }
            Ok(())
        }))
    }

    fn create_container<'a>(
        &'a self,
        sandbox_id: &'a str,
        config: &'a ContainerConfig,
        sandbox: &'a SandboxConfig,
    ) -> RuntimeFuture<'a, String> {
        self.record_call(format!("create_container {}#{}", config.name, config.attempt));
        Box::pin(self.call("create_container", move |state, now| {
            let ready = state.sandboxes.get(sandbox_id).is_some_and(|it| it.ready);
            if !ready {
                return Err(not_found("create_container", sandbox_id));
            }
            let same = |created: &CreatedContainer| {
                created.record.sandbox_id == sandbox_id
                    && created.record.name == config.name
                    && created.record.attempt == config.attempt
            };
            if state.containers.values().any(same) {
                return Err(refused("create_container", "the name is reserved"));
            }
            if !state.images.values().any(|image| image.id == config.image.image) {
                return Err(not_found("create_container", &config.image.image));
            }
            state.environments.insert(config.name.clone(), config.env.clone());
            state.created += 1;
            // As long as containerd's.
            let id = format!("{:064x}", state.created);
            let record = ContainerRecord {
                id: id.clone(),
                sandbox_id: sandbox_id.to_owned(),
                name: config.name.clone(),
                attempt: config.attempt,
                state: ContainerState::Created,
                created_at: now,
                image: config.image.user_specified_image.clone(),
                image_ref: config.image.image.clone(),
                image_id: config.image.image.clone(),
                log_path: format!("{}/{}", sandbox.log_directory, config.log_path),
                labels: config.labels.clone(),
                annotations: config.annotations.clone(),
                mounts: config.mounts.clone(),
                ..ContainerRecord::default()
            };
            let behaviour = state.behaviours.get(&config.name).cloned();
            let behaviour = behaviour.unwrap_or(Behaviour::RunsForEver);
            let uid = sandbox.uid.clone();
            state.events.push(RuntimeEventKind::Created, &id, &uid);
            state
                .containers
                .insert(id.clone(), CreatedContainer { record, uid, behaviour, exits_at: None });
            Ok(id)
        }))
    }

    fn start_container<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()> {
        Box::pin(self.call("start_container", move |state, now| {
            let FakeRuntimeState { containers, calls, events, .. } = state;
            let Some(created) = containers.get_mut(id) else {
                return Err(not_found("start_container", id));
            };
            calls.push(format!(
                "start_container {}#{}",
                created.record.name, created.record.attempt
            ));
            created.record.state = ContainerState::Running;
            created.record.started_at = now;
            if let Behaviour::Exits { after, code } = created.behaviour {
                created.exits_at = Some((Instant::now() + after, code));
            }
            events.push(RuntimeEventKind::Started, id, &created.uid);
            Ok(())
        }))
    }

    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> RuntimeFuture<'a, ()> {
        Box::pin(async move {
            let ignores = {
                let mut state = self.shared.state();
                let FakeRuntimeState { containers, calls, .. } = &mut *state;
                let created = containers.get(id);
                let name = created.map(|created| created.record.name.clone()).unwrap_or_default();
                calls.push(format!("stop_container {name} {}", grace.as_secs()));
                created.is_some_and(|created| created.behaviour == Behaviour::IgnoresStop)
            };
            if ignores {
                tokio::time::sleep(grace).await;
            }
            self.call("stop_container", move |state, now| {
                let FakeRuntimeState { containers, events, .. } = state;
                let Some(created) = containers.get_mut(id) else {
                    return Err(not_found("stop_container", id));
                };
                if matches!(created.record.state, ContainerState::Running | ContainerState::Unknown)
                {
                    mark_exited(created, if ignores { 137 } else { 143 }, now);
                    events.push_exit(&created.record, &created.uid);
                }
                Ok(())
            })
            .await
        })
    }

    fn remove_container<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()> {
        Box::pin(self.call("remove_container", move |state, _| {
            if let Some(created) = state.containers.remove(id) {
                let record = &created.record;
                state.calls.push(format!("remove_container {}#{}", record.name, record.attempt));
                state.events.push(RuntimeEventKind::Deleted, id, &created.uid);
            }
            Ok(())
        }))
    }

    fn update_container<'a>(
        &'a self,
        _id: &'a str,
        _resources: &'a LinuxResources,
    ) -> RuntimeFuture<'a, ()> {
        Box::pin(self.call("update_container", |_, _| Ok(())))
    }

    fn reopen_log<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()> {
        self.record_call(format!("reopen_log {id}"));
        Box::pin(self.call("reopen_log", |_, _| Ok(())))
    }

    fn exec_sync<'a>(
        &'a self,
        id: &'a str,
        command: &'a [String],
        _limit: Duration,
    ) -> RuntimeFuture<'a, ExecOutput> {
        Box::pin(self.call("exec_sync", move |state, _| {
            let running = state
                .containers
                .get(id)
                .filter(|created| created.record.state == ContainerState::Running);
            let Some(created) = running else { return Err(not_found("exec_sync", id)) };
            let name = created.record.name.clone();
            let answer = state.execs.get(&name).cloned().unwrap_or_default();
            state.calls.push(format!("exec {name} {}", command.join(" ")));
            Ok(answer)
        }))
    }

    fn container_usage(&self) -> RuntimeFuture<'_, Vec<ContainerUsage>> {
        Box::pin(self.call("container_usage", |_, _| Ok(Vec::new())))
    }

    fn image<'a>(&'a self, image: &'a ImageSpec) -> RuntimeFuture<'a, Option<ImageRecord>> {
        Box::pin(self.call("image", move |state, _| {
            let by_id = |record: &&ImageRecord| record.id == image.image;
            let found = state.images.get(&image.image);
            Ok(found.or_else(|| state.images.values().find(by_id)).cloned())
        }))
    }

    fn images(&self) -> RuntimeFuture<'_, Vec<ImageRecord>> {
        Box::pin(self.call("images", |state, _| Ok(state.images.values().cloned().collect())))
    }

    fn pull_image<'a>(&'a self, request: &'a PullRequest) -> RuntimeFuture<'a, String> {
        let login = request.login.as_ref().map(|login| format!(" as {}", login.username));
        self.record_call(format!(
            "pull_image {}{}",
            request.image.image,
            login.unwrap_or_default()
        ));
        self.shared.state().pull_sandbox_configs.push(request.sandbox.clone());
        Box::pin(async move {
            let name = &request.image.image;
            let pulled = self
                .call("pull_image", |state, _| match state.pullable {
                    true => Ok(format!("sha256:{name}")),
                    false => Err(refused("pull_image", format!("{name}: not found"))),
                })
                .await?;
            self.add_pulled_image(name);
            Ok(pulled)
        })
    }

    fn remove_image<'a>(&'a self, image: &'a ImageSpec) -> RuntimeFuture<'a, ()> {
        Box::pin(self.call("remove_image", move |state, _| {
            state.images.remove(&image.image);
            Ok(())
        }))
    }

    fn image_filesystems(&self) -> RuntimeFuture<'_, (Vec<FilesystemUsage>, Vec<FilesystemUsage>)> {
        Box::pin(self.call("image_filesystems", |_, _| Ok((Vec::new(), Vec::new()))))
    }

    fn cgroup_driver(&self) -> RuntimeFuture<'_, CgroupDriver> {
        Box::pin(self.call("cgroup_driver", |_, _| Ok(CgroupDriver::Cgroupfs)))
    }

    fn handlers(&self) -> RuntimeFuture<'_, Vec<HandlerFeatures>> {
        Box::pin(self.call("handlers", |_, _| Ok(vec![HandlerFeatures::default()])))
    }

    fn set_pod_cidr<'a>(&'a self, cidr: &'a str) -> RuntimeFuture<'a, ()> {
        Box::pin(self.call("set_pod_cidr", move |state, _| {
            state.calls.push(format!("set_pod_cidr {cidr}"));
            Ok(())
        }))
    }
}
