//! Address, TLS trust and credentials of an API server, as a value.
//!
//! Rule: names the places of files and holds no file's content; secrets in it are masked in debug
//! output. Reads nothing: files are read when a connection is made, and again when they change.

use std::path::{Path, PathBuf};

use crate::proxy::ProxyAddress;
use crate::secret::Secret;

/// What a kubeconfig (or a pod's environment) says about one cluster and one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAccess {
    pub server: ServerAddress,
    /// `None`: the connection is direct.
    pub proxy: Option<ProxyAddress>,
    pub trust: Trust,
    /// The name that the server's certificate must have, if it is not the host of the address.
    pub tls_server_name: Option<String>,
    pub certificate: Option<ClientCertificate>,
    /// A file with certificate and key, used instead of `certificate` as soon as it is there.
    pub renewed_certificate: Option<PathBuf>,
    pub token: Option<TokenSource>,
    pub exec: Option<ExecPlugin>,
    pub impersonation: Impersonation,
    pub namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    pub tls: bool,
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
    /// What precedes `/api` in every path; empty, or begins with a slash and ends without.
    pub prefix: String,
}

/// Which authorities may have signed the server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    Authority(Material),
    /// The authorities that the machine trusts.
    System,
    /// Any: the server is not verified.
    InsecureSkipVerify,
}

/// PEM text, inline or in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Material {
    Inline(Secret),
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub certificate: Material,
    pub key: Material,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    Fixed(Secret),
    /// Read again every minute.
    File(PathBuf),
}

/// An exec credential plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecPlugin {
    pub api_version: String,
    pub command: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, Secret)>,
    /// Shown when the program is missing.
    pub install_hint: String,
    /// The `ExecCredential`'s `spec.cluster`; `None` unless the plugin asks for it.
    pub cluster: Option<serde_json::Value>,
    /// The `proxy-url` for it, which may hold a password.
    pub proxy_url: Option<Secret>,
}

/// The user to impersonate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Impersonation {
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, String)>,
}

/// Why a text is no server's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerAddressError {
    /// In the URL parser's words.
    #[error("{text:?}: {reason}")]
    Url { text: String, reason: String },
    #[error("{text:?}: expected https://HOST:PORT")]
    Scheme { text: String },
    #[error("a server address has neither a query nor a user")]
    QueryOrUser,
    #[error("{text:?}: expected a host")]
    NoHost { text: String },
    #[error("{text:?}: expected a port from 1 to 65535")]
    Port { text: String },
}

/// Why a pod's environment describes no API server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InClusterError {
    #[error("KUBERNETES_SERVICE_PORT: {port:?} is no port")]
    Port { port: String },
    #[error("KUBERNETES_SERVICE_HOST is empty, expected an address")]
    NoHost,
}

impl ServerAddress {
    /// Parses `https://host:port/prefix`. Without a scheme it is https if there is TLS material (an
    /// authority or a client certificate) and http otherwise, as in client-go.
    pub fn parse(text: &str, has_tls_material: bool) -> Result<Self, ServerAddressError> {
        let shown = || text.to_owned();
        let scheme = if has_tls_material { "https" } else { "http" };
        let whole =
            if text.contains("://") { text.to_owned() } else { format!("{scheme}://{text}") };
        let uri = whole.parse::<hyper::Uri>().map_err(|error| ServerAddressError::Url {
            text: shown(),
            reason: error.to_string(),
        })?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(ServerAddressError::Scheme { text: shown() }),
        };
        if uri.query().is_some() || uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(ServerAddressError::QueryOrUser);
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(ServerAddressError::NoHost { text: shown() });
        }
        let named_port = uri.authority().is_some_and(|a| Some(a.as_str()) != uri.host());
        if named_port && uri.port_u16().is_none() {
            return Err(ServerAddressError::Port { text: shown() });
        }
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self { tls, host, port, prefix: uri.path().trim_end_matches('/').to_owned() })
    }

    /// Host and port as URLs write them.
    pub(crate) fn authority(&self) -> String {
        join_host_port(&self.host, self.port)
    }
}

/// Host and port as URLs write them.
pub(crate) fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl ClusterAccess {
    /// The in-cluster configuration: address from the two environment variables that the kubelet
    /// sets, token and authority from the service account's directory.
    pub fn in_cluster(
        service_host: &str,
        service_port: &str,
        dir: &Path,
        namespace: &str,
    ) -> Result<Self, InClusterError> {
        let port = service_port
            .parse()
            .map_err(|_| InClusterError::Port { port: service_port.to_owned() })?;
        if service_host.is_empty() {
            return Err(InClusterError::NoHost);
        }
        Ok(Self {
            server: ServerAddress {
                tls: true,
                host: service_host.trim_matches(['[', ']']).to_owned(),
                port,
                prefix: String::new(),
            },
            proxy: None,
            trust: Trust::Authority(Material::File(dir.join("ca.crt"))),
            tls_server_name: None,
            certificate: None,
            renewed_certificate: None,
            token: Some(TokenSource::File(dir.join("token"))),
            exec: None,
            impersonation: Impersonation::default(),
            namespace: if namespace.is_empty() { "default" } else { namespace }.to_owned(),
        })
    }
}
