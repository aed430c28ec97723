//! The configuration of the whole program.
//!
//! The rule it keeps: it exists only when there was no error, it is immutable, and nothing else
//! reads flags, files or the environment. Cloning it is cheap.

use std::sync::Arc;

use crate::assemble::{self, ConfigFiles};
use crate::credential_provider::{self, CredentialProviderConfig};
use crate::diagnostic::{Diagnostic, Origin};
use crate::document::{Node, Number, Value};
use crate::effective::EffectiveConfig;
use crate::feature_gates::FeatureGates;
use crate::findings;
use crate::flags::{FlagSettings, KubeletCommandLine};
use crate::kubelet_configuration::KubeletConfiguration;
use crate::validation;

#[cfg(test)]
mod tests;

/// Settings, flags, gates and credential providers, validated together.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    parts: Arc<NodeConfigParts>,
}

#[derive(Debug)]
struct NodeConfigParts {
    settings: KubeletConfiguration,
    flags: FlagSettings,
    gates: FeatureGates,
    credential_providers: CredentialProviderConfig,
    tree: Node,
}

/// The result of loading: a configuration unless there was an error, and all findings either way.
#[derive(Debug, Clone)]
pub struct LoadedNodeConfig {
    pub config: Option<NodeConfig>,
    /// Each once, by file, line and field; at most `findings::LISTED` errors and as many warnings,
    /// and then a line that counts the others.
    pub diagnostics: Vec<Diagnostic>,
    /// The effective settings, also when they are rejected; absent only when a file could not be
    /// read as a configuration.
    pub effective: Option<EffectiveConfig>,
    /// The credential providers, where a file was named and is valid, also when the settings are
    /// rejected.
    pub credential_providers: Option<CredentialProviderConfig>,
}

impl LoadedNodeConfig {
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.is_error())
    }

    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| !diagnostic.is_error())
    }
}

/// Assembles the configuration and validates it.
pub fn load(command_line: KubeletCommandLine, files: &ConfigFiles) -> LoadedNodeConfig {
    let has_config_dir = !command_line.node.config_dir.is_empty();
    let assembled = assemble::assemble(&command_line.edits, files, has_config_dir);
    let mut diagnostics = command_line.diagnostics;
    diagnostics.extend(assembled.diagnostics);
    let tree = assembled.tree;
    let (gates, gate_problems) = FeatureGates::from_map(&assemble::gates_in(&tree));
    diagnostics
        .extend(gate_problems.into_iter().map(|diagnostic| assemble::locate(diagnostic, &tree)));
    let credential_providers = files.credential_providers.as_ref().and_then(|files| {
        let found = credential_provider::load(files, &gates);
        found.map_err(|provider_errors| diagnostics.extend(provider_errors)).ok()
    });
    let settings = settings_of(&tree).map_err(|diagnostic| diagnostics.push(diagnostic)).ok();
    let settings = settings.filter(|_| assembled.readable);
    if let Some(settings) = &settings {
        let judged = validation::validate(settings, &command_line.node, &gates);
        diagnostics
            .extend(judged.into_iter().map(|diagnostic| assemble::locate(diagnostic, &tree)));
    }
    let usable = !diagnostics.iter().any(Diagnostic::is_error);
    let effective = assembled.readable.then(|| EffectiveConfig::of(&tree));
    let config = settings.filter(|_| usable).map(|settings| {
        let credential_providers = credential_providers.clone().unwrap_or_default();
        let flags = command_line.node;
        let parts = NodeConfigParts { settings, flags, gates, credential_providers, tree };
        NodeConfig { parts: Arc::new(parts) }
    });
    LoadedNodeConfig {
        config,
        diagnostics: findings::listed(diagnostics),
        effective,
        credential_providers,
    }
}

/// The typed form of a settled tree.
fn settings_of(tree: &Node) -> Result<KubeletConfiguration, Diagnostic> {
    let mut json = tree.to_json();
    if let Some(Node { value: Value::Number(Number::Integer(nanoseconds)), .. }) =
        tree.find("logging.flushFrequency")
    {
        let nanoseconds = i64::try_from(*nanoseconds).unwrap_or(i64::MAX);
        json["logging"]["flushFrequency"] =
            pod_model::GoDuration::from_nanos(nanoseconds).to_string().into();
    }
    serde_json::from_value(json).map_err(|error| {
        Diagnostic::error(
            "",
            format!("the settled configuration does not fit its own type: {error}"),
        )
    })
}

impl NodeConfig {
    pub fn settings(&self) -> &KubeletConfiguration {
        &self.parts.settings
    }

    pub fn flags(&self) -> &FlagSettings {
        &self.parts.flags
    }

    pub fn gates(&self) -> &FeatureGates {
        &self.parts.gates
    }

    /// The credential provider plugins; none when no file names them.
    pub fn credential_providers(&self) -> &CredentialProviderConfig {
        &self.parts.credential_providers
    }

    /// The origin of the value at a field path; a path that does not exist is a default.
    pub fn origin_of(&self, path: &str) -> Origin {
        self.parts.tree.find(path).map_or(Origin::Default, |node| node.origin.clone())
    }

    pub fn effective(&self) -> EffectiveConfig {
        EffectiveConfig::of(&self.parts.tree)
    }
}
