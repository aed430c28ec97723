//! The local API of `keelson run`: answers some requests itself and passes the others to the agent.
//!
//! Rule: everything else is the agent's answer. A pod is stopped by removing it from the desired
//! pods; pods are added in the background only, and only once they are on disk.

use super::background_store::BackgroundPodStore;
use super::desired_pods::{DesiredPodsSender, PodChange, WantedPod};
use super::manifest;
use super::pod_exit;
use ports::PortFuture;
use ports::local_api::{
    LocalAcceptedPod, LocalAcceptedPods, LocalApi, LocalApiError, LocalManifests, LocalNode,
    LocalPodDetail, LocalPods, LocalStopAccepted,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

pub(super) struct RunApi {
    pub(super) api: Arc<dyn LocalApi>,
    pub(super) desired_pods: DesiredPodsSender,
    /// None in the foreground: then no pods are added.
    pub(super) background_store: Option<BackgroundPodStore>,
    pub(super) agent_log: String,
    /// Serializes changes: each is written to disk, then applied to the desired pods.
    pub(super) change_lock: Arc<Mutex<()>>,
}

impl LocalApi for RunApi {
    fn node(&self) -> LocalNode {
        LocalNode { agent_log: self.agent_log.clone(), ..self.api.node() }
    }

    fn pods(&self) -> LocalPods {
        let LocalPods { node, pods } = self.api.pods();
        LocalPods { node: LocalNode { agent_log: self.agent_log.clone(), ..node }, pods }
    }

    fn pod(&self, uid: &str) -> Option<LocalPodDetail> {
        self.api.pod(uid)
    }

    fn changed(&self, since: u64) -> PortFuture<'_, u64> {
        self.api.changed(since)
    }

    fn metrics(&self) -> String {
        self.api.metrics()
    }

    fn probe_metrics(&self) -> String {
        self.api.probe_metrics()
    }

    fn stop<'a>(
        &'a self,
        uid: &'a str,
    ) -> PortFuture<'a, Result<LocalStopAccepted, LocalApiError>> {
        Box::pin(async move {
            let Some(detail) = self.api.pod(uid) else {
                let message = format!("no pod has UID {uid}");
                return Err(LocalApiError::NotFound { message });
            };
            let _alone = self.change_lock.lock().await;
            let wanted = self.desired_pods.borrow().pods.clone();
            let Some(pod) = wanted.iter().find(|pod| pod.manifest == detail.pod.manifest) else {
                let message = format!("pod {} is ending already", detail.pod.name);
                return Err(LocalApiError::TemporarilyUnavailable { message });
            };
            if let Some(background_store) = &self.background_store {
                background_store.remove(pod).await.map_err(not_now)?;
            }
            self.desired_pods.send_modify(|desired| {
                desired.pods.retain(|known| known.manifest != pod.manifest);
            });
            Ok(LocalStopAccepted { uid: uid.to_owned() })
        })
    }

    fn take(
        &self,
        manifests: LocalManifests,
    ) -> PortFuture<'_, Result<LocalAcceptedPods, LocalApiError>> {
        Box::pin(async move {
            let Some(background_store) = &self.background_store else {
                let message = format!(
                    "a `keelson run` in the foreground (process {}) runs the pods of this root; \
                     end it first, or give these a --root and a --state of their own",
                    std::process::id()
                );
                return Err(LocalApiError::TemporarilyUnavailable { message });
            };
            let mut pods = Vec::new();
            for given in &manifests.manifests {
                let read = manifest::pods(&given.location, given.text.as_bytes());
                let read = read.map_err(|errors| not_now(errors.join("; ")))?;
                pods.extend(read.iter().map(|pod| {
                    // Two pipes are both called standard input: the pod's name distinguishes them.
                    let shown = format!("{} ({}/{})", given.location, pod.namespace, pod.name);
                    WantedPod::of(pod, shown)
                }));
            }
            self.take_all(background_store, pods).await
        })
    }
}

