//! The reference kubelet, with a configuration of the test's choosing.
//!
//! Rule: the configuration is passed unchanged, so that `/configz` shows the test's text and the
//! kubelet's own defaults.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::certificates::KeyAndCertificate;
use super::http;
use super::process::{RunningPart, output_of};
use crate::bed::{Bed, NODE_ADDRESS};
use crate::parts;

const READY: Duration = Duration::from_secs(60);

/// Options of a reference kubelet.
#[derive(Debug, Clone, Default)]
pub struct KubeletOptions {
    /// The text of its configuration file.
    pub configuration: String,
    /// With it, the kubelet joins a cluster; without, it stands alone.
    pub kubeconfig: Option<PathBuf>,
    /// The runtime's endpoint, when the configuration does not name it.
    pub runtime_endpoint: Option<String>,
    /// Credentials for requests to its own server; without them, requests are anonymous.
    pub credentials: Option<KeyAndCertificate>,
    /// More flags.
    pub flags: Vec<String>,
    /// A program with its first arguments that runs in place of the reference.
    pub program: Option<(PathBuf, Vec<String>)>,
}

/// A reference kubelet that was healthy.
#[derive(Debug)]
pub struct ReferenceKubelet {
    running: RunningPart,
    credentials: Option<KeyAndCertificate>,
}

impl ReferenceKubelet {
    /// The parts to name in a test's needs; kubectl asks its server.
    pub const NEEDS: &'static [&'static str] = &["kubelet", "kubectl"];

    /// Starts it and waits until it is healthy on its default port.
    ///
    /// # Errors
    /// When it ends, or is not healthy in time; with the end of its log.
    pub fn start(bed: &Bed, options: &KubeletOptions) -> Result<Self> {
        let dir = bed.create_dir("reference-kubelet")?;
        let configuration = dir.join("config.yaml");
        fs::write(&configuration, &options.configuration)
            .with_context(|| format!("write {}", configuration.display()))?;
        let (program, first) = match options.program.clone() {
            Some(other) => other,
            None => (parts::program("kubelet", "kubelet")?, Vec::new()),
        };
        let mut command = Command::new(program);
        command
            .args(first)
            .arg(format!("--config={}", configuration.display()))
            .arg(format!("--node-ip={NODE_ADDRESS}"))
            .args(&options.flags);
        if let Some(kubeconfig) = &options.kubeconfig {
            command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        }
        if let Some(endpoint) = &options.runtime_endpoint {
            command.arg(format!("--container-runtime-endpoint={endpoint}"));
        }
        let running = RunningPart::start(bed, "reference-kubelet", &mut command)?;
        let mut kubelet = Self { running, credentials: options.credentials.clone() };
        kubelet.running.wait_until("health", READY, || {
            let answer = healthz()?;
            ensure!(answer == "ok", "/healthz: {answer}");
            Ok(())
        })?;
        Ok(kubelet)
    }

    /// What `/healthz` returns now.
    ///
    /// # Errors
    /// When the kubelet does not answer.
    pub fn healthz(&self) -> Result<String> {
        healthz()
    }

    /// The effective configuration, from its `/configz`.
    ///
    /// # Errors
    /// When its server does not answer, or not with JSON.
    pub fn configz(&self) -> Result<serde_json::Value> {
        let text = self.get("/configz")?;
        let answer: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("/configz: {text}"))?;
        answer.get("kubeletconfig").cloned().context("/configz has no kubeletconfig")
    }

    /// Requests a path of its own server, without verifying its self-signed certificate.
    ///
    /// # Errors
    /// When it refuses or does not answer.
    pub fn get(&self, path: &str) -> Result<String> {
        let mut command = Command::new(parts::program("kubectl", "kubectl")?);
        command
            .env("KUBECONFIG", Path::new("/dev/null"))
            .arg(format!("--server=https://{NODE_ADDRESS}:10250"))
            .args(["--insecure-skip-tls-verify", "--request-timeout=10s"]);
        if let Some(files) = &self.credentials {
            command
                .arg(format!("--client-certificate={}", files.certificate.display()))
                .arg(format!("--client-key={}", files.key.display()));
        }
        output_of(command.args(["get", "--raw", path]))
    }

    /// The process and its log.
    pub fn process(&mut self) -> &mut RunningPart {
        &mut self.running
    }
}

fn healthz() -> Result<String> {
    let answer = http::get(SocketAddr::from(([127, 0, 0, 1], 10248)), "/healthz")?;
    Ok(answer.body)
}
