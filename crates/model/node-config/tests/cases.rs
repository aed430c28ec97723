//! Runs every case of the table through the crate's public API.
//!
//! The rule it keeps: all cases run, and a failure names the case and shows every finding. Whether
//! the reference agrees is tested elsewhere, with the same table.

use std::collections::BTreeSet;
use std::path::Path;

use node_config::{
    ConfigFiles, Loaded, Origin, Problem, SourceFile, credential_provider, drop_in_order, flags,
    load,
};
use serde_json::Value;

mod case_table;

use case_table::{Accepted, Case, Expectation, Finding};

/// The directory that the cases pretend to be in.
const FOLDER: &str = "/case";
const FEWEST_CASES: usize = 130;

fn table() -> Vec<(String, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    case_table::read_all(&folder).expect("the table can be read")
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
            let found: Vec<String> = loaded.problems.iter().map(shown).collect();
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

fn load_case(case: &Case) -> Loaded {
    let source = |path: String, text: &case_table::Text| SourceFile {
        path,
        bytes: text.content().replace("{folder}", FOLDER).into_bytes(),
    };
    let names: Vec<&String> = case.drop_ins.keys().collect();
    let drop_in_folder = Case::drop_in_folder(FOLDER);
    let order = drop_in_order(&names);
    let drop_ins = order
        .taken
        .iter()
        .filter_map(|name| Some((name, case.drop_ins.get(name)?)))
        .map(|(name, text)| source(format!("{drop_in_folder}/{name}"), text));
    let command_line = flags::parse(&case.command_line(FOLDER));
    let files = ConfigFiles {
        config: case.config.as_ref().map(|text| source(Case::config_path(FOLDER), text)),
        drop_ins: drop_ins.collect(),
        credential_providers: providers(case, &command_line.node.image_credential_provider_config),
    };
    load(command_line, &files)
}

/// The providers' file, or all files of their directory, as the agent reads them.
fn providers(case: &Case, path: &str) -> Option<Vec<SourceFile>> {
    let below = path.strip_prefix(&format!("{FOLDER}/"))?;
    let folder = format!("{below}/");
    let names: Vec<&str> = if case.files.contains_key(below) {
        vec![below]
    } else {
        let inside = case.files.keys().filter(|name| name.starts_with(&folder));
        credential_provider::file_order(&inside.map(String::as_str).collect::<Vec<_>>())
    };
    let source = |name: &&str| SourceFile {
        path: format!("{FOLDER}/{name}"),
        bytes: case.files[*name].join("\n").into_bytes(),
    };
    Some(names.iter().map(source).collect())
}

fn check_accepted(accepted: &Accepted, loaded: &Loaded) -> Vec<String> {
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
        let actual = origin_word(&config.origin_of(field));
        if actual != *expected {
            complaints.push(format!("{field} comes from {actual}, expected {expected}"));
        }
    }
    let warnings: Vec<&Problem> = loaded.warnings().collect();
    complaints.extend(missing(&accepted.warnings, &warnings));
    complaints
}

fn check_refused(findings: &[Finding], loaded: &Loaded) -> Vec<String> {
    if loaded.config.is_some() {
        return vec!["expected to be refused".to_owned()];
    }
    let errors: Vec<&Problem> = loaded.errors().collect();
    missing(findings, &errors)
}

fn missing(expected: &[Finding], found: &[&Problem]) -> Vec<String> {
    let is_there = |Finding(field, part): &Finding| {
        found.iter().any(|problem| problem.field == *field && problem.to_string().contains(part))
    };
    expected
        .iter()
        .filter(|finding| !is_there(finding))
        .map(|Finding(field, part)| format!("no finding at {field:?} with {part:?}"))
        .collect()
}

fn origin_word(origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File { .. } => "file".to_owned(),
        Origin::DropIn { path, .. } => {
            let prefix = format!("{}/", Case::drop_in_folder(FOLDER));
            format!("drop-in {}", path.strip_prefix(&prefix).unwrap_or(path))
        }
        Origin::Flag { name } => format!("flag {name}"),
    }
}

fn shown(problem: &Problem) -> String {
    format!("{:?} at {:?}: {problem}", problem.severity, problem.field)
}
