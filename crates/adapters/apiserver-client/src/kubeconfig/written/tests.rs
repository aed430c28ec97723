//! What is written is read again as the same access.

use super::*;
use crate::access::ClientCertificate;
use crate::parse_kubeconfig;

fn bootstrap(cluster: &str) -> ClusterAccess {
    let text = format!(
        "kind: Config\ncurrent-context: c\nclusters:\n- name: a\n  cluster: {{{cluster}}}\n\
         contexts:\n- name: c\n  context: {{cluster: a, user: u}}\n\
         users:\n- name: u\n  user: {{token: abcdef.0123456789abcdef}}\n"
    );
    parse_kubeconfig(text.as_bytes(), Path::new("/etc/kubernetes/bootstrap.conf"), None)
        .expect("a kubeconfig")
}

#[test]
fn the_cluster_is_kept_and_the_user_has_the_certificate() {
    let table = [
        "server: 'https://10.0.0.1:6443', certificate-authority: pki/ca.crt",
        "server: 'https://10.0.0.1:6443', certificate-authority-data: 'UEVN'",
        "server: 'https://[2001:db8::1]:6443/prefix', insecure-skip-tls-verify: true",
        "server: 'https://api.example', tls-server-name: 'other: \"name\"'",
        "server: 'https://api.example', proxy-url: 'http://proxy.example:3128'",
    ];
    let pem = Path::new("/var/lib/kubelet/pki/kubelet-client-current.pem");
    for cluster in table {
        let access = bootstrap(cluster);
        let text = kubeconfig_with_certificate(&access, pem);
        assert!(!text.contains("abcdef"), "{text}");
        let read = parse_kubeconfig(text.as_bytes(), Path::new("/elsewhere/kubelet.conf"), None);
        let material = Material::File(pem.to_owned());
        let certificate = ClientCertificate { certificate: material.clone(), key: material };
        let expected = ClusterAccess { token: None, certificate: Some(certificate), ..access };
        assert_eq!(read.expect("a kubeconfig"), expected, "{text}");
    }
}
