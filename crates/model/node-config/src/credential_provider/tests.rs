//! Files of credential providers, valid and invalid.

use super::{CredentialProviderConfig, file_order, load};
use crate::SourceFile;
use crate::diagnostic::Diagnostic;
use crate::feature_gates::FeatureGates;

const GOOD: &str = "apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  matchImages: ['*.dkr.ecr.*.example.com', 'registry.example:5000/team']
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get]
  env: [{name: KEY, value: sesame}]
  tokenAttributes:
    serviceAccountTokenAudience: registry
    cacheType: Token
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/Role]
";

fn read(texts: &[&str]) -> Result<CredentialProviderConfig, Vec<Diagnostic>> {
    read_with(texts, &FeatureGates::default())
}

fn read_with(
    texts: &[&str],
    gates: &FeatureGates,
) -> Result<CredentialProviderConfig, Vec<Diagnostic>> {
    let files: Vec<SourceFile> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| SourceFile {
            path: format!("/etc/providers/{index}.yaml"),
            bytes: text.as_bytes().to_vec(),
        })
        .collect();
    load(&files, gates)
}

/// The findings about the valid file after one replacement.
fn errors_of(from: &str, to: &str) -> Vec<String> {
    assert!(GOOD.contains(from), "{from}");
    let diagnostics = read(&[&GOOD.replace(from, to)]).expect_err("it must be refused");
    diagnostics.iter().map(ToString::to_string).collect()
}

#[test]
fn a_good_file_becomes_a_value() {
    let config = read(&[GOOD]).unwrap();
    let provider = &config.providers[0];
    assert_eq!(provider.name, "ecr");
    assert_eq!(provider.default_cache_duration.to_string(), "12h0m0s");
    assert_eq!(provider.env[0].value, "sesame");
    let tokens = provider.token_attributes.as_ref().unwrap();
    assert!(tokens.require_service_account);
    assert_eq!(tokens.required_service_account_annotation_keys, ["example.com/Role"]);
    assert!(!format!("{config:?}").contains("sesame"));
    assert!(!config.to_value().to_string().contains("sesame"), "{}", config.to_value());
    let rows: Vec<String> = config
        .rows()
        .iter()
        .map(|row| format!("{} {} {}", row.path, row.value, row.origin))
        .collect();
    let start = "credentialProviders.ecr";
    let place = "/etc/providers/0.yaml:4";
    assert_eq!(
        rows,
        [
            format!(
                "{start}.matchImages [\"*.dkr.ecr.*.example.com\",\"registry.example:5000/team\"] {place}"
            ),
            format!("{start}.defaultCacheDuration 12h0m0s {place}"),
            format!("{start}.apiVersion credentialprovider.kubelet.k8s.io/v1 {place}"),
            format!("{start}.env [\"KEY=<masked>\"] {place}"),
        ]
    );
}

#[test]
fn errors_name_file_line_field_and_expectation() {
    let place = "/etc/providers/0.yaml";
    for (from, to, expected) in [
        (
            "kind: C",
            "kind: X",
            "2: kind: XredentialProviderConfig: expected CredentialProviderConfig",
        ),
        ("k8s.io/v1\nkind", "k8s.io/v2\nkind", "1: apiVersion: kubelet.config.k8s.io/v2: expected"),
        ("name: ecr", "name: a/b", "4: providers[0].name: a/b: must not contain a slash"),
        ("name: ecr", "name: a b", "4: providers[0].name: a b: must not contain a space"),
        ("name: ecr", "name: ..", "4: providers[0].name: ..: must not be a folder"),
        ("name: ecr", "name: ''", "4: providers[0].name: \"\": must be the name of a program"),
        ("  args: [get]", "  arguments: [get]", "8: providers[0].arguments: [...]: unknown field"),
        (
            "  args: [get]",
            "  args: [get]\n  args: []",
            "9: providers[0].args: the key is given more",
        ),
        (
            "'*.dkr.ecr.*.example.com'",
            "'a b.example'",
            "5: providers[0].matchImages[0]: a b.example:",
        ),
        (
            "['*.dkr.ecr.*.example.com', 'registry.example:5000/team']",
            "[]",
            "5: providers[0].matchImages: must name at least one",
        ),
        ("12h", "-1s", "6: providers[0].defaultCacheDuration: -1s: must not be negative"),
        ("12h", "1d", "6: providers[0].defaultCacheDuration: 1d: expected a duration"),
        (
            "defaultCacheDuration: 12h",
            "args: []",
            "4: providers[0].defaultCacheDuration: must be set",
        ),
        (
            "kubelet.k8s.io/v1\n",
            "kubelet.k8s.io/v3\n",
            "7: providers[0].apiVersion: credentialprovider",
        ),
        (
            "cacheType: Token",
            "cacheType: token",
            "12: providers[0].tokenAttributes.cacheType: token:",
        ),
        (
            "Audience: registry",
            "Audience: ''",
            "11: providers[0].tokenAttributes.serviceAccountToken",
        ),
        (
            "[example.com/Role]",
            "[a, a]",
            "requiredServiceAccountAnnotationKeys[1]: a: must not appear",
        ),
        (
            "[example.com/Role]",
            "['a b']",
            "requiredServiceAccountAnnotationKeys[0]: a b: qualified",
        ),
        ("Account: true", "Account: false", "cannot be set while requireServiceAccount is false"),
        (
            "    requireServiceAccount: true\n",
            "",
            "requireServiceAccount: must be set to true or false",
        ),
        (
            "[example.com/Role]",
            "[a]\n    optionalServiceAccountAnnotationKeys: [a]",
            "optionalServiceAccountAnnotationKeys: a: must not stand in",
        ),
    ] {
        let messages = errors_of(from, to);
        let fits = |line: &String| line.starts_with(place) && line.contains(expected);
        assert!(messages.iter().any(fits), "{to}: expected {expected:?} in {messages:#?}");
    }
}

