//! A control plane: etcd, kube-apiserver, kube-controller-manager, a kubectl for it, and
//! kube-scheduler for the tests that ask for one.
//!
//! Rule: it refuses what a real cluster refuses: RBAC and Node authorization, NodeRestriction and
//! ServiceAccount admission, certificates from an authority of its own. Its parts can be stopped
//! and started again on the same ports and data.

mod data;
mod launch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::certificates::{
    CertificateAuthority, CertificateSubject, KeyAndCertificate, write_signing_key,
};
use super::process::{RunningPart, output_of};
use crate::bed::{Bed, NODE_ADDRESS, free_port};
use crate::parts;

pub use data::SavedData;

const READY: Duration = Duration::from_secs(90);
/// Signs service accounts' tokens.
const SIGNING_KEY: &str = "service-account.key";
const SIGNING_KEY_PUBLIC: &str = "service-account.pub";

/// A running control plane. Fields are dropped, and so stopped, in this order.
#[derive(Debug)]
pub struct ControlPlane {
    scheduler: Option<RunningPart>,
    controller_manager: RunningPart,
    api_server: RunningPart,
    etcd: RunningPart,
    /// Where etcd's client and peers are.
    etcd_ports: EtcdPorts,
    /// Further flags of the API server.
    flags: Vec<String>,
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

    /// The part that [`ControlPlane::start_scheduler`] needs as well.
    pub const SCHEDULER: &'static str = "kube-scheduler";

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
        let etcd_ports = EtcdPorts { client: free_port()?, peer: free_port()? };
        let etcd = launch::etcd(bed, &dir, etcd_ports)?;
        let port = free_port()?;
        let admin_files = authority.issue("admin", &client("bed-admin", Some("system:masters")))?;
        let admin = write_kubeconfig(&dir, "admin", port, &authority, &admin_files)?;
        let site = PlaneSite { dir: &dir, authority: &authority, port };
        let api_server = launch::api_server(bed, &site, etcd_ports, flags)?;
        let api_server = ready(api_server, &admin)?;
        let controller_manager = launch::controller_manager(bed, &site, controllers)?;
        let mut plane = Self {
            scheduler: None,
            controller_manager,
            api_server,
            etcd,
            etcd_ports,
            flags: flags.to_vec(),
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

    /// A kubectl of the administrator, to be given its arguments.
    ///
    /// # Errors
    /// When the part is missing.
    pub fn kubectl_command(&self) -> Result<Command> {
        kubectl(&self.admin)
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

    /// Starts kube-scheduler, which binds pods to nodes. A test needs the part
    /// [`ControlPlane::SCHEDULER`] for it.
    ///
    /// # Errors
    /// When the part is missing or cannot be started.
    pub fn start_scheduler(&mut self, bed: &Bed) -> Result<()> {
        let site = PlaneSite { dir: &self.dir, authority: &self.authority, port: self.port };
        self.scheduler = Some(launch::scheduler(bed, &site)?);
        Ok(())
    }

    /// Kills the API server as a crash would; etcd goes on.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill_api_server(&mut self) -> Result<()> {
        self.api_server.kill()
    }

    /// Starts the API server again on its port, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up, with the end of its log.
    pub fn start_api_server(&mut self, bed: &Bed) -> Result<()> {
        let site = PlaneSite { dir: &self.dir, authority: &self.authority, port: self.port };
        let api_server = launch::api_server(bed, &site, self.etcd_ports, &self.flags)?;
        self.api_server = ready(api_server, &self.admin)?;
        Ok(())
    }

    /// The API server's process and its log.
    pub fn api_server(&mut self) -> &mut RunningPart {
        &mut self.api_server
    }
}

/// What the starters of its parts share.
struct PlaneSite<'a> {
    dir: &'a Path,
    authority: &'a CertificateAuthority,
    /// The API server's port.
    port: u16,
}

/// Where etcd listens.
#[derive(Debug, Clone, Copy)]
struct EtcdPorts {
    client: u16,
    peer: u16,
}

/// Waits until the API server is ready.
fn ready(mut api_server: RunningPart, admin: &Path) -> Result<RunningPart> {
    api_server.wait_until("readiness", READY, || {
        let answer = output_of(kubectl(admin)?.args(["get", "--raw", "/readyz"]))?;
        ensure!(answer.trim() == "ok", "/readyz: {answer}");
        Ok(())
    })?;
    Ok(api_server)
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
