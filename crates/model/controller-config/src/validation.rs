//! Validates the settings and converts them to the configuration, reporting all errors at once.
//!
//! The rule it keeps: upstream's checks, with our messages, each naming the flag (or the field in
//! the file) and the value; beyond them only what could not work. Reads nothing.
//!
//! upstream: cmd/kube-controller-manager/app/{options,core.go}, controller-manager options,
//! client-go tools/leaderelection, apiserver server/options

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use document::diagnostic::{Diagnostic, Origin, Severity};
use pod_model::{GoDuration, parse_ip};

use crate::command_line::Origins;
use crate::config::{
    ApiConnection, CloudSource, Delegation, LeaderElection, LifecycleSettings, LogSettings,
    MinTlsVersion, ModuleLevel, NodeControllerConfig, SecureServing,
};
use crate::settings::ControllerSettings;
use crate::{controllers, table};

mod ranges;

const COMPARISON_GATE: &str = "TaintTolerationComparisonOperators";
/// Client-go's default.
const DEFAULT_RATE: (f32, u32) = (5.0, 10);

/// Nodes per second.
const MAX_EVICTION_RATE: f32 = 1e6;

/// Collects problems; knows where each setting came from.
pub(crate) struct ConfigValidator<'a> {
    origins: &'a Origins,
    diagnostics: Vec<Diagnostic>,
}

impl ConfigValidator<'_> {
    fn find(&mut self, flag: &'static str, diagnostic: Diagnostic) {
        let origin = self.origins.get(flag).cloned().unwrap_or_else(|| Origin::flag(flag));
        let path = table::find(flag).map_or("", |row| row.path);
        let field = if matches!(origin, Origin::Flag { .. }) { "" } else { path };
        self.diagnostics.push(Diagnostic { field: field.to_owned(), origin, ..diagnostic });
    }

    pub(crate) fn refuse(
        &mut self,
        flag: &'static str,
        value: impl Display,
        expected: impl Into<String>,
    ) {
        self.find(flag, Diagnostic::error("", expected).with_value(value));
    }

    fn warn(&mut self, flag: &'static str, value: impl Display, message: impl Into<String>) {
        self.find(flag, Diagnostic::warning("", message).with_value(value));
    }

    /// A duration that must not be negative.
    fn span(&mut self, flag: &'static str, value: GoDuration) -> Duration {
        value.as_std().unwrap_or_else(|| {
            self.refuse(flag, value, "expected a duration that is not negative");
            Duration::ZERO
        })
    }

    /// A duration that must be positive.
    fn positive_span(&mut self, flag: &'static str, value: GoDuration) -> Duration {
        if value.is_zero() {
            self.refuse(flag, value, "expected a duration greater than zero");
        }
        self.span(flag, value)
    }
}

/// The configuration, unless there is an error among the problems.
pub(crate) fn validate(
    settings: &ControllerSettings,
    origins: &Origins,
) -> (Option<NodeControllerConfig>, Vec<Diagnostic>) {
    let mut validate = ConfigValidator { origins, diagnostics: Vec::new() };
    let (mut running, found) = controllers::read(&settings.controllers);
    for diagnostic in found {
        validate.find("controllers", diagnostic);
    }
    let cloud = cloud(settings, &mut validate);
    running.cloud &= cloud.is_some();
    let ranges = ranges::validate(settings, running.pod_ranges, &mut validate);
    running.pod_ranges = ranges.is_some();
    let config = NodeControllerConfig {
        connection: connection(settings, &mut validate),
        controllers: running,
        lifecycle: lifecycle(settings, &mut validate),
        leader: leader(settings, &mut validate),
        ranges,
        terminated_pods: u32::try_from(settings.terminated_pod_gc_threshold)
            .ok()
            .filter(|threshold| *threshold > 0),
        cloud,
        serving: serving(settings, &mut validate),
        local_socket: local_socket(settings, &mut validate),
        shutdown_timeout: validate
            .span("controller-shutdown-timeout", settings.controller_shutdown_timeout),
        tolerations_compare: gates(settings, &mut validate),
        logging: logging(settings, &mut validate),
    };
    let refused =
        validate.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    ((!refused).then_some(config), validate.diagnostics)
}

