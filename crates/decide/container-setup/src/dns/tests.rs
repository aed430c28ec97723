//! Policies, the pod's own settings, and truncation.

use super::*;
use crate::resolv_conf::ResolvConf;
use crate::testing::{node, one_with, texts};

fn with_host() -> NodeSetupInputs {
    let mut node = node();
    node.dns.resolver = Some(ResolvConf {
        servers: texts(&["8.8.8.8"]),
        searches: texts(&["example.com", "svc.cluster.local"]),
        options: texts(&["timeout:2", "edns0"]),
    });
    node
}

fn parts(config: &DnsConfig) -> (String, String, String) {
    (config.servers.join(" "), config.searches.join(" "), config.options.join(" "))
}

const CLUSTER: (&str, &str, &str) =
    ("10.96.0.10", "shop.svc.cluster.local svc.cluster.local cluster.local example.com", "ndots:5");
const HOST: (&str, &str, &str) = ("8.8.8.8", "example.com svc.cluster.local", "timeout:2 edns0");

#[test]
fn policies_choose_what_to_begin_with() {
    for (spec, expected) in [
        ("dnsPolicy: ClusterFirst,", CLUSTER),
        ("dnsPolicy: ClusterFirst, hostNetwork: true,", HOST),
        ("dnsPolicy: ClusterFirstWithHostNet, hostNetwork: true,", CLUSTER),
        ("dnsPolicy: Default,", HOST),
        ("dnsPolicy: None,", ("", "", "")),
        ("dnsPolicy: Whatever,", CLUSTER),
    ] {
        let (config, warnings) = of_pod(&one_with(spec, ""), &with_host());
        let expected = (expected.0.to_owned(), expected.1.to_owned(), expected.2.to_owned());
        assert_eq!(parts(&config), expected, "{spec}");
        assert_eq!(warnings, [], "{spec}");
    }
}

#[test]
fn without_a_cluster_domain_the_hosts_domains_stay() {
    let mut node = with_host();
    node.dns.cluster_domain.clear();
    let (config, _) = of_pod(&one_with("dnsPolicy: ClusterFirst,", ""), &node);
    assert_eq!(config.searches, ["example.com", "svc.cluster.local"]);
    assert_eq!(config.servers, ["10.96.0.10"]);
}

#[test]
fn without_cluster_servers_the_host_servers_are_used_with_a_warning() {
    let mut node = with_host();
    node.dns.cluster_servers.clear();
    let (config, warnings) = of_pod(&one_with("dnsPolicy: ClusterFirst,", ""), &node);
    assert_eq!(config.servers, ["8.8.8.8"]);
    let text = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.";
    let reported_warnings: Vec<(bool, &str, &str)> =
        warnings.iter().map(|it| (it.about_node, it.reason, it.message.as_str())).collect();
    let of_pod_text = format!("pod: \"web_shop(u-1)\". {text}");
    let expected =
        [(true, "MissingClusterDNS", text), (false, "MissingClusterDNS", of_pod_text.as_str())];
    assert_eq!(reported_warnings, expected);
}

#[test]
fn without_a_resolver_file_this_machine_is_asked() {
    for (ips, servers) in [
        (&["10.0.0.1"][..], &["127.0.0.1"][..]),
        (&["fd00::1", "10.0.0.1"], &["::1", "127.0.0.1"]),
        (&[], &["127.0.0.1"]),
    ] {
        let mut node = node();
        node.node_ips = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
        let (config, _) = of_pod(&one_with("dnsPolicy: Default,", ""), &node);
        assert_eq!((config.servers, config.searches), (texts(servers), texts(&["."])));
        assert_eq!(config.options, [""; 0]);
    }
}

#[test]
fn the_pods_own_settings_come_on_top() {
    let own = "dnsConfig: {nameservers: [1.1.1.1, 8.8.8.8], searches: [example.com, own.net], \
               options: [{name: ndots, value: \"3\"}, {name: edns0}, {name: debug}, {name: timeout, value: \"\"}]},";
    let (config, warnings) =
        of_pod(&one_with(&format!("dnsPolicy: Default, {own}"), ""), &with_host());
    let expected = (
        "8.8.8.8 1.1.1.1".to_owned(),
        "example.com svc.cluster.local own.net".to_owned(),
        "timeout edns0 ndots:3 debug".to_owned(),
    );
    assert_eq!(parts(&config), expected);
    assert_eq!(warnings, []);
    let (config, _) =
        of_pod(&one_with(&format!("dnsPolicy: ClusterFirst, {own}"), ""), &with_host());
    assert_eq!(config.options.join(" "), "ndots:3 edns0 debug timeout");
    let mut colon = with_host();
    colon.dns.resolver.as_mut().expect("there").options = texts(&["odd:"]);
    let (config, _) = of_pod(&one_with("dnsPolicy: Default, dnsConfig: {},", ""), &colon);
    assert_eq!(config.options, ["odd"]);
}

