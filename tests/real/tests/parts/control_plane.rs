//! Admission in the control plane completes an ordinary pod, and a node may not write foreign
//! objects.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::ControlPlane;
use serde_json::{Value, json};

#[test]
fn ordinary_pod_gets_its_service_account_volume() -> Result<()> {
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(3)).run(|bed| {
        let plane = ControlPlane::start(bed)?;
        let manifest = write(
            bed,
            "pod.json",
            &json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "ordinary"},
                "spec": {"containers": [{"name": "one", "image": "registry.k8s.io/pause:3.10.2"}]},
            }),
        )?;
        plane.kubectl(&["create", "--filename", &manifest])?;
        let pod: Value =
            serde_json::from_str(&plane.kubectl(&["get", "pod", "ordinary", "--output", "json"])?)?;
        ensure!(pod["spec"]["serviceAccountName"] == "default", "{pod:#}");
        let volume = pod["spec"]["volumes"]
            .as_array()
            .and_then(|volumes| {
                volumes.iter().find(|one| {
                    one["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-"))
                })
            })
            .with_context(|| format!("no token volume: {pod:#}"))?;
        let sources = volume["projected"]["sources"].as_array().context("projected sources")?;
        ensure!(
            sources.iter().any(|one| one["serviceAccountToken"]["path"] == "token"),
            "{volume}"
        );
        ensure!(
            sources.iter().any(|one| one["configMap"]["name"] == "kube-root-ca.crt"),
            "{volume}"
        );
        let mount = &pod["spec"]["containers"][0]["volumeMounts"][0];
        ensure!(mount["name"] == volume["name"], "{mount}");
        ensure!(mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount", "{mount}");
        let token = plane.kubectl(&["create", "token", "default"])?;
        ensure!(token.trim().split('.').count() == 3, "a signed token: {token}");
        nodes_are_restricted(bed, &plane)
    })
}

/// A node may create its own Node and nothing of another node's.
fn nodes_are_restricted(bed: &Bed, plane: &ControlPlane) -> Result<()> {
    let kubeconfig = plane.node_kubeconfig("mine")?;
    let create = |name: &str| -> Result<String> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let manifest = write(bed, &format!("{name}.json"), &node)?;
        plane.kubectl_as(&kubeconfig, &["create", "--filename", &manifest])
    };
    create("mine")?;
    let error = create("another").err().context("a node made another node")?;
    ensure!(error.to_string().contains("Forbidden"), "{error:#}");
    let error = plane
        .kubectl_as(&kubeconfig, &["get", "secrets", "--all-namespaces"])
        .err()
        .context("a node listed all secrets")?;
    ensure!(error.to_string().contains("Forbidden"), "{error:#}");
    Ok(())
}

fn write(bed: &Bed, name: &str, object: &Value) -> Result<String> {
    let path = bed.dir().join(name);
    fs::write(&path, object.to_string())?;
    Ok(path.to_string_lossy().into_owned())
}
