//! Whether Go's URL parser accepts a text, and the parts of the URL.
//!
//! The rule it keeps: it rejects what Go's `url.Parse` rejects, so that an endpoint or an image
//! pattern is accepted by both agents or by neither. It resolves nothing.

use std::net::Ipv6Addr;

/// Why a text is not a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("it has a control character")]
    ControlCharacter,
    #[error("a colon stands where the scheme should be")]
    NoScheme,
    #[error("a `%` is not followed by two hexadecimal digits")]
    Escape,
    #[error("the port is not a number")]
    Port,
    #[error("the host has a character that no host has")]
    Host,
    #[error("the user name has a character that must be written as %XX")]
    User,
}

/// A part of a URL; the parts allow different characters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Host,
    Other,
}

/// The parts of a URL that rules need.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UrlParts<'text> {
    /// In lowercase; empty when there is none.
    pub(crate) scheme: String,
    /// As written, without query and fragment; empty when the URL is opaque.
    pub(crate) path: &'text str,
}

/// Parses a URL.
pub(crate) fn parse_url(address: &str) -> Result<UrlParts<'_>, UrlError> {
    if address.chars().any(|each| each.is_ascii_control()) {
        return Err(UrlError::ControlCharacter);
    }
    let (address, fragment) = address.split_once('#').unwrap_or((address, ""));
    check_escapes(fragment, UrlPart::Other)?;
    let (scheme, rest) = split_scheme(address)?;
    let rest = rest.split('?').next().unwrap_or(rest);
    if !rest.starts_with('/') {
        let first_segment = rest.split('/').next().unwrap_or(rest);
        if scheme.is_empty() && first_segment.contains(':') {
            return Err(UrlError::NoScheme);
        }
        // With a scheme and no slash the rest is opaque and kept as it is.
        if scheme.is_empty() {
            check_escapes(rest, UrlPart::Other)?;
        }
        let path = if scheme.is_empty() { rest } else { "" };
        return Ok(UrlParts { scheme: scheme.to_ascii_lowercase(), path });
    }
    let has_authority = rest.starts_with("//") && (!scheme.is_empty() || !rest.starts_with("///"));
    let path = if has_authority {
        let end = rest[2..].find('/').map_or(rest.len(), |at| at + 2);
        check_authority(&rest[2..end])?;
        &rest[end..]
    } else {
        rest
    };
    check_escapes(path, UrlPart::Other)?;
    Ok(UrlParts { scheme: scheme.to_ascii_lowercase(), path })
}

/// Checks a URL that is written without its scheme, as image patterns are.
pub(crate) fn check_schemeless(address: &str) -> Result<(), UrlError> {
    parse_url(&format!("https://{address}")).map(|_| ())
}

fn split_scheme(address: &str) -> Result<(&str, &str), UrlError> {
    for (at, each) in address.char_indices() {
        match each {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err(UrlError::NoScheme),
            ':' => return Ok((&address[..at], &address[at + 1..])),
            _ => break,
        }
    }
    Ok(("", address))
}

fn check_authority(authority: &str) -> Result<(), UrlError> {
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let known =
                |each: char| each.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(each);
            if !user.chars().all(known) {
                return Err(UrlError::User);
            }
            check_escapes(user, UrlPart::Other)?;
            host
        }
        None => authority,
    };
    match host.strip_prefix('[') {
        Some(bracketed) => {
            let (address, port) = bracketed.rsplit_once(']').ok_or(UrlError::Host)?;
            check_port(port)?;
            let without_zone = address.split("%25").next().unwrap_or(address);
            without_zone.parse::<Ipv6Addr>().map_err(|_| UrlError::Host)?;
            Ok(())
        }
        None => {
            // A second colon leaves the port with a character that is not a digit.
            let name_end = host.find(':').unwrap_or(host.len());
            check_port(&host[name_end..])?;
            check_escapes(&host[..name_end], UrlPart::Host)
        }
    }
}

/// Empty, or a colon and any number of digits.
fn check_port(port: &str) -> Result<(), UrlError> {
    let digits = match port.strip_prefix(':') {
        Some(digits) => digits,
        None if port.is_empty() => return Ok(()),
        None => return Err(UrlError::Port),
    };
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { Ok(()) } else { Err(UrlError::Port) }
}

fn check_escapes(text: &str, part: UrlPart) -> Result<(), UrlError> {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'%' => {
                let code = bytes.get(at + 1..at + 3).ok_or(UrlError::Escape)?;
                if !code.iter().all(u8::is_ascii_hexdigit) {
                    return Err(UrlError::Escape);
                }
                // A host may only escape what is not ASCII.
                if part == UrlPart::Host && matches!(code[0], b'0'..=b'7') && code != b"25" {
                    return Err(UrlError::Escape);
                }
            }
            _ if part == UrlPart::Host && byte.is_ascii() && !is_host_byte(*byte) => {
                return Err(UrlError::Host);
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}
