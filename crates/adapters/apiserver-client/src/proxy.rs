//! Which HTTP proxy leads to an API server; pure.
//!
//! Rule: a kubeconfig's `proxy-url` counts for its cluster without exception; without one the
//! environment decides, as Go's programs read it: `HTTPS_PROXY` or `HTTP_PROXY` by the server's
//! scheme, `NO_PROXY` for what is reached directly, and never a proxy to `localhost` or a loopback
//! address. Unlike there, a proxy variable that cannot be parsed is an error when it would be used,
//! not a silent direct connection. No error shows a value, since it may hold a password.
//! upstream: golang.org/x/net/http/httpproxy/proxy.go

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;

use crate::access::{ClusterAccess, ServerAddress, join_host_port};
use crate::secret::Secret;

/// A proxy that opens tunnels with `CONNECT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyAddress {
    /// TLS to the proxy itself, with the trust and the client certificate that are for the API
    /// server, as in client-go.
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of `Proxy-Authorization`.
    pub(crate) authorization: Option<Secret>,
}

/// Without the credentials.
impl fmt::Display for ProxyAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(out, "{scheme}://{}", join_host_port(&self.host, self.port))
    }
}

impl ProxyAddress {
    /// Parses `http://user:password@host:port`; scheme and port may be missing.
    ///
    /// # Errors
    /// What was expected, never the value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            "socks5" | "socks5h" => {
                return Err("SOCKS proxies are not supported, expected http:// or https://".into());
            }
            _ => return Err("expected http://HOST:PORT or https://HOST:PORT".to_owned()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, at) = match authority.rsplit_once('@') {
            Some((user, at)) => (Some(user), at),
            None => (None, authority),
        };
        let (host, port) = split_host_port(at).unwrap_or((at, ""));
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        let is_ipv6 = host.parse::<std::net::Ipv6Addr>().is_ok();
        let is_name =
            host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if host.is_empty() || !(is_ipv6 || is_name) {
            return Err("expected a host name or an address after the scheme".to_owned());
        }
        let port = match port {
            "" => {
                if tls {
                    443
                } else {
                    80
                }
            }
            port => port
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or("expected a port from 1 to 65535")?,
        };
        let authorization = user.map(basic_authorization).transpose()?;
        Ok(Self { tls, host: host.to_owned(), port, authorization })
    }
}

fn basic_authorization(user: &str) -> Result<Secret, String> {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text: &str| {
        percent_decode(text).ok_or("expected %XX for special characters in user and password")
    };
    let mut plain = decoded(name)?;
    plain.push(b':');
    plain.extend(decoded(password)?);
    let encoded = base64::engine::general_purpose::STANDARD.encode(plain);
    Ok(Secret::new(format!("Basic {encoded}")))
}

fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let value = digit()? * 16 + digit()?;
            decoded.push(u8::try_from(value).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    Some(decoded)
}

/// The environment's proxy variables. They may hold passwords.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyEnvironment {
    https: Option<ProxyVariable>,
    http: Option<ProxyVariable>,
    no_proxy: String,
}

/// A variable's name, for messages, and its value.
#[derive(Clone, PartialEq, Eq)]
struct ProxyVariable {
    name: &'static str,
    value: String,
}

impl fmt::Debug for ProxyEnvironment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |variable: &Option<ProxyVariable>| variable.as_ref().map(|it| it.name);
        out.debug_struct("ProxyEnvironment")
            .field("https", &name(&self.https))
            .field("http", &name(&self.http))
            .field("no_proxy", &self.no_proxy)
            .finish()
    }
}