#[test]
fn servers_beyond_three_are_dropped_with_a_warning() {
    let own = "dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2, 3.3.3.3, 4.4.4.4]},";
    let (config, warnings) = of_pod(&one_with(own, ""), &with_host());
    assert_eq!(config.servers, ["1.1.1.1", "2.2.2.2", "3.3.3.3"]);
    let expected = SetupWarning {
        about_node: false,
        reason: "DNSConfigForming",
        message: "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3".to_owned(),
    };
    assert_eq!(warnings, [expected]);
}

fn searched(domains: &[String]) -> (Vec<String>, usize) {
    let list = domains.join(", ");
    let own = format!("dnsPolicy: None, dnsConfig: {{searches: [{list}]}},");
    let (config, warnings) = of_pod(&one_with(&own, ""), &with_host());
    assert!(warnings.iter().all(|it| it.reason == "DNSConfigForming"
        && it.message.starts_with("Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ")
        && it.message.ends_with(&config.searches.join(" "))), "{warnings:?}");
    (config.searches, warnings.len())
}

#[test]
fn domains_are_cut_by_count_length_and_line() {
    let many: Vec<String> = (0..33).map(|number| format!("d{number}.com")).collect();
    assert_eq!(searched(&many), (many[..32].to_vec(), 1));
    assert_eq!(searched(&many[..32]), (many[..32].to_vec(), 0));
    let long = texts(&["a.com", &"x".repeat(254), "b.com"]);
    assert_eq!(searched(&long), (texts(&["a.com", "b.com"]), 1));
    assert_eq!(searched(&texts(&[&"x".repeat(253)])).1, 0);
    // Nine domains of 227 and the spaces between are 2051: the last one goes.
    let line: Vec<String> = (0..9).map(|number| format!("{number}{}", "y".repeat(226))).collect();
    assert_eq!(searched(&line), (line[..8].to_vec(), 1));
    // 2048 in all fit.
    let mut fits: Vec<String> =
        (0..8).map(|number| format!("{number}{}", "y".repeat(226))).collect();
    fits.push("z".repeat(2048 - 8 * 228));
    assert_eq!(fits.join(" ").len(), 2048);
    assert_eq!(searched(&fits), (fits.clone(), 0));
    let and_more = [fits.clone(), vec!["more".to_owned()]].concat();
    assert_eq!(searched(&and_more), (fits.clone(), 1), "only what is too much goes");
    fits[8].push('z');
    assert_eq!(searched(&fits), (fits[..8].to_vec(), 1));
}

#[test]
fn a_nodes_own_file_may_leave_no_room() {
    let check = |searches: Vec<String>, domain: &str| {
        let dns = NodeDns {
            cluster_domain: domain.to_owned(),
            resolver: Some(ResolvConf { searches, ..Default::default() }),
            ..Default::default()
        };
        check_node(&dns, "/etc/r").map(|warning| {
            assert!(warning.about_node && warning.reason == "CheckLimitsForResolvConf");
            warning.message
        })
    };
    let many = |count: usize| (0..count).map(|number| format!("d{number}")).collect::<Vec<_>>();
    assert_eq!(check(many(32), ""), None);
    assert_eq!(check(many(29), "c"), None);
    assert_eq!(
        check(many(33), "").expect("too many"),
        "Resolv.conf file '/etc/r' contains search line consisting of more than 32 domains!"
    );
    assert!(check(many(30), "c").expect("too many").contains("more than 29 domains!"));
    assert_eq!(check(vec!["x".repeat(253)], ""), None);
    assert_eq!(
        check(vec!["x".repeat(254)], "").expect("too long"),
        "Resolv.conf file \"/etc/r\" contains a search path which length is more than allowed 253 chars!"
    );
    let fits = (0..8).map(|_| "y".repeat(227)).chain(["y".repeat(2048 - 8 * 228)]).collect();
    assert_eq!(check(fits, ""), None);
    let line = (0..9).map(|_| "y".repeat(230)).collect();
    assert_eq!(
        check(line, "").expect("line too long"),
        "Resolv.conf file '/etc/r' contains search line which length is more than allowed 2048 chars!"
    );
    assert_eq!(check_node(&NodeDns::default(), "/etc/r"), None);
}
