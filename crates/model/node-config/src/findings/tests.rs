//! Order, repeats, and how much is listed.

use super::*;
use crate::{ConfigFiles, LoadedNodeConfig, SourceFile, flags, load};

fn load_text(body: &str, arguments: &[&str]) -> LoadedNodeConfig {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let bytes = format!("{head}{body}").into_bytes();
    let config = SourceFile { path: "/etc/kubelet.yaml".to_owned(), bytes };
    let files = ConfigFiles { config: Some(config), ..ConfigFiles::default() };
    let mut words = vec!["--kubeconfig=/etc/node.conf".to_owned()];
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    load(flags::parse(&words), &files)
}

#[test]
fn findings_come_by_file_line_and_field_whatever_stage_found_them() {
    let drop_in = |line| Origin::DropIn { path: "/etc/d/10.conf".into(), line, column: 9 };
    let file = |line, column| Origin::File { path: "/etc/kubelet.yaml".into(), line, column };
    let sorted = [
        Diagnostic::error("v", "flag").at(Origin::flag("v")),
        Diagnostic::warning("", "deprecated"),
        Diagnostic::error("z", "drop-in").at(drop_in(1)),
        Diagnostic::error("a", "drop-in").at(drop_in(2)),
        Diagnostic::error("", "whole file").at(file(0, 0)),
        Diagnostic::warning("b", "found last").at(file(3, 9)),
        Diagnostic::error("c", "first stage").at(file(3, 1)),
        Diagnostic::error("c", "another stage").at(file(3, 1)),
        Diagnostic::error("a", "x").at(file(12, 1)),
    ];
    let mut mixed: Vec<Diagnostic> = sorted[6..].iter().chain(&sorted[..6]).cloned().collect();
    mixed.extend(sorted.iter().cloned());
    assert_eq!(listed(mixed), sorted);
}

#[test]
fn a_load_lists_its_findings_in_order() {
    let body = "imageGCHighThresholdPercent: 101\nnoSuchField: 1\nmaxPods: many\n\
                featureGates: {NoSuchGate: true}\nhealthzPort: 70000\n";
    let loaded = load_text(body, &["--v=x"]);
    let lines: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    let place = |line: &String| line.split(": ").next().unwrap_or_default().to_owned();
    let places: Vec<String> = lines.iter().map(place).collect();
    let expected = [
        "--v",
        "/etc/kubelet.yaml:3",
        "/etc/kubelet.yaml:4",
        "/etc/kubelet.yaml:5",
        "/etc/kubelet.yaml:6",
        "/etc/kubelet.yaml:7",
    ];
    let mut once = places.clone();
    once.dedup();
    assert_eq!(once, expected, "{lines:#?}");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test is about time")]
fn twenty_thousand_mistakes_are_counted_and_a_hundred_of_each_kind_listed() {
    let keys: String = (0..20_000).map(|number| format!("  no.such-{number}: 5%\n")).collect();
    let unknown: String = (0..20_000).map(|number| format!("unknown{number}: 1\n")).collect();
    // Quadratic work on this took three quarters of a minute; the bound leaves room for a slow,
    // busy machine.
    let started = std::time::Instant::now();
    let loaded = load_text(&format!("evictionHard:\n{keys}{unknown}"), &[]);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    assert!(loaded.config.is_none());
    assert_eq!(loaded.errors().count(), LISTED + 1);
    assert_eq!(loaded.warnings().count(), LISTED + 1);
    let messages: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    let (last, most) = messages.split_last().unwrap();
    assert_eq!(last, "and 19900 more warnings");
    assert_eq!(most.last().unwrap(), "and 19900 more errors");
    assert!(
        messages[0].starts_with("/etc/kubelet.yaml:4: evictionHard[no.such-0]: "),
        "{}",
        messages[0]
    );
}

#[test]
fn warnings_alone_stay_warnings_however_many() {
    let unknown: String = (0..150).map(|number| format!("unknown{number}: 1\n")).collect();
    let loaded = load_text(&unknown, &[]);
    assert!(loaded.config.is_some(), "{:?}", loaded.diagnostics);
    assert_eq!(loaded.diagnostics.last().unwrap().to_string(), "and 50 more warnings");
}
