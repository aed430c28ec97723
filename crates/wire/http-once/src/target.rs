//! The target of a request: the parts of an http or https URL, and the target of a redirect from
//! there.
//!
//! Rule: pure. A reference is resolved as RFC 3986 says; characters that are invalid in a request
//! line are percent-encoded rather than rejected, as browsers and Go do.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

#[cfg(test)]
mod tests;

/// Why a URL has no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("a URL needs a scheme and a host")]
    NoScheme,
    #[error("unsupported protocol scheme {scheme:?}")]
    UnsupportedScheme { scheme: String },
    #[error("no ] in the host {authority:?}")]
    UnclosedBracket { authority: String },
    #[error("an IPv6 address needs brackets: {authority:?}")]
    UnbracketedAddress { authority: String },
    #[error("no host in {authority:?}")]
    NoHost { authority: String },
    #[error("invalid port {port:?}")]
    InvalidPort { port: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTarget {
    pub secure: bool,
    /// A name or an address, without brackets.
    pub host: String,
    /// As written; `None` for the scheme's default.
    pub written_port: Option<u16>,
    /// Begins with `/`; with the query.
    pub path: String,
    /// `user:password`, still percent-encoded.
    pub user: Option<String>,
}

impl RequestTarget {
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = url.split_once("://").ok_or(TargetError::NoScheme)?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            other => return Err(TargetError::UnsupportedScheme { scheme: other.to_owned() }),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user.to_owned()), authority),
            None => (None, authority),
        };
        let (host, written_port) = split_port(authority)?;
        Ok(Self { secure, host, written_port, path: request_path(path), user })
    }

    /// A path at a host and port. Text before the path's first single slash that would be read as a
    /// URL's authority is dropped, as in Go.
    pub fn from_parts(secure: bool, host: &str, port: u16, path: &str) -> Self {
        let path = match path.strip_prefix("//") {
            Some(rest) => rest.find(['/', '?', '#']).map_or("", |end| &rest[end..]),
            None => path,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = request_path(path);
        Self { secure, host, written_port: Some(port), path, user: None }
    }

    pub fn port(&self) -> u16 {
        self.written_port.unwrap_or(if self.secure { 443 } else { 80 })
    }

    /// As in the `Host` header.
    pub fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match self.written_port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    /// The URL without the user.
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    /// The URL without the user and the query, which may hold secrets.
    pub fn redacted_url(&self) -> String {
        let url = self.url();
        url.split('?').next().unwrap_or_default().to_owned()
    }

    /// The target of a `Location` header.
    pub fn join(&self, location: &str) -> Result<Self, TargetError> {
        let location = location.trim();
        let scheme = location.split_once(':').map(|(scheme, _)| scheme);
        let is_scheme = |text: &str| {
            text.starts_with(|letter: char| letter.is_ascii_alphabetic())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        };
        if scheme.is_some_and(is_scheme) {
            return Self::parse(location);
        }
        if let Some(rest) = location.strip_prefix("//") {
            let scheme = if self.secure { "https" } else { "http" };
            return Self::parse(&format!("{scheme}://{rest}"));
        }
        let (own_path, _) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let path = match location.as_bytes().first() {
            None | Some(b'#') => self.path.clone(),
            Some(b'?') => format!("{own_path}{location}"),
            Some(b'/') => location.to_owned(),
            Some(_) => {
                let dir = own_path.rfind('/').map_or("", |end| &own_path[..end]);
                format!("{dir}/{location}")
            }
        };
        Ok(Self { path: resolved(&path), ..self.clone() })
    }
}

/// Whether a status redirects a GET, if there is a `Location`.
pub fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

fn split_port(authority: &str) -> Result<(String, Option<u16>), TargetError> {
    let shown = || authority.to_owned();
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest
                .split_once(']')
                .ok_or_else(|| TargetError::UnclosedBracket { authority: shown() })?;
            (host, after.strip_prefix(':').filter(|port| !port.is_empty()))
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(TargetError::UnbracketedAddress { authority: shown() });
            }
            Some((host, port)) => (host, Some(port).filter(|port| !port.is_empty())),
            None => (authority, None),
        },
    };
    if host.is_empty() || host.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(TargetError::NoHost { authority: shown() });
    }
    let port = port
        .map(|port| {
            port.parse::<u16>().map_err(|_| TargetError::InvalidPort { port: port.to_owned() })
        })
        .transpose()?;
    Ok((host.to_owned(), port))
}

/// A path that is valid in a request line: begins with `/`, no fragment, other characters
/// percent-encoded.
fn request_path(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{slash}{}", encode(path))
}

/// The same, with dot segments resolved.
fn resolved(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    match path.split_once('?') {
        Some((path, query)) => format!("{}?{}", encode(&without_dots(path)), encode(query)),
        None => encode(&without_dots(path)),
    }
}

fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let parts: Vec<&str> = path.split('/').collect();
    let ends_in_dir = matches!(parts.last(), Some(&("." | ".." | "")));
    for part in path.strip_prefix('/').unwrap_or(path).split('/') {
        match part {
            "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    if ends_in_dir && kept.last().is_some_and(|last| !last.is_empty()) {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

/// Percent-encodes characters that are invalid in a request line or a URL. Existing escapes stay; a
/// `%` that begins none is encoded.
fn encode(text: &str) -> String {
    let mut parts = text.split('%');
    let mut line = String::with_capacity(text.len());
    line.extend(utf8_percent_encode(parts.next().unwrap_or_default(), UNSAFE));
    for part in parts {
        let coded = part.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
        line.push_str(if coded { "%" } else { "%25" });
        line.extend(utf8_percent_encode(part, UNSAFE));
    }
    line
}

const UNSAFE: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b'#');
