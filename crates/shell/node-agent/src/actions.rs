//! Carries out each action of a plan: sequences of calls to the ports, without decisions of their
//! own.
//!
//! Rule: an action is idempotent and complete. An action that is dropped half-way leaves only what
//! the next relist shows. Every error names what failed and on what.

mod clean_up;
mod contents;
mod prepare;
mod sandbox;
mod start;
mod stop;

pub(crate) use start::link_log;

use crate::crash_points::reached;
use crate::pods::PodContext;
use crate::volumes::ReadyVolumes;
use crate::worker_events::{WorkerEvent, WorkerEventSender};
use container_setup::inputs::{NodeSetupInputs, PodSetupInputs, SetupWarning};
use container_setup::{resolv_conf, service_environment};
use pod_lifecycle::{
    Action, ActionOutcome, EventType, ObservedPod, PodEvent, StartFailure, StartStage,
};
use pod_model::pod::Pod;
use ports::runtime_objects::{HandlerFeatures, ImageRecord};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The inputs of an action of a pod.
pub(crate) struct ActionInputs {
    pub(crate) context: Arc<PodContext>,
    pub(crate) pod: Arc<Pod>,
    /// The pod as it was when the action was planned.
    pub(crate) observed: Arc<ObservedPod>,
    pub(crate) volumes: ReadyVolumes,
    /// Of a start: the image's record, if the image was present. None if it was pulled.
    pub(crate) found_image: Option<Arc<ImageRecord>>,
    /// Whether the pod's memory, this action included, is on disk.
    pub(crate) recorded: watch::Receiver<bool>,
    pub(crate) worker_events: WorkerEventSender,
}

pub(crate) async fn perform(action: &Action, action_inputs: &ActionInputs) -> ActionOutcome {
    let outcome = perform_action(action, action_inputs).await;
    match action {
        Action::PreparePod => reached("pod-prepared"),
        Action::RunSandbox { .. } => reached("sandbox-run"),
        Action::StopSandbox { .. } => reached("sandbox-stopped"),
        Action::StartContainer { .. } => reached("container-started"),
        Action::StopContainer { .. } => reached("container-stopped"),
        Action::RemoveContainer { .. } => reached("container-removed"),
        Action::CleanUpPod { .. } => reached("pod-cleaned-up"),
        Action::RemoveSandbox { .. } | Action::RunPreStop { .. } => {}
    }
    outcome
}

async fn perform_action(action: &Action, action_inputs: &ActionInputs) -> ActionOutcome {
    match action {
        Action::PreparePod => ActionOutcome::Done(prepare::prepare(action_inputs).await),
        Action::RunSandbox { attempt } => {
            ActionOutcome::SandboxRun(sandbox::run(action_inputs, *attempt).await)
        }
        Action::StopSandbox { id } => ActionOutcome::Done(sandbox::stop(action_inputs, id).await),
        Action::RemoveSandbox { id } => {
            ActionOutcome::Done(sandbox::remove(action_inputs, id).await)
        }
        Action::StartContainer { .. } => {
            ActionOutcome::ContainerStarted(start::start(action_inputs, action).await)
        }
        Action::RunPreStop { id, name, limit } => {
            stop::pre_stop_only(action_inputs, id, name, *limit).await
        }
        Action::StopContainer { id, name, grace, pre_stop, .. } => {
            stop::stop(
                action_inputs,
                &stop::StopRequest { id, name, grace: *grace, pre_stop: *pre_stop },
            )
            .await
        }
        Action::RemoveContainer { id, name, keep_logs } => ActionOutcome::Done(
            clean_up::remove_container(action_inputs, id, name, *keep_logs).await,
        ),
        Action::CleanUpPod { forget } => {
            ActionOutcome::Done(clean_up::clean_up(action_inputs, *forget).await)
        }
    }
}

/// Upper limit of an action; the calls in it have shorter limits of their own.
pub(crate) fn deadline(action: &Action) -> Duration {
    const MINUTE: Duration = Duration::from_secs(60);
    match action {
        Action::PreparePod => 5 * MINUTE,
        Action::RunSandbox { .. } => 10 * MINUTE,
        // A postStart hook has no limit of its own; this one is for a hook that never ends.
        Action::StartContainer { .. } => 24 * 60 * MINUTE,
        Action::RunPreStop { limit, .. } => limit.saturating_add(MINUTE),
        Action::StopContainer { grace, .. } => grace.saturating_add(10 * MINUTE),
        Action::StopSandbox { .. }
        | Action::RemoveSandbox { .. }
        | Action::RemoveContainer { .. } => 10 * MINUTE,
        Action::CleanUpPod { .. } => 30 * MINUTE,
    }
}

/// The outcome of an action that exceeded its deadline.
pub(crate) fn timed_out(action: &Action, limit: Duration) -> ActionOutcome {
    failed(action, format!("{} did not end within {limit:?}", describe(action)))
}

