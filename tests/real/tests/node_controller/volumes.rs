//! The out-of-service taint: what the forced deletion is for. A stateful pod with a volume on a
//! dead node moves to another, and its volume with it.
//!
//! Rule: the attach-detach, volume-binding and stateful set controllers are the real ones, and the
//! VolumeAttachments are theirs; this file only stands in for the CSI driver's attacher (which says
//! that a volume is attached), for the kubelet (which says that it is in use) and for the scheduler.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use ports::cluster_api::ObjectPath;
use real_tests::node_controller::hollow::now;
use serde_json::{Value, json};

use crate::stage::{ClusterTest, bears, seconds};

const DRIVER: &str = "disks.example.com";
const VOLUME: &str = "disk-1";
/// The annotation by which attach-detach manages a node's volumes.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach=true";

pub(crate) fn out_of_service(stage: &ClusterTest<'_>) -> Result<()> {
    let kubectl = |arguments: &[&str]| stage.cluster.plane.kubectl(arguments);
    kubectl(&["annotate", "node", "n0", "n4", MANAGED])?;
    stage.make("disk", &disk())?;
    stage.until("the claim is bound", seconds(20), || {
        Ok(kubectl(&["get", "pvc", VOLUME, "--output", "jsonpath={.status.phase}"])? == "Bound")
    })?;
    stage.make("stateful", &stateful_set())?;
    let first = run_on(stage, "n4")?;
    attach(stage, "n4")?;
    let in_use = json!({"status": {"volumesInUse": [unique_name()]}});
    stage.patch(&ObjectPath::node("n4"), true, &in_use)?;

    stage.hollow.stop_heartbeats(&["n4"]);
    stage.until("sent away", seconds(40), || Ok(!stage.is_kept("db-0")?))?;
    stage.stays("nobody confirms its end: it is stuck, and its volume too", seconds(2), || {
        Ok(stage.pod("db-0")?.is_some_and(|pod| pod.metadata.uid == first)
            && attachments(stage)?.iter().any(|it| it.0 == "n4"))
    })?;
    stage.taint("n4", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")?;
    stage.until("freed", seconds(30), || {
        Ok(stage.pod("db-0")?.is_none_or(|pod| pod.metadata.uid != first))
    })?;
    // Without the taint it would be six minutes: the node says that the volume is in use.
    let freed = Instant::now();
    stage.until("detached", seconds(15), || {
        Ok(!attachments(stage)?.iter().any(|it| it.0 == "n4"))
    })?;
    println!("detached {:?} after its pod was gone", freed.elapsed());
    let second = run_on(stage, "n0")?;
    ensure!(second != first, "another pod of the same name");
    attach(stage, "n0")?;
    no_volume_was_touched(stage)?;

    kubectl(&["delete", "statefulset", "db", "--wait=false"])?;
    kubectl(&["delete", "pod", "db-0", "--force", "--grace-period=0", "--ignore-not-found"])?;
    stage.taint("n4", "node.kubernetes.io/out-of-service-")?;
    stage.runtime.block_on(stage.hollow.resume_heartbeats(&["n4"]))?;
    stage.until("well again", seconds(5), || Ok(stage.taints("n4")?.is_empty()))?;
    Ok(())
}

fn disk() -> Value {
    let capacity = json!({"storage": "1Gi"});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {"attachRequired": true}},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": VOLUME},
            "spec": {"capacity": capacity, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": "default", "name": VOLUME},
                "csi": {"driver": DRIVER, "volumeHandle": VOLUME}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": VOLUME},
            "spec": {"storageClassName": "", "volumeName": VOLUME,
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": capacity}}},
    ]})
}

fn stateful_set() -> Value {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": VOLUME}}]);
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
        "serviceName": "db", "replicas": 1, "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {
            "terminationGracePeriodSeconds": 3600,
            "tolerations": bears(Some(1)),
            "containers": [{"name": "c", "image": "nothing"}],
            "volumes": volumes,
        }},
    }})
}

/// The unique volume name of attach-detach and kubelets. upstream: volume/util/util.go
fn unique_name() -> String {
    format!("kubernetes.io/csi/{DRIVER}^{VOLUME}")
}

/// Binds the set's pod to a node and marks it running. Returns its UID.
fn run_on(stage: &ClusterTest<'_>, node: &str) -> Result<String> {
    stage.until("the set has made its pod", seconds(30), || stage.is_kept("db-0"))?;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "db-0"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    let file = stage.file("binding.json");
    std::fs::write(&file, binding.to_string())?;
    let path = "/api/v1/namespaces/default/pods/db-0/binding";
    let plane = &stage.cluster.plane;
    plane.kubectl(&["create", "--raw", path, "--filename", &file.to_string_lossy()])?;
    let status = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": now().to_seconds_text()},
    ]}});
    stage.patch(&ObjectPath::pod("default", "db-0"), true, &status)?;
    Ok(stage.pod("db-0")?.context("it was just bound")?.metadata.uid)
}

/// The nodes that a volume is to be attached to, with the names of the VolumeAttachments.
fn attachments(stage: &ClusterTest<'_>) -> Result<Vec<(String, String)>> {
    let path = "jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name}{\"\\n\"}{end}";
    let text = stage.cluster.plane.kubectl(&["get", "volumeattachments", "--output", path])?;
    let pair =
        |line: &str| line.split_once(' ').map(|(node, name)| (node.to_owned(), name.to_owned()));
    Ok(text.lines().filter_map(pair).collect())
}

/// The real controller requests the volume on a node; it is attached, and the controller has
/// observed that.
fn attach(stage: &ClusterTest<'_>, node: &str) -> Result<()> {
    let plane = &stage.cluster.plane;
    let of_node = || Ok(attachments(stage)?.into_iter().find(|it| it.0 == node));
    stage.until("asked for", seconds(30), || of_node().map(|found: Option<_>| found.is_some()))?;
    let (_, name) = of_node()?.context("it was there")?;
    let attached = ["patch", "volumeattachment", &name, "--subresource=status", "--type=merge"];
    plane.kubectl(
        &[attached.as_slice(), &["--patch", r#"{"status":{"attached":true}}"#]].concat(),
    )?;
    stage.until("attached", seconds(20), || {
        let path = "jsonpath={.status.volumesAttached[*].name}";
        Ok(plane.kubectl(&["get", "node", node, "--output", path])? == unique_name())
    })?;
    Ok(())
}

/// By the audit log: our controller deleted the pod with force, and others detached its volume.
fn no_volume_was_touched(stage: &ClusterTest<'_>) -> Result<()> {
    let writes = stage.audit()?.writes()?;
    let forced = writes.iter().any(|write| {
        write.verb == "delete"
            && (write.resource.as_str(), write.name.as_str()) == ("pods", "db-0")
            && write.body["gracePeriodSeconds"] == 0
            && write.is_done()
    });
    ensure!(forced, "we deleted it by force");
    for write in writes {
        let volumes = ["volumeattachments", "persistentvolume", "csi"];
        let touched = volumes.iter().any(|word| write.resource.starts_with(word));
        ensure!(!touched, "volumes are not ours: {write:?}");
    }
    Ok(())
}
