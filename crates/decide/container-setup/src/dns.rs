//! The resolver configuration of a pod.
//!
//! Rule: `dnsPolicy` selects the base, the pod's own settings are added, and what exceeds the
//! limits of resolvers is cut with a warning. Without cluster DNS a pod that asks for it gets the
//! node's resolver, and a warning.
//!
//! upstream: pkg/kubelet/network/dns/dns.go

use pod_model::pod::Pod;
use pod_model::pod::spec::{DnsPolicy, PodDnsConfig};
use ports::runtime_objects::DnsConfig;

use crate::inputs::{NodeDns, NodeSetupInputs, SetupWarning};
use crate::pod_text;
use crate::resolv_conf::put_option;

#[cfg(test)]
mod tests;

const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const LONGEST_SEARCH_LINE: usize = 2048;
const LONGEST_DOMAIN: usize = 253;
/// The option for cluster names: a name with fewer dots is tried with the search domains first.
const CLUSTER_OPTION: &str = "ndots:5";

enum ResolverBase {
    Cluster,
    Host,
    Nothing,
}

/// The pod's resolver configuration, with warnings.
pub fn of_pod(pod: &Pod, node: &NodeSetupInputs) -> (DnsConfig, Vec<SetupWarning>) {
    let mut warnings = Vec::new();
    let mut config = match base_of(pod) {
        ResolverBase::Nothing => DnsConfig::default(),
        ResolverBase::Cluster if !node.dns.cluster_servers.is_empty() => {
            from_cluster(pod, &node.dns)
        }
        ResolverBase::Cluster => {
            warnings.extend(missing_servers(pod));
            from_host(node)
        }
        ResolverBase::Host => from_host(node),
    };
    if let Some(own) = &pod.spec.dns_config {
        add_pod_config(&mut config, own);
    }
    warnings.extend(cut_servers(&mut config.servers));
    warnings.extend(cut_searches(&mut config.searches));
    (config, warnings)
}

fn base_of(pod: &Pod) -> ResolverBase {
    match &pod.spec.dns_policy {
        DnsPolicy::NoPolicy => ResolverBase::Nothing,
        DnsPolicy::Default => ResolverBase::Host,
        DnsPolicy::ClusterFirst if pod.spec.host_network => ResolverBase::Host,
        // An unknown policy is treated as the default.
        DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet | DnsPolicy::Other(_) => {
            ResolverBase::Cluster
        }
    }
}

fn from_cluster(pod: &Pod, dns: &NodeDns) -> DnsConfig {
    let host = dns.resolver.clone().unwrap_or_default();
    let mut searches = Vec::new();
    let domain = &dns.cluster_domain;
    if !domain.is_empty() {
        searches.push(format!("{}.svc.{domain}", pod.metadata.namespace));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    searches.extend(host.searches);
    if !domain.is_empty() {
        leave_first(&mut searches);
    }
    DnsConfig {
        servers: dns.cluster_servers.iter().map(ToString::to_string).collect(),
        searches,
        options: vec![CLUSTER_OPTION.to_owned()],
    }
}

/// Without a resolver file, only the local machine is queried.
fn from_host(node: &NodeSetupInputs) -> DnsConfig {
    if let Some(host) = node.dns.resolver.clone() {
        return DnsConfig { servers: host.servers, searches: host.searches, options: host.options };
    }
    let loopback = |is_v6: bool| if is_v6 { "::1" } else { "127.0.0.1" }.to_owned();
    let mut servers: Vec<String> = node.node_ips.iter().map(|ip| loopback(ip.is_ipv6())).collect();
    if servers.is_empty() {
        servers.push(loopback(false));
    }
    DnsConfig { servers, searches: vec![".".to_owned()], options: Vec::new() }
}

fn missing_servers(pod: &Pod) -> [SetupWarning; 2] {
    let text = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                \"ClusterFirst\" policy. Falling back to \"Default\" policy.";
    let warning =
        |about_node, message| SetupWarning { about_node, reason: "MissingClusterDNS", message };
    [warning(true, text.to_owned()), warning(false, format!("pod: {:?}. {text}", pod_text(pod)))]
}

fn add_pod_config(config: &mut DnsConfig, own: &PodDnsConfig) {
    let texts = |texts: &[Box<str>]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    config.servers.extend(texts(&own.nameservers));
    leave_first(&mut config.servers);
    config.searches.extend(texts(&own.searches));
    leave_first(&mut config.searches);
    let mut options = Vec::new();
    for option in &config.options {
        // An option without a value loses a colon that nothing follows.
        put_option(&mut options, option.strip_suffix(':').unwrap_or(option));
    }
    for option in &own.options {
        let option = match option.value.as_deref() {
            None | Some("") => option.name.to_string(),
            Some(value) => format!("{}:{value}", option.name),
        };
        put_option(&mut options, &option);
    }
    config.options = options;
}

/// Removes duplicates, keeping the first.
fn leave_first(texts: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    texts.retain(|text| seen.insert(text.clone()));
}

fn forming(message: String) -> SetupWarning {
    SetupWarning { about_node: false, reason: "DNSConfigForming", message }
}

fn cut_servers(servers: &mut Vec<String>) -> Option<SetupWarning> {
    if servers.len() <= MAX_SERVERS {
        return None;
    }
    servers.truncate(MAX_SERVERS);
    Some(forming(format!(
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied \
         nameserver line is: {}",
        servers.join(" ")
    )))
}

fn cut_searches(searches: &mut Vec<String>) -> Option<SetupWarning> {
    let before = searches.len();
    searches.truncate(MAX_SEARCHES);
    // Some resolvers crash on a domain that is too long.
    searches.retain(|domain| domain.len() <= LONGEST_DOMAIN);
    let mut line = searches.iter().map(|domain| domain.len() + 1).sum::<usize>().saturating_sub(1);
    while line > LONGEST_SEARCH_LINE
        && let Some(last) = searches.pop()
    {
        line = line.saturating_sub(last.len() + 1);
    }
    (searches.len() < before).then(|| {
        forming(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied \
             search line is: {}",
            searches.join(" ")
        ))
    })
}

/// The reason of the warning about the node's resolver file.
pub const LIMITS_REASON: &str = "CheckLimitsForResolvConf";

/// The node's warning when its resolver file leaves no room for a pod's own domains.
pub fn check_node(dns: &NodeDns, path: &str) -> Option<SetupWarning> {
    let searches = &dns.resolver.as_ref()?.searches;
    let cluster_domains = if dns.cluster_domain.is_empty() { 0 } else { 3 };
    let most = MAX_SEARCHES - cluster_domains;
    let message = if searches.len() > most {
        format!(
            "Resolv.conf file '{path}' contains search line consisting of more than {most} domains!"
        )
    } else if searches.iter().any(|domain| domain.len() > LONGEST_DOMAIN) {
        format!(
            "Resolv.conf file {path:?} contains a search path which length is more than allowed \
             {LONGEST_DOMAIN} chars!"
        )
    } else if searches.join(" ").len() > LONGEST_SEARCH_LINE {
        format!(
            "Resolv.conf file '{path}' contains search line which length is more than allowed \
             {LONGEST_SEARCH_LINE} chars!"
        )
    } else {
        return None;
    };
    Some(SetupWarning { about_node: true, reason: LIMITS_REASON, message })
}
