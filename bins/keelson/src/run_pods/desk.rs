//! The local API of `keelson run`: answers some requests itself and passes the others to the agent.
//!
//! Rule: everything else is the agent's answer. A pod is stopped by removing it from the desired
//! pods; pods are added in the background only, and only once they are on disk.

use super::ending;
use super::household::{Household, Taken, WantedPod};
use super::kept::KeptPods;
use super::manifest;
use ports::PortFuture;
use ports::local_api::{
    LocalApi, LocalManifests, LocalNode, LocalPodDetail, LocalPods, LocalRefusal, LocalStopped,
    LocalTaken, LocalTakenPod,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

pub(super) struct Desk {
    pub(super) api: Arc<dyn LocalApi>,
    pub(super) household: Household,
    /// None in the foreground: then no pods are added.
    pub(super) kept: Option<KeptPods>,
    pub(super) agent_log: String,
    /// Serializes changes: each is written to disk, then applied to the desired pods.
    pub(super) changing: Arc<Mutex<()>>,
}

impl LocalApi for Desk {
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

    fn stop<'a>(&'a self, uid: &'a str) -> PortFuture<'a, Result<LocalStopped, LocalRefusal>> {
        Box::pin(async move {
            let Some(detail) = self.api.pod(uid) else {
                let message = format!("no pod has UID {uid}");
                return Err(LocalRefusal::NotFound { message });
            };
            let _alone = self.changing.lock().await;
            let wanted = self.household.borrow().pods.clone();
            let Some(pod) = wanted.iter().find(|pod| pod.manifest == detail.pod.manifest) else {
                let message = format!("pod {} is ending already", detail.pod.name);
                return Err(LocalRefusal::NotNow { message });
            };
            if let Some(kept) = &self.kept {
                kept.remove(pod).await.map_err(not_now)?;
            }
            self.household.send_modify(|wish| {
                wish.pods.retain(|known| known.manifest != pod.manifest);
            });
            Ok(LocalStopped { uid: uid.to_owned() })
        })
    }

    fn take(&self, manifests: LocalManifests) -> PortFuture<'_, Result<LocalTaken, LocalRefusal>> {
        Box::pin(async move {
            let Some(kept) = &self.kept else {
                let message = format!(
                    "a `keelson run` in the foreground (process {}) runs the pods of this root; \
                     end it first, or give these a --root and a --state of their own",
                    std::process::id()
                );
                return Err(LocalRefusal::NotNow { message });
            };
            let mut pods = Vec::new();
            for given in &manifests.manifests {
                let read = manifest::pods(&given.place, given.text.as_bytes());
                let read = read.map_err(|errors| not_now(errors.join("; ")))?;
                pods.extend(read.iter().map(|pod| {
                    // Two pipes are both called standard input: the pod's name distinguishes them.
                    let shown = format!("{} ({}/{})", given.place, pod.namespace, pod.name);
                    WantedPod::of(pod, shown)
                }));
            }
            self.take_all(kept, pods).await
        })
    }
}

/// The client has a deadline too.
const LONGEST_CLEAN_UP: Duration = Duration::from_secs(8);

impl Desk {
    /// Runs a pod that has ended once more, after its removal. Its record stays: if the agent is
    /// killed meanwhile, the next one runs it.
    async fn begin_again(&self, pod: &WantedPod, uid: &str) -> Result<(), LocalRefusal> {
        let mut was_last = false;
        self.household.send_if_modified(|wish| {
            let others = wish.pods.iter().filter(|known| known.manifest != pod.manifest);
            let others: Vec<WantedPod> = others.cloned().collect();
            was_last = others.is_empty();
            if !was_last {
                wish.pods = others;
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
        let is_gone = tokio::time::timeout(LONGEST_CLEAN_UP, gone).await.is_ok();
        let mut is_closed = false;
        self.household.send_modify(|wish| {
            is_closed = wish.is_closed;
            wish.take(pod.clone());
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
        kept: &KeptPods,
        pods: Vec<WantedPod>,
    ) -> Result<LocalTaken, LocalRefusal> {
        let _alone = self.changing.lock().await;
        let mut taken = LocalTaken::default();
        for mut pod in pods {
            let (outcome, is_closed) = {
                let wish = self.household.borrow();
                (wish.judge(&pod), wish.is_closed)
            };
            if is_closed {
                return Err(not_now(super::ENDING));
            }
            taken.pods.push(LocalTakenPod {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                outcome: outcome.word().to_owned(),
            });
            let before = self.api.pods().pods.into_iter().find(|one| one.manifest == pod.manifest);
            if outcome == Taken::Same {
                // A pod that has ended or was rejected stays until it is requested again.
                if let Some(ended) = before.filter(|one| ending::of_itself(one).is_some()) {
                    self.begin_again(&pod, &ended.uid).await?;
                    if let Some(told) = taken.pods.last_mut() {
                        Taken::New.word().clone_into(&mut told.outcome);
                    }
                }
                continue;
            }
            pod.instead_of = before.map(|before| before.uid);
            kept.save(&pod).await.map_err(not_now)?;
            // The set may be closed between two iterations; never within one.
            let mut was_closed = false;
            self.household.send_modify(|wish| {
                was_closed = wish.is_closed;
                if !was_closed {
                    wish.take(pod.clone());
                }
            });
            if was_closed {
                kept.remove(&pod).await.map_err(not_now)?;
                return Err(not_now(super::ENDING));
            }
        }
        Ok(taken)
    }
}

fn not_now(why: impl std::fmt::Display) -> LocalRefusal {
    LocalRefusal::NotNow { message: format!("{why:#}") }
}
