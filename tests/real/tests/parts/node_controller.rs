//! The built `keelson node-controller` on a real API server, as users and scrapers see it: with the
//! permissions of the example, over its secure port, and by `explain`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, BedTest, free_port};
use node_testkit::programs;
use node_testkit::start::{CertificateSubject, ControlPlane, RunningPart};
use real_tests::node_controller::cluster::TestCluster;
use real_tests::node_controller::hollow::{HollowNodePool, NewNode};
use serde_json::json;

const USER: &str = "keelson-node-controller";
const WITHIN: Duration = Duration::from_secs(60);

#[test]
fn node_controller_answers_on_its_port_and_explains() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(5)).run(|bed| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let cluster = runtime.block_on(async { TestCluster::start(bed) })?;
        let hollow = HollowNodePool::new(cluster.client.clone(), Duration::from_secs(1));
        runtime.spawn(hollow.clone().heartbeat());
        let forms = ["n1", "n2", "n3"].map(|name| NewNode::in_zone(name, "a"));
        runtime.block_on(hollow.register(forms.to_vec()))?;
        let (mut controller, port) = start(bed, &cluster.plane, &keelson)?;
        let asked = SecurePortClient { plane: &cluster.plane, port };
        // Health is open to all, whatever they show.
        controller.wait_until("health", WITHIN, || asked.with_token("/healthz", "nonsense"))?;
        metrics_require_permission(bed, &asked)?;
        hollow.stop_heartbeats(&["n2"]);
        let explained = controller.wait_until("an explanation", WITHIN, || {
            let text = explain(bed, &keelson, "n2")?;
            ensure!(text.contains("node.kubernetes.io/unreachable:NoExecute"), "{text}");
            Ok(text)
        })?;
        ensure!(explained.contains("nothing was heard of the node"), "{explained}");
        let metrics = asked.as_admin("/metrics")?;
        for line in [
            "# TYPE node_collector_evictions_total counter",
            "node_collector_zone_size{zone=",
            "leader_election_master_status{name=\"keelson-node-controller\"} 1",
        ] {
            ensure!(metrics.contains(line), "no {line} in\n{metrics}");
        }
        Ok(())
    })
}

fn start(bed: &Bed, plane: &ControlPlane, keelson: &Path) -> Result<(RunningPart, u16)> {
    let port = free_port()?;
    let serving = plane.authority().issue(
        "controller",
        &CertificateSubject {
            common_name: "controller",
            alternative_names: &["127.0.0.1"],
            ..CertificateSubject::default()
        },
    )?;
    let kubeconfig = plane.user_kubeconfig(USER)?;
    let mut command = Command::new(keelson);
    command
        .args(["node-controller", "--bind-address=127.0.0.1", "--node-monitor-grace-period=6s"])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--explain-socket={}", bed.dir().join("explain.sock").display()))
        .arg(format!("--tls-cert-file={}", serving.certificate.display()))
        .arg(format!("--tls-private-key-file={}", serving.key.display()));
    for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        command.arg(format!("--{flag}={}", kubeconfig.display()));
    }
    Ok((RunningPart::start(bed, "keelson-node-controller", &mut command)?, port))
}

/// Access to `/metrics`: allowed for the administrator by certificate and, once authorized, for a
/// service account by its token; refused for all others.
fn metrics_require_permission(bed: &Bed, asked: &SecurePortClient<'_>) -> Result<()> {
    let token = asked.plane.kubectl(&["create", "token", "default"])?;
    let refused = asked.with_token("/metrics", token.trim()).err().context("a stranger did")?;
    ensure!(refused.to_string().contains("serviceaccount:default:default"), "{refused:#}");
    let refused = asked.with_token("/metrics", "nonsense").err().context("nonsense did")?;
    ensure!(refused.to_string().contains("Unauthorized"), "{refused:#}");
    asked.as_admin("/metrics")?;
    let reader = bed.dir().join("reader.json");
    fs::write(&reader, json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "reader"},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]},
    ]}).to_string())?;
    asked.plane.kubectl(&["create", "--filename", &reader.to_string_lossy()])?;
    // A denial is cached for ten seconds.
    let began = std::time::Instant::now();
    loop {
        match asked.with_token("/metrics", token.trim()) {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > WITHIN => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}

/// The secure port, with kubectl as the client.
struct SecurePortClient<'a> {
    plane: &'a ControlPlane,
    port: u16,
}

impl SecurePortClient<'_> {
    fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn as_admin(&self, path: &str) -> Result<String> {
        self.plane.kubectl(&["--server", &self.server(), "get", "--raw", path])
    }

    fn with_token(&self, path: &str, token: &str) -> Result<String> {
        self.plane
            .kubectl_as(&self.anonymous_kubeconfig()?, &["--token", token, "get", "--raw", path])
    }

    /// A kubeconfig with the port and without credentials.
    fn anonymous_kubeconfig(&self) -> Result<PathBuf> {
        let authority = &self.plane.authority().files.certificate;
        let path = authority.with_file_name("nobody.kubeconfig");
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.server(),
                "certificate-authority": authority}}],
            "users": [], "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        });
        fs::write(&path, content.to_string())?;
        Ok(path)
    }
}

fn explain(bed: &Bed, keelson: &Path, node: &str) -> Result<String> {
    let output = Command::new(keelson)
        .args(["node-controller", "explain", node, "--explain-socket"])
        .arg(bed.dir().join("explain.sock"))
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "explain: {} {complaint}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
