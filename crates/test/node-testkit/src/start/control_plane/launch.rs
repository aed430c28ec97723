//! The command lines of a control plane's parts.
//!
//! Rule: each part gets its own certificate and the rights that upstream gives it, no others. Only
//! etcd is waited for here.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{
    EtcdPorts, PlaneSite, READY, SIGNING_KEY, SIGNING_KEY_PUBLIC, client, write_kubeconfig,
};
use crate::bed::{Bed, NODE_ADDRESS};
use crate::parts;
use crate::start::certificates::CertificateSubject;
use crate::start::http;
use crate::start::process::RunningPart;

/// The first address of the service range is the API server's own.
const SERVICE_RANGE: &str = "10.96.0.0/16";
const SERVICE_ADDRESS: &str = "10.96.0.1";
/// etcd's directory below the control plane's.
pub(super) const ETCD_DATA: &str = "etcd";

/// etcd on its data directory, which it makes when there is none.
pub(super) fn etcd(bed: &Bed, dir: &Path, ports: EtcdPorts) -> Result<RunningPart> {
    let client_url = client_url(ports);
    let peer_url = format!("http://127.0.0.1:{}", ports.peer);
    let mut command = Command::new(parts::program("etcd", "etcd")?);
    command
        .args(["--name=bed", "--unsafe-no-fsync", "--log-level=warn"])
        .arg(format!("--data-dir={}", dir.join(ETCD_DATA).display()))
        .arg(format!("--listen-client-urls={client_url}"))
        .arg(format!("--advertise-client-urls={client_url}"))
        .arg(format!("--listen-peer-urls={peer_url}"))
        .arg(format!("--initial-advertise-peer-urls={peer_url}"))
        .arg(format!("--initial-cluster=bed={peer_url}"));
    let mut etcd = RunningPart::start(bed, "etcd", &mut command)?;
    let address = SocketAddr::from(([127, 0, 0, 1], ports.client));
    etcd.wait_until("health", READY, || {
        let answer = http::get(address, "/health")?;
        ensure!(answer.status == 200, "/health: {}", answer.body);
        Ok(())
    })?;
    Ok(etcd)
}

fn client_url(ports: EtcdPorts) -> String {
    format!("http://127.0.0.1:{}", ports.client)
}

/// The API server with these further flags.
pub(super) fn api_server(
    bed: &Bed,
    site: &PlaneSite<'_>,
    etcd: EtcdPorts,
    flags: &[String],
) -> Result<RunningPart> {
    let PlaneSite { dir, authority, port } = *site;
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
        .arg(format!("--etcd-servers={}", client_url(etcd)))
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

/// The controller manager with only these controllers.
pub(super) fn controller_manager(
    bed: &Bed,
    site: &PlaneSite<'_>,
    controllers: &str,
) -> Result<RunningPart> {
    let PlaneSite { dir, authority, port } = *site;
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

/// The scheduler.
pub(super) fn scheduler(bed: &Bed, site: &PlaneSite<'_>) -> Result<RunningPart> {
    let name = "kube-scheduler";
    let files = site.authority.issue(name, &client("system:kube-scheduler", None))?;
    let kubeconfig = write_kubeconfig(site.dir, name, site.port, site.authority, &files)?;
    let mut command = Command::new(parts::program(name, name)?);
    command
        .args(["--leader-elect=false", "--secure-port=0"])
        .arg(format!("--kubeconfig={}", kubeconfig.display()));
    RunningPart::start(bed, name, &mut command)
}
