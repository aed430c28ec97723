//! Parses a kubeconfig: bytes in, one [`ClusterAccess`] out.
//!
//! Rule: pure. An error names file, line, field and what was expected, never a value, since any
//! value here may be a secret. An unsupported field that affects identity or trust (unknown
//! proxies, passwords, auth providers) is an error. Reads one file; does not merge several.
//!
//! upstream: client-go tools/clientcmd

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use document::diagnostic::Origin;
use document::{Node, Value};

use crate::access::{
    ClientCertificate, ClusterAccess, ExecPlugin, Impersonation, Material, ServerAddress,
    TokenSource, Trust,
};
use crate::proxy::ProxyAddress;
use crate::secret::Secret;

mod fields;
mod written;

use fields::KubeconfigFields;
pub use written::kubeconfig_with_certificate;

/// What is wrong with a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {field}: {message}")]
pub struct KubeconfigError {
    /// File and line.
    pub location: String,
    pub field: String,
    pub message: String,
}

/// Selects a context (the current one, unless another is named) and reads its cluster and user.
/// Relative paths are relative to the directory of the kubeconfig, `file`.
pub fn parse_kubeconfig(
    bytes: &[u8],
    file: &Path,
    context: Option<&str>,
) -> Result<ClusterAccess, KubeconfigError> {
    let path: Arc<str> = file.display().to_string().into();
    let origin = Origin::File { path: path.clone(), line: 0, column: 0 };
    let file_error = |message: &str| KubeconfigError {
        location: path.to_string(),
        field: "kubeconfig".to_owned(),
        message: message.to_owned(),
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(file_error("the file is empty"));
    }
    let document = document::parse(bytes, &origin).map_err(|error| KubeconfigError {
        location: error.origin.to_string(),
        field: "kubeconfig".to_owned(),
        // The parser's own message may quote the content.
        message: "is neither valid YAML nor valid JSON".to_owned(),
    })?;
    let root = KubeconfigFields::of(&document.root, "")?;
    match root.text("kind")?.as_deref() {
        None | Some("Config") => {}
        Some(_) => return Err(root.invalid("kind", "expected Config")),
    }
    let context_name = match context {
        Some(name) => name.to_owned(),
        None => root.text("current-context")?.ok_or_else(|| {
            root.invalid("current-context", "is not set, and no context was named")
        })?,
    };
    let context = root.named("contexts", "context", &context_name)?;
    let cluster_name = context.required("cluster")?;
    let cluster = root.named("clusters", "cluster", &cluster_name)?;
    let user = match context.text("user")? {
        Some(name) => Some(root.named("users", "user", &name)?),
        None => None,
    };
    let dir = file.parent().unwrap_or(Path::new(""));
    let trust = read_trust(&cluster, dir)?;
    let certificate = match &user {
        Some(user) => read_certificate(user, dir)?,
        None => None,
    };
    let has_tls_material = certificate.is_some() || trust != Trust::System;
    let server = read_server(&cluster, has_tls_material)?;
    let mut access = ClusterAccess {
        proxy: read_proxy(&cluster, &server)?,
        server,
        trust,
        tls_server_name: cluster.text("tls-server-name")?,
        certificate,
        renewed_certificate: None,
        token: None,
        exec: None,
        impersonation: Impersonation::default(),
        namespace: context.text("namespace")?.unwrap_or_else(|| "default".to_owned()),
    };
    if let Some(user) = user {
        read_user(&user, dir, &mut access)?;
        access.exec = read_exec(&user, &cluster, dir)?;
    }
    Ok(access)
}

fn read_server(
    cluster: &KubeconfigFields<'_>,
    has_tls_material: bool,
) -> Result<ServerAddress, KubeconfigError> {
    let text = cluster.required("server")?;
    ServerAddress::parse(&text, has_tls_material)
        .map_err(|error| cluster.invalid("server", &error.to_string()))
}

fn read_proxy(
    cluster: &KubeconfigFields<'_>,
    server: &ServerAddress,
) -> Result<Option<ProxyAddress>, KubeconfigError> {
    let Some(text) = cluster.text("proxy-url")? else { return Ok(None) };
    let proxy = if text.contains("://") {
        ProxyAddress::parse(&text).and_then(|proxy| proxy.usable_to(server))
    } else {
        Err("expected http://HOST:PORT or https://HOST:PORT".to_owned())
    };
    proxy.map_err(|message| cluster.invalid("proxy-url", &message))
}

fn read_trust(cluster: &KubeconfigFields<'_>, dir: &Path) -> Result<Trust, KubeconfigError> {
    let authority = read_material(cluster, "certificate-authority", dir)?;
    match (cluster.flag("insecure-skip-tls-verify")?, authority) {
        (true, Some(_)) => {
            let message = "cannot be true together with a certificate authority";
            Err(cluster.invalid("insecure-skip-tls-verify", message))
        }
        (true, None) => Ok(Trust::InsecureSkipVerify),
        (false, Some(authority)) => Ok(Trust::Authority(authority)),
        (false, None) => Ok(Trust::System),
    }
}

