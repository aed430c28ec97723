//! The configuration of credential providers: plugins that return the registry credentials for an
//! image.
//!
//! The rule it keeps: what the reference rejects is rejected, all findings at once, each with file,
//! line and field; several files become one list in the order of their names, and a name belongs to
//! one provider. Reading files and finding programs is the caller's task; nothing is run.
//!
//! upstream: pkg/credentialprovider/plugin/config.go

use pod_model::GoDuration;
use serde::Deserialize;
use serde_json::json;

use crate::assemble::SourceFile;
use crate::diagnostic::{Diagnostic, MASK, Origin, Severity};
use crate::document::{self, Node, Value, child_path, item_path};
use crate::effective::OriginRow;
use crate::feature_gates::{FeatureGates, Gate};
use crate::schema::{self, NameMatching};

mod fields;
mod rules;
#[cfg(test)]
mod tests;

pub const KIND: &str = "CredentialProviderConfig";
const GROUP: &str = "kubelet.config.k8s.io";

/// Every provider, in the order in which they are called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CredentialProviderConfig {
    pub providers: Vec<CredentialProvider>,
    /// The position of each provider.
    places: Vec<Origin>,
}

impl CredentialProviderConfig {
    /// The providers for the table of origins; the values of variables are masked.
    pub fn rows(&self) -> Vec<OriginRow> {
        let mut rows = Vec::new();
        for (provider, origin) in self.providers.iter().zip(&self.places) {
            let path = child_path("credentialProviders", &provider.name);
            let mut put = |field: &str, value: String| {
                rows.push(OriginRow {
                    path: format!("{path}.{field}"),
                    value,
                    origin: origin.clone(),
                });
            };
            put("matchImages", serde_json::Value::from(provider.match_images.clone()).to_string());
            put("defaultCacheDuration", provider.default_cache_duration.to_string());
            put("apiVersion", provider.api_version.clone());
            if !provider.env.is_empty() {
                let shown: Vec<String> =
                    provider.env.iter().map(|each| format!("{each:?}")).collect();
                put("env", serde_json::Value::from(shown).to_string());
            }
        }
        rows
    }

    /// The providers as JSON; the values of variables are masked, arguments are left out as they
    /// may hold keys too.
    pub fn to_value(&self) -> serde_json::Value {
        let provider = |provider: &CredentialProvider| {
            let variable = |each: &EnvironmentVariable| json!({"name": each.name, "value": MASK});
            json!({
                "name": provider.name,
                "matchImages": provider.match_images,
                "defaultCacheDuration": provider.default_cache_duration.to_string(),
                "apiVersion": provider.api_version,
                "env": provider.env.iter().map(variable).collect::<Vec<_>>(),
            })
        };
        self.providers.iter().map(provider).collect()
    }
}

/// One program and the images it has credentials for.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CredentialProvider {
    /// The name of the program in the directory of credential providers.
    pub name: String,
    /// Globs such as `*.registry.example/team`.
    pub match_images: Vec<String>,
    /// How long credentials are cached when the program's answer does not say.
    pub default_cache_duration: GoDuration,
    /// The API version of request and response.
    pub api_version: String,
    pub args: Vec<String>,
    pub env: Vec<EnvironmentVariable>,
    pub token_attributes: Option<TokenAttributes>,
}

/// Not for logs: the value may be a secret.
#[derive(Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default)]
pub struct EnvironmentVariable {
    pub name: String,
    pub value: String,
}

/// The service account token that the program receives.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenAttributes {
    pub service_account_token_audience: String,
    pub cache_type: String,
    pub require_service_account: bool,
    pub required_service_account_annotation_keys: Vec<String>,
    pub optional_service_account_annotation_keys: Vec<String>,
}

impl Default for CredentialProvider {
    fn default() -> Self {
        Self {
            name: String::new(),
            match_images: Vec::new(),
            default_cache_duration: GoDuration::ZERO,
            api_version: String::new(),
            args: Vec::new(),
            env: Vec::new(),
            token_attributes: None,
        }
    }
}

impl std::fmt::Debug for CredentialProvider {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|variable| variable.name.as_str()).collect();
        out.debug_struct("CredentialProvider")
            .field("name", &self.name)
            .field("match_images", &self.match_images)
            .field("default_cache_duration", &self.default_cache_duration)
            .field("api_version", &self.api_version)
            .field("args", &self.args)
            .field("env", &names)
            .field("token_attributes", &self.token_attributes)
            .finish()
    }
}

impl std::fmt::Debug for EnvironmentVariable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}={}", self.name, MASK)
    }
}

