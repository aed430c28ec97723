//! Runs a credential plugin for a token or a certificate.
//!
//! Rule: the plugin has a deadline and an output limit and no terminal, and its output is never
//! shown, not even when it is invalid. upstream: client-go plugin/pkg/client/auth/exec

use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use ports::ApiTime;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;

use crate::access::ExecPlugin;
use crate::secret::Secret;

const DEADLINE: Duration = Duration::from_secs(60);
const MAX_OUTPUT_BYTES: u64 = 1024 * 1024;

/// The credentials that a plugin returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecCredential {
    pub(crate) token: Option<Secret>,
    pub(crate) certificate: Option<(Secret, Secret)>,
    pub(crate) expires: Option<ApiTime>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ExecCredentialResponse {
    api_version: String,
    kind: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ExecCredentialStatus {
    expiration_timestamp: Option<ApiTime>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs the plugin. `authority` is passed to it as the cluster's CA, if it asked for cluster
/// information.
pub(crate) async fn run_plugin(
    plugin: ExecPlugin,
    authority: Option<Secret>,
) -> Result<ExecCredential, String> {
    let command = plugin.command.display();
    let mut child = tokio::process::Command::new(&plugin.command)
        .args(&plugin.arguments)
        .envs(plugin.environment.iter().map(|(name, value)| {
            (name.as_str(), String::from_utf8_lossy(value.reveal()).into_owned())
        }))
        .env("KUBERNETES_EXEC_INFO", plugin_input(&plugin, authority.as_ref()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            format!("credential plugin {command}: {error}. {}", plugin.install_hint)
                .trim_end()
                .to_owned()
        })?;
    let work = async {
        let mut answer = Vec::new();
        if let Some(output) = child.stdout.take() {
            output.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut answer).await?;
        }
        Ok::<_, std::io::Error>((answer, child.wait().await?))
    };
    let (answer, status) = tokio::time::timeout(DEADLINE, work)
        .await
        .map_err(|_| format!("credential plugin {command}: no answer within {DEADLINE:?}"))?
        .map_err(|error| format!("credential plugin {command}: {error}"))?;
    if !status.success() {
        return Err(format!("credential plugin {command}: {status}"));
    }
    read_answer(&answer, &plugin.api_version)
        .map_err(|diagnostic| format!("credential plugin {command}: {diagnostic}"))
}

fn plugin_input(plugin: &ExecPlugin, authority: Option<&Secret>) -> String {
    let mut spec = serde_json::json!({"interactive": false});
    if let Some(cluster) = &plugin.cluster {
        spec["cluster"] = cluster.clone();
        if let Some(url) = &plugin.proxy_url {
            spec["cluster"]["proxy-url"] = String::from_utf8_lossy(url.reveal()).into();
        }
        let data = "certificate-authority-data";
        if let (Some(authority), None) = (authority, cluster.get(data)) {
            let engine = base64::engine::general_purpose::STANDARD;
            spec["cluster"][data] = engine.encode(authority.reveal()).into();
        }
    }
    serde_json::json!({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec})
        .to_string()
}

fn read_answer(answer: &[u8], api_version: &str) -> Result<ExecCredential, String> {
    if answer.len() as u64 > MAX_OUTPUT_BYTES {
        return Err(format!("the answer is longer than {MAX_OUTPUT_BYTES} bytes"));
    }
    // The parser's error would show the output.
    let answer: ExecCredentialResponse = serde_json::from_slice(answer)
        .map_err(|error| format!("the answer is no ExecCredential (line {})", error.line()))?;
    if answer.kind != "ExecCredential" || answer.api_version != api_version {
        return Err(format!("the answer is no ExecCredential of {api_version}"));
    }
    let status = answer.status.ok_or("the answer has no status")?;
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty()).map(Secret::new);
    let token = filled(status.token);
    let certificate = match (filled(status.client_certificate_data), filled(status.client_key_data))
    {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("the answer has a certificate or a key, and not both".to_owned()),
    };
    if token.is_none() && certificate.is_none() {
        return Err("the answer has neither a token nor a certificate".to_owned());
    }
    Ok(ExecCredential { token, certificate, expires: status.expiration_timestamp })
}

#[cfg(test)]
mod tests;
