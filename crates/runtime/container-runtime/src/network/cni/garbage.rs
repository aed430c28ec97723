//! Garbage collection of plugins' attachments for pods that have no record any more.
//!
//! Rule: only if the administrator declares the networks to be ours alone, and never if a network's
//! configuration forbids it. Attachments with a kept result are deleted by their own configuration;
//! then GC is called with the valid attachments, where plugins support it. Errors are logged and
//! stop nothing.
//!
//! upstream: containernetworking/cni SPEC.md (GC), libcni GCNetworkList

use std::path::Path;

use base64::Engine as _;
use cni_documents::NetworkConfigList;
use cri_wire::v1;
use serde_json::{Map, Value, json};

use super::{Cni, INSIDE, PodNetwork, plugin};
use crate::durable;
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::records::NetworkRecord;

const MAX_RESULT_SIZE: u64 = 4 << 20;

impl Cni {
    /// `known` are the sandboxes whose networks are valid.
    pub(in super::super) async fn collect(&self, known: &[String]) {
        if !self.settings.collect_garbage {
            return;
        }
        let configuration = match self.configuration().await {
            Ok(Some(configuration)) => configuration,
            Ok(None) => return,
            Err(failure) => {
                tracing::warn!(%failure, "no CNI configuration to collect garbage with");
                return;
            }
        };
        // Other runtimes have attachments in it that are not known here.
        if configuration.gc_disabled {
            tracing::debug!(network = configuration.name, "its configuration forbids to collect");
            return;
        }
        if let Err(failure) = self.remove_stale(&configuration, known).await {
            tracing::warn!(%failure, "tearing down networks of unknown pods");
        }
        self.send_valid_attachments(&configuration, known).await;
    }

    async fn remove_stale(
        &self,
        configuration: &NetworkConfigList,
        known: &[String],
    ) -> Result<()> {
        let dir = self.settings.results.clone();
        for name in blocking(move || durable::names_in(&dir)).await? {
            let path = self.settings.results.join(name);
            let read = blocking(move || read_cached_result(&path)).await;
            let (network, pod, record) = match read {
                Ok(cached_result) => cached_result,
                Err(failure) => {
                    tracing::debug!(%failure, "a file among the CNI results");
                    continue;
                }
            };
            if network != configuration.name || known.contains(&pod.sandbox) {
                continue;
            }
            tracing::info!(sandbox = pod.sandbox, network, "deleting a network without pod");
            if let Err(failure) = self.remove(&pod, &record).await {
                tracing::warn!(sandbox = pod.sandbox, %failure, "deleting a network without pod");
            }
        }
        Ok(())
    }

    async fn send_valid_attachments(&self, configuration: &NetworkConfigList, known: &[String]) {
        if !configuration.version_at_least((1, 1, 0)) {
            return;
        }
        let valid: Vec<Value> = known
            .iter()
            .map(|sandbox| json!({ "containerID": sandbox, "ifname": INSIDE }))
            .collect();
        for entry in &configuration.plugins {
            let mut input: Map<String, Value> =
                serde_json::from_slice(&entry.input(configuration, None, &Map::new()))
                    .unwrap_or_default();
            // The first is the specification's; the second is its earlier, misspelt form.
            for name in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
                input.insert(name.to_owned(), Value::Array(valid.clone()));
            }
            let input = Value::Object(input).to_string().into_bytes();
            let call = plugin::PluginCall { command: "GC", kind: &entry.kind, pod: None, input };
            if let Err(failure) = plugin::run(&self.settings, &call).await {
                // Most plugins do not support GC yet.
                tracing::debug!(%failure, "a CNI plugin did not collect its garbage");
            }
        }
    }
}

/// A kept result: the network's name, and what its DEL needs.
fn read_cached_result(path: &Path) -> Result<(String, PodNetwork, NetworkRecord)> {
    let wrong = |why: &str| CriError::plain(format!("{}: {why}", path.display()));
    let size = std::fs::metadata(path).doing(format!("looking at {}", path.display()))?.len();
    if size > MAX_RESULT_SIZE {
        return Err(wrong("is too large for a CNI result"));
    }
    let bytes = std::fs::read(path).doing(format!("reading {}", path.display()))?;
    let cached_result: Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong(&error.to_string()))?;
    let text =
        |name: &str| cached_result.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    if text("kind") != "cniCacheV1" || text("ifName") != INSIDE || text("containerId").is_empty() {
        return Err(wrong("is no kept result of ours"));
    }
    let configuration = base64::engine::general_purpose::STANDARD
        .decode(text("config"))
        .map_err(|_| wrong("its config is not in base 64"))?;
    let argument = |wanted: &str| {
        let pairs = cached_result.get("cniArgs").and_then(Value::as_array).into_iter().flatten();
        let mut pairs = pairs.filter_map(Value::as_array);
        let found = pairs.find(|pair| pair.first().and_then(Value::as_str) == Some(wanted));
        found.and_then(|pair| pair.get(1)?.as_str()).unwrap_or_default().to_owned()
    };
    let config = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: argument("K8S_POD_NAME"),
            uid: argument("K8S_POD_UID"),
            namespace: argument("K8S_POD_NAMESPACE"),
            attempt: 0,
        }),
        port_mappings: ports(&cached_result),
        ..Default::default()
    };
    let record = NetworkRecord {
        namespace: text("netns"),
        cni_configuration: configuration,
        cni_result: cached_result
            .get("result")
            .map(ToString::to_string)
            .unwrap_or_default()
            .into_bytes(),
        ..Default::default()
    };
    Ok((text("networkName"), PodNetwork { sandbox: text("containerId"), config }, record))
}

/// The host ports, which the portmap plugin needs again for DEL.
fn ports(cached_result: &Value) -> Vec<v1::PortMapping> {
    let listed = cached_result.pointer("/capabilityArgs/portMappings").and_then(Value::as_array);
    let number = |port: &Value, name: &str| {
        port.get(name).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok()).unwrap_or(0)
    };
    let protocol = |port: &Value| match port.get("protocol").and_then(Value::as_str) {
        Some("udp") => v1::Protocol::Udp,
        Some("sctp") => v1::Protocol::Sctp,
        _ => v1::Protocol::Tcp,
    };
    let one = |port: &Value| v1::PortMapping {
        protocol: protocol(port).into(),
        container_port: number(port, "containerPort"),
        host_port: number(port, "hostPort"),
        host_ip: port.get("hostIP").and_then(Value::as_str).unwrap_or_default().to_owned(),
    };
    listed.into_iter().flatten().map(one).collect()
}
