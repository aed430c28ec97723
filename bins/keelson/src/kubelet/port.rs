//! The configuration of the kubelet's port.
//!
//! Rule: wiring only. upstream: cmd/kubelet/app/server.go InitializeTLS, auth.go

use anyhow::{Context, Result};
use certificate_files::CertificateDir;
use container_logs::HostContainerLogs;
use cri_client::CriClient;
use node_api::{
    AuthorizationMode, CertificateSource, DisabledHandler, KubeletPort, KubeletPortSettings,
    ReviewTimes, TlsSettings,
};
use node_config::{KubeletConfiguration, NodeConfig};
use pod_model::GoDuration;
use ports::ClusterApi;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The directory of the node's logs. upstream: nodeLogDir
const LOG_DIR: &str = "/var/log";
/// Below the root directory, as upstream's.
const CHECKPOINTS: &str = "checkpoints";

/// None if `enableServer` is off. `api`: authenticates and authorizes callers; None on a node
/// without a cluster. `runtime` opens streams and runs commands.
pub(super) fn kubelet_port(
    config: &NodeConfig,
    node_name: &str,
    api: Option<Arc<dyn ClusterApi>>,
    runtime: &Arc<CriClient>,
) -> Result<Option<KubeletPort>> {
    let logs = Arc::new(HostContainerLogs::default());
    Ok(port_settings(config, node_name)?.map(|settings| {
        KubeletPort::new(settings, api).with_runtime(runtime.clone()).with_logs(logs)
    }))
}

fn port_settings(config: &NodeConfig, node_name: &str) -> Result<Option<KubeletPortSettings>> {
    let settings = config.settings();
    if !settings.enable_server {
        return Ok(None);
    }
    let address: IpAddr = settings
        .address
        .parse()
        .with_context(|| format!("address {:?}: expected an IP address", settings.address))?;
    let port = u16::try_from(settings.port)
        .with_context(|| format!("port {}: expected 1 to 65535", settings.port))?;
    let (authentication, authorization) = (&settings.authentication, &settings.authorization);
    let authorities = &authentication.x509.client_ca_file;
    let source = certificate_source(settings, Path::new(&config.flags().cert_dir), node_name);
    let mut configuration = config.effective().masked().to_value();
    if let CertificateSource::Kubelet { dir, .. } = &source {
        configuration["tlsCertFile"] = dir.join("kubelet.crt").display().to_string().into();
        configuration["tlsPrivateKeyFile"] = dir.join("kubelet.key").display().to_string().into();
    }
    Ok(Some(KubeletPortSettings {
        address: SocketAddr::new(address, port),
        read_only: read_only_port(settings).map(|port| SocketAddr::new(address, port)),
        node_name: node_name.to_owned(),
        tls: TlsSettings {
            source,
            tls13_only: settings.tls_min_version == "VersionTLS13",
            cipher_suites: settings.tls_cipher_suites.clone(),
            client_authorities: (!authorities.is_empty()).then(|| PathBuf::from(authorities)),
        },
        reviews_tokens: authentication.webhook.enabled,
        anonymous: authentication.anonymous.enabled,
        authorization: match authorization.mode.as_str() {
            "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
            _ => AuthorizationMode::Webhook,
        },
        times: ReviewTimes {
            token: duration(authentication.webhook.cache_ttl),
            allowed: duration(authorization.webhook.cache_authorized_ttl),
            refused: duration(authorization.webhook.cache_unauthorized_ttl),
        },
        debugging_handlers: settings.enable_debugging_handlers,
        disabled_handlers: disabled_handlers(settings),
        log_dir: LOG_DIR.into(),
        stream_idle: duration(settings.streaming_connection_idle_timeout),
        checkpoint_dir: Path::new(&config.flags().root_dir).join(CHECKPOINTS),
        configuration,
    }))
}

/// None unless it is configured, which it is not by default.
fn read_only_port(settings: &KubeletConfiguration) -> Option<u16> {
    u16::try_from(settings.read_only_port).ok().filter(|port| *port > 0)
}

/// upstream: pkg/kubelet/server/server.go (InstallSystemLogHandler, InstallProfilingHandler,
/// InstallDebugFlagsHandler)
fn disabled_handlers(settings: &KubeletConfiguration) -> Vec<DisabledHandler> {
    let off = |enabled: bool, path, text| (!enabled).then_some(DisabledHandler { path, text });
    let logs = off(settings.enable_system_log_handler, "/logs/", "logs endpoint is disabled.");
    let profiling =
        off(settings.enable_profiling_handler, "/debug/pprof/", "profiling endpoint is disabled.");
    let flags =
        off(settings.enable_debug_flags_handler, "/debug/flags/v", "flags endpoint is disabled.");
    [logs, profiling, flags].into_iter().flatten().collect()
}

fn certificate_source(
    settings: &KubeletConfiguration,
    cert_dir: &Path,
    host: &str,
) -> CertificateSource {
    let (certificate, key) = (&settings.tls_cert_file, &settings.tls_private_key_file);
    let files = (!certificate.is_empty() || !key.is_empty())
        .then(|| (PathBuf::from(certificate), PathBuf::from(key)));
    if settings.server_tls_bootstrap {
        let pair = CertificateDir::serving(cert_dir).current_path();
        return CertificateSource::Signed { pair, until_then: files };
    }
    if let Some((certificate, key)) = files {
        return CertificateSource::Files { certificate, key };
    }
    CertificateSource::Kubelet { dir: cert_dir.to_owned(), host: host.to_owned() }
}

