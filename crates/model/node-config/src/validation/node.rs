//! Rules about the node as the cluster and the network see it: its name, addresses, labels, taints,
//! the runtime endpoint, and the flags that have no field.
//!
//! upstream: cmd/kubelet/app/options/options.go, pkg/util/taints, pkg/kubelet/sysctl

use pod_model::{
    check_label_value, check_qualified_name, check_taint_effect, parse_ip, parse_node_addresses,
};

use super::text_forms::{is_namespaced_sysctl, is_sysctl_pattern};
use super::url::parse_url;
use super::{ValidationFindings, ValidationInput};

/// Labels of Kubernetes itself that a node may still set on itself.
const OWN_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const OWN_LABEL_PREFIXES: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];
const RESERVED_LABEL_PREFIXES: &[&str] = &["kubernetes.io", "k8s.io"];
/// The default bits of the old iptables packet marks; nothing uses them any more.
const DEAD_BITS: (i32, i32) = (14, 15);

pub(super) fn check(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    labels(input, findings);
    taints(input, findings);
    addresses(input, findings);
    sysctls(input, findings);
    endpoints(input, findings);
    modes(input, findings);
    flags_without_field(input, findings);
    without_effect(input, findings);
}

fn labels(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const FIELD: &str = "--node-labels";
    for (key, value) in &input.flags.node_labels {
        let label = format!("{key}={value}");
        let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
        let own = OWN_LABELS.contains(&key.as_str()) || lies_under(prefix, OWN_LABEL_PREFIXES);
        if lies_under(prefix, RESERVED_LABEL_PREFIXES) && !own {
            findings.refuse(
                FIELD,
                &label,
                format!(
                    "a node may not give itself this label; of the labels of kubernetes.io and \
                     k8s.io it may set those under {} and {}",
                    OWN_LABEL_PREFIXES.join(" and "),
                    OWN_LABELS.join(", "),
                ),
            );
        }
        if let Err(diagnostic) = check_qualified_name(key) {
            findings.refuse(FIELD, &label, diagnostic.to_string());
        }
        if let Err(diagnostic) = check_label_value(value) {
            findings.refuse(FIELD, &label, diagnostic.to_string());
        }
    }
}

