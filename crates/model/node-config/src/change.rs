//! Compares two configurations: what changed, and whether a running agent can apply it.
//!
//! The rule it keeps: every field has an entry (a test checks the table against the schema), a
//! change is only called live when the agent reads the setting anew without undoing what it has
//! done, and no secret is shown. It applies nothing.

use serde_json::Value;

use crate::credential_provider::CredentialProvider;
use crate::diagnostic::{MASK, shown_value};
use crate::document::child_path;
use crate::flags::{CadvisorSettings, FlagSettings};
use crate::node_config::NodeConfig;

mod table;
#[cfg(test)]
mod tests;

pub use table::change_effect;

/// Whether a running agent can apply a change. The text is the reason, in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeEffect {
    /// The agent applies the new value while it runs.
    Live(&'static str),
    /// The new value applies after a restart.
    Restart(&'static str),
}

impl ChangeEffect {
    pub fn is_live(self) -> bool {
        matches!(self, Self::Live(_))
    }

    pub fn reason(self) -> &'static str {
        match self {
            Self::Live(reason) | Self::Restart(reason) => reason,
        }
    }
}

/// One setting that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    /// A field path, or a flag with its dashes.
    pub field: String,
    /// As displayed: on one line, truncated, secrets masked; `unset` where there was none.
    pub old: String,
    pub new: String,
    pub change_effect: ChangeEffect,
}

/// Every difference between two configurations, fields first, in the order of names.
pub fn compare(old: &NodeConfig, new: &NodeConfig) -> Vec<FieldChange> {
    let (old_settings, new_settings) = (as_value(old), as_value(new));
    let mut changes = Vec::new();
    compare_values("", &old_settings, &new_settings, &mut changes);
    changes.extend(compare_flags(old.flags(), new.flags()));
    changes.extend(compare_providers(old, new));
    changes
}

/// The files of the credential providers may change while the flag that names them stays. Only
/// names are shown: other fields of a provider may hold keys.
fn compare_providers(old: &NodeConfig, new: &NodeConfig) -> Option<FieldChange> {
    let (old, new) = (&old.credential_providers().providers, &new.credential_providers().providers);
    let names = |providers: &[CredentialProvider]| {
        let names: Vec<&str> = providers.iter().map(|provider| provider.name.as_str()).collect();
        if names.is_empty() { "unset".to_owned() } else { shown_value("", &names.join(", ")) }
    };
    (old != new).then(|| FieldChange {
        field: "credentialProviders".to_owned(),
        old: names(old),
        new: names(new),
        change_effect: ChangeEffect::Restart("credential providers are set up once, at the start"),
    })
}

/// Settings always convert to JSON: their keys are strings and their numbers are finite.
fn as_value(config: &NodeConfig) -> Value {
    serde_json::to_value(config.settings()).unwrap_or(Value::Null)
}

fn compare_values(path: &str, old: &Value, new: &Value, changes: &mut Vec<FieldChange>) {
    if old == new {
        return;
    }
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let before = old.get(key).unwrap_or(&Value::Null);
            let after = new.get(key).unwrap_or(&Value::Null);
            compare_values(&child_path(path, key), before, after, changes);
        }
        return;
    }
    changes.push(FieldChange {
        field: path.to_owned(),
        old: shown(path, old),
        new: shown(path, new),
        change_effect: change_effect(path),
    });
}

fn shown(path: &str, value: &Value) -> String {
    match value {
        Value::Null => "unset".to_owned(),
        Value::String(text) => shown_value(path, text),
        other => shown_value(path, &other.to_string()),
    }
}

/// A running process keeps its command line, so a flag changes only with a new process.
fn compare_flags(old: &FlagSettings, new: &FlagSettings) -> Vec<FieldChange> {
    let before = flag_values(old).into_iter().chain(statistics_flag_values(&old.cadvisor));
    let after = flag_values(new).into_iter().chain(statistics_flag_values(&new.cadvisor));
    before
        .zip(after)
        .filter(|((_, before), (_, after))| before != after)
        .map(|((flag, before), (_, after))| FieldChange {
            field: format!("--{flag}"),
            old: shown_flag(flag, &before),
            new: shown_flag(flag, &after),
            change_effect: ChangeEffect::Restart(
                "a process keeps the command line it was started with",
            ),
        })
        .collect()
}

