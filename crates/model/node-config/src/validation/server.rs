//! Rules about the agent's own server: TLS, authentication and authorization, logs and hidden
//! metrics.
//!
//! Does not check whether certificate files exist; reading them does.
//!
//! upstream: cmd/kubelet/app/{server,auth}.go, component-base/cli/flag

use std::collections::BTreeSet;

use super::{ValidationFindings, ValidationInput, quoted_list};
use crate::feature_gates::Gate;

/// The version whose hidden metrics can be enabled again: the minor version before ours.
const PREVIOUS_MINOR: &str = "1.35";

const TLS_VERSIONS: &[&str] = &["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];
const CIPHER_SUITES: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];
const WEAK_CIPHER_SUITES: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
/// TLS group ids of P-256, P-384, P-521, X25519, and the three hybrids of one of them with ML-KEM.
const CURVES: &[i32] = &[23, 24, 25, 29, 4587, 4588, 4589];

pub(super) fn check(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    cipher_suites(input, findings);
    curves(&input.settings.tls_curve_preferences, findings);
    certificates(input, findings);
    access(input, findings);
    handlers(input, findings);
}

fn cipher_suites(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    let version = settings.tls_min_version.as_str();
    if !version.is_empty() {
        findings.one_of("tlsMinVersion", version, TLS_VERSIONS);
    }
    for (index, name) in settings.tls_cipher_suites.iter().enumerate() {
        let path = format!("tlsCipherSuites[{index}]");
        if WEAK_CIPHER_SUITES.contains(&name.as_str()) {
            findings.warn(path, name, "is a weak cipher suite");
        } else if !CIPHER_SUITES.contains(&name.as_str()) {
            let known = quoted_list(CIPHER_SUITES);
            findings.refuse(path, name, format!("is no known cipher suite; known are {known}"));
        }
    }
    if version == "VersionTLS13" && !settings.tls_cipher_suites.is_empty() {
        findings.warn(
            "tlsCipherSuites",
            settings.tls_cipher_suites.join(", "),
            "has no effect while tlsMinVersion is \"VersionTLS13\"",
        );
    }
}

fn curves(preferences: &[i32], findings: &mut ValidationFindings) {
    let mut seen = BTreeSet::new();
    for (index, curve) in preferences.iter().enumerate() {
        let path = format!("tlsCurvePreferences[{index}]");
        if !CURVES.contains(curve) {
            findings.refuse(path, curve, format!("must be one of the curves {CURVES:?}"));
        } else if !seen.insert(curve) {
            findings.refuse(path, curve, "must not appear twice");
        }
    }
}

fn certificates(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    if settings.server_tls_bootstrap && !input.gate(Gate::RotateKubeletServerCertificate) {
        findings.refuse(
            "serverTLSBootstrap",
            true,
            "needs the feature gate RotateKubeletServerCertificate",
        );
    }
}

/// Webhook authentication and authorization call the API server, so its address must be configured.
fn access(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    let standalone = input.flags.kubeconfig.is_empty();
    if standalone && settings.authentication.webhook.enabled {
        findings.refuse(
            "authentication.webhook.enabled",
            true,
            "needs an API server: set --kubeconfig, or set this to false",
        );
    }
    let mode = settings.authorization.mode.as_str();
    findings.one_of("authorization.mode", mode, &["AlwaysAllow", "Webhook"]);
    if standalone && mode == "Webhook" {
        findings.refuse(
            "authorization.mode",
            mode,
            "needs an API server: set --kubeconfig, or set this to \"AlwaysAllow\"",
        );
    }
}

fn handlers(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    if settings.enable_system_log_query && !settings.enable_system_log_handler {
        findings.refuse("enableSystemLogQuery", true, "needs enableSystemLogHandler to be true");
    }
    let version = settings.show_hidden_metrics_for_version.as_str();
    if !version.is_empty() && version != PREVIOUS_MINOR {
        findings.refuse(
            "showHiddenMetricsForVersion",
            version,
            format!("must be empty or {PREVIOUS_MINOR:?}, the minor version before this one"),
        );
    }
}
