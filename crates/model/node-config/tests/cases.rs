//! Runs every case of the table through the crate's public API.
//!
//! The rule it keeps: all cases run, and a failure names the case and shows every finding. Whether
//! the reference agrees is tested elsewhere, with the same table.

use std::collections::BTreeSet;
use std::path::Path;

use node_config::{
    ConfigFiles, Diagnostic, LoadedNodeConfig, Origin, SourceFile, credential_provider,
    drop_in_order, flags, load,
};
use serde_json::Value;

mod case_table;

use case_table::{Accepted, ConfigCase, Expectation, Finding};

/// The directory that the cases pretend to be in.
const DIR: &str = "/case";
const FEWEST_CASES: usize = 130;

fn table() -> Vec<(String, ConfigCase)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    case_table::read_all(&dir).expect("the table can be read")
}

#[test]
fn every_case_decides_as_expected() {
    let mut failures = Vec::new();
    for (name, case) in table() {
        let loaded = load_case(&case);
        let complaints = match &case.expect {
            Expectation::Accepted(accepted) => check_accepted(accepted, &loaded),
            Expectation::Refused(findings) => check_refused(findings, &loaded),
        };
        if !complaints.is_empty() {
            let found: Vec<String> = loaded.diagnostics.iter().map(shown).collect();
            failures.push(format!(
                "{name}:\n  {}\n  found:\n    {}",
                complaints.join("\n  "),
                found.join("\n    ")
            ));
        }
    }
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_table_is_large_and_has_no_name_twice() {
    let table = table();
    let names: BTreeSet<&str> = table.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.len(), table.len());
    assert!(table.len() >= FEWEST_CASES);
    let refused = table.iter().filter(|(_, case)| !case.is_accepted()).count();
    assert!(refused * 3 > table.len() && (table.len() - refused) * 3 > table.len());
}

#[test]
fn a_refused_case_without_findings_would_prove_nothing() {
    for (name, case) in table() {
        if let Expectation::Refused(findings) = &case.expect {
            assert!(!findings.is_empty(), "{name}");
        }
    }
}

fn load_case(case: &ConfigCase) -> LoadedNodeConfig {
    let source = |path: String, text: &case_table::CaseText| SourceFile {
        path,
        bytes: text.content().replace("{folder}", DIR).into_bytes(),
    };
    let names: Vec<&String> = case.drop_ins.keys().collect();
    let drop_in_dir = ConfigCase::drop_in_dir(DIR);
    let order = drop_in_order(&names);
    let drop_ins = order
        .taken
        .iter()
        .filter_map(|name| Some((name, case.drop_ins.get(name)?)))
        .map(|(name, text)| source(format!("{drop_in_dir}/{name}"), text));
    let command_line = flags::parse(&case.command_line(DIR));
    let files = ConfigFiles {
        config: case.config.as_ref().map(|text| source(ConfigCase::config_path(DIR), text)),
        drop_ins: drop_ins.collect(),
        credential_providers: providers(case, &command_line.node.image_credential_provider_config),
    };
    load(command_line, &files)
}

/// The providers' file, or all files of their directory, as the agent reads them.
fn providers(case: &ConfigCase, path: &str) -> Option<Vec<SourceFile>> {
    let below = path.strip_prefix(&format!("{DIR}/"))?;
    let dir = format!("{below}/");
    let names: Vec<&str> = if case.files.contains_key(below) {
        vec![below]
    } else {
        let inside = case.files.keys().filter(|name| name.starts_with(&dir));
        credential_provider::file_order(&inside.map(String::as_str).collect::<Vec<_>>())
    };
    let source = |name: &&str| SourceFile {
        path: format!("{DIR}/{name}"),
        bytes: case.files[*name].join("\n").into_bytes(),
    };
    Some(names.iter().map(source).collect())
}

fn check_accepted(accepted: &Accepted, loaded: &LoadedNodeConfig) -> Vec<String> {
    let Some(config) = &loaded.config else {
        return vec!["expected to be accepted".to_owned()];
    };
    let settings = serde_json::to_value(config.settings()).expect("settings have a JSON form");
    let mut complaints = Vec::new();
    for (pointer, expected) in &accepted.values {
        let actual = settings.pointer(pointer).unwrap_or(&Value::Null);
        if actual != expected {
            complaints.push(format!("{pointer} is {actual}, expected {expected}"));
        }
    }
    for (field, expected) in &accepted.origins {
        let actual = origin_name(&config.origin_of(field));
        if actual != *expected {
            complaints.push(format!("{field} comes from {actual}, expected {expected}"));
        }
    }
    let warnings: Vec<&Diagnostic> = loaded.warnings().collect();
    complaints.extend(missing(&accepted.warnings, &warnings));
    complaints
}

fn check_refused(findings: &[Finding], loaded: &LoadedNodeConfig) -> Vec<String> {
    if loaded.config.is_some() {
        return vec!["expected to be refused".to_owned()];
    }
    let errors: Vec<&Diagnostic> = loaded.errors().collect();
    missing(findings, &errors)
}

fn missing(expected: &[Finding], found: &[&Diagnostic]) -> Vec<String> {
    let is_there = |Finding(field, part): &Finding| {
        found
            .iter()
            .any(|diagnostic| diagnostic.field == *field && diagnostic.to_string().contains(part))
    };
    expected
        .iter()
        .filter(|finding| !is_there(finding))
        .map(|Finding(field, part)| format!("no finding at {field:?} with {part:?}"))
        .collect()
}

fn origin_name(origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File { .. } => "file".to_owned(),
        Origin::DropIn { path, .. } => {
            let prefix = format!("{}/", ConfigCase::drop_in_dir(DIR));
            format!("drop-in {}", path.strip_prefix(&prefix).unwrap_or(path))
        }
        Origin::Flag { name } => format!("flag {name}"),
    }
}

fn shown(diagnostic: &Diagnostic) -> String {
    format!("{:?} at {:?}: {diagnostic}", diagnostic.severity, diagnostic.field)
}
