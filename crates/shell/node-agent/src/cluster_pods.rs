//! The pods of the API server: their feed, what is written of them, mirrors of static pods.
//!
//! Rules: the feed is level-triggered and decides nothing; one task writes statuses, another mirror
//! pods. Without an API server nothing here runs: no pod comes from it, and no status is reported.

mod api_pod_store;
mod mirror_writer;
mod object_cache;
mod status_reports;
mod status_writer;

pub(crate) use api_pod_store::ApiPodStore;
pub(crate) use mirror_writer::MirrorInputs;
pub(crate) use object_cache::ObjectCache;
pub(crate) use status_reports::StatusReports;

use crate::cluster_node::NodeFeed;
use crate::sources::WantedPods;
use crate::status_store::StatusStore;
use crate::task_tree::TaskTree;
use ports::ClusterApi;
use ports::cluster_objects::{RuntimeClass, Service};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Timeout of a request, whatever implements the port.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What the tasks share.
pub(crate) struct ClusterPodInputs {
    pub(crate) api: Arc<dyn ClusterApi>,
    pub(crate) node_name: String,
    pub(crate) node_feed: NodeFeed,
    pub(crate) store: ApiPodStore,
    pub(crate) reports: StatusReports,
    pub(crate) objects: ClusterObjectCaches,
    pub(crate) status_store: StatusStore,
    pub(crate) wanted: watch::Receiver<WantedPods>,
}

/// Objects of the API server that every pod may need.
#[derive(Clone)]
pub(crate) struct ClusterObjectCaches {
    pub(crate) services: ObjectCache<Service>,
    pub(crate) runtime_classes: ObjectCache<RuntimeClass>,
}

impl ClusterObjectCaches {
    pub(crate) fn new() -> Self {
        Self { services: ObjectCache::new(), runtime_classes: ObjectCache::new() }
    }
}

/// Starts the tasks.
pub(crate) fn start(tree: &mut TaskTree, inputs: ClusterPodInputs) {
    let ClusterPodInputs { api, node_name, node_feed, store, reports, .. } = inputs;
    let ClusterPodInputs { objects, status_store, wanted, .. } = inputs;
    let (services, services_api) = (objects.services, api.clone());
    tree.start("services", move || services.clone().follow(services_api.watch_services()));
    let (classes, classes_api) = (objects.runtime_classes, api.clone());
    tree.start("runtime-classes", move || {
        classes.clone().follow(classes_api.watch_runtime_classes())
    });
    let (feed_api, feed_store, listed) = (api.clone(), store.clone(), node_feed.clone());
    let feed_name = node_name.clone();
    tree.start("source-api", move || {
        let (api, store, listed) = (feed_api.clone(), feed_store.clone(), listed.clone());
        api_pod_store::follow(api, feed_name.clone(), store, listed)
    });
    let mirror_statuses = status_store.clone();
    let (write_api, write_store) = (api.clone(), store.clone());
    tree.start("pod-statuses", move || {
        let (api, store) = (write_api.clone(), write_store.clone());
        status_writer::write_statuses(api, store, reports.clone(), status_store.clone())
    });
    tree.start("mirror-pods", move || {
        mirror_writer::keep_mirrors(MirrorInputs {
            api: api.clone(),
            node_name: node_name.clone(),
            node_object: node_feed.node_object.clone(),
            store: store.clone(),
            wanted: wanted.clone(),
            status_store: mirror_statuses.clone(),
        })
    });
}