fn connection(settings: &ControllerSettings, validate: &mut ConfigValidator<'_>) -> ApiConnection {
    let qps = settings.kube_api_qps;
    let burst = u32::try_from(settings.kube_api_burst).unwrap_or(0);
    if settings.kube_api_burst < 0 {
        validate.refuse("kube-api-burst", settings.kube_api_burst, "expected no negative number");
    }
    // As in client-go: unset means its default rate, a negative one means no limit.
    let rate = match qps {
        _ if qps < 0.0 => None,
        _ if qps > 0.0 => Some((qps, if burst == 0 { DEFAULT_RATE.1 } else { burst })),
        _ => Some((DEFAULT_RATE.0, if burst == 0 { DEFAULT_RATE.1 } else { burst })),
    };
    ApiConnection { kubeconfig: settings.kubeconfig.clone(), master: settings.master.clone(), rate }
}

fn lifecycle(
    settings: &ControllerSettings,
    validate: &mut ConfigValidator<'_>,
) -> LifecycleSettings {
    let large = settings.large_cluster_size_threshold;
    LifecycleSettings {
        monitor_period: validate.positive_span("node-monitor-period", settings.node_monitor_period),
        monitor_grace: validate
            .positive_span("node-monitor-grace-period", settings.node_monitor_grace_period),
        startup_grace: validate
            .positive_span("node-startup-grace-period", settings.node_startup_grace_period),
        // Negative means never, like zero; very large rates are capped.
        eviction_rate: settings.node_eviction_rate.clamp(0.0, MAX_EVICTION_RATE),
        secondary_eviction_rate: settings
            .secondary_node_eviction_rate
            .clamp(0.0, MAX_EVICTION_RATE),
        // Negative makes every zone large, and so does zero: an evaluated zone has at least one
        // node.
        large_above: u32::try_from(large).unwrap_or(0),
        // A share above one is never reached, and neither is one by a zone with a ready node.
        unhealthy_share: settings.unhealthy_zone_threshold.clamp(0.0, 1.0),
    }
}

fn leader(
    settings: &ControllerSettings,
    validate: &mut ConfigValidator<'_>,
) -> Option<LeaderElection> {
    if !settings.leader_elect {
        return None;
    }
    let lock = &settings.leader_elect_resource_lock;
    if lock != "leases" {
        validate.refuse("leader-elect-resource-lock", lock, "expected \"leases\"");
    }
    for (flag, name) in [
        ("leader-elect-resource-name", &settings.leader_elect_resource_name),
        ("leader-elect-resource-namespace", &settings.leader_elect_resource_namespace),
    ] {
        if name.is_empty() {
            validate.refuse(flag, "", "expected a name");
        }
    }
    let (lease, renew, retry) = (
        settings.leader_elect_lease_duration,
        settings.leader_elect_renew_deadline,
        settings.leader_elect_retry_period,
    );
    let (lease_span, renew_span, retry_span) = (
        validate.positive_span("leader-elect-lease-duration", lease),
        validate.positive_span("leader-elect-renew-deadline", renew),
        validate.positive_span("leader-elect-retry-period", retry),
    );
    if lease_span < Duration::from_secs(1) {
        let expected = "expected at least one second, since a lease counts in seconds";
        validate.refuse("leader-elect-lease-duration", lease, expected);
    } else if Duration::from_secs(lease_span.as_secs()) <= renew_span {
        let expected = format!(
            "expected whole seconds that are more than --leader-elect-renew-deadline {renew}"
        );
        validate.refuse("leader-elect-lease-duration", lease, expected);
    }
    // Retries have a jitter of up to 1.2 times the period; two attempts must fit.
    if renew_span <= retry_span.saturating_mul(12) / 10 {
        let expected = format!("expected more than 1.2 times --leader-elect-retry-period {retry}");
        validate.refuse("leader-elect-renew-deadline", renew, expected);
    }
    Some(LeaderElection {
        lease: lease_span,
        renew: renew_span,
        retry: retry_span,
        namespace: settings.leader_elect_resource_namespace.clone(),
        name: settings.leader_elect_resource_name.clone(),
    })
}

fn cloud(settings: &ControllerSettings, validate: &mut ConfigValidator<'_>) -> Option<CloudSource> {
    let (name, source) = (settings.cloud_provider.as_str(), &settings.cloud_config);
    let make = match name {
        "" | "external" => {
            if !source.is_empty() {
                validate.warn("cloud-config", source, "it is not read without --cloud-provider");
            }
            return None;
        }
        "file" => CloudSource::File,
        "exec" => CloudSource::Program,
        _ => {
            validate.refuse("cloud-provider", name, "expected file, exec, external or nothing");
            return None;
        }
    };
    if !source.starts_with('/') {
        let expected = format!("expected an absolute path with --cloud-provider={name}");
        validate.refuse("cloud-config", source, expected);
    }
    Some(make(source.clone()))
}

