//! Templates from addresses, the object that is sent, and every kind of answer.

use super::*;
use serde_json::Value;

fn addresses(of: &[(&str, &str)]) -> Vec<NodeAddress> {
    let address = |(kind, text): &(&str, &str)| NodeAddress {
        kind: (*kind).to_owned(),
        address: (*text).to_owned(),
    };
    of.iter().map(address).collect()
}

#[test]
fn a_serving_certificate_is_for_the_addresses_of_the_node() {
    type Case<'a> = (&'a [(&'a str, &'a str)], Option<(&'a [&'a str], &'a [&'a str])>);
    let table: &[Case<'_>] = &[
        (&[], None),
        // A name alone is not enough.
        (&[("Hostname", "n")], None),
        (&[("Hostname", "n"), ("InternalDNS", "n.local")], None),
        (&[("InternalIP", "10.0.0.1"), ("Hostname", "n")], Some((&["n"], &["10.0.0.1"]))),
        (&[("Hostname", "10.0.0.1")], Some((&[], &["10.0.0.1"]))),
        (
            &[
                ("ExternalIP", "2001:db8::1"),
                ("InternalIP", "10.0.0.2"),
                ("InternalIP", "10.0.0.1"),
                ("InternalIP", "10.0.0.1"),
                ("ExternalDNS", "b"),
                ("InternalDNS", "a"),
                ("Hostname", "a"),
            ],
            Some((&["a", "b"], &["10.0.0.1", "10.0.0.2", "2001:db8::1"])),
        ),
        // Neither an address of a known kind nor one that is an address.
        (&[("InternalIP", "nonsense"), ("Other", "10.0.0.1"), ("InternalIP", "")], None),
    ];
    for (given, expected) in table {
        let template = serving_template("n", &addresses(given));
        let expected = expected.map(|(names, ips)| CertificateTemplate {
            common_name: "system:node:n".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            dns_names: names.iter().map(|name| (*name).to_owned()).collect(),
            ip_addresses: ips.iter().map(|ip| ip.parse().expect("an address")).collect(),
        });
        assert_eq!(template, expected, "{given:?}");
    }
}

#[test]
fn each_purpose_has_upstreams_signer_and_usages() {
    let request = SigningRequest { pem: "PEM".to_owned(), digest: "0a".to_owned() };
    let table = [
        (
            CertificatePurpose::Client,
            "node-csr-client-0a",
            "kubernetes.io/kube-apiserver-client-kubelet",
            "client auth",
        ),
        (
            CertificatePurpose::Serving,
            "node-csr-serving-0a",
            "kubernetes.io/kubelet-serving",
            "server auth",
        ),
    ];
    for (purpose, name, signer, usage) in table {
        let object: Value =
            serde_json::from_slice(&csr_object(purpose, &request)).expect("an object");
        assert_eq!(object["metadata"]["name"], name);
        assert_eq!(object["metadata"]["name"], csr_name(purpose, &request));
        let spec = json!({
            "request": "UEVN",
            "signerName": signer,
            "usages": ["digital signature", usage],
        });
        assert_eq!(object["spec"], spec);
    }
}

#[test]
fn an_answer_counts_once_it_is_final() {
    let condition = |kind: &str| json!({"type": kind, "reason": "R", "message": "M"});
    let denied = "certificate signing request is denied, reason: R, message: M";
    let failed = "certificate signing request failed, reason: R, message: M";
    let rejected = |text: &str| CsrAnswer::Rejected(text.to_owned());
    let table = [
        (json!({}), CsrAnswer::Pending),
        (json!({"status": {}}), CsrAnswer::Pending),
        (json!({"status": {"conditions": null}}), CsrAnswer::Pending),
        (json!({"status": {"conditions": [condition("Approved")]}}), CsrAnswer::Pending),
        (
            json!({"status": {"conditions": [condition("Approved")], "certificate": ""}}),
            CsrAnswer::Pending,
        ),
        // It is not approved.
        (json!({"status": {"certificate": "UEVN"}}), CsrAnswer::Pending),
        (
            json!({"status": {"conditions": [condition("Approved")], "certificate": "UEVN"}}),
            CsrAnswer::Issued(b"PEM".to_vec()),
        ),
        (json!({"status": {"conditions": [condition("Denied")]}}), rejected(denied)),
        (
            json!({"status": {
                "conditions": [condition("Approved"), condition("Failed")],
                "certificate": "UEVN",
            }}),
            rejected(failed),
        ),
        (
            json!({"status": {"conditions": [condition("Approved")], "certificate": "%"}}),
            rejected("the certificate is not in base64"),
        ),
        (json!([]), CsrAnswer::Pending),
        (json!("text"), rejected("the API server's object is no signing request")),
    ];
    for (object, expected) in table {
        assert_eq!(read_answer(object.to_string().as_bytes()), expected, "{object}");
    }
}
