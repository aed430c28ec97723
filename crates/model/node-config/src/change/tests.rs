//! The table is complete, and a comparison shows what changed without revealing secrets.

use std::collections::BTreeSet;

use super::{ChangeEffect, FieldChange, compare, table};
use crate::schema::{KUBELET_CONFIGURATION, field_at};
use crate::{ConfigFiles, NodeConfig, SourceFile, flags, load};

fn config(lines: &str, args: &[&str]) -> NodeConfig {
    let header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let file = SourceFile {
        path: "/etc/kubelet.yaml".to_owned(),
        bytes: format!("{header}{lines}").into_bytes(),
    };
    let mut words = vec!["--kubeconfig=/etc/kubeconfig".to_owned()];
    words.extend(args.iter().map(|word| (*word).to_owned()));
    let files = ConfigFiles { config: Some(file), ..ConfigFiles::default() };
    let loaded = load(flags::parse(&words), &files);
    loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

fn one(changes: &[FieldChange]) -> &FieldChange {
    assert_eq!(changes.len(), 1, "{changes:?}");
    &changes[0]
}

#[test]
fn every_field_of_the_schema_has_a_row() {
    let rows: BTreeSet<&str> = table::rows().map(|(path, _)| path).collect();
    let missing: Vec<&str> = KUBELET_CONFIGURATION
        .iter()
        .map(|field| field.name)
        .filter(|name| !rows.contains(name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn every_row_is_a_field_and_stands_once() {
    let mut seen = BTreeSet::new();
    for (path, answer) in table::rows() {
        assert!(field_at(path).is_some(), "{path} is no field");
        assert!(seen.insert(path), "{path} stands twice");
        assert!(!answer.reason().is_empty(), "{path}");
    }
}

#[test]
fn equal_configurations_have_no_changes() {
    let lines = "maxPods: 20\nregisterWithTaints: [{key: a, effect: NoSchedule}]";
    assert_eq!(compare(&config(lines, &[]), &config(lines, &[])), []);
}

#[test]
fn a_changed_file_of_credential_providers_counts_from_the_next_start_on() {
    let with = |value: &str, blank: &str| {
        let text = format!(
            "{blank}apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n\
             providers: [{{name: ecr, matchImages: [r.example], defaultCacheDuration: 1h, \
             apiVersion: credentialprovider.kubelet.k8s.io/v1, env: [{{name: K, value: {value}}}]}}]\n"
        );
        let file = SourceFile { path: "/etc/p.yaml".to_owned(), bytes: text.into_bytes() };
        let files =
            ConfigFiles { credential_providers: Some(vec![file]), ..ConfigFiles::default() };
        load(flags::parse(&[]), &files).config.unwrap()
    };
    assert_eq!(compare(&with("a", ""), &with("a", "\n\n")), []);
    let changes = compare(&with("a", ""), &with("s3cr3t", ""));
    assert_eq!(one(&changes).field, "credentialProviders");
    assert!(!one(&changes).change_effect.is_live());
    assert!(!format!("{changes:?}").contains("s3cr3t"));
}

#[test]
fn a_changed_number_is_shown_with_both_values() {
    let changes = compare(&config("", &[]), &config("imageGCHighThresholdPercent: 90", &[]));
    let change = one(&changes);
    assert_eq!(change.field, "imageGCHighThresholdPercent");
    assert_eq!((change.old.as_str(), change.new.as_str()), ("85", "90"));
    assert!(change.change_effect.is_live());
}

#[test]
fn entries_of_a_map_change_one_by_one() {
    let old = config("kubeReserved: {cpu: 100m, memory: 1Gi}", &[]);
    let new = config("kubeReserved: {cpu: 200m, pid: '10'}", &[]);
    let changes = compare(&old, &new);
    let shown: Vec<(&str, &str, &str)> = changes
        .iter()
        .map(|change| (change.field.as_str(), change.old.as_str(), change.new.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            ("kubeReserved.cpu", "100m", "200m"),
            ("kubeReserved.memory", "1Gi", "unset"),
            ("kubeReserved.pid", "unset", "10"),
        ]
    );
    assert!(changes.iter().all(|change| !change.change_effect.is_live()));
}

#[test]
fn the_nearest_row_decides() {
    let verbosity = compare(&config("", &[]), &config("logging: {verbosity: 4}", &[]));
    assert!(one(&verbosity).change_effect.is_live());
    let format = compare(&config("", &[]), &config("logging: {format: json}", &[]));
    assert!(!one(&format).change_effect.is_live());
    let threshold =
        compare(&config("", &[]), &config("evictionHard: {memory.available: 1Gi}", &[]));
    assert!(threshold.len() > 1 && threshold.iter().all(|change| change.change_effect.is_live()));
    assert_eq!(threshold[2].field, "evictionHard[memory.available]");
}

#[test]
fn a_name_that_only_begins_alike_is_not_covered() {
    assert_eq!(
        super::change_effect("portal"),
        ChangeEffect::Restart("nobody has judged this field")
    );
}

#[test]
fn secrets_stay_secret() {
    let header =
        |token: &str| format!("staticPodURLHeader: {{Authorization: [\"Bearer {token}\"]}}");
    let changes = compare(&config(&header("old-token"), &[]), &config(&header("new-token"), &[]));
    assert_eq!(one(&changes).field, "staticPodURLHeader.Authorization");
    let text = format!("{changes:?}");
    assert!(!text.contains("token"), "{text}");
    let changes = compare(
        &config("", &["--storage-driver-password=sesame"]),
        &config("", &["--storage-driver-password=open"]),
    );
    assert_eq!(one(&changes).field, "--storage-driver-password");
    let text = format!("{changes:?}");
    assert!(!text.contains("sesame") && !text.contains("open"), "{text}");
}

#[test]
fn flags_wait_for_a_restart() {
    let changes = compare(&config("", &[]), &config("", &["--node-labels=rack=7"]));
    let change = one(&changes);
    assert_eq!((change.field.as_str(), change.new.as_str()), ("--node-labels", "rack=7"));
    assert!(!change.change_effect.is_live());
}