fn lies_under(prefix: &str, domains: &[&str]) -> bool {
    domains.iter().any(|domain| {
        prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn taints(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    for (index, taint) in input.settings.register_with_taints.iter().enumerate() {
        let path = format!("registerWithTaints[{index}]");
        if let Err(diagnostic) = check_qualified_name(&taint.key) {
            findings.refuse(format!("{path}.key"), &taint.key, diagnostic.to_string());
        }
        if let Err(diagnostic) = check_label_value(&taint.value) {
            findings.refuse(format!("{path}.value"), &taint.value, diagnostic.to_string());
        }
        if !taint.effect.is_empty()
            && let Err(diagnostic) = check_taint_effect(&taint.effect)
        {
            findings.refuse(format!("{path}.effect"), &taint.effect, diagnostic.to_string());
        }
        if let Some(time) = &taint.time_added {
            findings.refuse(format!("{path}.timeAdded"), time, "must not be set");
        }
    }
}

fn addresses(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    for (index, address) in settings.cluster_dns.iter().enumerate() {
        if parse_ip(address).is_err() {
            findings.warn(
                format!("clusterDNS[{index}]"),
                address,
                "is no IP address and is left out",
            );
        }
    }
    for (field, address) in
        [("address", &settings.address), ("healthzBindAddress", &settings.healthz_bind_address)]
    {
        if parse_ip(address).is_err() {
            findings.warn(field, address, "is no IP address");
        }
    }
    let own_provider = matches!(input.flags.cloud_provider.as_str(), "" | "external");
    match parse_node_addresses(&input.flags.node_ip, own_provider) {
        Ok(addresses) => {
            for ignored in &addresses.ignored {
                findings.warn("--node-ip", ignored, "is no IP address and is left out");
            }
        }
        Err(error) => findings.refuse("--node-ip", &input.flags.node_ip, error.to_string()),
    }
}

fn sysctls(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    for (index, pattern) in input.settings.allowed_unsafe_sysctls.iter().enumerate() {
        let path = format!("allowedUnsafeSysctls[{index}]");
        if !is_sysctl_pattern(pattern) {
            findings.refuse(
                path,
                pattern,
                "must be the name of a sysctl in small letters, with a `*` at its end at most",
            );
        } else if !is_namespaced_sysctl(pattern) {
            findings.refuse(
                path,
                pattern,
                "must be a sysctl that each pod has for itself: kernel.sem, kernel.shm*, \
                 kernel.msg*, fs.mqueue.* or net.*",
            );
        }
    }
}

/// A container runtime is reached over a unix socket, with or without its scheme.
fn endpoints(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    if settings.container_runtime_endpoint.is_empty() {
        findings.refuse("containerRuntimeEndpoint", "", "must be set, such as unix:///run/x.sock");
    }
    for (field, endpoint) in [
        ("containerRuntimeEndpoint", &settings.container_runtime_endpoint),
        ("imageServiceEndpoint", &settings.image_service_endpoint),
    ] {
        if endpoint.is_empty() {
            continue;
        }
        // An endpoint without a scheme is taken as the path of a unix socket.
        let with_scheme = format!("unix://{endpoint}");
        let address = match parse_url(endpoint) {
            Ok(address) if !address.scheme.is_empty() => Ok(address),
            _ => parse_url(&with_scheme),
        };
        match address {
            Ok(address) if address.scheme == "unix" && !address.path.is_empty() => {}
            Ok(_) => findings.refuse(field, endpoint, "must be a unix socket, unix:///path"),
            Err(error) => {
                findings.refuse(field, endpoint, format!("must be a unix socket: {error}"));
            }
        }
    }
}

fn modes(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    findings.one_of(
        "hairpinMode",
        &settings.hairpin_mode,
        &["promiscuous-bridge", "hairpin-veth", "none"],
    );
    let driver = settings.cgroup_driver.as_str();
    if !matches!(driver, "cgroupfs" | "systemd") {
        // The reference takes every other value for cgroupfs.
        findings.warn("cgroupDriver", driver, "is no known driver; \"cgroupfs\" is used");
    }
    // Without an API server nothing is fetched, and the strategy is not used.
    let strategy = settings.config_map_and_secret_change_detection_strategy.as_str();
    if !input.flags.kubeconfig.is_empty() {
        findings.one_of(
            "configMapAndSecretChangeDetectionStrategy",
            strategy,
            &["Get", "Cache", "Watch"],
        );
    }
    if settings.run_once {
        findings.refuse("runOnce", true, "is no longer supported and must be false");
    }
}

fn flags_without_field(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let flags = input.flags;
    if !matches!(flags.cloud_provider.as_str(), "" | "external") {
        findings.refuse(
            "--cloud-provider",
            &flags.cloud_provider,
            "must be empty or \"external\": built-in cloud providers are gone",
        );
    }
    if !flags.hostname_override.is_empty() && flags.hostname_override.trim().is_empty() {
        findings.refuse("--hostname-override", &flags.hostname_override, "must not be blank");
    }
    if flags.root_dir.is_empty() {
        findings.refuse("--root-dir", "", "must be the path of a directory");
    }
    if flags.exit_on_lock_contention && flags.lock_file.is_empty() {
        findings.refuse("--exit-on-lock-contention", true, "needs --lock-file");
    }
    if flags.minimum_container_ttl_duration.is_negative() {
        findings.refuse(
            "--minimum-container-ttl-duration",
            flags.minimum_container_ttl_duration,
            "must not be negative",
        );
    }
}

fn without_effect(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    let bits = [
        ("iptablesMasqueradeBit", settings.iptables_masquerade_bit, DEAD_BITS.0),
        ("iptablesDropBit", settings.iptables_drop_bit, DEAD_BITS.1),
    ];
    for (field, bit, default) in bits {
        if bit != default {
            findings.warn(field, bit, "is deprecated and has no effect");
        }
    }
    if !settings.fail_swap_on && settings.memory_swap.swap_behavior.is_empty() {
        findings.warn(
            "memorySwap.swapBehavior",
            "",
            "is not set while failSwapOn is false: pods get no swap, as with \"NoSwap\"",
        );
    }
}
