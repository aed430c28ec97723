//! Serves the pods while they run: prints their output, detects their end, and serves the local
//! API.
//!
//! Rule: pods are read again when the agent reports a change, never by a timer. Containers' output
//! goes to standard output, messages about them to standard error.

use super::desk::Desk;
use super::ending::Endings;
use super::household::{Household, Wish};
use super::kept::KeptPods;
use super::show::{self, Show};
use crate::terminal;
use cri_client::CriClient;
use local_socket::LocalSocket;
use ports::PortFuture;
use ports::local_api::{LocalApi, LocalEndpoint, LocalPods};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tracing::{error, info};

/// How the pods ended: the exit code of this program.
pub(super) type End = watch::Sender<Option<u8>>;

/// A background agent that gets no pod within this time ends.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Attendant {
    pub(super) household: Household,
    pub(super) ended: End,
    /// The agent may restart its tasks; what has been shown stays shown.
    pub(super) shown: Mutex<Shown>,
    /// For `keelson ps` and the like.
    pub(super) socket: LocalSocket,
    pub(super) show: Show,
    pub(super) client: Arc<CriClient>,
    /// None in the foreground.
    pub(super) kept: Option<KeptPods>,
    pub(super) agent_log: String,
    pub(super) changing: Arc<Mutex<()>>,
}

#[derive(Default)]
pub(super) struct Shown {
    followed: BTreeSet<String>,
    /// The exit code if all pods have ended by themselves.
    code: Option<u8>,
    /// The exit codes if they were stopped.
    endings: Endings,
}

impl LocalEndpoint for Attendant {
    fn address(&self) -> String {
        self.socket.address()
    }

    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        Box::pin(async move {
            let desk: Arc<dyn LocalApi> = Arc::new(Desk {
                api: api.clone(),
                household: self.household.clone(),
                kept: self.kept.clone(),
                agent_log: self.agent_log.clone(),
                changing: self.changing.clone(),
            });
            let others = async {
                let why = self.socket.serve(desk).await;
                terminal::print_error(&format!("warning: the local API is not served: {why}"));
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = others => {}
                () = self.attend(api.clone()) => {}
            }
            // The task ends with the agent.
            std::future::pending().await
        })
    }
}

impl Attendant {
    async fn attend(&self, api: Arc<dyn LocalApi>) {
        let mut shown = self.shown.lock().await;
        let mut followers = JoinSet::new();
        let mut wish = self.household.subscribe();
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        let (mut version, mut is_patient) = (0, true);
        loop {
            tokio::select! {
                newer = api.changed(version) => version = newer,
                _ = wish.changed() => {}
                () = &mut patience, if is_patient => is_patient = false,
            }
            let pods = api.pods();
            self.follow(&api, &pods, &mut shown, &mut followers);
            shown.endings.look(&pods.pods);
            let verdict = wish.borrow_and_update().verdict(&pods.pods);
            if let Some(code) = verdict {
                shown.code.get_or_insert(code);
                self.let_go(&pods).await;
            }
            if pods.node.all_sources_have_spoken && pods.pods.is_empty() && self.close(is_patient) {
                while followers.join_next().await.is_some() {}
                let code = shown.code.filter(|code| *code != 0);
                self.ended.send_replace(Some(code.unwrap_or_else(|| shown.endings.code())));
                return;
            }
        }
    }

    /// Prints the output of newly started containers.
    fn follow(
        &self,
        api: &Arc<dyn LocalApi>,
        pods: &LocalPods,
        shown: &mut Shown,
        followers: &mut JoinSet<()>,
    ) {
        if self.show == Show::Nothing {
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
    async fn let_go(&self, pods: &LocalPods) {
        let _alone = self.changing.lock().await;
        let wanted = self.household.borrow().clone();
        if wanted.verdict(&pods.pods).is_none() {
            return;
        }
        for pod in &pods.pods {
            let phase = pod.object["status"]["phase"].as_str().unwrap_or("Unknown");
            info!(pod = format!("{}/{}", pod.namespace, pod.name), phase, "Pod has ended");
        }
        if let Some(kept) = &self.kept {
            for pod in &wanted.pods {
                if let Err(error) = kept.remove(pod).await {
                    error!(err = format!("{error:#}"), "Cannot forget a pod that has ended");
                }
            }
        }
        self.household.send_modify(|wish| wish.pods.clear());
    }

    /// Whether there is nothing more to wait for; then no more pods are accepted.
    fn close(&self, is_patient: bool) -> bool {
        let waits = |wish: &Wish| self.kept.is_some() && is_patient && !wish.had_any;
        let mut is_over = false;
        self.household.send_if_modified(|wish| {
            is_over = wish.pods.is_empty() && !waits(wish);
            wish.is_closed |= is_over;
            is_over
        });
        is_over
    }
}