impl ProxyEnvironment {
    /// Looks the variables up; a lower-case name wins over the upper-case one, and an empty value is
    /// none.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| {
                let value = lookup(name).filter(|value| !value.is_empty())?;
                Some(ProxyVariable { name, value })
            })
        };
        Self {
            https: first(["https_proxy", "HTTPS_PROXY"]),
            http: first(["http_proxy", "HTTP_PROXY"]),
            no_proxy: first(["no_proxy", "NO_PROXY"]).map(|it| it.value).unwrap_or_default(),
        }
    }

    /// The proxy to this server, `None` for a direct connection.
    fn proxy_to(&self, server: &ServerAddress) -> Result<Option<ProxyAddress>, String> {
        let variable = if server.tls { &self.https } else { &self.http };
        let Some(ProxyVariable { name, value }) = variable else { return Ok(None) };
        if is_direct(&server.host, server.port, &self.no_proxy) {
            return Ok(None);
        }
        let proxy = ProxyAddress::parse(value)
            .map_err(|message| format!("environment variable {name}: {message}"))?;
        proxy.usable_to(server).map_err(|message| format!("environment variable {name}: {message}"))
    }
}

impl ProxyAddress {
    /// The proxy, if a tunnel through it to this server can be made.
    pub(crate) fn usable_to(self, server: &ServerAddress) -> Result<Option<Self>, String> {
        if self.tls && !server.tls {
            return Err("an https proxy needs an https API server".to_owned());
        }
        Ok(Some(self))
    }
}

impl ClusterAccess {
    /// The same access, with the environment's proxy unless the kubeconfig named one.
    ///
    /// # Errors
    /// If the variable that holds the proxy cannot be parsed.
    pub fn with_proxy_from(mut self, environment: &ProxyEnvironment) -> Result<Self, String> {
        if self.proxy.is_none() {
            self.proxy = environment.proxy_to(&self.server)?;
        }
        Ok(self)
    }
}

/// Whether `NO_PROXY` (or what the host is) asks for a direct connection.
fn is_direct(host: &str, port: u16, no_proxy: &str) -> bool {
    let host = host.trim().to_ascii_lowercase();
    // A zone says which link, not which address.
    let address = host.split('%').next().and_then(|host| host.parse::<IpAddr>().ok());
    let address = address.map(|address| address.to_canonical());
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let port = port.to_string();
    let entries = no_proxy.split(',').map(|entry| entry.trim().to_lowercase());
    entries.filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Some((network, bits)) = parse_cidr(&entry) {
            return address.is_some_and(|address| contains(network, bits, address));
        }
        let (name, wanted_port) = split_host_port(&entry).unwrap_or((&entry, ""));
        if !wanted_port.is_empty() && wanted_port != port {
            return false;
        }
        let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        // Brackets only stand before a port.
        let literal = if name.len() < entry.len() { bare.unwrap_or(name) } else { name };
        match (literal.parse::<IpAddr>(), address) {
            (Ok(wanted), Some(address)) => wanted.to_canonical() == address,
            (Ok(_), None) | (Err(_), Some(_)) => false,
            (Err(_), None) => is_in_domain(&host, name),
        }
    })
}

/// `example.com` is the name and all below it; `.example.com` and `*.example.com` only what is
/// below it.
fn is_in_domain(host: &str, entry: &str) -> bool {
    let entry = entry.strip_prefix('*').filter(|it| it.starts_with('.')).unwrap_or(entry);
    match entry.strip_prefix('.') {
        _ if entry.is_empty() => false,
        Some(_) => host.ends_with(entry),
        None => host == entry || host.strip_suffix(entry).is_some_and(|it| it.ends_with('.')),
    }
}

/// `host:port` with a single colon outside of brackets.
fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    (bracketed || !host.contains([':', '[', ']'])).then_some((host, port))
}

fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (network, bits) = text.split_once('/')?;
    if !bits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (network, bits) = (network.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
    match (network, network.to_canonical()) {
        (IpAddr::V4(_), canonical) => (bits <= 32).then_some((canonical, bits)),
        // An IPv4 network that is written as IPv6.
        (_, canonical @ IpAddr::V4(_)) if (96..=128).contains(&bits) => {
            Some((canonical, bits - 96))
        }
        (network, _) => (bits <= 128).then_some((network, bits)),
    }
}

fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    let bits = u32::from(bits);
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let differs = network.to_bits() ^ address.to_bits();
            differs.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let differs = network.to_bits() ^ address.to_bits();
            differs.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