#[test]
fn tokens_need_the_newest_messages_and_their_gate() {
    let older = errors_of("kubelet.k8s.io/v1\n  args", "kubelet.k8s.io/v1beta1\n  args");
    assert!(older[0].contains("tokenAttributes: needs apiVersion"), "{older:?}");
    let requested = [("KubeletServiceAccountTokenForCredentialProviders".to_owned(), false)];
    let (gates, _) = FeatureGates::from_map(&requested.into_iter().collect());
    let diagnostics = read_with(&[GOOD], &gates).unwrap_err();
    assert!(diagnostics[0].to_string().contains("feature gate"), "{diagnostics:?}");
}

#[test]
fn older_versions_know_no_tokens() {
    for version in ["v1beta1", "v1alpha1"] {
        let text = GOOD.replace("k8s.io/v1\nkind", &format!("k8s.io/{version}\nkind"));
        let diagnostics = read(&[&text]).unwrap_err();
        assert_eq!(diagnostics[0].field, "providers[0].tokenAttributes");
        let without = &text[..text.find("  tokenAttributes").unwrap()];
        assert_eq!(read(&[without]).unwrap().providers.len(), 1);
    }
}

#[test]
fn files_are_merged_and_a_name_belongs_to_one() {
    let other = GOOD.replace("name: ecr", "name: gcr");
    let config = read(&[GOOD, &other]).unwrap();
    let names: Vec<&str> = config.providers.iter().map(|provider| provider.name.as_str()).collect();
    assert_eq!(names, ["ecr", "gcr"]);
    let diagnostics = read(&[GOOD, GOOD]).unwrap_err();
    assert_eq!(
        diagnostics[0].to_string(),
        "/etc/providers/1.yaml:4: providers[0].name: ecr: another provider has this name"
    );
}

#[test]
fn no_mistake_brings_the_value_of_a_variable_to_light() {
    for (from, to) in [
        ("[{name: KEY, value: sesame}]", "{name: KEY, value: sesame}"),
        ("[{name: KEY, value: sesame}]", "[sesame]"),
        ("[{name: KEY, value: sesame}]", "sesame"),
        ("value: sesame", "value: [sesame]"),
        ("value: sesame", "value: {sesame: sesame}"),
        ("value: sesame", "Value: sesame"),
        ("value: sesame", "vlaue: sesame"),
        ("value: sesame", "value: !!int sesame"),
        ("  env:", "  evn:"),
        ("providers:\n- name", "providers:\n  name"),
        ("kind: C", "kind: X"),
    ] {
        let messages = errors_of(from, to);
        assert!(!messages.join("\n").contains("sesame"), "{to}: {messages:#?}");
    }
}

#[test]
fn many_keys_are_judged_in_reasonable_time() {
    let keys: Vec<String> = (0..30_000).map(|number| format!("key-{number}")).collect();
    let keys = keys.join(", ");
    let text = GOOD.replace(
        "[example.com/Role]",
        &format!("[{keys}]\n    optionalServiceAccountAnnotationKeys: [{keys}]"),
    );
    assert_eq!(read(&[&text]).unwrap_err().len(), 30_000);
}

#[test]
fn an_empty_file_is_refused() {
    assert!(read(&[]).is_err());
    let diagnostics = read(&[
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders: []",
    ]);
    assert_eq!(diagnostics.unwrap_err()[0].field, "providers");
    assert!(read(&[""]).is_err());
}

#[test]
fn every_mistake_is_found_at_once() {
    let text = GOOD.replace("name: ecr", "name: a/b").replace("12h", "-1s");
    assert_eq!(read(&[&text]).unwrap_err().len(), 2);
}

#[test]
fn only_some_names_in_a_dir_count() {
    let names = ["b.yaml", "a.json", "README.md", "c.yml", "yaml", "d.yaml.bak"];
    assert_eq!(file_order(&names), ["a.json", "b.yaml", "c.yml"]);
}
