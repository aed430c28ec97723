//! The environment variables that tell a container where the services are.
//!
//! Rules: services without a cluster address have none; the API server's own service is always
//! there, the others of the pod's namespace unless the pod declines (`enableServiceLinks`).
//!
//! upstream: pkg/kubelet/envvars, pkg/kubelet/kubelet_pods.go (getServiceEnvVarMap)

use std::collections::BTreeMap;

use pod_model::pod::Pod;
use ports::cluster_objects::{Service, ServicePort};

#[cfg(test)]
mod tests;

/// The service of the API server.
const MASTER_NAMESPACE: &str = "default";
const MASTER_SERVICE: &str = "kubernetes";

/// The variables for a pod.
pub fn variables<'a>(
    services: impl Iterator<Item = &'a Service>,
    pod: &Pod,
) -> BTreeMap<String, String> {
    let has_links = pod.spec.enable_service_links.unwrap_or(true);
    let is_master = |service: &Service| {
        service.metadata.namespace == MASTER_NAMESPACE && service.metadata.name == MASTER_SERVICE
    };
    let is_own = |service: &Service| *service.metadata.namespace == *pod.metadata.namespace;
    let mut chosen: BTreeMap<&str, &Service> = BTreeMap::new();
    for service in services.filter(|service| has_address(service)) {
        // A service of the pod's namespace stands in for the API server's of the same name.
        if is_own(service) && has_links && !is_master(service) {
            chosen.insert(&service.metadata.name, service);
        } else if is_master(service) {
            chosen.entry(&service.metadata.name).or_insert(service);
        }
    }
    let mut variables = BTreeMap::new();
    for service in chosen.values() {
        add_service(&mut variables, service);
    }
    variables
}

fn has_address(service: &Service) -> bool {
    !matches!(service.spec.cluster_ip.as_str(), "" | "None")
}

fn add_service(variables: &mut BTreeMap<String, String>, service: &Service) {
    let (prefix, address) = (variable_name(&service.metadata.name), &service.spec.cluster_ip);
    variables.insert(format!("{prefix}_SERVICE_HOST"), address.clone());
    let Some(first) = service.spec.ports.first() else { return };
    variables.insert(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
    variables.insert(format!("{prefix}_PORT"), url(address, first));
    for port in &service.spec.ports {
        if !port.name.is_empty() {
            let name = format!("{prefix}_SERVICE_PORT_{}", variable_name(&port.name));
            variables.insert(name, port.port.to_string());
        }
        let own = format!("{prefix}_PORT_{}_{}", port.port, protocol(port));
        variables.insert(own.clone(), url(address, port));
        variables.insert(format!("{own}_PROTO"), protocol(port).to_lowercase());
        variables.insert(format!("{own}_PORT"), port.port.to_string());
        variables.insert(format!("{own}_ADDR"), address.clone());
    }
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

fn protocol(port: &ServicePort) -> String {
    if port.protocol.is_empty() { "TCP".to_owned() } else { port.protocol.to_uppercase() }
}

fn url(address: &str, port: &ServicePort) -> String {
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    format!("{}://{host}:{}", protocol(port).to_lowercase(), port.port)
}
