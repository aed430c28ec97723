//! Image names: user input, normalized into the one form that the store keeps.
//!
//! The grammar is the common one of container tools: `[registry/]repository[:tag][@digest]`. A
//! first component that is no host name (no dot, no colon, not `localhost`, no capital) belongs to
//! the repository; the registry is then `docker.io`, with `library/` before a single component. A
//! name with neither tag nor digest means `latest`. Whether an image exists is not checked here.

use std::fmt;

use crate::digest::Digest;

#[cfg(test)]
mod tests;

const DEFAULT_REGISTRY: &str = "docker.io";
const OLD_DEFAULT_REGISTRY: &str = "index.docker.io";
const DEFAULT_TAG: &str = "latest";
/// Registry and repository together; the common limit of container tools.
const MAX_NAME_LENGTH: usize = 255;
const MAX_TAG_LENGTH: usize = 128;

/// A normalized image name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("image name {name:?}: {reason}")]
pub struct ReferenceError {
    pub name: String,
    pub reason: &'static str,
}

impl ImageReference {
    pub fn parse(name: &str) -> Result<Self, ReferenceError> {
        Self::split(name)
            .map_err(|reason| ReferenceError { name: name.chars().take(300).collect(), reason })
    }

    fn split(name: &str) -> Result<Self, &'static str> {
        if name.is_empty() {
            return Err("is empty");
        }
        let (rest, digest) = match name.split_once('@') {
            None => (name, None),
            Some((rest, text)) => {
                let digest = Digest::parse(text)
                    .map_err(|_| "what follows '@' is no sha256 digest of 64 hexadecimal digits")?;
                (rest, Some(digest))
            }
        };
        // A colon before the last slash belongs to the registry's port.
        let last_part = rest.rfind('/').map_or(0, |at| at + 1);
        let (path, tag) = match rest[last_part..].find(':') {
            None => (rest, None),
            Some(at) => (&rest[..last_part + at], Some(&rest[last_part + at + 1..])),
        };
        if let Some(tag) = tag {
            check_tag(tag)?;
        }
        let (registry, repository) = split_registry(path)?;
        if registry.len() + 1 + repository.len() > MAX_NAME_LENGTH {
            return Err("registry and repository together exceed 255 characters");
        }
        check_registry(&registry)?;
        for part in repository.split('/') {
            check_repository_part(part)?;
        }
        let tag = match (tag, &digest) {
            (None, None) => Some(DEFAULT_TAG.to_owned()),
            (tag, _) => tag.map(str::to_owned),
        };
        Ok(Self { registry, repository, tag, digest })
    }

    pub fn registry(&self) -> &str {
        &self.registry
    }

    pub fn repository(&self) -> &str {
        &self.repository
    }

    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Registry and repository: what tags and digests belong to.
    pub fn family(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The name with the tag alone, if it has one.
    pub fn tagged(&self) -> Option<String> {
        self.tag.as_ref().map(|tag| format!("{}:{tag}", self.family()))
    }

    /// The name of this repository with a digest.
    pub fn at_digest(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.family())
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(formatter, "@{digest}")?;
        }
        Ok(())
    }
}

fn split_registry(path: &str) -> Result<(String, String), &'static str> {
    if path.is_empty() {
        return Err("has no repository");
    }
    if path.len() == 64 && Digest::from_hex(path).is_some() {
        return Err("is 64 hexadecimal digits, which is an image id and no name");
    }
    let host_like = |part: &str| {
        part.contains(['.', ':'])
            || part == "localhost"
            || part.chars().any(|letter| letter.is_ascii_uppercase())
    };
    let (registry, repository) = match path.split_once('/') {
        Some((first, rest)) if host_like(first) => (first, rest),
        _ => (DEFAULT_REGISTRY, path),
    };
    let registry = if registry == OLD_DEFAULT_REGISTRY { DEFAULT_REGISTRY } else { registry };
    let repository = if registry == DEFAULT_REGISTRY && !repository.contains('/') {
        format!("library/{repository}")
    } else {
        repository.to_owned()
    };
    Ok((registry.to_owned(), repository))
}

fn check_tag(tag: &str) -> Result<(), &'static str> {
    let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if tag.is_empty() {
        return Err("the tag is empty");
    }
    if tag.len() > MAX_TAG_LENGTH {
        return Err("the tag exceeds 128 characters");
    }
    if !tag.starts_with(word) {
        return Err("the tag starts with something else than a letter, a digit or '_'");
    }
    if !tag.chars().all(|letter| word(letter) || letter == '.' || letter == '-') {
        return Err("the tag has something else than letters, digits, '_', '.' and '-'");
    }
    Ok(())
}

fn check_registry(registry: &str) -> Result<(), &'static str> {
    const HOST: &str = "the registry is no host name or address";
    let (host, port) = if let Some(bracketed) = registry.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']').ok_or(HOST)?;
        let hexadecimal = |letter: char| letter.is_ascii_hexdigit() || letter == ':';
        if address.is_empty() || !address.chars().all(hexadecimal) {
            return Err(HOST);
        }
        match rest.strip_prefix(':') {
            Some(port) => (None, Some(port)),
            None if rest.is_empty() => (None, None),
            None => return Err(HOST),
        }
    } else {
        match registry.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(registry), None),
        }
    };
    if let Some(host) = host {
        let label = |label: &str| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
        };
        if !host.split('.').all(label) {
            return Err(HOST);
        }
    }
    match port {
        Some(port)
            if port.is_empty()
                || port.len() > 5
                || !port.chars().all(|letter| letter.is_ascii_digit()) =>
        {
            Err("the registry's port is no number")
        }
        _ => Ok(()),
    }
}

/// Lower-case words of letters and digits, joined by '.', '_', '__' or any number of '-'.
fn check_repository_part(part: &str) -> Result<(), &'static str> {
    if part.is_empty() {
        return Err("the repository has an empty part");
    }
    let word = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    if part.bytes().any(|letter| letter.is_ascii_uppercase()) {
        return Err("the repository must be lower-case");
    }
    if !part.bytes().all(|letter| word(letter) || matches!(letter, b'.' | b'_' | b'-')) {
        return Err("the repository has something else than letters, digits, '.', '_' and '-'");
    }
    let joined = part
        .split(|letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit())
        .all(|join| matches!(join, "" | "." | "_" | "__") || join.bytes().all(|b| b == b'-'));
    let ends = |letter: Option<&u8>| letter.is_some_and(|letter| word(*letter));
    if !joined || !ends(part.as_bytes().first()) || !ends(part.as_bytes().last()) {
        return Err("a part of the repository starts, ends or is joined wrongly");
    }
    Ok(())
}
