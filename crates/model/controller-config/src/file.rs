//! Reads a file of `KubeControllerManagerConfiguration` v1alpha1 into the settings.
//!
//! The rule it keeps: strict. An unknown field, a value of the wrong type and a duplicate key are
//! errors; sections and fields that have no effect here are warnings. Field names of upstream's
//! type are capitalized as in Go and are hard to remember, so their case is ignored.

use std::collections::BTreeMap;

use document::diagnostic::{Diagnostic, Origin};
use document::{Node, Number, Value, child_path};
use node_config::SourceFile;
use node_config::flags::{FlagValue, add_value};

use crate::command_line::{Origins, write};
use crate::settings::ControllerSettings;
use crate::table::{self, ControllerFlag, FOREIGN_SECTIONS, SettingField, UNUSED_FIELDS};

const API_VERSION: &str = "kubecontrollermanager.config.k8s.io/v1alpha1";
const KIND: &str = "KubeControllerManagerConfiguration";
/// The one field that has no flag of its own.
const SECOND_SERVICE_RANGE: &str = "NodeIPAMController.SecondaryServiceCIDR";

/// Reads the file into `settings`, and the origin of each into `origins`.
pub(crate) fn read(
    file: &SourceFile,
    settings: &mut ControllerSettings,
    origins: &mut Origins,
) -> Vec<Diagnostic> {
    let origin = Origin::File { path: file.path.as_str().into(), line: 0, column: 0 };
    let document = match document::parse(&file.bytes, &origin) {
        Ok(document) => document,
        Err(diagnostic) => return vec![diagnostic],
    };
    let mut diagnostics: Vec<Diagnostic> = document
        .repeated_keys
        .into_iter()
        .map(|diagnostic| Diagnostic {
            severity: document::diagnostic::Severity::Error,
            ..diagnostic
        })
        .collect();
    let Some(entries) = document.root.as_map() else {
        let found = document.root.kind_name();
        diagnostics.push(
            Diagnostic::error("", format!("expected an object, found {found}"))
                .at(document.root.origin.clone()),
        );
        return diagnostics;
    };
    check_type(&document.root, &mut diagnostics);
    let known = KnownPaths::new();
    let mut reader = ConfigFileReader { known, settings, origins, diagnostics };
    for (key, node) in entries {
        if !matches!(key.as_str(), "apiVersion" | "kind") {
            reader.field(&child_path("", key), node);
        }
    }
    reader.diagnostics
}

fn check_type(root: &Node, diagnostics: &mut Vec<Diagnostic>) {
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match root.get(field) {
            Some(node) if node.as_str() == Some(expected) => {}
            Some(node) => diagnostics.push(
                Diagnostic::error(field, format!("expected {expected}"))
                    .with_value(node.shown())
                    .at(node.origin.clone()),
            ),
            None => diagnostics.push(
                Diagnostic::error(field, format!("missing, expected {expected}"))
                    .at(root.origin.clone()),
            ),
        }
    }
}

