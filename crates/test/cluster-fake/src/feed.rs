//! A watch on the fake: lists, then delivers changes, and breaks as the client's faults say.

use std::collections::VecDeque;
use std::time::Duration;

use ports::cluster_api::ObjectSelector;
use ports::cluster_objects::ApiObject;
use ports::{ClusterApiError, FeedEvent, ObjectFeed, PortFuture};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::cluster::FakeCluster;
use crate::faults::ClientFaultSwitch;

/// Objects per page.
const PAGE: usize = 100;
/// How long a watch with the `expires` fault lasts.
const EXPIRY_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct FakeFeed<T> {
    cluster: FakeCluster,
    faults: ClientFaultSwitch,
    selection: ObjectSelector,
    at: Option<u64>,
    waiting: VecDeque<FeedEvent<T>>,
    interrupted: bool,
    cluster_changes: watch::Receiver<u64>,
    fault_changes: watch::Receiver<u64>,
}

impl<T: ApiObject> FakeFeed<T> {
    pub(crate) fn new(
        cluster: FakeCluster,
        faults: ClientFaultSwitch,
        selection: ObjectSelector,
    ) -> Self {
        let (cluster_changes, fault_changes) = (cluster.changes(), faults.changes());
        Self {
            cluster,
            faults,
            selection,
            at: None,
            waiting: VecDeque::new(),
            interrupted: false,
            cluster_changes,
            fault_changes,
        }
    }

    fn selects(&self, object: &Value) -> bool {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        let by_name = self.selection.fields.strip_prefix("metadata.name=");
        let node = object.pointer("/spec/nodeName").and_then(Value::as_str);
        let by_node = self.selection.fields.strip_prefix("spec.nodeName=");
        self.selection.namespace.as_deref().is_none_or(|wanted| namespace == Some(wanted))
            && by_name.is_none_or(|wanted| name == Some(wanted))
            && by_node.is_none_or(|wanted| node == Some(wanted))
    }

    fn read(object: &Value, deleted: bool) -> Result<T, FeedEvent<T>> {
        serde_json::from_value(object.clone()).map_err(|error| FeedEvent::Unreadable {
            object: named(object, T::RESOURCE.plural),
            deleted,
            cause: error.to_string(),
        })
    }

    fn list(&mut self) {
        let (objects, version) = self.cluster.list(T::RESOURCE);
        self.waiting.push_back(FeedEvent::ListBegun);
        let selected: Vec<_> = objects.iter().filter(|object| self.selects(object)).collect();
        for page in selected.chunks(PAGE) {
            let mut listed = Vec::new();
            for object in page {
                match Self::read(object, false) {
                    Ok(object) => listed.push(object),
                    Err(unreadable) => self.waiting.push_back(unreadable),
                }
            }
            self.waiting.push_back(FeedEvent::Listed(listed));
        }
        self.waiting.push_back(FeedEvent::ListEnded);
        self.at = Some(version);
    }

    /// Applies the changes after this version.
    fn read_changes(&mut self, at: u64) {
        let Some(changes) = self.cluster.since(T::RESOURCE, at) else {
            self.at = None;
            return;
        };
        for change in changes {
            self.at = Some(change.version);
            if !self.selects(&change.object) {
                continue;
            }
            self.waiting.push_back(match Self::read(&change.object, change.deleted) {
                Ok(object) if change.deleted => FeedEvent::Deleted(object),
                Ok(object) => FeedEvent::Applied(object),
                Err(unreadable) => unreadable,
            });
        }
    }

    /// The next event, if there is one now.
    fn step(&mut self) -> Option<FeedEvent<T>> {
        let faults = self.faults.now();
        if faults.away && !self.interrupted {
            self.interrupted = true;
            self.waiting.clear();
            let cause = "away".to_owned();
            let error = ClusterApiError::Unreachable { request: "watch".to_owned(), cause };
            return Some(FeedEvent::Interrupted(error));
        }
        if faults.away || faults.silent_watches || faults.hangs {
            return None;
        }
        if std::mem::take(&mut self.interrupted) && self.at.is_some() {
            return Some(FeedEvent::Resumed);
        }
        if self.waiting.is_empty() {
            match self.at {
                None => self.list(),
                Some(at) => self.read_changes(at),
            }
        }
        if self.waiting.is_empty() && self.at.is_none() {
            self.list();
        }
        self.waiting.pop_front()
    }
}

/// The object's name in the form of the real client: kind, namespace if any, name.
fn named(object: &Value, plural: &str) -> String {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    match text("/metadata/namespace") {
        "" => format!("{plural}/{}", text("/metadata/name")),
        namespace => format!("{plural}/{namespace}/{}", text("/metadata/name")),
    }
}

impl<T: ApiObject> ObjectFeed<T> for FakeFeed<T> {
    fn next(&mut self) -> PortFuture<'_, FeedEvent<T>> {
        Box::pin(async move {
            loop {
                self.cluster_changes.mark_unchanged();
                self.fault_changes.mark_unchanged();
                if let Some(event) = self.step() {
                    return event;
                }
                let expires = self.faults.now().expires;
                tokio::select! {
                    _ = self.cluster_changes.changed(), if !expires => {}
                    _ = self.fault_changes.changed() => {}
                    () = sleep(EXPIRY_DELAY), if expires => self.at = None,
                }
            }
        })
    }
}
