//! The result of a check in its three output formats.

use super::ConfigFormat;
use node_config::credential_provider::CredentialProviderConfig;
use node_config::flags::KubeletCommandLine;
use node_config::{Diagnostic, LoadedNodeConfig};
use serde_json::json;

/// Everything that a check found.
pub(super) struct ConfigReport {
    pub(super) loaded: LoadedNodeConfig,
    /// Flags that are no part of KubeletConfiguration: their name and their value.
    pub(super) flag_rows: Vec<(String, String)>,
    pub(super) unreadable: Vec<String>,
    pub(super) skipped: Vec<String>,
}

/// The settings that exist only as flags, as they were given.
pub(super) fn flag_rows(command_line: &KubeletCommandLine) -> Vec<(String, String)> {
    let in_configuration = |flag: &str| command_line.edits.iter().any(|edit| edit.flag == flag);
    command_line
        .given
        .iter()
        .filter(|given| !in_configuration(given.flag))
        .map(|given| (format!("--{}", given.flag), given.shown()))
        .collect()
}

impl ConfigReport {
    pub(super) fn usable(&self) -> bool {
        self.loaded.config.is_some() && self.unreadable.is_empty()
    }

    fn warnings(&self) -> Vec<String> {
        let skipped = self
            .skipped
            .iter()
            .map(|name| format!("--config-dir: {name} is passed over, expected a name in .conf"));
        self.loaded.warnings().map(Diagnostic::to_string).chain(skipped).collect()
    }

    fn errors(&self) -> Vec<String> {
        self.unreadable
            .iter()
            .cloned()
            .chain(self.loaded.errors().map(Diagnostic::to_string))
            .collect()
    }

    /// One line each, for standard error.
    pub(super) fn findings(&self) -> Vec<String> {
        let warnings = self.warnings().into_iter().map(|warning| format!("warning: {warning}"));
        let errors = self.errors().into_iter().map(|error| format!("error: {error}"));
        warnings.chain(errors).collect()
    }

    /// Field, value, origin.
    fn rows(&self) -> Vec<[String; 3]> {
        let said =
            self.loaded.effective.iter().flat_map(node_config::EffectiveConfig::explicit_values);
        let said = said.map(|row| [row.path, row.value, row.origin.to_string()]);
        let flags = self.flag_rows.iter();
        let flags = flags.map(|(flag, value)| [flag.clone(), value.clone(), flag.clone()]);
        let providers = self.loaded.credential_providers.iter();
        let providers = providers.flat_map(CredentialProviderConfig::rows);
        let providers = providers.map(|row| [row.path, row.value, row.origin.to_string()]);
        said.chain(providers).chain(flags).collect()
    }

    pub(super) fn render(&self, output: ConfigFormat) -> String {
        match output {
            ConfigFormat::Yaml => self.yaml(),
            ConfigFormat::Json => self.json(),
            ConfigFormat::Table => aligned(&self.rows(), &["FIELD", "VALUE", "ORIGIN"]),
        }
    }

    fn yaml(&self) -> String {
        let Some(effective) = &self.loaded.effective else { return String::new() };
        let mut text = effective.clone().masked().to_yaml();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let rows = self.rows();
        if !rows.is_empty() {
            text.push_str("# What is not a default, and where it came from:\n");
            for line in aligned(&rows, &["FIELD", "VALUE", "ORIGIN"]).lines() {
                text.push_str(&format!("#   {line}\n"));
            }
        }
        text
    }

    fn json(&self) -> String {
        let configuration =
            self.loaded.effective.as_ref().map(|effective| effective.clone().masked().to_value());
        let providers = self.loaded.credential_providers.as_ref();
        let providers = providers.map(CredentialProviderConfig::to_value);
        let origins: Vec<serde_json::Value> = self
            .rows()
            .into_iter()
            .map(|[field, value, origin]| json!({"field": field, "value": value, "origin": origin}))
            .collect();
        let report = json!({
            "usable": self.usable(),
            "configuration": configuration,
            "credentialProviders": providers,
            "origins": origins,
            "warnings": self.warnings(),
            "errors": self.errors(),
        });
        format!("{report:#}\n")
    }
}

/// Columns as wide as their widest cell, the last one ragged.
fn aligned(rows: &[[String; 3]], headings: &[&str; 3]) -> String {
    let headings = headings.map(str::to_owned);
    let all: Vec<&[String; 3]> = std::iter::once(&headings).chain(rows).collect();
    let width =
        |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1).min(60));
    all.iter().map(|row| format!("{:first$}  {:second$}  {}\n", row[0], row[1], row[2])).collect()
}
