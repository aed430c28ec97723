//! An API server that validates pods by their own content alone, and a simple client for it.
//!
//! The rule it keeps: admission that depends on other objects is off, so that only defaults and
//! validation are left. kubectl handles TLS and credentials: it runs as a proxy.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, NODE_ADDRESS, free_port};
use node_testkit::parts;
use node_testkit::start::{CertificateAuthority, RunningPart, get};

const READY: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(30);
const TOKEN: &str = "differential";
const CREATE: &str = "/api/v1/namespaces/default/pods?dryRun=All&fieldValidation=Ignore";

/// Fields are dropped, and so stopped, in this order.
#[derive(Debug)]
pub struct ApiServer {
    _proxy: RunningPart,
    _api_server: RunningPart,
    _etcd: RunningPart,
    address: SocketAddr,
}

impl ApiServer {
    /// Starts etcd, the API server and a proxy, and waits until pods can be created.
    ///
    /// # Errors
    /// When a part is missing or does not come up, with the end of its log.
    pub fn start(bed: &Bed) -> Result<Self> {
        let dir = bed.create_dir("differential")?;
        let authority = CertificateAuthority::make(&dir, "differential authority")?;
        let (etcd_port, peer_port) = (free_port()?, free_port()?);
        let mut command = Command::new(parts::program("etcd", "etcd")?);
        command
            .args(["--unsafe-no-fsync", "--log-level=warn", "--name=bed"])
            .arg(format!("--data-dir={}", dir.join("etcd").display()))
            .arg(format!("--listen-client-urls=http://127.0.0.1:{etcd_port}"))
            .arg(format!("--advertise-client-urls=http://127.0.0.1:{etcd_port}"))
            .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"))
            .arg(format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}"))
            .arg(format!("--initial-cluster=bed=http://127.0.0.1:{peer_port}"));
        let etcd = RunningPart::start(bed, "etcd", &mut command)?;
        let tokens = dir.join("tokens.csv");
        fs::write(&tokens, format!("{TOKEN},admin,1,system:masters\n"))
            .with_context(|| tokens.display().to_string())?;
        // Tokens of service accounts are not used here, but a key for them must be named.
        let (key, public) = (&authority.files.key, &authority.files.certificate);
        let port = free_port()?;
        let mut command = Command::new(parts::program("kube-apiserver", "kube-apiserver")?);
        command
            .args(["--authorization-mode=RBAC", "--allow-privileged=true"])
            .arg("--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds,Priority,RuntimeClass,LimitRanger,TaintNodesByCondition,PodSecurity,ResourceQuota,PersistentVolumeClaimResize")
            .arg(format!("--token-auth-file={}", tokens.display()))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", public.display()))
            .arg(format!("--service-account-signing-key-file={}", key.display()))
            .arg("--service-cluster-ip-range=10.96.0.0/16")
            .arg(format!("--etcd-servers=http://127.0.0.1:{etcd_port}"))
            .arg(format!("--advertise-address={NODE_ADDRESS}"))
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", dir.join("certificates").display()));
        let mut api_server = RunningPart::start(bed, "kube-apiserver", &mut command)?;
        let proxy_port = free_port()?;
        let mut command = Command::new(parts::program("kubectl", "kubectl")?);
        command
            .args(["proxy", "--insecure-skip-tls-verify", "--token", TOKEN])
            .arg(format!("--server=https://127.0.0.1:{port}"))
            .arg(format!("--port={proxy_port}"))
            .env("KUBECACHEDIR", dir.join("kubectl-cache"));
        let proxy = RunningPart::start(bed, "kubectl-proxy", &mut command)?;
        let address = SocketAddr::from(([127, 0, 0, 1], proxy_port));
        api_server.wait_until("a default namespace", READY, || {
            let answer = get(address, "/api/v1/namespaces/default")?;
            ensure!(answer.status == 200, "namespace default: {}", answer.status);
            Ok(())
        })?;
        Ok(Self { _proxy: proxy, _api_server: api_server, _etcd: etcd, address })
    }

    /// The status and the body of a dry run.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn dry_run(&self, pod: &str) -> Result<(u16, String)> {
        let mut connection = TcpStream::connect(self.address)?;
        connection.set_read_timeout(Some(ANSWER))?;
        write!(
            connection,
            "POST {CREATE} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{pod}",
            self.address,
            pod.len()
        )?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer)?;
        let text = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").context("an answer without a head")?;
        let status = head.split(' ').nth(1).context("an answer without a status")?;
        Ok((status.parse().context("the status")?, body.to_owned()))
    }
}