/// The failed outcome of this kind of action.
pub(crate) fn failed(action: &Action, why: String) -> ActionOutcome {
    match action {
        Action::RunSandbox { .. } => ActionOutcome::SandboxRun(Err(why)),
        Action::StartContainer { .. } => ActionOutcome::ContainerStarted(Err(StartFailure {
            stage: StartStage::Create,
            message: why,
            id: None,
        })),
        Action::RunPreStop { .. } | Action::StopContainer { .. } => {
            ActionOutcome::ContainerStopped { hook_failed: false, result: Err(why) }
        }
        _ => ActionOutcome::Done(Err(why)),
    }
}

/// A short description for logs and the local API.
pub(crate) fn describe(action: &Action) -> String {
    match action {
        Action::PreparePod => "creating directories and cgroup".to_owned(),
        Action::RunSandbox { .. } => "starting the sandbox".to_owned(),
        Action::StopSandbox { .. } => "stopping the sandbox".to_owned(),
        Action::RemoveSandbox { .. } => "removing a sandbox".to_owned(),
        Action::StartContainer { name, .. } => format!("starting container {name}"),
        Action::RunPreStop { name, .. } => format!("running the preStop hook of container {name}"),
        Action::StopContainer { name, .. } => format!("stopping container {name}"),
        Action::RemoveContainer { name, .. } => format!("removing an instance of container {name}"),
        Action::CleanUpPod { .. } => "cleaning up volumes, cgroup and directories".to_owned(),
    }
}

impl ActionInputs {
    fn uid(&self) -> &str {
        &self.pod.metadata.uid
    }

    /// The node's facts with the current `resolv.conf`.
    async fn node_facts(&self) -> Result<NodeSetupInputs, String> {
        let settings = &self.context.settings;
        let mut facts = settings.setup.clone();
        facts.node_ips = self.context.ports.addresses.now();
        if !settings.resolv_conf.is_empty() {
            let path = &settings.resolv_conf;
            let text = self.context.ports.texts.read(path).await;
            let text = text.map_err(|error| format!("cannot read {path}: {error}"))?;
            let text = text.ok_or_else(|| format!("{path} (resolvConf) is not there"))?;
            let parsed = resolv_conf::parse(text.as_bytes());
            facts.dns.resolver = Some(parsed.map_err(|error| format!("{path}: {error}"))?);
        }
        Ok(facts)
    }

    async fn pod_facts(&self) -> Result<PodSetupInputs, String> {
        let settings = &self.context.settings.cgroups;
        let cgroup_parent = settings.parent_of(&self.pod, &*self.context.ports.cgroups).await?;
        let handler = self.handler()?;
        let user_namespace = self.context.user_namespaces.allocate(&self.pod, &handler).await?;
        Ok(PodSetupInputs { handler, cgroup_parent, user_namespace, ..PodSetupInputs::default() })
    }

    /// The handler of the pod's runtime class, with its features.
    fn handler(&self) -> Result<HandlerFeatures, String> {
        let name = self.context.handler_name(&self.pod)?;
        let handlers = self.context.node.borrow().handlers.clone();
        let known = handlers.iter().find(|handler| *handler.name == *name);
        // A runtime that lists no handlers decides itself whether it has this one.
        Ok(known.cloned().unwrap_or(HandlerFeatures { name, ..HandlerFeatures::default() }))
    }

    /// The variables of services. Static pods do not wait for them.
    fn service_environment(&self) -> Result<BTreeMap<String, String>, String> {
        let Some(objects) = &self.context.objects else { return Ok(BTreeMap::new()) };
        let services = objects.services.snapshot();
        if !services.is_listed && !self.pod.is_static() {
            let why = "services have not yet been read at least once, cannot construct envvars";
            return Err(why.to_owned());
        }
        Ok(service_environment::variables(services.iter(), &self.pod))
    }

    /// Waits until the memory of this action is on disk; an error if it cannot be written.
    async fn wait_until_recorded(&self) -> Result<(), String> {
        let wait_result =
            self.recorded.clone().wait_for(|is_recorded| *is_recorded).await.map(|_| ());
        wait_result.map_err(|_| "the agent's own task for the pod ended".to_owned())
    }

    async fn send_event(&self, event: PodEvent) {
        let _ = self.worker_events.send(Box::new(WorkerEvent::Event(event))).await;
    }

    async fn warn(&self, warnings: Vec<SetupWarning>) {
        for SetupWarning { about_node, reason, message } in warnings {
            if about_node {
                let now = self.context.clock.now();
                self.context.status_store.emit_node_event(
                    EventType::Warning,
                    reason,
                    &message,
                    now,
                );
            } else {
                let kind = EventType::Warning;
                let reason = reason.to_owned();
                self.send_event(PodEvent { kind, reason, message, field_path: None }).await;
            }
        }
    }
}
