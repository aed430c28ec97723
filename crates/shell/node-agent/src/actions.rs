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
use crate::news::{News, NewsSender};
use crate::pods::PodContext;
use crate::volumes::ReadyVolumes;
use container_setup::inputs::{NodeFacts, PodFacts, SetupWarning};
use container_setup::resolv_conf;
use pod_lifecycle::{Action, EventKind, ObservedPod, Outcome, PodEvent, StartFailure, StartStage};
use pod_model::pod::Pod;
use ports::runtime_objects::{HandlerFeatures, ImageRecord};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The inputs of an action of a pod.
pub(crate) struct ActionWorld {
    pub(crate) context: Arc<PodContext>,
    pub(crate) pod: Arc<Pod>,
    /// The pod as it was when the action was planned.
    pub(crate) observed: Arc<ObservedPod>,
    pub(crate) volumes: ReadyVolumes,
    /// Of a start: the image's record, if the image was present. None if it was pulled.
    pub(crate) found_image: Option<Arc<ImageRecord>>,
    /// Whether the pod's memory, this action included, is on disk.
    pub(crate) recorded: watch::Receiver<bool>,
    pub(crate) news: NewsSender,
}

pub(crate) async fn perform(action: &Action, world: &ActionWorld) -> Outcome {
    let outcome = perform_action(action, world).await;
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

async fn perform_action(action: &Action, world: &ActionWorld) -> Outcome {
    match action {
        Action::PreparePod => Outcome::Done(prepare::prepare(world).await),
        Action::RunSandbox { attempt } => Outcome::SandboxRun(sandbox::run(world, *attempt).await),
        Action::StopSandbox { id } => Outcome::Done(sandbox::stop(world, id).await),
        Action::RemoveSandbox { id } => Outcome::Done(sandbox::remove(world, id).await),
        Action::StartContainer { .. } => {
            Outcome::ContainerStarted(start::start(world, action).await)
        }
        Action::RunPreStop { id, name, limit } => {
            stop::pre_stop_only(world, id, name, *limit).await
        }
        Action::StopContainer { id, name, grace, pre_stop, .. } => {
            stop::stop(world, &stop::Stop { id, name, grace: *grace, pre_stop: *pre_stop }).await
        }
        Action::RemoveContainer { id, name, keep_logs } => {
            Outcome::Done(clean_up::remove_container(world, id, name, *keep_logs).await)
        }
        Action::CleanUpPod { forget } => Outcome::Done(clean_up::clean_up(world, *forget).await),
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
pub(crate) fn timed_out(action: &Action, limit: Duration) -> Outcome {
    failed(action, format!("{} did not end within {limit:?}", describe(action)))
}

/// The failed outcome of this kind of action.
pub(crate) fn failed(action: &Action, why: String) -> Outcome {
    match action {
        Action::RunSandbox { .. } => Outcome::SandboxRun(Err(why)),
        Action::StartContainer { .. } => Outcome::ContainerStarted(Err(StartFailure {
            stage: StartStage::Create,
            message: why,
            id: None,
        })),
        Action::RunPreStop { .. } | Action::StopContainer { .. } => {
            Outcome::ContainerStopped { hook_failed: false, result: Err(why) }
        }
        _ => Outcome::Done(Err(why)),
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

impl ActionWorld {
    fn uid(&self) -> &str {
        &self.pod.metadata.uid
    }

    /// The node's facts with the current `resolv.conf`.
    async fn node_facts(&self) -> Result<NodeFacts, String> {
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

    async fn pod_facts(&self) -> Result<PodFacts, String> {
        let settings = &self.context.settings.cgroups;
        let cgroup_parent = settings.parent_of(&self.pod, &*self.context.ports.cgroups).await?;
        let handler = self.handler()?;
        let user_namespace = self.context.own_users.of_pod(&self.pod, &handler).await?;
        Ok(PodFacts { handler, cgroup_parent, user_namespace, ..PodFacts::default() })
    }

    /// Runtime classes are API objects; without an API server only the default handler is known.
    fn handler(&self) -> Result<HandlerFeatures, String> {
        if let Some(class) = self.pod.spec.runtime_class_name.as_deref().filter(|it| !it.is_empty())
        {
            return Err(format!("runtimeclass.node.k8s.io {class:?} not found"));
        }
        let handlers = self.context.node.borrow().handlers.clone();
        let default = handlers.iter().find(|handler| handler.name.is_empty());
        Ok(default.cloned().unwrap_or_default())
    }

    /// Waits until the memory of this action is on disk; an error if it cannot be written.
    async fn until_recorded(&self) -> Result<(), String> {
        let told = self.recorded.clone().wait_for(|is_recorded| *is_recorded).await.map(|_| ());
        told.map_err(|_| "the agent's own task for the pod ended".to_owned())
    }

    async fn tell(&self, event: PodEvent) {
        let _ = self.news.send(Box::new(News::Event(event))).await;
    }

    async fn warn(&self, warnings: Vec<SetupWarning>) {
        for SetupWarning { about_node, reason, message } in warnings {
            if about_node {
                let now = self.context.clock.now();
                self.context.board.tell_of_node(EventKind::Warning, reason, &message, now);
            } else {
                let kind = EventKind::Warning;
                let reason = reason.to_owned();
                self.tell(PodEvent { kind, reason, message, field_path: None }).await;
            }
        }
    }
}
