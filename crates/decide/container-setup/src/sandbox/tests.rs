//! A sandbox put together.

use super::*;
use crate::testing::{node, one, one_with};
use ports::runtime_objects::{HandlerFeatures, LinuxResources};

fn facts() -> PodSetupInputs {
    PodSetupInputs {
        handler: HandlerFeatures { name: "kata".into(), ..Default::default() },
        cgroup_parent: "/kubepods/podu-1".into(),
        ..Default::default()
    }
}

#[test]
fn a_full_sandbox_config_is_built() {
    let pod = one_with(
        "subdomain: sub, setHostnameAsFQDN: true, dnsPolicy: ClusterFirst, overhead: {cpu: 100m}, \
         securityContext: {runAsUser: 7, sysctls: [{name: net/ipv4/tcp_syncookies, value: \"0\"}]},",
        "ports: [{containerPort: 80, hostPort: 8080}], resources: {requests: {cpu: 250m}}",
    );
    let (config, warnings) = config(&pod, &node(), &facts(), 4).expect("a sandbox");
    assert_eq!(warnings, []);
    assert_eq!(
        (config.name.as_str(), config.namespace.as_str(), config.uid.as_str()),
        ("web", "shop", "u-1")
    );
    assert_eq!(config.attempt, 4);
    assert_eq!(config.hostname, "web.sub.shop.svc.cluster.local");
    assert_eq!(config.log_directory, "/var/log/pods/shop_web_u-1");
    assert_eq!(config.dns.expect("always").servers, ["10.96.0.10"]);
    assert_eq!(config.port_mappings[0].host_port, 8080);
    assert_eq!(config.labels["io.kubernetes.pod.uid"], "u-1");
    assert_eq!(config.annotations.len(), 0);
    assert_eq!(config.cgroup_parent, "/kubepods/podu-1");
    assert_eq!(config.sysctls["net.ipv4.tcp_syncookies"], "0");
    assert_eq!(config.overhead.expect("always").cpu_shares, 102);
    assert_eq!(config.resources.expect("always").cpu_shares, 256);
    assert_eq!(config.security.run_as_user, Some(7));
    assert_eq!(config.runtime_handler, "kata");
}

#[test]
fn a_bare_one() {
    let (config, _) = config(&one(""), &node(), &PodSetupInputs::default(), 0).expect("a sandbox");
    assert_eq!(config.hostname, "web");
    assert_eq!(config.overhead, Some(LinuxResources::default()));
    assert_eq!(config.port_mappings, []);
    assert!(config.sysctls.is_empty());
}

#[test]
fn warnings_and_errors_are_passed_on() {
    let mut alone = node();
    alone.dns.cluster_servers.clear();
    let (_, warnings) = config(&one(""), &alone, &facts(), 0).expect("a sandbox");
    assert_eq!(warnings.len(), 2);
    for spec in ["hostname: Bad,", "securityContext: {supplementalGroupsPolicy: Odd},"] {
        config(&one_with(spec, ""), &node(), &facts(), 0).expect_err(spec);
    }
}

#[test]
fn a_pull_names_the_same_sandbox() {
    let pod = one("");
    let (whole, _) = config(&pod, &node(), &facts(), 4).expect("a sandbox");
    let config_of_pull = for_pull(&pod, &node().pod_logs_directory, facts().cgroup_parent, 4);
    let SandboxConfig { name, namespace, uid, attempt, log_directory, .. } = whole;
    let SandboxConfig { labels, annotations, cgroup_parent, .. } = whole;
    let expected = SandboxConfig {
        name,
        namespace,
        uid,
        attempt,
        log_directory,
        labels,
        annotations,
        cgroup_parent,
        ..SandboxConfig::default()
    };
    assert_eq!(config_of_pull, expected);
    assert_eq!((config_of_pull.namespace.as_str(), config_of_pull.uid.as_str()), ("shop", "u-1"));
}
