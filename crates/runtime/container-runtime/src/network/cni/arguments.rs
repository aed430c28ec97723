//! The arguments and capabilities that plugins get for a pod. Pure.

use cri_wire::v1;
use serde_json::{Map, Value, json};

use super::super::PodNetwork;
use crate::failure::{CriError, Result};

/// `CNI_ARGS`, by name.
pub(super) fn pairs(pod: &PodNetwork) -> Vec<[String; 2]> {
    let metadata = pod.config.metadata.clone().unwrap_or_default();
    [
        ("IgnoreUnknown", "1".to_owned()),
        ("K8S_POD_NAMESPACE", metadata.namespace),
        ("K8S_POD_NAME", metadata.name),
        ("K8S_POD_INFRA_CONTAINER_ID", pod.sandbox.clone()),
        ("K8S_POD_UID", metadata.uid),
    ]
    .map(|(name, value)| [name.to_owned(), value])
    .to_vec()
}

/// `CNI_ARGS` as a string.
pub(super) fn text(pod: &PodNetwork) -> String {
    let pairs: Vec<String> =
        pairs(pod).into_iter().map(|[name, value]| format!("{name}={value}")).collect();
    pairs.join(";")
}

/// Everything that a plugin may request by a capability.
pub(super) fn capabilities(pod: &PodNetwork) -> Result<Map<String, Value>> {
    let mut all = Map::new();
    all.insert("io.kubernetes.cri.pod-annotations".to_owned(), json!(pod.config.annotations));
    let ports: Vec<Value> = pod.host_ports().map(port).collect();
    if !ports.is_empty() {
        all.insert("portMappings".to_owned(), Value::Array(ports));
    }
    if let Some(bandwidth) = bandwidth(&pod.config)? {
        all.insert("bandwidth".to_owned(), bandwidth);
    }
    if let Some(dns) = &pod.config.dns_config {
        let dns = json!({
            "servers": dns.servers,
            "searches": dns.searches,
            "options": dns.options,
        });
        all.insert("dns".to_owned(), dns);
    }
    let parent = pod.config.linux.as_ref().map(|linux| linux.cgroup_parent.as_str());
    if let Some(parent) = parent.filter(|parent| !parent.is_empty()) {
        all.insert("cgroupPath".to_owned(), json!(parent));
    }
    Ok(all)
}

fn port(mapping: &v1::PortMapping) -> Value {
    json!({
        "hostPort": mapping.host_port,
        "containerPort": mapping.container_port,
        "protocol": mapping.protocol().as_str_name().to_ascii_lowercase(),
        "hostIP": mapping.host_ip,
    })
}

fn bandwidth(config: &v1::PodSandboxConfig) -> Result<Option<Value>> {
    let rate = |name: &str| {
        let key = format!("kubernetes.io/{name}-bandwidth");
        config.annotations.get(&key).map(|text| rate(&key, text)).transpose()
    };
    let (ingress, egress) = (rate("ingress")?, rate("egress")?);
    if ingress.is_none() && egress.is_none() {
        return Ok(None);
    }
    let mut all = Map::new();
    for (name, rate) in [("ingress", ingress), ("egress", egress)] {
        if let Some(rate) = rate {
            all.insert(format!("{name}Rate"), json!(rate));
            all.insert(format!("{name}Burst"), json!(u32::MAX));
        }
    }
    Ok(Some(Value::Object(all)))
}

/// A quantity of bits per second, such as `10M`; from 1k to 1P, as upstream accepts.
fn rate(key: &str, text: &str) -> Result<u64> {
    const SUFFIXES: &[(&str, u64)] = &[
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
        ("", 1),
    ];
    let value = SUFFIXES.iter().find_map(|(suffix, unit)| {
        let digits = text.strip_suffix(suffix)?;
        digits.parse::<u64>().ok()?.checked_mul(*unit)
    });
    match value {
        Some(value) if (1000..=1_000_000_000_000_000).contains(&value) => Ok(value),
        _ => Err(CriError::plain(format!(
            "reading pod bandwidth annotations: {key} is {text:?}; expected a rate from 1k to 1P"
        ))),
    }
}
