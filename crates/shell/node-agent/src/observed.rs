//! The pods in the runtime: one owner task reads them, every other task reads its cache.
//!
//! Rules: level-triggered: an event of the runtime only names the pod to relist. Only a container's
//! exit is taken from the event, as nothing can follow it. A relist is stamped with the time before
//! it began and never replaces a later one; a start that this agent has made or is making causes no
//! extra relist. Pods are relisted in parallel, a few at a time, so that a slow answer delays only
//! its own pod. A runtime without an event stream is listed every second; otherwise a slow listing
//! is the safety net. What could not be read stays as it was. Decides nothing about pods.

mod build;
mod failed_sync;
mod listing_health;
mod relist;
mod relist_loop;
mod starting;

pub(crate) use relist_loop::watch_pods;
pub(crate) use starting::StartGuard;

use crate::clock::AgentClock;
use crate::status_store::StatusStore;
use crate::termination::TerminationMessages;
use pod_lifecycle::ObservedPod;
use ports::PodRuntime;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// A pod that the runtime has something of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RuntimePodName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Whether a kubelet created it: the runtime may have other clients.
    pub(crate) is_kubelet_pod: bool,
    /// It could not be read yet; the inventory changes when it can.
    pub(crate) is_unread: bool,
}

/// All pods that the runtime has something of, by UID, including those that could not be read.
pub(crate) type Inventory = BTreeMap<String, RuntimePodName>;

/// None until the pod was first read.
pub(crate) type Observation = Option<Arc<ObservedPod>>;

/// Cheap to clone; all clones share one cache.
#[derive(Clone)]
pub(crate) struct ObservedPods {
    shared: Arc<ObservedPodsInner>,
}

struct ObservedPodsInner {
    runtime: Arc<dyn PodRuntime>,
    messages: TerminationMessages,
    clock: AgentClock,
    status_store: StatusStore,
    /// Has the runtime's status checked at once: its event stream was lost, or it answers again.
    is_back: Arc<Notify>,
    pods: Mutex<HashMap<String, watch::Sender<Observation>>>,
    wanted: Mutex<RequestedRelists>,
    recheck: Notify,
    /// Pods in which containers are being started, with the number of starts.
    starting: Mutex<HashMap<String, u32>>,
    /// None until the first listing.
    inventory: watch::Sender<Option<Arc<Inventory>>>,
    /// Why the runtime cannot be listed now.
    list_error: watch::Sender<Option<String>>,
    /// Since when a listing is due; None if the last one succeeded.
    unlisted_since: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct RequestedRelists {
    pods: BTreeSet<String>,
    all: bool,
}

impl ObservedPods {
    pub(crate) fn new(
        runtime: Arc<dyn PodRuntime>,
        messages: TerminationMessages,
        clock: AgentClock,
        is_back: Arc<Notify>,
        status_store: StatusStore,
    ) -> Self {
        let shared = ObservedPodsInner {
            runtime,
            messages,
            clock,
            status_store,
            is_back,
            pods: Mutex::default(),
            wanted: Mutex::default(),
            recheck: Notify::new(),
            starting: Mutex::default(),
            inventory: watch::Sender::new(None),
            list_error: watch::Sender::new(None),
            unlisted_since: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The observation of a pod, with its changes.
    pub(crate) fn watch(&self, uid: &str) -> watch::Receiver<Observation> {
        let listed = self.shared.inventory.borrow().is_some();
        let mut pods = self.shared.pods();
        if let Some(sender) = pods.get(uid) {
            return sender.subscribe();
        }
        let sender = watch::Sender::new(None);
        let receiver = sender.subscribe();
        pods.insert(uid.to_owned(), sender);
        drop(pods);
        if listed {
            self.request_relist(uid);
        }
        receiver
    }

    /// Requests a relist of this pod; its watchers are woken even if nothing has changed.
    pub(crate) fn request_relist(&self, uid: &str) {
        self.shared.wanted().pods.insert(uid.to_owned());
        self.shared.recheck.notify_one();
    }

    /// Every pod that the runtime has, once it was listed.
    pub(crate) fn inventory(&self) -> watch::Receiver<Option<Arc<Inventory>>> {
        self.shared.inventory.subscribe()
    }

    /// Whether the runtime has a pod of that name that could not be read yet.
    pub(crate) fn is_unread(&self, namespace: &str, name: &str) -> bool {
        let Some(listed) = self.shared.inventory.borrow().clone() else { return false };
        let mut named =
            listed.values().filter(|pod| pod.namespace == namespace && pod.name == name);
        named.any(|pod| pod.is_unread)
    }

    /// The latest observation of a pod.
    pub(crate) fn latest(&self, uid: &str) -> Observation {
        self.shared.pods().get(uid).and_then(|sender| sender.borrow().clone())
    }

    /// The latest observations of all pods.
    pub(crate) fn all(&self) -> Vec<(String, Arc<ObservedPod>)> {
        let pods = self.shared.pods();
        let known = |(uid, sender): (&String, &watch::Sender<Observation>)| {
            sender.borrow().clone().map(|observed| (uid.clone(), observed))
        };
        pods.iter().filter_map(known).collect()
    }
}

impl ObservedPodsInner {
    fn pods(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Observation>>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wanted(&self) -> MutexGuard<'_, RequestedRelists> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
