//! CNI: networks set up by plugins of the host.
//!
//! Rule: a pod's record keeps the configuration that it was added with, so that its tear-down does
//! not depend on later changes. A plugin has a timeout, and its output is limited. A failed ADD may
//! leave resources behind: the owner of the record retries DEL of the whole list until it succeeds.
//!
//! upstream: containernetworking/cni SPEC.md and libcni; containerd internal/cri/server/sandbox_run.go

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use cni_documents::{NetworkConfigList, parse_result};
use serde_json::{Map, Value, json};

use super::{INSIDE, PodNetwork};
use crate::durable;
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::records::NetworkRecord;

mod arguments;
mod configuration;
mod garbage;
mod plugin;
#[cfg(test)]
mod tests;

/// Directories and limits of CNI.
#[derive(Debug, Clone)]
pub struct CniSettings {
    pub configurations: PathBuf,
    pub plugins: Vec<PathBuf>,
    /// Where results are kept for tools and for DEL, as libcni keeps them.
    pub results: PathBuf,
    pub deadline: Duration,
    /// The input files of running plugins, one per sandbox; on a tmpfs, so a reboot clears them.
    pub calls: PathBuf,
    /// At startup, let plugins release attachments that belong to none of our pods. Safe only if no
    /// other runtime uses a network of this name: its pods would lose their addresses.
    pub collect_garbage: bool,
}

