//! Nodes and the cloud.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use node_controller::ControllerConfig;
use ports::cloud_provider::{CloudAddress, InstanceState};
use ports::cluster_api::ObjectPath;
use ports::{CloudError, CloudInstance, CloudNodeName, CloudProvider, PortFuture};
use serde_json::json;

use crate::stage::{Stage, seconds};

#[derive(Default)]
struct FakeCloud {
    /// None: queries fail.
    instances: Mutex<Option<BTreeMap<String, CloudInstance>>>,
    /// Queries never return.
    hangs: AtomicBool,
}

impl FakeCloud {
    fn with(names: &[&str]) -> Arc<Self> {
        let instance = |name: &&str| {
            let instance = CloudInstance {
                node: (*name).to_owned(),
                provider_id: format!("fake://{name}"),
                state: InstanceState::Running,
                ..CloudInstance::default()
            };
            ((*name).to_owned(), instance)
        };
        let instances = Mutex::new(Some(names.iter().map(instance).collect()));
        Arc::new(Self { instances, hangs: false.into() })
    }

    fn edit(&self, change: impl FnOnce(&mut BTreeMap<String, CloudInstance>)) {
        change(self.instances.lock().expect("unbroken").get_or_insert_default());
    }

    fn fall_silent(&self) {
        *self.instances.lock().expect("unbroken") = None;
    }
}

impl CloudProvider for FakeCloud {
    fn name(&self) -> &str {
        "fake"
    }

    fn instance<'a>(
        &'a self,
        node: &'a CloudNodeName,
    ) -> PortFuture<'a, Result<Option<CloudInstance>, CloudError>> {
        Box::pin(async move {
            if self.hangs.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let known = self.instances.lock().expect("unbroken");
            match &*known {
                Some(known) => Ok(known.get(&node.name).cloned()),
                None => Err(CloudError { cloud: "fake".into(), cause: "no answer".into() }),
            }
        })
    }

    fn instances(&self) -> PortFuture<'_, Result<Vec<CloudInstance>, CloudError>> {
        Box::pin(async move { Ok(Vec::new()) })
    }
}

#[tokio::test(start_paused = true)]
async fn gone_is_deleted_shut_down_is_tainted_and_silence_changes_nothing() {
    let stage = Stage::with_nodes(5);
    let cloud = FakeCloud::with(&["node-0", "node-1", "node-2", "node-3", "node-4"]);
    let running = stage.start_as("one", ControllerConfig::default(), Some(cloud.clone()));
    seconds(60).await;
    // A ready node is not queried, even if the cloud has lost its instance.
    cloud.edit(|instances| {
        instances.remove("node-0");
    });
    seconds(30).await;
    assert!(stage.cluster.node("node-0").is_some());
    cloud.fall_silent();
    stage.nodes.stop_heartbeats("node-1");
    stage.until("Unknown", 70, || stage.ready("node-1") == "Unknown").await;
    seconds(60).await;
    assert!(stage.cluster.node("node-1").is_some(), "no answer is no answer");
    let named = |name: &str| CloudInstance { node: name.into(), ..CloudInstance::default() };
    cloud.edit(|instances| {
        let shut = CloudInstance { state: InstanceState::ShutDown, ..named("node-1") };
        instances.insert("node-1".into(), shut);
    });
    let shutdown = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule".to_owned();
    stage.until("tainted", 10, || stage.taints("node-1").contains(&shutdown)).await;
    stage.nodes.resume_heartbeats("node-1");
    stage.until("free", 10, || stage.taints("node-1").is_empty()).await;
    cloud.edit(|instances| {
        instances.remove("node-2");
    });
    stage.nodes.stop_heartbeats("node-2");
    stage.until("deleted", 80, || stage.cluster.node("node-2").is_none()).await;
    seconds(2).await;
    let reasons = stage.cluster.reasons("node-2");
    assert!(reasons.contains(&"DeletingNode".to_owned()), "{reasons:?}");
    assert!(reasons.contains(&"RemovingNode".to_owned()), "{reasons:?}");
    running.end().await;
}

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

