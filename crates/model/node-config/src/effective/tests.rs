//! The printed text, and that it loads again.

use serde_json::json;

use super::*;
use crate::assemble::{ConfigFiles, SourceFile, assemble};
use crate::document;
use crate::flags::{Combine, ConfigEdit};

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn effective(body: &str, edits: &[ConfigEdit]) -> EffectiveConfig {
    let bytes = format!("{HEAD}{body}").into_bytes();
    let files = ConfigFiles {
        config: Some(SourceFile { path: "/c.yaml".to_owned(), bytes }),
        ..ConfigFiles::default()
    };
    EffectiveConfig::of(&assemble(edits, &files, false).tree)
}

#[test]
fn both_forms_read_back_as_the_same_document() {
    let body = r##"
clusterDNS: ["10.0.0.10", "yes", "0644", "", "a: b", "- x", "ü\n\t\u0001", "1e3", "~", "#", "x:"]
evictionHard: {"memory.available": "5%", "no": "12", "a b": "null"}
registerWithTaints: [{key: a, effect: NoSchedule}, {key: b, value: "1", effect: NoExecute}]
reservedMemory: [{numaNode: 1, limits: {memory: 1Gi}}]
staticPodURLHeader: {A: [b, c], D: []}
logging: {vmodule: [{filePattern: a, verbosity: 3}], flushFrequency: 7}
tracing: {}
memoryThrottlingFactor: 0.25
"##;
    let shown = effective(body, &[]);
    let wanted = shown.to_value();
    for text in [shown.to_yaml(), shown.to_json()] {
        let document = document::parse(text.as_bytes(), &Origin::Default).unwrap();
        assert_eq!(document.root.to_json(), wanted, "{text}");
        assert_eq!(document.repeated_keys, []);
    }
    assert_eq!(wanted["logging"]["flushFrequency"], json!(7));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&shown.to_json()).unwrap(), wanted);
}

#[test]
fn the_order_is_that_of_the_published_type() {
    let text = effective("", &[]).to_yaml();
    assert!(
        text.starts_with(&format!("{HEAD}enableServer: true\npodLogsDir: /var/log/pods\n")),
        "{text}"
    );
    assert!(text.contains(
        "\nauthentication:\n  x509: {}\n  webhook:\n    enabled: true\n    cacheTTL: 2m0s\n"
    ));
    assert!(text.contains("\nenforceNodeAllocatable:\n- pods\n"));
    let text = effective("", &[]).to_json();
    assert!(
        text.contains("\n  \"kind\": \"KubeletConfiguration\",\n  \"enableServer\": true,\n"),
        "{text}"
    );
}

#[test]
fn the_table_lists_explicit_values_and_no_secret() {
    let body = "maxPods: 5\nrotateCertificates: false\nclusterDNS: [a]\nevictionHard:\n  memory.available: 1%\n\
                staticPodURLHeader:\n  Authorization: [secret]\nstaticPodURL: https://u:secret@h/\ntlsMinVersion: ''\n";
    let edits =
        [ConfigEdit { flag: "port", path: "port", value: json!(1), combine: Combine::Replace }];
    let shown = effective(body, &edits);
    let rows: Vec<_> = shown
        .explicit_values()
        .iter()
        .map(|row| format!("{} {} {}", row.path, row.value, row.origin))
        .collect();
    assert_eq!(
        rows,
        [
            "staticPodURL https://<masked>@h/ /c.yaml:10",
            "staticPodURLHeader.Authorization <masked> /c.yaml:9",
            "port 1 --port",
            "tlsMinVersion \"\" /c.yaml:11",
            "rotateCertificates false /c.yaml:4",
            "clusterDNS [\"a\"] /c.yaml:5",
            "maxPods 5 /c.yaml:3",
            "evictionHard[memory.available] 1% /c.yaml:7",
        ]
    );
    let masked = shown.clone().masked();
    assert!(shown.to_yaml().contains("secret"));
    assert!(!masked.to_yaml().contains("secret") && !masked.to_json().contains("secret"));
}

#[test]
fn no_form_shows_the_user_the_query_or_the_fragment_of_a_url() {
    for url in ["https://u:s3cr3t@h/p?token=s3cr3t#s3cr3t", "https://h/p#s3cr3t"] {
        let body = format!("staticPodURL: '{url}'\nclusterDNS: ['{url}']\n");
        let shown = effective(&body, &[]);
        let masked = shown.clone().masked();
        assert!(!masked.to_yaml().contains("s3cr3t"), "{}", masked.to_yaml());
        assert!(
            !masked.to_json().contains("s3cr3t")
                && !masked.to_value().to_string().contains("s3cr3t")
        );
        let rows = format!("{:?}", shown.explicit_values());
        assert!(rows.contains("staticPodURL") && rows.contains("clusterDNS"), "{rows}");
        assert!(!rows.contains("s3cr3t"), "{rows}");
    }
}
