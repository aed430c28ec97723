//! A control plane without node controllers, and one of the two controllers beside it.
//!
//! Rule: both controllers get the same flags and the same permissions; ours gets them from the
//! example manifest that is delivered with it, so that the example is tested, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use apiserver_client::{ApiClient, ClientOptions, parse_kubeconfig};
use node_testkit::bed::{Bed, free_port};
use node_testkit::parts;
use node_testkit::start::{CertificateSubject as Certified, ControlPlane, RunningPart};

use super::audit::Audit;

/// Which controllers run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControllerUnderTest {
    /// This Keelson binary.
    Keelson(PathBuf),
    /// The real kube-controller-manager, with the same controllers only.
    Reference,
}

impl ControllerUnderTest {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Keelson(_) => "keelson",
            Self::Reference => "reference",
        }
    }
}

/// The four controllers, by their upstream and our names.
pub const CONTROLLERS: &str = "node-lifecycle-controller,taint-eviction-controller,\
    node-ipam-controller,pod-garbage-collector-controller";

/// The user in the example manifest, and the name of its role and bindings.
pub const USER: &str = "keelson-node-controller";

/// A cluster without nodes.
#[derive(Debug)]
pub struct TestCluster {
    pub plane: ControlPlane,
    /// The administrator's client, without a rate limit.
    pub client: ApiClient,
    /// The kubeconfig that both get instead of their own.
    pub through: Option<PathBuf>,
    /// The audit log, if it was requested.
    pub audit: Option<Audit>,
}

impl TestCluster {
    /// Starts it. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When a part does not come up.
    pub fn start(bed: &Bed) -> Result<Self> {
        Self::start_with_flags(bed, &[])
    }

    /// The same; these users get a node controller's permissions, too, and the API server records
    /// their writes in its audit log.
    ///
    /// # Errors
    /// As [`TestCluster::start`].
    pub fn start_audited(bed: &Bed, users: &[String]) -> Result<Self> {
        let audit = Audit::new(bed, users)?;
        let mut cluster = Self::start_with_flags(bed, &audit.flags())?;
        let users: Vec<String> = users.iter().map(|user| format!("--user={user}")).collect();
        let (everywhere, within) = (format!("--clusterrole={USER}"), format!("--role={USER}"));
        let bindings: [&[&str]; 3] = [
            &["clusterrolebinding", "audited", &everywhere],
            &["rolebinding", "audited", &within, "--namespace=kube-node-lease"],
            &["rolebinding", "audited", &within, "--namespace=kube-system"],
        ];
        for binding in bindings {
            let mut arguments = vec!["create"];
            arguments.extend(binding);
            arguments.extend(users.iter().map(String::as_str));
            cluster.plane.kubectl(&arguments)?;
        }
        cluster.audit = Some(audit);
        Ok(cluster)
    }

    fn start_with_flags(bed: &Bed, flags: &[String]) -> Result<Self> {
        let controllers = ControlPlane::WITHOUT_NODE_CONTROLLERS;
        let plane = ControlPlane::start_with_flags(bed, controllers, flags)?;
        let rights =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/node-controller/rbac.yaml");
        plane.kubectl(&["apply", "--filename", &rights.to_string_lossy()])?;
        let client = client_of(plane.admin_kubeconfig())?;
        Ok(Self { plane, client, through: None, audit: None })
    }

    /// Flags for a subject's secure port on this machine, and the port.
    ///
    /// # Errors
    /// When there is no port, or no certificate for it.
    pub fn serving(&self, subject: &ControllerUnderTest) -> Result<(Vec<String>, u16)> {
        let port = free_port()?;
        let serving = self.plane.authority().issue(
            subject.name(),
            &Certified {
                common_name: subject.name(),
                alternative_names: &["127.0.0.1"],
                ..Certified::default()
            },
        )?;
        let kubeconfig = self.own_kubeconfig(subject)?;
        let flags = vec![
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", serving.certificate.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
        ];
        Ok((flags, port))
    }

    /// The metrics of the secure port, requested as the administrator.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn metrics(&self, port: u16) -> Result<String> {
        let server = format!("https://127.0.0.1:{port}");
        self.plane.kubectl(&["--server", &server, "get", "--raw", "/metrics"])
    }

    fn own_kubeconfig(&self, subject: &ControllerUnderTest) -> Result<PathBuf> {
        match subject {
            ControllerUnderTest::Keelson(_) => self.plane.user_kubeconfig(USER),
            ControllerUnderTest::Reference => Ok(self.plane.admin_kubeconfig().to_owned()),
        }
    }

    /// Starts the controllers with these flags, and waits until the process runs.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn controller(
        &self,
        bed: &Bed,
        subject: &ControllerUnderTest,
        flags: &[String],
    ) -> Result<RunningPart> {
        let own = self.own_kubeconfig(subject)?;
        let kubeconfig = self.through.as_ref().unwrap_or(&own);
        let mut command = match subject {
            ControllerUnderTest::Keelson(binary) => {
                let mut command = Command::new(binary);
                let socket = bed.dir().join("explain.sock");
                command
                    .arg("node-controller")
                    .arg(format!("--explain-socket={}", socket.display()));
                command
            }
            ControllerUnderTest::Reference => {
                let name = "kube-controller-manager";
                Command::new(parts::program(name, name)?)
            }
        };
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.arg(format!("--controllers={CONTROLLERS}")).arg("--secure-port=0").args(flags);
        RunningPart::start(bed, &format!("{}-controller", subject.name()), &mut command)
    }
}

/// A client without a rate limit.
///
/// # Errors
/// When the file cannot be read.
pub fn client_of(kubeconfig: &Path) -> Result<ApiClient> {
    let bytes = fs::read(kubeconfig).with_context(|| kubeconfig.display().to_string())?;
    let access = parse_kubeconfig(&bytes, kubeconfig, None)?;
    let options =
        ClientOptions { rate: None, deadline: Duration::from_secs(30), ..ClientOptions::default() };
    ApiClient::new(access, options).map_err(|message| anyhow!(message))
}