/// The meaning of a path, by its text in lowercase.
#[derive(Clone, Copy)]
enum Meaning {
    Row(&'static ControllerFlag),
    SecondServiceRange,
    /// A section that holds further fields.
    Section,
    Foreign,
    Unused(&'static str),
}

struct KnownPaths(BTreeMap<String, Meaning>);

impl KnownPaths {
    fn new() -> Self {
        let mut known = BTreeMap::new();
        let mut put = |path: &str, meaning: Meaning| {
            let path = path.to_ascii_lowercase();
            for (at, _) in path.match_indices('.') {
                known.entry(path[..at].to_owned()).or_insert(Meaning::Section);
            }
            known.insert(path, meaning);
        };
        for row in table::own().iter().filter(|row| !row.path.is_empty()) {
            put(row.path, Meaning::Row(row));
        }
        put(SECOND_SERVICE_RANGE, Meaning::SecondServiceRange);
        for section in FOREIGN_SECTIONS {
            put(section, Meaning::Foreign);
        }
        for (path, why) in UNUSED_FIELDS {
            put(path, Meaning::Unused(why));
        }
        Self(known)
    }
}

struct ConfigFileReader<'a> {
    known: KnownPaths,
    settings: &'a mut ControllerSettings,
    origins: &'a mut Origins,
    diagnostics: Vec<Diagnostic>,
}

impl ConfigFileReader<'_> {
    fn field(&mut self, path: &str, node: &Node) {
        let Some(meaning) = self.known.0.get(&path.to_ascii_lowercase()).copied() else {
            self.refuse(path, node, "unknown field", false);
            return;
        };
        if node.is_null() {
            return;
        }
        match meaning {
            Meaning::Section => match node.as_map() {
                Some(entries) => {
                    for (key, child) in entries {
                        self.field(&child_path(path, key), child);
                    }
                }
                None => self.refuse(path, node, "expected an object", true),
            },
            Meaning::Foreign => {
                let message = "it belongs to a controller that does not run here";
                self.diagnostics.push(Diagnostic::warning(path, message).at(node.origin.clone()));
            }
            Meaning::Unused(why) => {
                let message = format!("it has no effect here: {why}");
                self.diagnostics.push(Diagnostic::warning(path, message).at(node.origin.clone()));
            }
            Meaning::SecondServiceRange => match node.as_str() {
                Some(text) => text.clone_into(&mut self.settings.secondary_service_range),
                None => self.refuse(path, node, "expected a string", true),
            },
            Meaning::Row(row) => self.set(row, path, node),
        }
    }

    fn set(&mut self, row: &'static ControllerFlag, path: &str, node: &Node) {
        if self.origins.contains_key(row.name) {
            self.refuse(path, node, "the same field stands here twice", false);
            return;
        }
        match value(row, node) {
            Ok(value) => match write(row, value, self.settings) {
                Ok(()) => {
                    self.origins.insert(row.name, node.origin.clone());
                }
                Err(expected) => self.refuse(path, node, expected, true),
            },
            Err(expected) => self.refuse(path, node, &expected, true),
        }
    }

    fn refuse(&mut self, path: &str, node: &Node, message: &str, show: bool) {
        let diagnostic = Diagnostic::error(path, message).at(node.origin.clone());
        self.diagnostics.push(if show { diagnostic.with_value(node.shown()) } else { diagnostic });
    }
}

/// The value of a field, by the kind of its flag.
fn value(row: &ControllerFlag, node: &Node) -> Result<FlagValue, String> {
    let wrong = |expected: &str| Err(format!("expected {expected}, found {}", node.kind_name()));
    match (row.field, &node.value) {
        (SettingField::Bool(_), Value::Bool(value)) => Ok(FlagValue::Bool(*value)),
        (SettingField::Bool(_), _) => wrong("a boolean"),
        (SettingField::Int32(_) | SettingField::Int(_), Value::Number(Number::Integer(value))) => {
            i64::try_from(*value).map(FlagValue::Integer).map_err(|_| "expected 64 bits".to_owned())
        }
        (SettingField::Int32(_) | SettingField::Int(_), _) => wrong("a whole number"),
        (SettingField::Float(_), Value::Number(number)) => {
            add_value(row.kind(), None, &number.text())
        }
        (SettingField::Float(_), _) => wrong("a number"),
        (SettingField::StringList(_), Value::List(items)) => {
            let words = items.iter().map(|item| item.as_str().map(str::to_owned));
            match words.collect::<Option<Vec<_>>>() {
                Some(words) => Ok(FlagValue::List(words)),
                None => Err("expected a list of strings".to_owned()),
            }
        }
        (SettingField::StringList(_), _) => wrong("a list of strings"),
        (_, Value::String(text)) => add_value(row.kind(), None, text),
        _ => wrong("a string"),
    }
}
