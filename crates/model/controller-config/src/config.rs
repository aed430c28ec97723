//! The validated configuration and its construction: defaults, then the file, then the flags.
//!
//! The rule it keeps: a `NodeControllerConfig` is always valid; its users check nothing again. The
//! checks are in `validation`.

use std::net::SocketAddr;
use std::time::Duration;

use document::diagnostic::{Diagnostic, Origin};
use node_config::SourceFile;
use pod_model::Cidr;

use crate::command_line::{ControllerCommandLine, FlagUse, Origins, write};
use crate::controllers::RunningControllers;
use crate::settings::ControllerSettings;
use crate::{file, validation};

/// The configuration of the node controller.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeControllerConfig {
    pub connection: ApiConnection,
    pub controllers: RunningControllers,
    pub lifecycle: LifecycleSettings,
    /// None: no leader election.
    pub leader: Option<LeaderElection>,
    /// None: no pod CIDRs are allocated.
    pub ranges: Option<PodRanges>,
    /// The number of terminated pods to keep; none for no limit.
    pub terminated_pods: Option<u32>,
    pub cloud: Option<CloudSource>,
    /// None: there is no secure port.
    pub serving: Option<SecureServing>,
    /// The socket on which `explain` is served; none for no socket.
    pub local_socket: Option<String>,
    /// How long work in flight may take at shutdown.
    pub shutdown_timeout: Duration,
    /// Whether tolerations may compare numbers (gate TaintTolerationComparisonOperators).
    pub tolerations_compare: bool,
    pub logging: LogSettings,
}

/// How to reach the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiConnection {
    /// Empty: as a pod of the cluster, or by `master` alone.
    pub kubeconfig: String,
    /// Overrides the kubeconfig's server; empty for none.
    pub master: String,
    /// Requests per second and burst; none for no limit.
    pub rate: Option<(f32, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LifecycleSettings {
    /// How often the cloud is polled.
    pub monitor_period: Duration,
    pub monitor_grace: Duration,
    pub startup_grace: Duration,
    /// Nodes per second; 0 for never.
    pub eviction_rate: f32,
    pub secondary_eviction_rate: f32,
    /// A zone is large above this number of nodes.
    pub large_above: u32,
    pub unhealthy_share: f32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElection {
    pub lease: Duration,
    pub renew: Duration,
    pub retry: Duration,
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRanges {
    /// One, or one of each family; with the mask size of a node's range.
    pub cluster: Vec<(Cidr, u8)>,
    /// None, one, or one of each family: excluded from allocation.
    pub service: Vec<Cidr>,
}

/// The cloud provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudSource {
    File(String),
    Program(String),
}

/// The secure port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureServing {
    pub address: SocketAddr,
    /// Certificate and key; without them a self-signed one is created.
    pub certificate: Option<(String, String)>,
    /// The directory for the self-signed certificate; none for memory only.
    pub cert_dir: Option<String>,
    pub min_tls_version: MinTlsVersion,
    /// Names of TLS 1.2 suites; empty for all that are safe.
    pub cipher_suites: Vec<String>,
    /// The file with the CAs of client certificates.
    pub client_ca_file: Option<String>,
    pub delegation: Delegation,
    /// Exact paths, or prefixes that end in `*`.
    pub open_paths: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinTlsVersion {
    Tls12,
    Tls13,
}

/// Delegated authentication and authorization, by the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// None: bearer tokens are rejected.
    pub authentication_kubeconfig: Option<String>,
    /// None: only the open paths are served.
    pub authorization_kubeconfig: Option<String>,
    /// Whether the CA of client certificates is also looked up in the cluster.
    pub lookup_client_ca: bool,
    pub token_cache_ttl: Duration,
    pub allowed_cache_ttl: Duration,
    pub denied_cache_ttl: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    pub json: bool,
    pub split_stream: bool,
    pub verbosity: u64,
    pub modules: Vec<ModuleLevel>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleLevel {
    pub file_pattern: String,
    pub verbosity: u32,
}

/// The result of loading.
#[derive(Debug, Clone)]
pub struct LoadedControllerConfig {
    /// None if one of the problems is an error.
    pub config: Option<NodeControllerConfig>,
    pub diagnostics: Vec<Diagnostic>,
}

/// Applies the flags over the file and validates the result.
pub fn load(
    line: ControllerCommandLine,
    config_file: Option<&SourceFile>,
) -> LoadedControllerConfig {
    let ControllerCommandLine { mut diagnostics, used, .. } = line;
    let mut settings = ControllerSettings::default();
    let mut origins = Origins::new();
    if let Some(config_file) = config_file {
        diagnostics.extend(file::read(config_file, &mut settings, &mut origins));
    }
    for FlagUse { row, value } in used {
        let origin = Origin::flag(row.name);
        if let Err(expected) = write(row, value, &mut settings) {
            diagnostics.push(Diagnostic::error("", expected).at(origin.clone()));
        }
        origins.insert(row.name, origin);
    }
    let (config, found) = validation::validate(&settings, &origins);
    diagnostics.extend(found);
    let refused = diagnostics.iter().any(Diagnostic::is_error);
    LoadedControllerConfig { config: if refused { None } else { config }, diagnostics }
}
