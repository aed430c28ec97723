//! Loading as a whole: one value or all the findings, never a panic, and stable when its output is
//! loaded again.

use proptest::prelude::*;

use super::*;
use crate::assemble::SourceFile;
use crate::flags;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn parsed(arguments: &[&str]) -> KubeletCommandLine {
    // The defaults delegate authentication to an API server, so there has to be one.
    let server = ["--kubeconfig=/etc/kubernetes/kubelet.conf"];
    let words = server.iter().chain(arguments).map(|word| (*word).to_owned());
    flags::parse(&words.collect::<Vec<_>>())
}

fn load_file(bytes: &[u8], arguments: &[&str]) -> LoadedNodeConfig {
    let config = SourceFile { path: "/etc/kubelet/config.yaml".to_owned(), bytes: bytes.to_vec() };
    let files = ConfigFiles { config: Some(config), ..ConfigFiles::default() };
    load(parsed(arguments), &files)
}

fn load_text(body: &str, arguments: &[&str]) -> LoadedNodeConfig {
    load_file(format!("{HEAD}{body}").as_bytes(), arguments)
}

#[test]
fn the_defaults_are_usable() {
    let loaded = load_text("", &[]);
    assert_eq!(loaded.diagnostics, []);
    let config = loaded.config.unwrap();
    assert_eq!(config.settings().max_pods, 110);
    assert_eq!(config.origin_of("maxPods"), Origin::Default);
    assert_eq!(config.effective().explicit_values(), []);
    assert!(load(parsed(&[]), &ConfigFiles::default()).config.is_some());
}

#[test]
fn values_know_where_they_came_from() {
    let loaded =
        load_text("maxPods: 20\nlogging: {flushFrequency: 7000000000}\n", &["--port=1234"]);
    let config = loaded.config.unwrap();
    assert_eq!(config.settings().max_pods, 20);
    assert_eq!(config.settings().port, 1234);
    assert_eq!(config.settings().logging.flush_frequency, pod_model::GoDuration::from_secs(7));
    assert_eq!(config.origin_of("maxPods").to_string(), "/etc/kubelet/config.yaml:3");
    assert_eq!(config.origin_of("port").to_string(), "--port");
    assert!(config.origin_of("no.such.field").is_default());
}

#[test]
fn findings_of_decoding_gates_and_validation_come_together_with_their_places() {
    let body = "maxPods: many\nfeatureGates:\n  NoSuchGate: true\nimageGCHighThresholdPercent: 10\nimageGCLowThresholdPercent: 90\n";
    let loaded = load_text(body, &[]);
    assert!(loaded.config.is_none() && loaded.effective.is_some());
    let messages: Vec<_> = loaded.errors().map(ToString::to_string).collect();
    for start in [
        "/etc/kubelet/config.yaml:3: maxPods: many:",
        "/etc/kubelet/config.yaml:5: featureGates",
        "/etc/kubelet/config.yaml:7: imageGC",
    ] {
        assert_eq!(
            messages.iter().filter(|line| line.starts_with(start)).count(),
            1,
            "{start} in {messages:#?}"
        );
    }
}

#[test]
fn an_unreadable_file_gives_no_follow_up_findings() {
    let loaded = load_file(b"a: [", &[]);
    assert!(loaded.config.is_none() && loaded.effective.is_none());
    assert_eq!(loaded.diagnostics.len(), 1);
}

#[test]
fn a_gate_finding_is_reported_once_at_the_place_of_the_gate() {
    let loaded =
        load_text("featureGates: {MemoryQoS: true}\n", &["--feature-gates=NoSuchGate=true"]);
    let messages: Vec<_> = loaded.errors().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 1, "{messages:#?}");
    assert!(messages[0].starts_with("--feature-gates: featureGates.NoSuchGate: "), "{messages:#?}");
}

fn providers(text: &str) -> ConfigFiles {
    let file = SourceFile { path: "/etc/providers.yaml".to_owned(), bytes: text.into() };
    ConfigFiles { credential_providers: Some(vec![file]), ..ConfigFiles::default() }
}

const PROVIDERS: &str = "apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- {name: ecr, matchImages: [registry.example], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1}
";
const PROVIDER_FLAGS: [&str; 2] = [
    "--image-credential-provider-config=/etc/providers.yaml",
    "--image-credential-provider-bin-dir=/opt/providers",
];

#[test]
fn credential_providers_are_part_of_the_configuration() {
    let loaded = load(parsed(&PROVIDER_FLAGS), &providers(PROVIDERS));
    let config = loaded.config.unwrap();
    assert_eq!(config.credential_providers().providers[0].name, "ecr");
    assert_eq!(loaded.credential_providers.as_ref(), Some(config.credential_providers()));
    let none = load(parsed(&[]), &ConfigFiles::default());
    assert_eq!(none.config.unwrap().credential_providers().providers, []);
    assert_eq!(none.credential_providers, None);
}

