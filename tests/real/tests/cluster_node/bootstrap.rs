//! A node that begins with nothing but a bootstrap kubeconfig: its client certificate, its serving
//! certificate, and the files, which either kubelet continues with.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::programs;
use node_testkit::start::{Containerd, ContainerdOptions, ControlPlane};
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};
use serde_json::Value;

const NEEDS: &[&str] = &[
    "containerd",
    "runc",
    "cni-plugins",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl",
    "kubelet",
];
const NODE: &str = "node";
const BOOTSTRAPPER: &str = "bootstrapper";
const READY: Duration = Duration::from_secs(60);
const CONFIGURATION: &str = "rotateCertificates: true\nserverTLSBootstrap: true\n";

#[test]
fn a_node_joins_by_its_bootstrap_kubeconfig_and_either_kubelet_continues() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(NEEDS).deadline(Duration::from_mins(5)).run(move |bed| {
        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        let by_address = ["--kubelet-preferred-address-types=InternalIP".to_owned()];
        let plane = ControlPlane::start_with_flags(bed, "*", &by_address)?;
        let files = JoinFiles::new(bed, &plane)?;
        // From nothing; with what the reference left; with what ours left.
        for first in [true, false] {
            let (ours, reference) = (AgentKind::keelson(&keelson), AgentKind::reference()?);
            let kinds = if first { [ours, reference] } else { [reference, ours] };
            for (at, mut kind) in kinds.into_iter().enumerate() {
                let label = format!("{}-{first}", kind.name);
                kind.command.extend(files.flags());
                let home = AgentHome::new(bed, &label, &containerd.endpoint())?.with(CONFIGURATION);
                let agent = AgentProcess::start(bed, &kind, &home)?;
                let joined = joined(&plane, &files, at == 0);
                joined.with_context(|| format!("{label}\n{}", log_of(bed, &kind)))?;
                agent.end()?;
                plane.kubectl(&["delete", "node", NODE])?;
            }
            files.clear()?;
            plane.kubectl(&["delete", "csr", "--all"])?;
        }
        Ok(())
    })
}

/// What `kubeadm join` gives a kubelet.
struct JoinFiles {
    bootstrap: PathBuf,
    kubeconfig: PathBuf,
    pki: PathBuf,
}

impl JoinFiles {
    fn new(bed: &Bed, plane: &ControlPlane) -> Result<Self> {
        let bootstrap = plane.user_kubeconfig(BOOTSTRAPPER)?;
        let nodeclient = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
        for role in ["system:node-bootstrapper", nodeclient] {
            let name = role.replace([':', '.'], "-");
            let (role, user) = (format!("--clusterrole={role}"), format!("--user={BOOTSTRAPPER}"));
            plane.kubectl(&["create", "clusterrolebinding", &name, &role, &user])?;
        }
        let dir = bed.create_dir("join")?;
        Ok(Self { bootstrap, kubeconfig: dir.join("kubelet.conf"), pki: dir.join("pki") })
    }

    fn flags(&self) -> [String; 3] {
        [
            format!("--bootstrap-kubeconfig={}", self.bootstrap.display()),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--cert-dir={}", self.pki.display()),
        ]
    }

    fn clear(&self) -> Result<()> {
        std::fs::remove_file(&self.kubeconfig)?;
        Ok(std::fs::remove_dir_all(&self.pki)?)
    }
}

/// The node is there, and its port has the certificate that was approved. `is_first`: nothing was
/// there before, so that certificates had to be requested.
fn joined(plane: &ControlPlane, files: &JoinFiles, is_first: bool) -> Result<()> {
    until("registered", || {
        let node = plane.kubectl(&["get", "node", NODE, "--output=json"]);
        Ok(node.is_ok())
    })?;
    let client = "kubernetes.io/kube-apiserver-client-kubelet";
    ensure!(requests(plane, client)?.len() == 1, "{:?}", requests(plane, client)?);
    linked(&files.pki.join("kubelet-client-current.pem"))?;
    if is_first {
        let mut pending = Vec::new();
        until("asking for its serving certificate", || {
            pending = requests(plane, "kubernetes.io/kubelet-serving")?;
            Ok(!pending.is_empty())
        })?;
        for name in &pending {
            plane.kubectl(&["certificate", "approve", name])?;
        }
    }
    let serving = files.pki.join("kubelet-server-current.pem");
    until("in possession of its serving certificate", || Ok(linked(&serving).is_ok()))?;
    let health = format!("/api/v1/nodes/{NODE}/proxy/healthz");
    until("answering on its port", || {
        Ok(plane.kubectl(&["get", "--raw", &health]).is_ok_and(|text| text == "ok"))
    })?;
    let metrics = format!("/api/v1/nodes/{NODE}/proxy/metrics");
    let metrics = plane.kubectl(&["get", "--raw", &metrics])?;
    for name in ["client", "server"] {
        let name = format!("kubelet_certificate_manager_{name}_ttl_seconds ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
        let left: f64 = value.with_context(|| name.clone())?.parse()?;
        ensure!(left.is_finite() && left > 0.0, "{name}{left}");
    }
    Ok(())
}

/// The names of the requests for one signer.
fn requests(plane: &ControlPlane, signer: &str) -> Result<Vec<String>> {
    let list: Value = serde_json::from_str(&plane.kubectl(&["get", "csr", "--output=json"])?)?;
    let items = list["items"].as_array().context("a list")?;
    let of_signer = items.iter().filter(|item| item["spec"]["signerName"] == signer);
    let name = |item: &Value| item["metadata"]["name"].as_str().map(str::to_owned);
    Ok(of_signer.filter_map(name).collect())
}

fn linked(path: &Path) -> Result<()> {
    let target = std::fs::read_link(path).with_context(|| path.display().to_string())?;
    ensure!(target.is_absolute() && target.exists(), "{}", target.display());
    Ok(())
}

fn until(what: &str, is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let mut is_so = is_so;
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > READY {
            bail!("the node is not {what} within {READY:?}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

fn log_of(bed: &Bed, kind: &AgentKind) -> String {
    let log = std::fs::read_to_string(AgentProcess::log(bed, kind)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