/// The client has a deadline too.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(8);

impl RunApi {
    /// Runs a pod that has ended once more, after its removal. Its record stays: if the agent is
    /// killed meanwhile, the next one runs it.
    async fn restart_pod(&self, pod: &WantedPod, uid: &str) -> Result<(), LocalApiError> {
        let mut was_last = false;
        self.desired_pods.send_if_modified(|desired| {
            let others = desired.pods.iter().filter(|known| known.manifest != pod.manifest);
            let others: Vec<WantedPod> = others.cloned().collect();
            was_last = others.is_empty();
            if !was_last {
                desired.pods = others;
            }
            !was_last
        });
        // The agent ends with its last pod; the next one runs it.
        if was_last {
            return Err(not_now(super::ENDING));
        }
        let gone = async {
            let mut version = 0;
            while self.api.pod(uid).is_some() {
                version = self.api.changed(version).await;
            }
        };
        let is_gone = tokio::time::timeout(CLEAN_UP_TIMEOUT, gone).await.is_ok();
        let mut is_closed = false;
        self.desired_pods.send_modify(|desired| {
            is_closed = desired.is_closed;
            desired.take(pod.clone());
        });
        if is_closed {
            return Err(not_now(super::ENDING));
        }
        if is_gone {
            return Ok(());
        }
        Err(not_now(format!(
            "what is left of pod {}/{} is removed slowly; it runs after that",
            pod.namespace, pod.name
        )))
    }

    async fn take_all(
        &self,
        background_store: &BackgroundPodStore,
        pods: Vec<WantedPod>,
    ) -> Result<LocalAcceptedPods, LocalApiError> {
        let _alone = self.change_lock.lock().await;
        if let Some((name, other)) = self.desired_pods.borrow().conflict(&pods) {
            return Err(not_now(format!(
                "{name} is not what pod {}/{}, which runs already, has under this name; give that \
                 pod again too, or use another name",
                other.namespace, other.name
            )));
        }
        let mut taken = LocalAcceptedPods::default();
        for mut pod in pods {
            let (outcome, is_closed) = {
                let desired = self.desired_pods.borrow();
                (desired.compare(&pod), desired.is_closed)
            };
            if is_closed {
                return Err(not_now(super::ENDING));
            }
            taken.pods.push(LocalAcceptedPod {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                outcome: outcome.as_str().to_owned(),
            });
            if outcome == PodChange::Updated {
                let updated = self.desired_pods.borrow().with_contents_of(&pod);
                pod = updated.unwrap_or(pod);
                background_store.save(&pod).await.map_err(not_now)?;
                self.desired_pods.send_modify(|desired| desired.take(pod.clone()));
            }
            let before = self.api.pods().pods.into_iter().find(|one| one.manifest == pod.manifest);
            if matches!(outcome, PodChange::Same | PodChange::Updated) {
                // A pod that has ended or was rejected stays until it is requested again.
                if let Some(ended) =
                    before.filter(|one| pod_exit::exit_code_of_ended(one).is_some())
                {
                    self.restart_pod(&pod, &ended.uid).await?;
                    if let Some(entry) = taken.pods.last_mut() {
                        PodChange::New.as_str().clone_into(&mut entry.outcome);
                    }
                }
                continue;
            }
            pod.instead_of = before.map(|before| before.uid);
            background_store.save(&pod).await.map_err(not_now)?;
            // The set may be closed between two iterations; never within one.
            let mut was_closed = false;
            self.desired_pods.send_modify(|desired| {
                was_closed = desired.is_closed;
                if !was_closed {
                    desired.take(pod.clone());
                }
            });
            if was_closed {
                background_store.remove(&pod).await.map_err(not_now)?;
                return Err(not_now(super::ENDING));
            }
        }
        Ok(taken)
    }
}

fn not_now(why: impl std::fmt::Display) -> LocalApiError {
    LocalApiError::TemporarilyUnavailable { message: format!("{why:#}") }
}
