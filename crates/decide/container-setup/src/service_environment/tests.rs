//! Services, and the variables of a pod beside them.

use std::collections::BTreeMap;

use pod_model::pod::Pod;
use ports::cluster_objects::Service;
use serde_json::json;

use super::variables;

fn service(namespace: &str, name: &str, address: &str, ports: &serde_json::Value) -> Service {
    serde_json::from_value(json!({
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "clusterIP": address, "ports": ports },
    }))
    .expect("a service")
}

fn of_pod(services: &[Service], links: Option<bool>) -> BTreeMap<String, String> {
    let mut pod = Pod::default();
    pod.metadata.namespace = "apps".into();
    pod.spec.enable_service_links = links;
    variables(services.iter(), &pod)
}

#[test]
fn a_service_has_the_variables_of_the_reference() {
    let ports =
        json!([{ "name": "web-ui", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }]);
    let variables = of_pod(&[service("apps", "my-app", "10.0.0.7", &ports)], None);
    let expected = [
        ("MY_APP_PORT", "tcp://10.0.0.7:80"),
        ("MY_APP_PORT_53_UDP", "udp://10.0.0.7:53"),
        ("MY_APP_PORT_53_UDP_ADDR", "10.0.0.7"),
        ("MY_APP_PORT_53_UDP_PORT", "53"),
        ("MY_APP_PORT_53_UDP_PROTO", "udp"),
        ("MY_APP_PORT_80_TCP", "tcp://10.0.0.7:80"),
        ("MY_APP_PORT_80_TCP_ADDR", "10.0.0.7"),
        ("MY_APP_PORT_80_TCP_PORT", "80"),
        ("MY_APP_PORT_80_TCP_PROTO", "tcp"),
        ("MY_APP_SERVICE_HOST", "10.0.0.7"),
        ("MY_APP_SERVICE_PORT", "80"),
        ("MY_APP_SERVICE_PORT_DNS", "53"),
        ("MY_APP_SERVICE_PORT_WEB_UI", "80"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(variables, BTreeMap::from(expected));
}

#[test]
fn only_services_of_the_namespace_and_the_api_server_count() {
    let ports = json!([{ "port": 443 }]);
    let services = [
        service("default", "kubernetes", "10.0.0.1", &ports),
        service("default", "other", "10.0.0.2", &ports),
        service("apps", "own", "10.0.0.3", &ports),
        service("apps", "headless", "None", &ports),
        service("apps", "external", "", &ports),
    ];
    let hosts = |links| -> Vec<String> {
        let variables = of_pod(&services, links);
        variables.into_keys().filter(|name| name.ends_with("_SERVICE_HOST")).collect()
    };
    assert_eq!(hosts(None), ["KUBERNETES_SERVICE_HOST", "OWN_SERVICE_HOST"]);
    assert_eq!(hosts(Some(false)), ["KUBERNETES_SERVICE_HOST"]);
}

#[test]
fn an_address_of_ipv6_is_bracketed_in_urls() {
    let variables = of_pod(&[service("apps", "six", "fd00::1", &json!([{ "port": 1 }]))], None);
    assert_eq!(variables["SIX_PORT"], "tcp://[fd00::1]:1");
    assert_eq!(variables["SIX_SERVICE_HOST"], "fd00::1");
}