/// Which names in a directory are configurations, in the order in which they are merged.
pub fn file_order<'names>(names: &[&'names str]) -> Vec<&'names str> {
    let is_taken = |name: &&'names str| {
        name.rsplit_once('.').is_some_and(|(_, end)| matches!(end, "json" | "yaml" | "yml"))
    };
    let mut taken: Vec<&str> = names.iter().copied().filter(is_taken).collect();
    taken.sort_unstable();
    taken
}

/// Reads and merges the files, in the order given.
pub fn load(
    files: &[SourceFile],
    gates: &FeatureGates,
) -> Result<CredentialProviderConfig, Vec<Diagnostic>> {
    let mut diagnostics = Vec::new();
    let mut found = Vec::new();
    for file in files {
        found.extend(read_file(file, &mut diagnostics));
    }
    if files.is_empty() {
        diagnostics
            .push(Diagnostic::error("", "no file with a CredentialProviderConfig was found"));
    } else if found.is_empty() && diagnostics.is_empty() {
        diagnostics.push(Diagnostic::error("providers", "must name at least one provider"));
    }
    let tokens = gates.enabled(Gate::KubeletServiceAccountTokenForCredentialProviders);
    rules::check(&found, tokens, &mut diagnostics);
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    let mut providers = Vec::new();
    let places = found.iter().map(|entry| entry.node.origin.clone()).collect();
    for entry in &found {
        match serde_json::from_value(entry.node.to_json()) {
            Ok(provider) => providers.push(provider),
            Err(error) => diagnostics.push(entry.diagnostic("", error.to_string())),
        }
    }
    if diagnostics.is_empty() {
        Ok(CredentialProviderConfig { providers, places })
    } else {
        Err(diagnostics)
    }
}

/// One provider as decoded from a file: fields known and of the right type, not validated further.
struct ProviderEntry {
    path: String,
    node: Node,
}

impl ProviderEntry {
    /// The text of a field; empty when it is absent.
    fn text(&self, field: &str) -> &str {
        self.node.find(field).and_then(Node::as_str).unwrap_or_default()
    }

    fn texts(&self, field: &str) -> Vec<&str> {
        match self.node.find(field).map(|node| &node.value) {
            Some(Value::List(items)) => items.iter().filter_map(Node::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// A finding at a field of this provider, at the position where the field is or should be.
    fn diagnostic(&self, field: &str, message: impl Into<String>) -> Diagnostic {
        let path =
            if field.is_empty() { self.path.clone() } else { format!("{}.{field}", self.path) };
        let origin = self.node.find_nearest(field).origin.clone();
        Diagnostic::error(path, message).at(origin)
    }
}

fn read_file(file: &SourceFile, diagnostics: &mut Vec<Diagnostic>) -> Vec<ProviderEntry> {
    let origin = Origin::File { path: file.path.as_str().into(), line: 0, column: 0 };
    let document = match document::parse(&file.bytes, &origin) {
        Ok(document) => document,
        Err(diagnostic) => {
            diagnostics.push(diagnostic);
            return Vec::new();
        }
    };
    // There is no lenient decoding of this type: what would be a warning elsewhere is an error.
    diagnostics.extend(document.repeated_keys.into_iter().map(as_error));
    let Some(version) = read_header(&document.root, diagnostics) else { return Vec::new() };
    let mut found = Vec::new();
    let tree = schema::decode(&document.root, version, NameMatching::Exact, &mut found);
    diagnostics.extend(found.into_iter().map(as_error));
    let Some(Value::List(items)) = tree.get("providers").map(|node| &node.value) else {
        return Vec::new();
    };
    let entry = |(index, node): (usize, &Node)| ProviderEntry {
        path: item_path("providers", index),
        node: node.clone(),
    };
    items.iter().enumerate().map(entry).collect()
}

/// The fields of the file's version; `None` when its version or kind is not known.
fn read_header(
    root: &Node,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<&'static [schema::SchemaField]> {
    let mut header = |field: &str, expected: &str, known: &dyn Fn(&str) -> bool| {
        let text = root.get(field).and_then(Node::as_str).unwrap_or_default();
        if known(text) {
            return Some(text.to_owned());
        }
        let message = format!("expected {expected}");
        let diagnostic = Diagnostic::error(field, message).with_value(text);
        diagnostics.push(diagnostic.at(root.find_nearest(field).origin.clone()));
        None
    };
    let kind = header("kind", KIND, &|text| text == KIND);
    let fields = |text: &str| fields::of_version(text.strip_prefix(GROUP)?.strip_prefix('/')?);
    let expected = format!("{GROUP}/v1, {GROUP}/v1beta1 or {GROUP}/v1alpha1");
    let version = header("apiVersion", &expected, &|text| fields(text).is_some());
    kind.and(version).and_then(|version| fields(&version))
}

fn as_error(mut diagnostic: Diagnostic) -> Diagnostic {
    diagnostic.severity = Severity::Error;
    diagnostic
}
