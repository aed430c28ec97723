//! Plugins as operators and metrics see them.

use plugin_registry::{PluginPhase, RegisteredPlugin};
use ports::MetricFamily;
use ports::local_plugins::{LocalIgnoredFile, LocalPlugin, LocalPlugins};
use ports::metrics::{MetricKind, Sample};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn ignored_files(ignored: &BTreeMap<String, String>) -> Vec<LocalIgnoredFile> {
    let file = |(path, reason): (&String, &String)| LocalIgnoredFile {
        path: path.clone(),
        reason: reason.clone(),
    };
    ignored.iter().map(file).collect()
}

/// `time_of`: a time of the registry's clock as nanoseconds since the epoch.
pub(super) fn local_plugin(
    plugin: &RegisteredPlugin,
    time_of: impl Fn(Duration) -> i64,
) -> LocalPlugin {
    let description = plugin.description.clone().unwrap_or_default();
    LocalPlugin {
        socket: plugin.socket.clone(),
        plugin_type: description.plugin_type,
        name: description.name,
        versions: description.versions,
        endpoint: description.endpoint,
        state: state(&plugin.phase).to_owned(),
        last_error: plugin.last_error.clone().unwrap_or_default(),
        next_step: next_step(plugin).to_owned(),
        next_try: plugin.next_try.map_or(0, time_of),
    }
}

fn state(phase: &PluginPhase) -> &'static str {
    match phase {
        PluginPhase::Introducing => "introducing",
        PluginPhase::Validating(_) => "validating",
        PluginPhase::Registering(_) => "registering",
        PluginPhase::Confirming(_) => "confirming",
        PluginPhase::Rejecting(_) => "rejecting",
        PluginPhase::Registered(_) => REGISTERED,
        PluginPhase::Deregistering(_) => "deregistering",
        PluginPhase::Waiting { .. } => "waiting",
    }
}

const REGISTERED: &str = "registered";

/// What an operator can do about the last error.
pub(super) fn next_step(plugin: &RegisteredPlugin) -> &'static str {
    match (&plugin.last_error, &plugin.phase, &plugin.description) {
        (None, ..) => "",
        (Some(_), PluginPhase::Waiting { remembered: Some(_) }, _) => {
            "the agent tries again to deregister it; check the API server"
        }
        (Some(_), _, None) => {
            "check that the plugin runs and serves at this socket; remove the socket of a plugin \
             that is gone"
        }
        (Some(_), _, Some(_)) => "see the error; the plugin's own log may say more",
    }
}

/// upstream: pkg/kubelet/pluginmanager/metrics/metrics.go
pub(super) fn total_plugins(plugins: &LocalPlugins) -> MetricFamily {
    let sample = |plugin: &LocalPlugin, state: &str| Sample {
        suffix: "",
        labels: vec![("socket_path", plugin.socket.clone()), ("state", state.to_owned())],
        value: 1.0,
    };
    let registered = plugins.plugins.iter().filter(|it| it.state == REGISTERED);
    let registered = registered.map(|plugin| sample(plugin, "actual_state_of_world"));
    let desired = plugins.plugins.iter().map(|plugin| sample(plugin, "desired_state_of_world"));
    MetricFamily {
        name: "plugin_manager_total_plugins",
        help: "[ALPHA] Number of plugins in Plugin Manager",
        kind: MetricKind::Gauge,
        samples: registered.chain(desired).collect(),
    }
}