fn leave_undescribed(stage: &Stage, name: &str) {
    stage.cluster.edit(&ObjectPath::node(name), |node| {
        node["spec"]["taints"] =
            json!([{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]);
    });
}

/// A hung cloud is queried all the time, and no write waits for it.
#[tokio::test(start_paused = true)]
async fn a_hung_cloud_holds_up_no_write() {
    let stage = Stage::with_nodes(60);
    for number in 0..60 {
        leave_undescribed(&stage, &format!("node-{number}"));
    }
    let cloud = FakeCloud::with(&[]);
    cloud.hangs.store(true, Ordering::Relaxed);
    let running = stage.start_as("one", ControllerConfig::default(), Some(cloud.clone()));
    seconds(60).await;
    for number in 10..20 {
        stage.nodes.stop_heartbeats(&format!("node-{number}"));
    }
    // The last of them renewed just now at most, and the grace period is 50 s.
    let lost = || (10..20).filter(|it| stage.ready(&format!("node-{it}")) == "Unknown").count();
    stage.until("noticed", 53, || lost() == 10).await;
    cloud.hangs.store(false, Ordering::Relaxed);
    cloud.edit(|instances| {
        for number in 0..60 {
            let node = format!("node-{number}");
            let provider_id = format!("fake://{node}");
            let instance =
                CloudInstance { node: node.clone(), provider_id, ..CloudInstance::default() };
            instances.insert(node, instance);
        }
    });
    stage.until("described", 30, || stage.taints("node-59").is_empty()).await;
    running.end().await;
}

/// A node that is not ready and not in the cloud is deleted, initialized or not.
#[tokio::test(start_paused = true)]
async fn a_node_that_never_was_a_machine_of_the_cloud_is_deleted() {
    let stage = Stage::with_nodes(3);
    for node in ["node-1", "node-2"] {
        leave_undescribed(&stage, node);
    }
    let cloud = FakeCloud::with(&["node-0"]);
    let running = stage.start_as("one", ControllerConfig::default(), Some(cloud));
    seconds(20).await;
    assert!(stage.cluster.node("node-1").is_some(), "it is ready");
    stage.nodes.set_ready("node-1", false);
    stage.until("deleted", 10, || stage.cluster.node("node-1").is_none()).await;
    assert!(stage.cluster.node("node-2").is_some());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_node_is_described_once() {
    let stage = Stage::with_nodes(2);
    let cloud = FakeCloud::with(&["node-0", "node-1"]);
    cloud.edit(|instances| {
        let instance = CloudInstance {
            node: "fresh".into(),
            provider_id: "fake://fresh".into(),
            instance_type: "small".into(),
            zone: "z1".into(),
            region: "r1".into(),
            addresses: vec![CloudAddress { kind: "InternalIP".into(), address: "10.0.0.9".into() }],
            labels: [("example.com/rack".to_owned(), "7".to_owned())].into(),
            ..CloudInstance::default()
        };
        instances.insert("fresh".into(), instance);
    });
    let running = stage.start_as("one", ControllerConfig::default(), Some(cloud.clone()));
    seconds(5).await;
    stage.nodes.join("fresh", &json!({}));
    leave_undescribed(&stage, "fresh");
    stage.until("described", 10, || stage.taints("fresh").is_empty()).await;
    let node = stage.node("fresh");
    assert_eq!(node.spec.provider_id, "fake://fresh");
    let label = |key: &str| node.metadata.labels.get(key).cloned().unwrap_or_default();
    assert_eq!(label("topology.kubernetes.io/zone"), "z1");
    assert_eq!(label("node.kubernetes.io/instance-type"), "small");
    assert_eq!(label("example.com/rack"), "7");
    assert_eq!(node.status.addresses[0].address, "10.0.0.9");
    seconds(2).await;
    assert!(stage.cluster.reasons("fresh").contains(&"Synced".to_owned()));
    cloud.edit(|instances| {
        instances.get_mut("fresh").expect("there").addresses[0].address = "10.0.0.10".into();
    });
    seconds(310).await;
    assert_eq!(stage.node("fresh").status.addresses[0].address, "10.0.0.10");
    running.end().await;
}
