//! Rules for the format of single values: ports, variables, keys, paths, file modes, sysctls,
//! drivers.
//!
//! Each error is one sentence. Rules for names of objects and labels are those of the pod model.

use super::findings::{FieldPath, PodFindings};

pub(crate) type FormatResult = Result<(), &'static str>;

/// The largest user and group number.
pub(super) const MAX_ID: i64 = i32::MAX as i64;

fn format_result(fits: bool, why: &'static str) -> FormatResult {
    if fits { Ok(()) } else { Err(why) }
}

pub(super) fn port_name(name: &str) -> FormatResult {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let fits = (1..=15).contains(&name.len())
        && name.bytes().all(allowed)
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.contains("--")
        && !name.starts_with('-')
        && !name.ends_with('-');
    format_result(
        fits,
        "expected 1 to 15 small letters, digits and single inner hyphens, with a letter among them",
    )
}

/// Any printable ASCII but the equals sign.
pub(super) fn variable_name(name: &str) -> FormatResult {
    let fits =
        !name.is_empty() && name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
    format_result(fits, "expected printable ASCII characters other than '='")
}

/// A key of a ConfigMap or a Secret.
pub(crate) fn config_key(key: &str) -> FormatResult {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = (1..=253).contains(&key.len())
        && key.bytes().all(allowed)
        && key != "."
        && !key.starts_with("..");
    format_result(
        fits,
        "expected at most 253 letters, digits, '-', '_' and '.', not '.' and not beginning with '..'",
    )
}

pub(super) fn header_name(name: &str) -> FormatResult {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let fits = !name.is_empty() && name.bytes().all(allowed);
    format_result(fits, "expected letters, digits and hyphens")
}

/// Segments of lowercase letters, digits, `-` and `_`, between dots or slashes.
pub(super) fn sysctl_name(name: &str) -> FormatResult {
    let edge =
        |byte: Option<u8>| byte.is_some_and(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'));
    let segment = |segment: &str| {
        edge(segment.bytes().next())
            && edge(segment.bytes().next_back())
            && segment.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
    };
    let fits = name.len() <= 253 && name.split(['.', '/']).all(segment);
    format_result(
        fits,
        "expected at most 253 small letters, digits, '-' and '_' in segments between '.' or '/'",
    )
}

/// A search domain: a subdomain whose labels may hold underscores.
pub(super) fn search_domain(domain: &str) -> FormatResult {
    let label = |label: &str| {
        let word = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9');
        let label = label.strip_prefix('_').unwrap_or(label);
        label.bytes().next().is_some_and(word)
            && label.bytes().next_back().is_some_and(word)
            && label.bytes().all(|byte| word(byte) || matches!(byte, b'-' | b'_'))
    };
    let fits = domain.len() <= 253 && domain.split('.').all(label);
    format_result(
        fits,
        "expected at most 253 small letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    )
}

/// A path that does not lead out of its root.
pub(super) fn check_descending(findings: &mut PodFindings, path: &FieldPath, value: &str) {
    if value.starts_with('/') {
        findings.invalid(path, value, "expected a relative path");
    }
    check_no_backsteps(findings, path, value);
}

pub(super) fn check_no_backsteps(findings: &mut PodFindings, path: &FieldPath, value: &str) {
    if has_backsteps(value) {
        findings.invalid(path, value, "the path may not contain '..'");
    }
}

pub(super) fn has_backsteps(value: &str) -> bool {
    value.split('/').any(|part| part == "..")
}

/// A path below its root that does not collide with the names used by atomic volume writers.
pub(super) fn check_local_path(findings: &mut PodFindings, path: &FieldPath, value: &str) {
    check_descending(findings, path, value);
    if value.starts_with("..") && !value.starts_with("../") {
        findings.invalid(path, value, "the path may not begin with '..'");
    }
}

pub(super) fn check_file_mode(findings: &mut PodFindings, path: &FieldPath, mode: Option<i32>) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        findings.invalid(path, mode, "expected a file mode from 0 to 0777 (octal)");
    }
}

pub(super) fn check_id(findings: &mut PodFindings, path: &FieldPath, id: Option<i64>) {
    if let Some(id) = id {
        findings.range(path, id, 0..=MAX_ID);
    }
}

pub(super) fn check_ip(findings: &mut PodFindings, path: &FieldPath, value: &str, strict: bool) {
    if pod_model::parse_ip(value).is_err() {
        findings.invalid(path, value, "expected an IP address");
        return;
    }
    if !strict {
        return;
    }
    // The plain parser takes no leading zeros; a mapped address is IPv4 in disguise.
    match value.parse::<std::net::IpAddr>() {
        Err(_) => findings.invalid(path, value, "the address may not have leading zeros"),
        Ok(std::net::IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            findings.invalid(path, value, "expected the IPv4 address itself, not its IPv6 form");
        }
        Ok(_) => {}
    }
}

/// The name of a certificate signer: a domain and a path.
pub(super) fn signer_name(name: &str) -> FormatResult {
    let Some((domain, path)) = name.split_once('/') else {
        return Err("expected a domain and a path, such as example.com/signer");
    };
    let labels: Vec<&str> = domain.split('.').collect();
    let fits = domain.len() <= 253
        && labels.len() >= 2
        && labels.iter().all(|label| pod_model::check_dns_label(label).is_ok())
        && path.split('.').all(|part| pod_model::check_dns_subdomain(part).is_ok())
        && name.len() <= 253 + 253 + 63 + 2;
    format_result(fits, "expected a domain of two or more labels and a path of such names")
}

/// The rule for a name prefix: a hyphen may stand at its end.
pub(super) fn check_name_prefix(name: &str) -> Result<(), pod_model::NameError> {
    let whole = name
        .strip_suffix('-')
        .and_then(|start| start.get(..start.len().checked_sub(1)?))
        .map_or_else(|| name.to_owned(), |start| format!("{start}a"));
    pod_model::check_dns_subdomain(&whole)
}