fn read_certificate(
    user: &KubeconfigFields<'_>,
    dir: &Path,
) -> Result<Option<ClientCertificate>, KubeconfigError> {
    let certificate = read_material(user, "client-certificate", dir)?;
    let key = read_material(user, "client-key", dir)?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(ClientCertificate { certificate, key })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(user.invalid("client-key", "a certificate needs its key")),
        (None, Some(_)) => Err(user.invalid("client-certificate", "a key needs its certificate")),
    }
}

fn read_user(
    user: &KubeconfigFields<'_>,
    dir: &Path,
    access: &mut ClusterAccess,
) -> Result<(), KubeconfigError> {
    for field in ["username", "password"] {
        user.reject(field, "API servers no longer accept passwords")?;
    }
    user.reject("auth-provider", "auth providers are no longer supported; use exec")?;
    access.token = match (user.text("tokenFile")?, user.text("token")?) {
        (Some(file), _) => Some(TokenSource::File(dir.join(file))),
        (None, Some(token)) => Some(TokenSource::Fixed(Secret::new(token))),
        (None, None) => None,
    };
    access.impersonation = Impersonation {
        user: user.text("as")?.unwrap_or_default(),
        uid: user.text("as-uid")?.unwrap_or_default(),
        groups: user.texts("as-groups")?,
        extra: user.lists("as-user-extra")?,
    };
    let has_other_fields = !access.impersonation.groups.is_empty()
        || !access.impersonation.extra.is_empty()
        || !access.impersonation.uid.is_empty();
    if has_other_fields && access.impersonation.user.is_empty() {
        return Err(user.invalid("as", "is needed with as-uid, as-groups and as-user-extra"));
    }
    Ok(())
}

fn read_exec(
    user: &KubeconfigFields<'_>,
    cluster: &KubeconfigFields<'_>,
    dir: &Path,
) -> Result<Option<ExecPlugin>, KubeconfigError> {
    let Some(exec) = user.fields("exec")? else { return Ok(None) };
    let api_version = exec.required("apiVersion")?;
    if !matches!(
        api_version.as_str(),
        "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1"
    ) {
        return Err(exec.invalid("apiVersion", "expected client.authentication.k8s.io/v1"));
    }
    if exec.text("interactiveMode")?.as_deref() == Some("Always") {
        return Err(exec.invalid("interactiveMode", "interactive input is not possible"));
    }
    let command = exec.required("command")?;
    // A bare name is looked up in PATH.
    let command = if command.contains('/') { dir.join(command) } else { PathBuf::from(command) };
    let mut environment = Vec::new();
    for entry in exec.list("env")? {
        let entry = KubeconfigFields::of(entry, &exec.path("env"))?;
        let value = entry.text("value")?.unwrap_or_default();
        environment.push((entry.required("name")?, Secret::new(value)));
    }
    let (cluster, proxy_url) = match exec.flag("provideClusterInfo")? {
        true => (Some(cluster_info(cluster)?), cluster.text("proxy-url")?.map(Secret::new)),
        false => (None, None),
    };
    Ok(Some(ExecPlugin {
        api_version,
        command,
        arguments: exec.texts("args")?,
        environment,
        install_hint: exec.text("installHint")?.unwrap_or_default(),
        cluster,
        proxy_url,
    }))
}

/// The cluster information for an exec plugin. If the certificate authority is a file, its content
/// is added when the plugin is run.
fn cluster_info(cluster: &KubeconfigFields<'_>) -> Result<serde_json::Value, KubeconfigError> {
    let mut info = serde_json::Map::new();
    for field in ["server", "tls-server-name", "certificate-authority-data"] {
        if let Some(value) = cluster.text(field)? {
            info.insert(field.to_owned(), value.into());
        }
    }
    if cluster.flag("insecure-skip-tls-verify")? {
        info.insert("insecure-skip-tls-verify".to_owned(), true.into());
    }
    for extension in cluster.list("extensions")? {
        let extension = KubeconfigFields::of(extension, &cluster.path("extensions"))?;
        if extension.text("name")?.as_deref() == Some("client.authentication.k8s.io/exec") {
            let config = extension.node("extension").map_or(serde_json::Value::Null, to_json);
            info.insert("config".to_owned(), config);
        }
    }
    Ok(info.into())
}

fn to_json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(document::Number::Integer(number)) => {
            i64::try_from(*number).map_or(serde_json::Value::Null, Into::into)
        }
        Value::Number(document::Number::Float(number)) => (*number).into(),
        Value::String(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(to_json).collect(),
        Value::Map(entries) => {
            entries.iter().map(|(key, value)| (key.clone(), to_json(value))).collect()
        }
    }
}

/// A certificate or key: inline in `FIELD-data`, else in the file that `FIELD` names.
fn read_material(
    fields: &KubeconfigFields<'_>,
    field: &str,
    dir: &Path,
) -> Result<Option<Material>, KubeconfigError> {
    let data = format!("{field}-data");
    if let Some(text) = fields.text(&data)? {
        let text: String = text.split_ascii_whitespace().collect();
        let decoded = base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|_| fields.invalid(&data, "expected base64"))?;
        return Ok(Some(Material::Inline(Secret::new(decoded))));
    }
    Ok(fields.text(field)?.map(|file| Material::File(dir.join(file))))
}

type Entries = BTreeMap<String, Node>;

#[cfg(test)]
mod tests;
