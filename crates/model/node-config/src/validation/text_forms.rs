//! Text formats that rules check: Go's booleans, image names, sysctl patterns.
//!
//! Each function checks one format and nothing else.
//!
//! upstream: strconv.ParseBool, distribution/reference, pkg/apis/policy/validation

/// Sysctls that belong to the IPC namespace of a pod; `kernel.shm` and `kernel.msg` stand for the
/// patterns `kernel.shm*` and `kernel.msg*`.
const IPC_SYSCTLS: &[&str] = &[
    "kernel.sem",
    "kernel.shm",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.msg",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
];
const NAMESPACED_PREFIXES: &[&str] = &["net.", "fs.mqueue."];
const LONGEST_SYSCTL: usize = 253;
const LONGEST_IMAGE_NAME: usize = 255;

/// Parses a boolean as Go does.
pub(super) fn go_boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The result of parsing an image name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageName {
    Plain,
    WithTagOrDigest,
    Invalid,
}

/// Parses `[registry/]path`, with or without `:tag` and `@digest`.
pub(super) fn image_name(text: &str) -> ImageName {
    let (named, digest) = match text.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (text, None),
    };
    let last_part = named.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match named[last_part..].split_once(':') {
        Some((_, tag)) => (&named[..named.len() - tag.len() - 1], Some(tag)),
        None => (named, None),
    };
    let valid = is_image_path(name)
        && name.len() <= LONGEST_IMAGE_NAME
        && tag.is_none_or(is_image_tag)
        && digest.is_none_or(is_image_digest);
    match (valid, tag.or(digest)) {
        (false, _) => ImageName::Invalid,
        (true, Some(_)) => ImageName::WithTagOrDigest,
        (true, None) => ImageName::Plain,
    }
}

fn is_image_path(name: &str) -> bool {
    if name.split('/').all(is_path_part) {
        return true;
    }
    match name.split_once('/') {
        Some((registry, path)) => is_registry(registry) && path.split('/').all(is_path_part),
        None => false,
    }
}

/// Small letters and digits, joined by one dot, one or two underscores, or any number of dashes.
fn is_path_part(part: &str) -> bool {
    let is_word = |each: char| each.is_ascii_lowercase() || each.is_ascii_digit();
    let edges = part.starts_with(is_word) && part.ends_with(is_word);
    edges
        && part.split(is_word).all(|separator| {
            matches!(separator, "" | "." | "_" | "__") || separator.chars().all(|each| each == '-')
        })
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.rfind(':') {
        Some(colon) if !registry.ends_with(']') => {
            (&registry[..colon], Some(&registry[colon + 1..]))
        }
        _ => (registry, None),
    };
    let port_is_number =
        port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    port_is_number && (is_bracketed_address(host) || host.split('.').all(is_host_part))
}

fn is_bracketed_address(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.is_some_and(|inner| {
        !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
    })
}

fn is_host_part(part: &str) -> bool {
    let is_word = |each: char| each.is_ascii_alphanumeric();
    part.starts_with(is_word)
        && part.ends_with(is_word)
        && part.chars().all(|each| is_word(each) || each == '-')
}

fn is_image_tag(tag: &str) -> bool {
    let is_word = |each: char| each.is_ascii_alphanumeric() || each == '_';
    tag.starts_with(is_word)
        && tag.len() <= 128
        && tag.chars().all(|each| is_word(each) || matches!(each, '.' | '-'))
}

fn is_image_digest(digest: &str) -> bool {
    let Some((algorithm, hash)) = digest.split_once(':') else { return false };
    let is_known_length = match algorithm {
        "sha256" => hash.len() == 64,
        "sha384" => hash.len() == 96,
        "sha512" => hash.len() == 128,
        _ => false,
    };
    is_known_length && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether the text is a sysctl name, separated by dots or slashes, with at most one `*` at its
/// end.
pub(super) fn is_sysctl_pattern(pattern: &str) -> bool {
    let is_word = |each: char| each.is_ascii_lowercase() || each.is_ascii_digit();
    let is_inner = |each: char| is_word(each) || matches!(each, '-' | '_');
    let (parents, last) = match pattern.rfind(['.', '/']) {
        Some(at) => (Some(&pattern[..at]), &pattern[at + 1..]),
        None => (None, pattern),
    };
    let parents_fit = parents.is_none_or(|parents| {
        parents.split(['.', '/']).all(|part| {
            part.starts_with(is_word) && part.ends_with(is_word) && part.chars().all(is_inner)
        })
    });
    let stem = last.strip_suffix('*').unwrap_or(last);
    let stem_fits = if stem.is_empty() {
        last == "*"
    } else {
        stem.starts_with(is_word) && stem.chars().all(is_inner)
    };
    let end_fits = last.ends_with(|each| is_word(each) || each == '*');
    pattern.len() <= LONGEST_SYSCTL && parents_fit && stem_fits && end_fits
}

/// Whether this sysctl is namespaced, so that a change stays inside the pod.
pub(super) fn is_namespaced_sysctl(pattern: &str) -> bool {
    let name = dotted(pattern);
    let stem = name.split('*').next().unwrap_or(&name);
    IPC_SYSCTLS.contains(&stem) || NAMESPACED_PREFIXES.iter().any(|prefix| stem.starts_with(prefix))
}

/// `net/ipv4/conf/eth0.1/x` as `net.ipv4.conf.eth0/1.x`: the first separator decides which form it
/// is.
fn dotted(name: &str) -> String {
    let slashes_first = name.find(['.', '/']).is_some_and(|at| name.as_bytes()[at] == b'/');
    if !slashes_first {
        return name.to_owned();
    }
    let swap = |each| match each {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}