fn duration(duration: GoDuration) -> Duration {
    duration.as_std().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_config::{ConfigFiles, SourceFile, flags, load};
    use serde_json::json;

    fn config(change: &serde_json::Value) -> NodeConfig {
        let mut text = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": false,
        });
        for (name, value) in change.as_object().expect("an object") {
            text[name] = value.clone();
        }
        let arguments =
            ["--config=/etc/kubelet.json", "--kubeconfig=/etc/node.conf", "--cert-dir=/pki"];
        let bytes = text.to_string().into_bytes();
        let files = ConfigFiles {
            config: Some(SourceFile { path: "/etc/kubelet.json".into(), bytes }),
            ..ConfigFiles::default()
        };
        let loaded = load(flags::parse(&arguments.map(str::to_owned)), &files);
        loaded.config.unwrap_or_else(|| panic!("refused: {:?}", loaded.diagnostics))
    }

    fn settings(change: &serde_json::Value) -> KubeletPortSettings {
        port_settings(&config(change), "node-1").expect("settings").expect("a port")
    }

    #[test]
    fn the_defaults_are_upstreams() {
        let port = settings(&json!({}));
        assert_eq!(port.address.to_string(), "0.0.0.0:10250");
        let made = CertificateSource::Kubelet { dir: "/pki".into(), host: "node-1".into() };
        assert_eq!(port.tls.source, made);
        assert!(port.reviews_tokens && !port.anonymous && port.debugging_handlers);
        assert_eq!(port.authorization, AuthorizationMode::Webhook);
        let times = [port.times.token, port.times.allowed, port.times.refused];
        assert_eq!(times.map(|time| time.as_secs()), [120, 300, 30]);
        assert_eq!(port.configuration["kind"], "KubeletConfiguration");
        assert_eq!(port.configuration["tlsCertFile"], "/pki/kubelet.crt");
        assert_eq!(port.tls.client_authorities, None);
        assert_eq!((port.read_only, port.disabled_handlers), (None, Vec::new()));
        assert_eq!(port.log_dir, Path::new("/var/log"));
        assert_eq!(port.stream_idle, Duration::from_hours(4));
        assert!(port.checkpoint_dir.ends_with("kubelet/checkpoints"), "{:?}", port.checkpoint_dir);
    }

    #[test]
    fn what_is_configured_reaches_the_port() {
        let port = settings(&json!({
            "address": "::1",
            "port": 10251,
            "tlsCertFile": "/a.crt",
            "tlsPrivateKeyFile": "/a.key",
            "tlsMinVersion": "VersionTLS13",
            "authentication": {
                "x509": {"clientCAFile": "/ca.crt"},
                "anonymous": {"enabled": true},
                "webhook": {"enabled": false},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "enableDebuggingHandlers": false,
            "readOnlyPort": 10255,
            "enableSystemLogHandler": false,
            "enableProfilingHandler": false,
            "enableDebugFlagsHandler": false,
            "streamingConnectionIdleTimeout": "5m",
        }));
        assert_eq!(port.address.to_string(), "[::1]:10251");
        assert_eq!(port.read_only.map(|port| port.to_string()), Some("[::1]:10255".to_owned()));
        let paths: Vec<&str> = port.disabled_handlers.iter().map(|off| off.path).collect();
        assert_eq!(paths, ["/logs/", "/debug/pprof/", "/debug/flags/v"]);
        assert_eq!(port.stream_idle, Duration::from_mins(5));
        let files = CertificateSource::Files { certificate: "/a.crt".into(), key: "/a.key".into() };
        assert_eq!(port.tls.source, files);
        assert_eq!(port.tls.client_authorities, Some("/ca.crt".into()));
        assert!(port.tls.tls13_only && port.anonymous && !port.reviews_tokens);
        assert!(!port.debugging_handlers);
        assert_eq!(port.authorization, AuthorizationMode::AlwaysAllow);
    }

    #[test]
    fn a_certificate_that_the_cluster_signs_is_looked_for_where_upstream_keeps_it() {
        let pair: PathBuf = "/pki/kubelet-server-current.pem".into();
        let files = json!({
            "serverTLSBootstrap": true, "tlsCertFile": "/a.crt", "tlsPrivateKeyFile": "/a.key",
        });
        let table = [
            (json!({"serverTLSBootstrap": true}), None),
            (files, Some(("/a.crt".into(), "/a.key".into()))),
        ];
        for (change, until_then) in table {
            let expected = CertificateSource::Signed { pair: pair.clone(), until_then };
            assert_eq!(settings(&change).tls.source, expected);
        }
    }

    #[test]
    fn a_server_that_is_switched_off_has_no_port() {
        let port = port_settings(&config(&json!({"enableServer": false})), "node-1");
        assert!(port.expect("settings").is_none());
    }
}