#[test]
fn credential_provider_findings_join_the_other_findings() {
    let wrong = PROVIDERS.replace("name: ecr", "name: a/b").replace("1h", "-1h");
    let flags = [PROVIDER_FLAGS[0], PROVIDER_FLAGS[1], "--max-pods=-1"];
    let loaded = load(parsed(&flags), &providers(&wrong));
    assert!(loaded.config.is_none() && loaded.credential_providers.is_none());
    let messages: Vec<_> = loaded.errors().map(ToString::to_string).collect();
    for start in [
        "--max-pods: maxPods: -1: ",
        "/etc/providers.yaml:4: providers[0].name: a/b: ",
        "/etc/providers.yaml:4: providers[0].defaultCacheDuration: -1h",
    ] {
        assert!(messages.iter().any(|line| line.starts_with(start)), "{start} in {messages:#?}");
    }
    // The gates for validating the providers are those of the whole configuration.
    let tokens = PROVIDERS.replace(
        "ecr, ",
        "ecr, tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: false}, ",
    );
    assert!(load(parsed(&PROVIDER_FLAGS), &providers(&tokens)).config.is_some());
    let off = "--feature-gates=KubeletServiceAccountTokenForCredentialProviders=false";
    let refused = load(parsed(&[PROVIDER_FLAGS[0], PROVIDER_FLAGS[1], off]), &providers(&tokens));
    assert!(refused.errors().any(|diagnostic| diagnostic.message.contains("feature gate")));
}

#[test]
fn one_credential_provider_flag_without_the_other_is_refused() {
    let wrong = PROVIDERS.replace("name: ecr", "name: a/b");
    let loaded = load(parsed(&PROVIDER_FLAGS[..1]), &providers(&wrong));
    let messages: Vec<_> = loaded.errors().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 2, "{messages:#?}");
    assert!(messages[0].contains("--image-credential-provider-bin-dir"), "{messages:#?}");
    let loaded = load(parsed(&PROVIDER_FLAGS[1..]), &ConfigFiles::default());
    assert!(loaded.config.is_none());
}

#[test]
fn a_misspelled_field_does_not_show_a_secret() {
    for body in [
        "staticPodUrlHeader: {Authorization: [s3cr3t]}",
        "staticPodURLHeaders: {Authorization: s3cr3t}",
        "STATICPODURLHEADER: s3cr3t",
        "manifestHeader: s3cr3t",
        "bearerToken: s3cr3t",
        "unknown: [s3cr3t]",
        "unknown: {deep: {er: s3cr3t}}",
        "maxPods: {token: s3cr3t}",
        "staticPodURLHeader: s3cr3t",
        "staticPodURLHeader: [s3cr3t]",
        "staticPodURLHeader: {a: s3cr3t}",
        "staticPodURLHeader: {a: [!!int s3cr3t]}",
        "staticPodURI: 'https://h/p?s3cr3t s3cr3t'",
    ] {
        let loaded = load_text(&format!("{body}\n"), &[]);
        assert!(!loaded.diagnostics.is_empty(), "{body}");
        let messages: Vec<_> = loaded.diagnostics.iter().map(ToString::to_string).collect();
        assert!(!messages.join("\n").contains("s3cr3t"), "{body}: {messages:#?}");
    }
    let messages = load_text("clusterDomian: cluster.local\n", &[]).diagnostics[0].to_string();
    assert!(
        messages.ends_with("clusterDomian: cluster.local: unknown field, ignored"),
        "{messages}"
    );
    for header in ["--manifest-url-header=s3cr3t", "--manifest-url-headr=s3cr3t"] {
        let messages = format!("{:?}", load_text("", &[header]).diagnostics);
        assert!(
            messages.contains("manifest-url-head") && !messages.contains("s3cr3t"),
            "{messages}"
        );
    }
    let edits = format!("{:?}", parsed(&["--manifest-url=http://h/?s3cr3t"]));
    assert!(edits.contains("http://h/?<masked>") && !edits.contains("s3cr3t"), "{edits}");
}

fn any_body() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        any::<i32>().prop_map(|number| format!("maxPods: {number}")),
        any::<i16>().prop_map(|number| format!("syncFrequency: {number}ms")),
        any::<bool>().prop_map(|value| format!("failSwapOn: {value}")),
        "[a-z0-9.:~ #%-]{0,12}".prop_map(|text| format!("clusterDomain: '{text}'")),
        "[a-z]{1,5}".prop_map(|key| format!("evictionHard: {{'{key}': '5%'}}")),
        any::<String>().prop_map(|text| format!("clusterDNS: [{}]", serde_json::Value::from(text))),
        (0..100_u32).prop_map(|number| format!("memoryThrottlingFactor: 0.{number}")),
        any::<u32>().prop_map(|number| format!("logging: {{flushFrequency: {number}}}")),
        Just("enforceNodeAllocatable: []".to_owned()),
        Just("tracing: {samplingRatePerMillion: 5}".to_owned()),
        "[ -~]{0,20}",
    ];
    prop::collection::vec(line, 0..6).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn loading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = load_file(&bytes, &[]);
        let drop_in = SourceFile { path: "x.conf".to_owned(), bytes };
        let files = ConfigFiles { drop_ins: vec![drop_in], ..ConfigFiles::default() };
        let _ = load(parsed(&[]), &files);
    }

    #[test]
    fn the_printed_document_loads_as_the_same_settings(body in any_body()) {
        let loaded = load_text(&body, &[]);
        let Some(shown) = loaded.effective.filter(|_| loaded.config.is_some()) else { return Ok(()) };
        let settings = loaded.config.map(|config| config.settings().clone());
        for text in [shown.to_yaml(), shown.to_json()] {
            let again = load_file(text.as_bytes(), &[]);
            let mut wanted = settings.clone();
            if let Some(wanted) = &mut wanted
                && wanted.enforce_node_allocatable.is_empty()
            {
                // An empty list is omitted from the document, so it gets its default.
                wanted.enforce_node_allocatable = vec!["pods".to_owned()];
            }
            prop_assert_eq!(again.config.map(|config| config.settings().clone()), wanted, "{}", text);
        }
    }
}
