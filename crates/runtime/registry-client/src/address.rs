//! URLs, as far as registries and their redirects need them. Pure.

use std::fmt;

use crate::error::{Error, Result};

#[cfg(test)]
mod tests;

const MAX_LENGTH: usize = 16 * 1024;

/// Target of a request: scheme, host, port and path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    pub secure: bool,
    /// Without brackets.
    pub host: String,
    pub port: u16,
    /// Starts with a slash; includes the query.
    pub path: String,
}

impl HttpUrl {
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |reason: &str| Error::Answer {
            what: format!("address {:?}", text.chars().take(200).collect::<String>()),
            reason: reason.to_owned(),
        };
        if text.len() > MAX_LENGTH {
            return Err(wrong("is too long"));
        }
        if text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
            return Err(wrong("has spaces or control characters"));
        }
        let lower = text.to_ascii_lowercase();
        let (secure, rest) = if lower.starts_with("https://") {
            (true, &text[8..])
        } else if lower.starts_with("http://") {
            (false, &text[7..])
        } else {
            return Err(wrong("begins with neither http:// nor https://"));
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // A password in a URL would end up in logs.
        if authority.contains('@') {
            return Err(wrong("has a user in it"));
        }
        let (host, port) = split_port(authority).ok_or_else(|| wrong("has no host"))?;
        let port = match port {
            None if secure => 443,
            None => 80,
            Some(port) => port.parse().map_err(|_| wrong("has a wrong port"))?,
        };
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { secure, host, port, path })
    }

    /// Resolves the target of a redirect.
    pub fn follow(&self, location: &str) -> Result<Self> {
        if location.to_ascii_lowercase().starts_with("http") && location.contains("://") {
            return Self::parse(location);
        }
        if let Some(rest) = location.strip_prefix("//") {
            let scheme = if self.secure { "https" } else { "http" };
            return Self::parse(&format!("{scheme}://{rest}"));
        }
        if location.starts_with('/') {
            return Self::parse(&format!("{}{location}", self.origin()));
        }
        let dir = self.path.split('?').next().unwrap_or("/");
        let dir = dir.rsplit_once('/').map_or("", |(dir, _)| dir);
        Self::parse(&format!("{}{dir}/{location}", self.origin()))
    }

    /// Scheme, host and port.
    pub fn origin(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// As in the `host` header.
    pub fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.secure, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    pub fn same_origin(&self, other: &Self) -> bool {
        self.secure == other.secure
            && self.port == other.port
            && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// The same host, another path.
    pub fn at(&self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the query: it may carry a signature.
        let path = self.path.split('?').next().unwrap_or_default();
        write!(formatter, "{}{path}", self.origin())
    }
}

fn split_port(authority: &str) -> Option<(String, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let port = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(':')?),
        };
        return (!host.is_empty()).then(|| (host.to_owned(), port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// Loopback hosts, reached without TLS unless configured otherwise.
pub fn is_loopback_host(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
