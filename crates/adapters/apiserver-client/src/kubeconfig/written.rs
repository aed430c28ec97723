//! The kubeconfig that bootstrapping leaves: the bootstrap kubeconfig's cluster, and a certificate
//! in a file.
//!
//! Rule: pure. Names and form are upstream's, so that kubeadm and a reference kubelet use the file.
//! Strings are written as JSON, which is YAML. A proxy's password is not written.
//!
//! upstream: pkg/kubelet/certificate/bootstrap/bootstrap.go (writeKubeconfigFromBootstrapping)

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::access::{ClusterAccess, Material, Trust};

#[cfg(test)]
mod tests;

/// A kubeconfig for the same cluster, whose user has certificate and key in this file.
pub fn kubeconfig_with_certificate(access: &ClusterAccess, certificate: &Path) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let path = |path: &Path| quoted(&path.display().to_string());
    let mut cluster = String::new();
    let mut field = |name: &str, value: String| {
        cluster.push_str(&format!("    {name}: {value}\n"));
    };
    match &access.trust {
        Trust::Authority(Material::File(file)) => field("certificate-authority", path(file)),
        Trust::Authority(Material::Inline(pem)) => {
            field("certificate-authority-data", STANDARD.encode(pem.reveal()));
        }
        Trust::InsecureSkipVerify => field("insecure-skip-tls-verify", "true".to_owned()),
        Trust::System => {}
    }
    if let Some(proxy) = &access.proxy {
        field("proxy-url", quoted(&proxy.to_string()));
    }
    let scheme = if access.server.tls { "https" } else { "http" };
    let (authority, prefix) = (access.server.authority(), &access.server.prefix);
    field("server", quoted(&format!("{scheme}://{authority}{prefix}")));
    if let Some(name) = &access.tls_server_name {
        field("tls-server-name", quoted(name));
    }
    let certificate = path(certificate);
    format!(
        "apiVersion: v1
clusters:
- cluster:
{cluster}  name: default-cluster
contexts:
- context:
    cluster: default-cluster
    namespace: default
    user: default-auth
  name: default-context
current-context: default-context
kind: Config
preferences: {{}}
users:
- name: default-auth
  user:
    client-certificate: {certificate}
    client-key: {certificate}
"
    )
}
