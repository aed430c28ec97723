//! A control plane: etcd, kube-apiserver, kube-controller-manager and a kubectl for it.
//!
//! Rule: it refuses what a real cluster refuses: RBAC and Node authorization, NodeRestriction and
//! ServiceAccount admission, certificates from an authority of its own. No scheduler: a test binds
//! its pods to nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::certificates::{
    CertificateAuthority, CertificateSubject, KeyAndCertificate, write_signing_key,
};
use super::http;
use super::process::{RunningPart, output_of};
use crate::bed::{Bed, NODE_ADDRESS, free_port};
use crate::parts;

const READY: Duration = Duration::from_secs(90);
/// The first address of the service range is the API server's own.
const SERVICE_RANGE: &str = "10.96.0.0/16";
const SERVICE_ADDRESS: &str = "10.96.0.1";
/// Signs service accounts' tokens.
const SIGNING_KEY: &str = "service-account.key";
const SIGNING_KEY_PUBLIC: &str = "service-account.pub";

/// A running control plane. Fields are dropped, and so stopped, in this order.
#[derive(Debug)]
pub struct ControlPlane {
    controller_manager: RunningPart,
    api_server: RunningPart,
    _etcd: RunningPart,
    dir: PathBuf,
    authority: CertificateAuthority,
    port: u16,
    admin: PathBuf,
    admin_files: KeyAndCertificate,
}

impl ControlPlane {
    /// The parts to name in a test's needs.
    pub const NEEDS: &'static [&'static str] =
        &["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];

    /// All controllers but those that watch over nodes, for tests of other node controllers.
    pub const WITHOUT_NODE_CONTROLLERS: &'static str = "*,-node-lifecycle-controller,\
        -taint-eviction-controller,-node-ipam-controller,-pod-garbage-collector-controller";

    /// Starts all of it, and waits until an ordinary pod could be created.
    ///
    /// # Errors
    /// When a part is missing or does not come up, with the end of its log.
    pub fn start(bed: &Bed) -> Result<Self> {
        Self::start_with(bed, "*")
    }

    /// The same with only these controllers, as `--controllers` has them.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub fn start_with(bed: &Bed, controllers: &str) -> Result<Self> {
        Self::start_with_flags(bed, controllers, &[])
    }

    /// The same, and the API server gets these flags as well.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub fn start_with_flags(bed: &Bed, controllers: &str, flags: &[String]) -> Result<Self> {
        let dir = bed.create_dir("control-plane")?;
        let authority = CertificateAuthority::make(&dir, "bed authority")?;
        write_signing_key(&dir.join(SIGNING_KEY), &dir.join(SIGNING_KEY_PUBLIC))?;
        let (etcd, etcd_url) = start_etcd(bed, &dir)?;
        let port = free_port()?;
        let admin_files = authority.issue("admin", &client("bed-admin", Some("system:masters")))?;
        let admin = write_kubeconfig(&dir, "admin", port, &authority, &admin_files)?;
        let options = ApiServerOptions { etcd_url: &etcd_url, port, flags };
        let mut api_server = start_api_server(bed, &dir, &authority, &options)?;
        api_server.wait_until("readiness", READY, || {
            let answer = output_of(kubectl(&admin)?.args(["get", "--raw", "/readyz"]))?;
            ensure!(answer.trim() == "ok", "/readyz: {answer}");
            Ok(())
        })?;
        let controller_manager =
            start_controller_manager(bed, &dir, &authority, port, controllers)?;
        let mut plane = Self {
            controller_manager,
            api_server,
            _etcd: etcd,
            dir,
            authority,
            port,
            admin,
            admin_files,
        };
        // What ServiceAccount admission and every pod's token volume need.
        let admin = plane.admin.clone();
        for object in ["serviceaccount/default", "configmap/kube-root-ca.crt"] {
            plane.controller_manager.wait_until(object, READY, || {
                output_of(kubectl(&admin)?.args(["get", object, "--output", "name"]))
            })?;
        }
        Ok(plane)
    }

    /// Runs kubectl as the administrator and returns what it printed.
    ///
    /// # Errors
    /// When it fails, with its output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        output_of(kubectl(&self.admin)?.args(arguments))
    }

    /// Runs kubectl as the user of a kubeconfig.
    ///
    /// # Errors
    /// When it fails, with its output.
    pub fn kubectl_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
        output_of(kubectl(kubeconfig)?.args(arguments))
    }

    /// `https://…` of the API server.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The administrator's kubeconfig file.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin
    }

    /// The administrator's key and certificate.
    #[must_use]
    pub fn admin_files(&self) -> &KeyAndCertificate {
        &self.admin_files
    }

    /// The authority that all its clients and servers trust.
    #[must_use]
    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// A kubeconfig with the rights of the node of this name.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn node_kubeconfig(&self, node: &str) -> Result<PathBuf> {
        let user = format!("system:node:{node}");
        let file = format!("node-{node}");
        let files = self.authority.issue(&file, &client(&user, Some("system:nodes")))?;
        write_kubeconfig(&self.dir, &file, self.port, &self.authority, &files)
    }

    /// A kubeconfig of a user of this name, whose rights come from RBAC.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn user_kubeconfig(&self, user: &str) -> Result<PathBuf> {
        let file = format!("user-{}", user.replace(':', "-"));
        let files = self.authority.issue(&file, &client(user, None))?;
        write_kubeconfig(&self.dir, &file, self.port, &self.authority, &files)
    }

    /// The API server's process and its log.
    pub fn api_server(&mut self) -> &mut RunningPart {
        &mut self.api_server
    }
}

fn client<'a>(user: &'a str, group: Option<&'a str>) -> CertificateSubject<'a> {
    CertificateSubject { common_name: user, organization: group, alternative_names: &[] }
}