impl Default for CniSettings {
    fn default() -> Self {
        Self {
            configurations: PathBuf::from("/etc/cni/net.d"),
            plugins: vec![PathBuf::from("/opt/cni/bin")],
            results: PathBuf::from("/var/lib/cni/results"),
            deadline: Duration::from_secs(60),
            calls: PathBuf::from("/run/keelson/cni"),
            collect_garbage: false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Cni {
    settings: CniSettings,
    logged: Mutex<configuration::LoggedErrors>,
}

impl Cni {
    pub(crate) fn new(settings: CniSettings) -> Self {
        Self { settings, logged: Mutex::default() }
    }

    /// The configuration for new pods; `None` if the directory has none. Read on each call: the
    /// file is small, and no change can be missed.
    pub(super) async fn configuration(&self) -> Result<Option<NetworkConfigList>> {
        let dir = self.settings.configurations.clone();
        let found = blocking(move || configuration::first_in(&dir)).await?;
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let serving = found.configuration.as_ref().map(|configuration| configuration.name.as_str());
        for reason in logged.update(&found.unreadable) {
            tracing::warn!(reason, serving, "Skipping a CNI configuration");
        }
        drop(logged);
        match (found.configuration, found.unreadable.into_iter().next_back()) {
            (None, Some((_, error))) => Err(error),
            (configuration, _) => Ok(configuration),
        }
    }

    /// Runs STATUS of every plugin, if the configuration's CNI version has it.
    pub(super) async fn readiness(
        &self,
        configuration: &NetworkConfigList,
    ) -> std::result::Result<(), String> {
        if !configuration.version_at_least((1, 1, 0)) {
            return Ok(());
        }
        for entry in &configuration.plugins {
            let call = plugin::PluginCall {
                command: "STATUS",
                kind: &entry.kind,
                pod: None,
                input: entry.input(configuration, None, &Map::new()),
            };
            if let Err(error) = plugin::run(&self.settings, &call).await {
                return Err(error.text);
            }
        }
        Ok(())
    }

    /// Runs ADD of every plugin and returns the result of the last one, as JSON.
    pub(super) async fn add(&self, pod: &PodNetwork, record: &NetworkRecord) -> Result<Vec<u8>> {
        let configuration =
            NetworkConfigList::parse("the pod's record", &record.cni_configuration)?;
        let result = self.add_all(&configuration, pod, record).await?;
        self.cache_result(&configuration, pod, record, &result).await?;
        Ok(result.to_string().into_bytes())
    }

    /// Checks that all plugins exist, before anything is set up that would have to be undone.
    pub(super) fn find_plugins(&self, configuration: &NetworkConfigList) -> Result<()> {
        configuration
            .plugins
            .iter()
            .try_for_each(|entry| plugin::find(&self.settings, &entry.kind).map(drop))
    }

    /// Tears down the network of the record. If the set-up was incomplete, the recorded
    /// configuration may have been wrong: then the current one of the same name is tried as well.
    pub(super) async fn teardown(&self, pod: &PodNetwork, record: &NetworkRecord) -> Result<()> {
        let Err(error) = self.remove(pod, record).await else { return Ok(()) };
        if record.complete {
            return Err(error);
        }
        let name = NetworkConfigList::parse("the pod's record", &record.cni_configuration)?.name;
        match self.configuration().await {
            Ok(Some(current))
                if current.name == name && current.text != record.cni_configuration =>
            {
                let corrected = NetworkRecord { cni_configuration: current.text, ..record.clone() };
                self.remove(pod, &corrected).await
            }
            _ => Err(error),
        }
    }

    async fn add_all(
        &self,
        configuration: &NetworkConfigList,
        pod: &PodNetwork,
        record: &NetworkRecord,
    ) -> Result<Value> {
        let capabilities = arguments::capabilities(pod)?;
        let mut previous = None;
        for entry in &configuration.plugins {
            let call = plugin::PluginCall {
                command: "ADD",
                kind: &entry.kind,
                pod: Some((pod, &record.namespace)),
                input: entry.input(configuration, previous.as_ref(), &capabilities),
            };
            let output = plugin::run(&self.settings, &call).await?;
            previous = Some(parse_result(&entry.kind, &output)?);
        }
        previous.ok_or_else(|| CriError::plain("the CNI configuration has no plugins"))
    }

    /// Runs DEL of every plugin in reverse order. Plugins treat missing resources as success.
    pub(super) async fn remove(&self, pod: &PodNetwork, record: &NetworkRecord) -> Result<()> {
        let configuration =
            NetworkConfigList::parse("the pod's record", &record.cni_configuration)?;
        let capabilities = arguments::capabilities(pod)?;
        let previous = if configuration.version_at_least((0, 4, 0)) {
            serde_json::from_slice::<Value>(&record.cni_result).ok()
        } else {
            None
        };
        // After a reboot the network namespace no longer exists; DEL then gets an empty path.
        let netns_exists = std::path::Path::new(&record.namespace).exists();
        let netns = if netns_exists { record.namespace.as_str() } else { "" };
        for entry in configuration.plugins.iter().rev() {
            let call = plugin::PluginCall {
                command: "DEL",
                kind: &entry.kind,
                pod: Some((pod, netns)),
                input: entry.input(&configuration, previous.as_ref(), &capabilities),
            };
            plugin::run(&self.settings, &call).await?;
        }
        let result = self.result_path(&configuration, pod);
        let input = self.settings.calls.join(&pod.sandbox);
        blocking(move || {
            durable::remove_file(&input)?;
            durable::remove_file(&durable::unfinished(&result))?;
            durable::remove_file(&result)
        })
        .await
    }

    fn result_path(&self, configuration: &NetworkConfigList, pod: &PodNetwork) -> PathBuf {
        self.settings.results.join(format!("{}-{}-{INSIDE}", configuration.name, pod.sandbox))
    }

    /// Stores the result where libcni does, for tools that look there.
    async fn cache_result(
        &self,
        configuration: &NetworkConfigList,
        pod: &PodNetwork,
        record: &NetworkRecord,
        result: &Value,
    ) -> Result<()> {
        let text = json!({
            "kind": "cniCacheV1",
            "containerId": pod.sandbox,
            "config": base64::engine::general_purpose::STANDARD.encode(&record.cni_configuration),
            "ifName": INSIDE,
            "networkName": configuration.name,
            "netns": record.namespace,
            "cniArgs": arguments::pairs(pod),
            "capabilityArgs": arguments::capabilities(pod)?,
            "result": result,
        })
        .to_string();
        let path = self.result_path(configuration, pod);
        let dir = self.settings.results.clone();
        blocking(move || {
            durable::make_dir(&dir)?;
            durable::write_via(&durable::unfinished(&path), &path, text.as_bytes())
        })
        .await
        .doing("storing the CNI result")
    }
}
