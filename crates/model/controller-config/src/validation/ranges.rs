//! Pod CIDRs: the cluster CIDRs, their node masks, and the service CIDRs to exclude.
//!
//! The rule it keeps: upstream's: one cluster CIDR, or one of each family; with two, the mask size
//! is set per family. A service CIDR that does not parse is reported and ignored, as there.

use pod_model::{Cidr, parse_cidr};

use super::ConfigValidator;
use crate::config::PodRanges;
use crate::settings::ControllerSettings;

const MASK: &str = "node-cidr-mask-size";
const MASK_V4: &str = "node-cidr-mask-size-ipv4";
const MASK_V6: &str = "node-cidr-mask-size-ipv6";
const CLUSTER: &str = "cluster-cidr";
const SERVICE: &str = "service-cluster-ip-range";

/// The ranges, if they are to be allocated and the controller for it runs.
pub(super) fn validate(
    settings: &ControllerSettings,
    running: bool,
    validate: &mut ConfigValidator<'_>,
) -> Option<PodRanges> {
    let kind = &settings.cidr_allocator_type;
    if !kind.is_empty() && kind != "RangeAllocator" {
        validate.refuse(
            "cidr-allocator-type",
            kind,
            "expected RangeAllocator: others need a cloud",
        );
    }
    let services: Vec<&str> = settings
        .service_cluster_ip_range
        .split(',')
        .chain([settings.secondary_service_range.as_str()])
        .filter(|part| !part.trim().is_empty())
        .collect();
    if services.len() > 2 {
        let value = &settings.service_cluster_ip_range;
        validate.refuse(SERVICE, value, "expected at most one range of each family");
    }
    if !settings.allocate_node_cidrs || !running {
        return None;
    }
    let cluster = cluster(settings, validate)?;
    let masks = masks(settings, &cluster, validate)?;
    let service = service(&services, validate);
    let mut parts = Vec::new();
    for (range, mask) in cluster.into_iter().zip(masks) {
        let bits = if range.network.is_ipv4() { 32 } else { 128 };
        let flag = mask_flag(settings, &range);
        match u8::try_from(mask) {
            Ok(size) if size <= bits && size >= range.prefix_length => parts.push((range, size)),
            _ => {
                let own = range.prefix_length;
                let expected = format!(
                    "expected from {own} to {bits} for the cluster range {}/{own}",
                    range.network
                );
                validate.refuse(flag, mask, expected);
            }
        }
    }
    Some(PodRanges { cluster: parts, service })
}

fn cluster(settings: &ControllerSettings, validate: &mut ConfigValidator<'_>) -> Option<Vec<Cidr>> {
    let value = &settings.cluster_cidr;
    if value.trim().is_empty() {
        validate.refuse(CLUSTER, value, "expected a range, since --allocate-node-cidrs is on");
        return None;
    }
    let mut ranges = Vec::new();
    for part in value.split(',') {
        match parse_cidr(part.trim()) {
            Ok(range) => ranges.push(range),
            Err(error) => validate.refuse(CLUSTER, value, error.to_string()),
        }
    }
    match ranges[..] {
        [_] => Some(ranges),
        [one, other] if one.network.is_ipv4() != other.network.is_ipv4() => Some(ranges),
        [] => None,
        _ => {
            validate.refuse(CLUSTER, value, "expected one range, or one of each family");
            None
        }
    }
}

/// The mask size for each cluster range.
fn masks(
    settings: &ControllerSettings,
    cluster: &[Cidr],
    validate: &mut ConfigValidator<'_>,
) -> Option<Vec<i32>> {
    let (both, v4, v6) = (
        settings.node_cidr_mask_size,
        settings.node_cidr_mask_size_ipv4,
        settings.node_cidr_mask_size_ipv6,
    );
    let mut fits = true;
    let mut refuse = |flag, value: i32, expected: &str| {
        fits = false;
        validate.refuse(flag, value, expected);
    };
    match cluster {
        [_, _] => {
            if both != 0 {
                refuse(MASK, both, "expected the two flags per family instead, with two families");
            }
        }
        [only] => {
            if both != 0 && (v4 != 0 || v6 != 0) {
                refuse(MASK, both, "expected either this or the flags per family");
            } else if v4 != 0 && only.network.is_ipv6() {
                refuse(MASK_V4, v4, "expected no IPv4 mask size, since the cluster is IPv6 only");
            } else if v6 != 0 && only.network.is_ipv4() {
                refuse(MASK_V6, v6, "expected no IPv6 mask size, since the cluster is IPv4 only");
            }
        }
        _ => return None,
    }
    let chosen = |range: &Cidr| {
        let (own, default) = if range.network.is_ipv4() { (v4, 24) } else { (v6, 64) };
        [both, own].into_iter().find(|size| *size != 0).unwrap_or(default)
    };
    fits.then(|| cluster.iter().map(chosen).collect())
}

fn mask_flag(settings: &ControllerSettings, range: &Cidr) -> &'static str {
    if settings.node_cidr_mask_size != 0 {
        MASK
    } else if range.network.is_ipv4() {
        MASK_V4
    } else {
        MASK_V6
    }
}

fn service(texts: &[&str], validate: &mut ConfigValidator<'_>) -> Vec<Cidr> {
    let mut ranges: Vec<Cidr> = Vec::new();
    for text in texts {
        match parse_cidr(text.trim()) {
            Ok(range) => ranges.push(range),
            Err(error) => validate.warn(SERVICE, text, format!("it is left: {error}")),
        }
    }
    if let [one, other] = ranges[..]
        && one.network.is_ipv4() == other.network.is_ipv4()
    {
        validate.refuse(SERVICE, texts.join(","), "expected two ranges of different families");
    }
    ranges
}