fn url(port: u16) -> String {
    format!("https://{NODE_ADDRESS}:{port}")
}

fn kubectl(kubeconfig: &Path) -> Result<Command> {
    let mut command = Command::new(parts::program("kubectl", "kubectl")?);
    // The cache would go to the caller's home otherwise.
    let cache = kubeconfig.with_file_name("kubectl-cache");
    command.env("KUBECONFIG", kubeconfig).env("KUBECACHEDIR", cache);
    command.arg("--request-timeout=10s");
    Ok(command)
}

fn write_kubeconfig(
    dir: &Path,
    name: &str,
    port: u16,
    authority: &CertificateAuthority,
    files: &KeyAndCertificate,
) -> Result<PathBuf> {
    let content = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bed", "cluster": {
            "server": url(port),
            "certificate-authority": authority.files.certificate,
        }}],
        "users": [{"name": name, "user": {
            "client-certificate": files.certificate,
            "client-key": files.key,
        }}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": name}}],
        "current-context": "bed",
    });
    let path = dir.join(format!("{name}.kubeconfig"));
    fs::write(&path, serde_json::to_vec_pretty(&content)?)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

fn start_etcd(bed: &Bed, dir: &Path) -> Result<(RunningPart, String)> {
    let (client_port, peer_port) = (free_port()?, free_port()?);
    let client_url = format!("http://127.0.0.1:{client_port}");
    let peer_url = format!("http://127.0.0.1:{peer_port}");
    let mut command = Command::new(parts::program("etcd", "etcd")?);
    command
        .args(["--name=bed", "--unsafe-no-fsync", "--log-level=warn"])
        .arg(format!("--data-dir={}", dir.join("etcd").display()))
        .arg(format!("--listen-client-urls={client_url}"))
        .arg(format!("--advertise-client-urls={client_url}"))
        .arg(format!("--listen-peer-urls={peer_url}"))
        .arg(format!("--initial-advertise-peer-urls={peer_url}"))
        .arg(format!("--initial-cluster=bed={peer_url}"));
    let mut etcd = RunningPart::start(bed, "etcd", &mut command)?;
    let address = format!("127.0.0.1:{client_port}").parse().context("etcd's address")?;
    etcd.wait_until("health", READY, || {
        let answer = http::get(address, "/health")?;
        ensure!(answer.status == 200, "/health: {}", answer.body);
        Ok(())
    })?;
    Ok((etcd, client_url))
}

struct ApiServerOptions<'a> {
    etcd_url: &'a str,
    port: u16,
    /// Further flags.
    flags: &'a [String],
}

fn start_api_server(
    bed: &Bed,
    dir: &Path,
    authority: &CertificateAuthority,
    options: &ApiServerOptions<'_>,
) -> Result<RunningPart> {
    let ApiServerOptions { etcd_url, port, flags } = *options;
    let serving = authority.issue(
        "kube-apiserver",
        &CertificateSubject {
            common_name: "kube-apiserver",
            alternative_names: &[
                NODE_ADDRESS,
                "127.0.0.1",
                SERVICE_ADDRESS,
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
            ],
            ..CertificateSubject::default()
        },
    )?;
    let to_kubelets = authority
        .issue("apiserver-to-kubelet", &client("bed-apiserver", Some("system:masters")))?;
    let mut command = Command::new(parts::program("kube-apiserver", "kube-apiserver")?);
    command
        .args(["--authorization-mode=Node,RBAC", "--allow-privileged=true"])
        .arg("--enable-admission-plugins=NodeRestriction,ServiceAccount")
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-cluster-ip-range={SERVICE_RANGE}"))
        .arg(format!("--etcd-servers={etcd_url}"))
        .arg(format!("--advertise-address={NODE_ADDRESS}"))
        .arg(format!("--secure-port={port}"))
        .arg(format!("--tls-cert-file={}", serving.certificate.display()))
        .arg(format!("--tls-private-key-file={}", serving.key.display()))
        .arg(format!("--client-ca-file={}", authority.files.certificate.display()))
        .arg(format!("--service-account-key-file={}", dir.join(SIGNING_KEY_PUBLIC).display()))
        .arg(format!("--service-account-signing-key-file={}", dir.join(SIGNING_KEY).display()))
        .arg(format!("--kubelet-client-certificate={}", to_kubelets.certificate.display()))
        .arg(format!("--kubelet-client-key={}", to_kubelets.key.display()))
        .arg(format!("--cert-dir={}", dir.join("apiserver-certificates").display()))
        .args(flags);
    RunningPart::start(bed, "kube-apiserver", &mut command)
}

fn start_controller_manager(
    bed: &Bed,
    dir: &Path,
    authority: &CertificateAuthority,
    port: u16,
    controllers: &str,
) -> Result<RunningPart> {
    let name = "kube-controller-manager";
    let files = authority.issue(name, &client("system:kube-controller-manager", None))?;
    let kubeconfig = write_kubeconfig(dir, name, port, authority, &files)?;
    let mut command = Command::new(parts::program(name, name)?);
    command
        .args(["--leader-elect=false", "--use-service-account-credentials=true"])
        // The tests have no client for it.
        .arg("--secure-port=0")
        .arg(format!("--controllers={controllers}"))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--root-ca-file={}", authority.files.certificate.display()))
        .arg(format!("--cluster-signing-cert-file={}", authority.files.certificate.display()))
        .arg(format!("--cluster-signing-key-file={}", authority.files.key.display()))
        .arg(format!("--service-account-private-key-file={}", dir.join(SIGNING_KEY).display()));
    RunningPart::start(bed, name, &mut command)
}
