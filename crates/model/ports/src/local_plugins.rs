//! What the local API answers about the node's plugins: `GET /v1/plugins` answers [`LocalPlugins`].
//!
//! Rule: as in `local_api`: plain values in camelCase; fields are only ever added.

use serde::{Deserialize, Serialize};

/// The plugins, and the files that are none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalPlugins {
    /// Where plugins put their sockets; empty for an agent without plugins.
    pub dir: String,
    /// Why the directory cannot be read; empty where it can.
    pub dir_error: String,
    /// By socket.
    pub plugins: Vec<LocalPlugin>,
    pub ignored: Vec<LocalIgnoredFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalPlugin {
    /// In the directory, or the socket of a plugin that registered itself.
    pub socket: String,
    /// `CSIPlugin`, `DevicePlugin`; empty until it has introduced itself.
    #[serde(rename = "type")]
    pub plugin_type: String,
    pub name: String,
    pub versions: Vec<String>,
    pub endpoint: String,
    /// `introducing`, `validating`, `registering`, `confirming`, `rejecting`, `registered`,
    /// `deregistering`, `waiting`, `disconnected`.
    pub state: String,
    /// Empty for none.
    pub last_error: String,
    /// What an operator can do about the error.
    pub next_step: String,
    /// Nanoseconds since the epoch; zero where no try is due.
    pub next_try: i64,
}

/// A file in the directory that is no socket of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalIgnoredFile {
    pub path: String,
    pub reason: String,
}