fn serving(
    settings: &ControllerSettings,
    validate: &mut ConfigValidator<'_>,
) -> Option<SecureServing> {
    let Ok(port) = u16::try_from(settings.secure_port) else {
        validate.refuse("secure-port", settings.secure_port, "expected a port from 0 to 65535");
        return None;
    };
    let address = parse_ip(&settings.bind_address).unwrap_or_else(|error| {
        validate.refuse("bind-address", &settings.bind_address, error.to_string());
        IpAddr::from([0, 0, 0, 0])
    });
    let certificate = certificate(settings, validate);
    let min_tls_version = match settings.tls_min_version.as_str() {
        "" | "VersionTLS12" => MinTlsVersion::Tls12,
        "VersionTLS13" => MinTlsVersion::Tls13,
        older @ ("VersionTLS10" | "VersionTLS11") => {
            validate.warn("tls-min-version", older, "it is broken; VersionTLS12 is used");
            MinTlsVersion::Tls12
        }
        other => {
            validate.refuse("tls-min-version", other, "expected VersionTLS12 or VersionTLS13");
            MinTlsVersion::Tls12
        }
    };
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let delegation = Delegation {
        authentication_kubeconfig: some(&settings.authentication_kubeconfig),
        authorization_kubeconfig: some(&settings.authorization_kubeconfig),
        lookup_client_ca: !settings.authentication_skip_lookup,
        token_cache_ttl: validate.span(
            "authentication-token-webhook-cache-ttl",
            settings.authentication_token_webhook_cache_ttl,
        ),
        allowed_cache_ttl: validate.span(
            "authorization-webhook-cache-authorized-ttl",
            settings.authorization_webhook_cache_authorized_ttl,
        ),
        denied_cache_ttl: validate.span(
            "authorization-webhook-cache-unauthorized-ttl",
            settings.authorization_webhook_cache_unauthorized_ttl,
        ),
    };
    (port != 0).then(|| SecureServing {
        address: SocketAddr::new(address, port),
        certificate,
        cert_dir: some(&settings.cert_dir),
        min_tls_version,
        cipher_suites: settings.tls_cipher_suites.clone(),
        client_ca_file: some(&settings.client_ca_file),
        delegation,
        open_paths: settings.authorization_always_allow_paths.clone(),
    })
}

fn certificate(
    settings: &ControllerSettings,
    validate: &mut ConfigValidator<'_>,
) -> Option<(String, String)> {
    let (certificate, key) = (&settings.tls_cert_file, &settings.tls_private_key_file);
    match (certificate.is_empty(), key.is_empty()) {
        (true, true) => None,
        (false, false) => Some((certificate.clone(), key.clone())),
        (false, true) => {
            validate.refuse(
                "tls-cert-file",
                certificate,
                "expected --tls-private-key-file beside it",
            );
            None
        }
        (true, false) => {
            validate.refuse("tls-private-key-file", key, "expected --tls-cert-file beside it");
            None
        }
    }
}

fn local_socket(
    settings: &ControllerSettings,
    validate: &mut ConfigValidator<'_>,
) -> Option<String> {
    let path = &settings.local_socket;
    if path.is_empty() {
        return None;
    }
    // The kernel's limit for the path of a socket, including the terminating NUL.
    if !path.starts_with('/') || path.len() > 107 {
        let expected = "expected an absolute path of at most 107 bytes, or nothing";
        validate.refuse("explain-socket", path, expected);
    }
    Some(path.clone())
}

fn gates(settings: &ControllerSettings, validate: &mut ConfigValidator<'_>) -> bool {
    for (gate, on) in settings.feature_gates.iter().filter(|(gate, _)| *gate != COMPARISON_GATE) {
        let message = "no controller here asks for this gate";
        validate.warn("feature-gates", format!("{gate}={on}"), message);
    }
    settings.feature_gates.get(COMPARISON_GATE).copied().unwrap_or(false)
}

fn logging(settings: &ControllerSettings, validate: &mut ConfigValidator<'_>) -> LogSettings {
    let json = settings.logging_format == "json";
    if !json && settings.logging_format != "text" {
        validate.refuse("logging-format", &settings.logging_format, "expected text or json");
    }
    let split = if json { settings.log_json_split_stream } else { settings.log_text_split_stream };
    let module = |(file_pattern, verbosity): &(String, u32)| ModuleLevel {
        file_pattern: file_pattern.clone(),
        verbosity: *verbosity,
    };
    LogSettings {
        json,
        split_stream: split,
        verbosity: u64::try_from(settings.verbosity).unwrap_or(0),
        modules: settings.vmodule.iter().map(module).collect(),
    }
}
