//! Whether an image name means the tag `latest`.
//!
//! The rule it keeps: a name that is no image name, or that has a digest, has no such tag; a name
//! without tag and digest has it.

const LONGEST_PATH: usize = 255;

/// Whether the image is pulled by the moving tag.
pub(super) fn is_latest(image: &str) -> bool {
    matches!(tag_of(image), Some("latest"))
}

/// The name with the tag that it means, if it has neither tag nor digest; nothing where it is no
/// image name. The rest is left as it was written: a short name stays short.
pub fn with_default_tag(image: &str) -> Option<String> {
    let before_digest = image.split_once('@').map_or(image, |(name, _)| name);
    let has_digest = before_digest.len() < image.len();
    let digest_is_sound = image.split_once('@').is_none_or(|(_, digest)| is_digest(digest));
    let tag = tag_of(before_digest).filter(|_| digest_is_sound)?;
    let tagged = before_digest.ends_with(&format!(":{tag}"));
    Some(if has_digest || tagged { image.to_owned() } else { format!("{image}:{tag}") })
}

/// The tag of an image name, `latest` where it has neither tag nor digest; nothing where it has
/// only a digest or is no image name.
fn tag_of(image: &str) -> Option<&str> {
    // A bare identifier of 64 hexadecimal digits is not taken for a name.
    let is_identifier =
        image.len() == 64 && image.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_identifier {
        return None;
    }
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    if !digest.is_none_or(is_digest) {
        return None;
    }
    // A colon after the last slash begins a tag, any other one a port.
    let last = rest.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match rest.get(last..)?.split_once(':') {
        Some((end, tag)) => (rest.get(..last + end.len())?, Some(tag)),
        None => (rest, None),
    };
    if !is_name(name) || !tag.is_none_or(is_tag) {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => Some(tag),
        (None, None) => Some("latest"),
        (None, Some(_)) => None,
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A name: path components in lowercase letters, with a registry before them if the first part
/// looks like one.
fn is_name(name: &str) -> bool {
    let (registry, path) = match name.split_once('/') {
        Some((first, path)) if looks_like_registry(first) => (Some(first), path),
        _ => (None, name),
    };
    // A name of one part, and one below Docker's own registry, is completed with `library/`.
    let own = matches!(registry, None | Some("docker.io" | "index.docker.io"));
    let prefix = if own && !path.contains('/') { "library/".len() } else { 0 };
    registry.is_none_or(is_registry)
        && path.split('/').all(is_path_component)
        && prefix + path.len() <= LONGEST_PATH
}

fn looks_like_registry(text: &str) -> bool {
    text == "localhost"
        || text.contains(['.', ':'])
        || text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    port.is_none_or(digits) && is_host(host)
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return !address.is_empty()
            && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
    }
    host.split('.').all(|label| {
        let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        edge(label.bytes().next())
            && edge(label.bytes().next_back())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// Letters and digits, joined by one dot, one or two underscores, or any number of hyphens.
fn is_path_component(text: &str) -> bool {
    let word = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z');
    let bytes = text.as_bytes();
    if !bytes.first().is_some_and(word) || !bytes.last().is_some_and(word) {
        return false;
    }
    bytes
        .split(word)
        .filter(|gap| !gap.is_empty())
        .all(|gap| matches!(gap, b"." | b"_" | b"__") || gap.iter().all(|byte| *byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::tag_of;

    #[test]
    fn tags() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (image, tag) in [
            ("busybox", Some("latest")),
            ("busybox:latest", Some("latest")),
            ("busybox:1.36", Some("1.36")),
            ("example.com:5000/a/b", Some("latest")),
            ("example.com:5000/a/b:v1", Some("v1")),
            ("localhost/a", Some("latest")),
            ("[::1]:5000/a", Some("latest")),
            ("a__b/c-d.e", Some("latest")),
            (&format!("busybox@{digest}"), None),
            (&format!("busybox:latest@{digest}"), Some("latest")),
            ("busybox@sha256:abc", None),
            ("", None),
            ("Busybox", None),
            ("a//b", None),
            ("a___b", None),
            ("a.-b", None),
            ("busybox:", None),
            ("busybox: latest", None),
            (&"a".repeat(64), None),
            (&"x".repeat(247), Some("latest")),
            (&"x".repeat(248), None),
            (&format!("example.com/{}", "x".repeat(255)), Some("latest")),
            (&format!("example.com/{}", "x".repeat(256)), None),
        ] {
            assert_eq!(tag_of(image), tag, "{image}");
        }
    }
}
