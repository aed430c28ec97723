//! Commands in containers of another OCI runtime: their child processes end with them.
//!
//! On the embedded runtime only: the handler `oci` is the real runc, by configuration.

use anyhow::{Context as _, Result, ensure};
use cri_wire::v1;
use tonic::Code;

use super::cases;
use crate::support::{Cri, code};

cases![handler_exec_at_its_limit_kills_the_whole_tree, handler_gets_the_pod_in_annotations];

async fn running(cri: &Cri) -> Result<(String, String)> {
    let (pod, container) = (cri.pod(), cri.container("sleep 1000"));
    let request =
        v1::RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: "oci".to_owned() };
    let mut runtime = cri.rt();
    let sandbox = Box::pin(runtime.run_pod_sandbox(request)).await.context("RunPodSandbox")?;
    let sandbox = sandbox.into_inner().pod_sandbox_id;
    let id = cri.create(&sandbox, &pod, &container).await.context("CreateContainer")?;
    cri.start(&id).await.context("StartContainer")?;
    Ok((sandbox, id))
}

async fn handler_exec_at_its_limit_kills_the_whole_tree(cri: &Cri) -> Result<()> {
    let (_, id) = running(cri).await?;
    // A child, one without a parent, one in a session of its own.
    let script = "sleep 4321 & (sleep 4321 &); setsid sleep 4321 & wait";
    ensure!(code(cri.exec(&id, &["sh", "-c", script], 2).await)? == Code::DeadlineExceeded);
    let mut left = Vec::new();
    for _ in 0..500 {
        let look = ["sh", "-c", "ps | grep -c '[s]leep 4321'"];
        left = cri.exec(&id, &look, 20).await?.stdout;
        if left == b"0\n" {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    anyhow::bail!("left: {}", String::from_utf8_lossy(&left))
}

/// The pod's identity in the OCI bundle that the program gets.
async fn handler_gets_the_pod_in_annotations(cri: &Cri) -> Result<()> {
    let (sandbox, id) = running(cri).await?;
    let pods = cri.dir.join("../../k/state/pods");
    let bundle = pods.join(&sandbox[..16]).join("bundles").join(&id).join("config.json");
    let text = std::fs::read(&bundle).with_context(|| bundle.display().to_string())?;
    let config: serde_json::Value = serde_json::from_slice(&text)?;
    let annotation =
        |name: &str| config["annotations"][format!("io.kubernetes.cri.{name}")].as_str();
    ensure!(annotation("sandbox-id") == Some(&*sandbox), "{}", config["annotations"]);
    ensure!(
        annotation("sandbox-namespace") == Some("default") && annotation("sandbox-uid").is_some()
    );
    ensure!(annotation("container-name").is_some_and(|name| name.starts_with('c')));
    Ok(())
}
