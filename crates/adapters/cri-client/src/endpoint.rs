//! Where a runtime listens, as people write it in flags and configuration files.
//!
//! Rule: an address is either valid as a whole or an error with the given text and what was
//! expected. Does not check whether a socket is there.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::percent_decode_str;

#[cfg(test)]
mod tests;

/// The path of a runtime's unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    socket: PathBuf,
    deprecated_form: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("runtime endpoint {0:?}: only unix sockets are supported, expected unix:///path")]
    NotUnix(String),
    #[error("runtime endpoint {0:?}: protocol {1:?} is not supported, expected unix:///path")]
    UnknownProtocol(String, String),
    #[error(
        "runtime endpoint {0:?}: {1:?} would be taken for a host; expected an absolute path, \
         as in unix:///run/runtime.sock"
    )]
    RelativePath(String, String),
    #[error("runtime endpoint {0:?}: no socket path, expected unix:///path")]
    NoPath(String),
    #[error("runtime endpoint {0:?}: {1:?} is no percent-encoded byte")]
    Encoding(String, String),
}

impl Endpoint {
    /// The endpoint of a socket at this path.
    pub fn unix(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), deprecated_form: false }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A sentence to log when the address was written in a form that upstream calls deprecated.
    pub fn warning(&self) -> Option<String> {
        self.deprecated_form.then(|| {
            format!(
                "using {:?} as endpoint is deprecated, write it as \"{self}\"",
                self.socket.display().to_string()
            )
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "unix://{}", self.socket.display())
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    // upstream: cri-client pkg/util/util_unix.go
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((scheme, rest)) = split_scheme(text) else {
            if text.is_empty() {
                return Err(EndpointError::NoPath(text.to_owned()));
            }
            let socket = absolute(text, text)?;
            return Ok(Self { socket, deprecated_form: true });
        };
        match scheme.to_ascii_lowercase().as_str() {
            "unix" => {}
            "tcp" => return Err(EndpointError::NotUnix(text.to_owned())),
            other => {
                return Err(EndpointError::UnknownProtocol(text.to_owned(), other.to_owned()));
            }
        }
        let path = rest.strip_prefix("//").unwrap_or(rest);
        if path.is_empty() {
            return Err(EndpointError::NoPath(text.to_owned()));
        }
        let socket = absolute(text, path)?;
        Ok(Self { socket, deprecated_form: false })
    }
}

/// The scheme of a URL and what follows its colon; `None` for a bare path.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut letters = scheme.chars();
    let well_formed = letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter));
    well_formed.then_some((scheme, rest))
}

fn absolute(text: &str, path: &str) -> Result<PathBuf, EndpointError> {
    if !path.starts_with('/') {
        let host = path.split('/').next().unwrap_or(path);
        return Err(EndpointError::RelativePath(text.to_owned(), host.to_owned()));
    }
    percent_decoded(text, path).map(PathBuf::from)
}

/// Upstream parses the address as a URL, so `%20` in it is a space. Stricter than the decoder,
/// which keeps an invalid escape: a mistyped path would be one on which nothing listens.
fn percent_decoded(text: &str, path: &str) -> Result<String, EndpointError> {
    let wrong = |part: &str| EndpointError::Encoding(text.to_owned(), part.to_owned());
    for (position, _) in path.match_indices('%') {
        let code = &path[position..];
        if code.bytes().skip(1).take(2).filter(u8::is_ascii_hexdigit).count() < 2 {
            return Err(wrong(&code.chars().take(3).collect::<String>()));
        }
    }
    let plain = percent_decode_str(path).decode_utf8().map_err(|_| wrong(path))?;
    Ok(plain.into_owned())
}
