//! Serves the pods while they run: prints their output, detects their end, and serves the local
//! API.
//!
//! Rule: pods are read again when the agent reports a change, never by a timer. Containers' output
//! goes to standard output, messages about them to standard error.

use super::background_store::BackgroundPodStore;
use super::desired_pods::{DesiredPods, DesiredPodsSender};
use super::pod_exit::ExitCodes;
use super::run_api::RunApi;
use super::show::{self, OutputMode};
use crate::terminal;
use cri_client::CriClient;
use local_socket::AgentSocket;
use ports::PortFuture;
use ports::local_api::{LocalApi, LocalEndpoint, LocalPods};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tracing::{error, info};

/// How the pods ended: the exit code of this program.
pub(super) type ExitCodeSender = watch::Sender<Option<u8>>;

/// A background agent that gets no pod within this time ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct PodMonitor {
    pub(super) desired_pods: DesiredPodsSender,
    pub(super) ended: ExitCodeSender,
    /// The agent may restart its tasks; what has been shown stays shown.
    pub(super) shown: Mutex<Shown>,
    /// For `keelson ps` and the like.
    pub(super) socket: AgentSocket,
    pub(super) show: OutputMode,
    pub(super) client: Arc<CriClient>,
    /// None in the foreground.
    pub(super) background_store: Option<BackgroundPodStore>,
    pub(super) agent_log: String,
    pub(super) change_lock: Arc<Mutex<()>>,
}

#[derive(Default)]
pub(super) struct Shown {
    followed: BTreeSet<String>,
    /// The exit code if all pods have ended by themselves.
    code: Option<u8>,
    /// The exit codes if they were stopped.
    exit_codes: ExitCodes,
}

impl LocalEndpoint for PodMonitor {
    fn address(&self) -> String {
        self.socket.address()
    }

    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        Box::pin(async move {
            let run_api: Arc<dyn LocalApi> = Arc::new(RunApi {
                api: api.clone(),
                desired_pods: self.desired_pods.clone(),
                background_store: self.background_store.clone(),
                agent_log: self.agent_log.clone(),
                change_lock: self.change_lock.clone(),
            });
            let others = async {
                let why = self.socket.serve(run_api).await;
                terminal::print_error(&format!("warning: the local API is not served: {why}"));
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = others => {}
                () = self.run_until_ended(api.clone()) => {}
            }
            // The task ends with the agent.
            std::future::pending().await
        })
    }
}

impl PodMonitor {
    async fn run_until_ended(&self, api: Arc<dyn LocalApi>) {
        let mut shown = self.shown.lock().await;
        let mut followers = JoinSet::new();
        let mut desired = self.desired_pods.subscribe();
        let idle_timeout = tokio::time::sleep(IDLE_TIMEOUT);
        tokio::pin!(idle_timeout);
        let (mut version, mut may_wait) = (0, true);
        loop {
            tokio::select! {
                newer = api.changed(version) => version = newer,
                _ = desired.changed() => {}
                () = &mut idle_timeout, if may_wait => may_wait = false,
            }
            let pods = api.pods();
            self.follow_new_containers(&api, &pods, &mut shown, &mut followers);
            shown.exit_codes.update(&pods.pods);
            let overall_exit_code = desired.borrow_and_update().overall_exit_code(&pods.pods);
            if let Some(code) = overall_exit_code {
                shown.code.get_or_insert(code);
                self.clear_desired(&pods).await;
            }
            if pods.node.all_sources_reported && pods.pods.is_empty() && self.close(may_wait) {
                while followers.join_next().await.is_some() {}
                let code = shown.code.filter(|code| *code != 0);
                self.ended.send_replace(Some(code.unwrap_or_else(|| shown.exit_codes.code())));
                return;
            }
        }
    }

    /// Prints the output of newly started containers.
    fn follow_new_containers(
        &self,
        api: &Arc<dyn LocalApi>,
        pods: &LocalPods,
        shown: &mut Shown,
        followers: &mut JoinSet<()>,
    ) {
        if self.show == OutputMode::Nothing {
            return;
        }
        for pod in &pods.pods {
            for container in &pod.containers {
                if container.started_at > 0 && shown.followed.insert(container.id.clone()) {
                    let what = show::Shown::of(pod, container);
                    followers.spawn(show::container(
                        api.clone(),
                        self.client.clone(),
                        what,
                        self.show,
                    ));
                }
            }
        }
    }

    /// All have ended by themselves: they are not desired any more.
    async fn clear_desired(&self, pods: &LocalPods) {
        let _alone = self.change_lock.lock().await;
        let wanted = self.desired_pods.borrow().clone();
        if wanted.overall_exit_code(&pods.pods).is_none() {
            return;
        }
        for pod in &pods.pods {
            let phase = pod.object["status"]["phase"].as_str().unwrap_or("Unknown");
            info!(pod = format!("{}/{}", pod.namespace, pod.name), phase, "Pod has ended");
        }
        if let Some(background_store) = &self.background_store {
            for pod in &wanted.pods {
                if let Err(error) = background_store.remove(pod).await {
                    error!(err = format!("{error:#}"), "Cannot forget a pod that has ended");
                }
            }
        }
        self.desired_pods.send_modify(|desired| desired.pods.clear());
    }

    /// Whether there is nothing more to wait for; then no more pods are accepted.
    fn close(&self, may_wait: bool) -> bool {
        let waits =
            |desired: &DesiredPods| self.background_store.is_some() && may_wait && !desired.had_any;
        let mut is_over = false;
        self.desired_pods.send_if_modified(|desired| {
            is_over = desired.pods.is_empty() && !waits(desired);
            desired.is_closed |= is_over;
            is_over
        });
        is_over
    }
}