fn shown_flag(flag: &str, value: &str) -> String {
    if flag == "storage-driver-password" { MASK.to_owned() } else { shown_value(flag, value) }
}

/// Every flag that has no field. Destructured, so that a new one cannot be forgotten.
fn flag_values(flags: &FlagSettings) -> Vec<(&'static str, String)> {
    let FlagSettings {
        config,
        config_dir,
        kubeconfig,
        bootstrap_kubeconfig,
        hostname_override,
        node_ip,
        cert_dir,
        cloud_provider,
        root_dir,
        seccomp_default,
        node_labels,
        lock_file,
        exit_on_lock_contention,
        runtime_cgroups,
        image_credential_provider_config,
        image_credential_provider_bin_dir,
        minimum_container_ttl_duration,
        maximum_dead_containers_per_container,
        maximum_dead_containers,
        experimental_mounter_path,
        experimental_allocatable_ignore_eviction,
        cadvisor: _,
        reported_version,
    } = flags;
    let labels: Vec<String> =
        node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let per_container = maximum_dead_containers_per_container.to_string();
    vec![
        ("config", config.clone()),
        ("config-dir", config_dir.clone()),
        ("kubeconfig", kubeconfig.clone()),
        ("bootstrap-kubeconfig", bootstrap_kubeconfig.clone()),
        ("hostname-override", hostname_override.clone()),
        ("node-ip", node_ip.clone()),
        ("cert-dir", cert_dir.clone()),
        ("cloud-provider", cloud_provider.clone()),
        ("root-dir", root_dir.clone()),
        ("seccomp-default", seccomp_default.to_string()),
        ("node-labels", labels.join(",")),
        ("lock-file", lock_file.clone()),
        ("exit-on-lock-contention", exit_on_lock_contention.to_string()),
        ("runtime-cgroups", runtime_cgroups.clone()),
        ("image-credential-provider-config", image_credential_provider_config.clone()),
        ("image-credential-provider-bin-dir", image_credential_provider_bin_dir.clone()),
        ("minimum-container-ttl-duration", minimum_container_ttl_duration.to_string()),
        ("maximum-dead-containers-per-container", per_container),
        ("maximum-dead-containers", maximum_dead_containers.to_string()),
        ("experimental-mounter-path", experimental_mounter_path.clone()),
        (
            "experimental-allocatable-ignore-eviction",
            experimental_allocatable_ignore_eviction.to_string(),
        ),
        ("version", reported_version.clone().unwrap_or_default()),
    ]
}

/// The flags of the statistics library, destructured the same way.
fn statistics_flag_values(flags: &CadvisorSettings) -> Vec<(&'static str, String)> {
    let CadvisorSettings {
        housekeeping_interval,
        global_housekeeping_interval,
        application_metrics_count_limit,
        boot_id_file,
        machine_id_file,
        container_hints,
        containerd,
        containerd_namespace,
        enable_load_reader,
        event_storage_age_limit,
        event_storage_event_limit,
        log_cadvisor_usage,
        storage_driver_buffer_duration,
        storage_driver_db,
        storage_driver_host,
        storage_driver_password,
        storage_driver_secure,
        storage_driver_table,
        storage_driver_user,
    } = flags;
    vec![
        ("housekeeping-interval", housekeeping_interval.to_string()),
        ("global-housekeeping-interval", global_housekeeping_interval.to_string()),
        ("application-metrics-count-limit", application_metrics_count_limit.to_string()),
        ("boot-id-file", boot_id_file.clone()),
        ("machine-id-file", machine_id_file.clone()),
        ("container-hints", container_hints.clone()),
        ("containerd", containerd.clone()),
        ("containerd-namespace", containerd_namespace.clone()),
        ("enable-load-reader", enable_load_reader.to_string()),
        ("event-storage-age-limit", event_storage_age_limit.clone()),
        ("event-storage-event-limit", event_storage_event_limit.clone()),
        ("log-cadvisor-usage", log_cadvisor_usage.to_string()),
        ("storage-driver-buffer-duration", storage_driver_buffer_duration.to_string()),
        ("storage-driver-db", storage_driver_db.clone()),
        ("storage-driver-host", storage_driver_host.clone()),
        ("storage-driver-password", storage_driver_password.0.clone()),
        ("storage-driver-secure", storage_driver_secure.to_string()),
        ("storage-driver-table", storage_driver_table.clone()),
        ("storage-driver-user", storage_driver_user.clone()),
    ]
}
