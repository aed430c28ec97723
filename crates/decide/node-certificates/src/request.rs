//! CertificateSigningRequests: what a node asks for, and what the answers mean.
//!
//! Rule: pure. A request is named after its key and subject, so that asking again, also after a
//! restart, finds the request that is pending instead of adding one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ports::cluster_objects::NodeAddress;
use ports::{CertificateTemplate, SigningRequest};
use serde::Deserialize;
use serde_json::json;

#[cfg(test)]
mod tests;

/// What a certificate is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificatePurpose {
    /// To the API server.
    Client,
    /// To callers of the node's port.
    Serving,
}

impl CertificatePurpose {
    fn signer(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    /// Without key encipherment, since the keys are not RSA.
    fn usages(self) -> [&'static str; 2] {
        let own = match self {
            Self::Client => "client auth",
            Self::Serving => "server auth",
        };
        ["digital signature", own]
    }

    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Serving => "serving",
        }
    }
}

/// The node's identity to the API server.
pub fn client_template(node: &str) -> CertificateTemplate {
    CertificateTemplate {
        common_name: format!("system:node:{node}"),
        organizations: vec!["system:nodes".to_owned()],
        ..CertificateTemplate::default()
    }
}

/// The same for its port, under the addresses of its Node object. None without an IP address among
/// them: signers want one, and the addresses may not be known yet.
pub fn serving_template(node: &str, addresses: &[NodeAddress]) -> Option<CertificateTemplate> {
    let (mut names, mut ips) = (BTreeSet::new(), BTreeSet::<IpAddr>::new());
    for address in addresses.iter().filter(|address| !address.address.is_empty()) {
        let ip = address.address.parse::<IpAddr>().ok();
        match (address.kind.as_str(), ip) {
            ("Hostname" | "InternalIP" | "ExternalIP", Some(ip)) => {
                ips.insert(ip);
            }
            ("Hostname" | "InternalDNS" | "ExternalDNS", _) => {
                names.insert(address.address.clone());
            }
            _ => {}
        }
    }
    (!ips.is_empty()).then(|| CertificateTemplate {
        dns_names: names.into_iter().collect(),
        ip_addresses: ips.into_iter().collect(),
        ..client_template(node)
    })
}

/// The name of the object for a request.
pub fn csr_name(purpose: CertificatePurpose, request: &SigningRequest) -> String {
    format!("node-csr-{}-{}", purpose.name(), request.digest)
}

/// The object that asks for a certificate, in JSON.
pub fn csr_object(purpose: CertificatePurpose, request: &SigningRequest) -> Vec<u8> {
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": csr_name(purpose, request)},
        "spec": {
            "request": STANDARD.encode(&request.pem),
            "signerName": purpose.signer(),
            "usages": purpose.usages(),
        },
    })
    .to_string()
    .into_bytes()
}

/// What has become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CsrAnswer {
    /// It is neither approved nor denied yet, or it is approved and not signed yet.
    Pending,
    /// The certificate, in PEM.
    Issued(Vec<u8>),
    /// It will never be issued, for this reason.
    Rejected(String),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CsrObject {
    status: CsrStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CsrStatus {
    conditions: Option<Vec<CsrCondition>>,
    certificate: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CsrCondition {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}

/// Reads a CertificateSigningRequest as the API server has it.
pub fn read_answer(object: &[u8]) -> CsrAnswer {
    let Ok(CsrObject { status }) = serde_json::from_slice(object) else {
        return CsrAnswer::Rejected("the API server's object is no signing request".to_owned());
    };
    let conditions = status.conditions.unwrap_or_default();
    let of_kind = |kind: &str| conditions.iter().find(|condition| condition.kind == kind);
    for (kind, verb) in [("Denied", "is denied"), ("Failed", "failed")] {
        if let Some(CsrCondition { reason, message, .. }) = of_kind(kind) {
            return CsrAnswer::Rejected(format!(
                "certificate signing request {verb}, reason: {reason}, message: {message}"
            ));
        }
    }
    let certificate = status.certificate.filter(|text| !text.is_empty());
    match (of_kind("Approved"), certificate) {
        (Some(_), Some(text)) => match STANDARD.decode(text) {
            Ok(pem) => CsrAnswer::Issued(pem),
            Err(_) => CsrAnswer::Rejected("the certificate is not in base64".to_owned()),
        },
        _ => CsrAnswer::Pending,
    }
}
