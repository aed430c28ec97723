//! Values of a pod's own fields, for `fieldRef`.
//!
//! Rule: only the paths that the reference knows for variables; a path that is valid in a
//! specification but not for a variable is an error with the reference's message.
//!
//! upstream: pkg/kubelet/kubelet_pods.go, pkg/fieldpath/fieldpath.go

use std::net::IpAddr;

use pod_model::pod::container::ObjectFieldSelector;
use pod_model::pod::{Pod, TextMap};
use pod_model::{check_qualified_name, parse_ip};

use crate::inputs::NodeSetupInputs;
use crate::{SetupError, refuse};

#[cfg(test)]
mod tests;

/// `pod_ips` are the sandbox's. On the host network they are the node's where the agent has an API
/// server, and none for a standalone agent.
pub fn value(
    field: &ObjectFieldSelector,
    pod: &Pod,
    node: &NodeSetupInputs,
    pod_ips: &[String],
) -> Result<String, SetupError> {
    if &*field.api_version != "v1" {
        refuse!("unsupported pod version: {}", field.api_version);
    }
    let path = &*field.field_path;
    if let Some((map, key)) = subscript(path) {
        return in_map(pod, map, key, path);
    }
    let meta = &pod.metadata;
    let text = |text: &str| Ok(text.to_owned());
    match path {
        "metadata.annotations" => Ok(formatted(&meta.annotations)),
        "metadata.labels" => Ok(formatted(&meta.labels)),
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "spec.nodeName" | "spec.host" => text(&pod.spec.node_name),
        "spec.serviceAccountName" => text(&pod.spec.service_account_name),
        "status.hostIP" => match node.node_ips.first() {
            Some(ip) => Ok(ip.to_string()),
            None => refuse!("status.hostIP: the node has no address yet"),
        },
        "status.hostIPs" => Ok(joined(&node.node_ips)),
        "status.podIP" => {
            let ips = in_order_of_families(&node.node_ips, pod_ips);
            Ok(ips.into_iter().next().or_else(|| pod_ips.first().cloned()).unwrap_or_default())
        }
        "status.podIPs" => Ok(in_order_of_families(&node.node_ips, pod_ips).join(",")),
        "spec.restartPolicy" | "spec.schedulerName" | "status.phase" => {
            refuse!("unsupported fieldPath: {path}")
        }
        _ => refuse!("field label not supported: {path}"),
    }
}

fn joined(ips: &[IpAddr]) -> String {
    let texts: Vec<String> = ips.iter().map(ToString::to_string).collect();
    texts.join(",")
}

/// One address of each family at most, the node's first family first, in the usual form.
// upstream: pkg/kubelet/kubelet_pods.go
pub fn in_order_of_families(node_ips: &[IpAddr], ips: &[String]) -> Vec<String> {
    let is_v6_first = node_ips.first().is_some_and(IpAddr::is_ipv6);
    let parsed: Vec<IpAddr> = ips.iter().filter_map(|ip| parse_ip(ip).ok()).collect();
    let of = |is_v6: bool| parsed.iter().find(move |ip| ip.is_ipv6() == is_v6);
    [of(is_v6_first), of(!is_v6_first)].into_iter().flatten().map(ToString::to_string).collect()
}

/// `metadata.labels['key']` as path and key.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

fn in_map(pod: &Pod, map: &str, key: &str, path: &str) -> Result<String, SetupError> {
    let (entries, checked) = match map {
        "metadata.annotations" => (&pod.metadata.annotations, key.to_lowercase()),
        "metadata.labels" => (&pod.metadata.labels, key.to_owned()),
        _ => refuse!("field label does not support subscript: {path}"),
    };
    if let Err(diagnostic) = check_qualified_name(&checked) {
        refuse!("invalid key subscript in {path}: {diagnostic}");
    }
    Ok(entries.get(key).map(ToString::to_string).unwrap_or_default())
}

/// One `key="value"` a line, sorted.
pub fn formatted(map: &TextMap) -> String {
    let lines: Vec<String> =
        map.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// Quotes a text as Go does.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            control if (control as u32) < 0x20 || control == '\u{7f}' => {
                out.push_str(&format!("\\x{:02x}", control as u32));
            }
            hidden if is_hidden(hidden) => out.push_str(&match u16::try_from(hidden) {
                Ok(short) => format!("\\u{short:04x}"),
                Err(_) => format!("\\U{:08x}", hidden as u32),
            }),
            shown => out.push(shown),
        }
    }
    out.push('"');
    out
}

/// Characters that Go does not print: controls, separators other than the space, format characters,
/// private and unassigned code points. The ranges are those that occur in practice; everything else
/// prints.
fn is_hidden(character: char) -> bool {
    matches!(character as u32,
        0x80..=0xa0 | 0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x180e | 0x1680
        | 0x2000..=0x200f | 0x2028..=0x202f | 0x205f..=0x206f | 0x3000 | 0xd800..=0xf8ff
        | 0xfeff | 0xfff0..=0xfffb | 0xfffe..=0xffff | 0xe_0000..=0xe_00ff | 0xf_0000..=0x10_ffff)
}
