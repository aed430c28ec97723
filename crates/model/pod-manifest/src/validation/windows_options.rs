//! Rules for the options of Windows containers.

use pod_model::check_dns_subdomain;
use pod_model::pod::security::WindowsOptions;

use super::findings::{FieldPath, PodFindings};

const LONGEST_CREDENTIAL_SPEC: usize = 64 * 1024;
const LONGEST_DOMAIN: usize = 255;
const LONGEST_USER: usize = 104;

pub(super) fn check(options: &WindowsOptions, findings: &mut PodFindings, path: &FieldPath) {
    if let Some(name) = &options.gmsa_credential_spec_name {
        findings.name(&path.child("gmsaCredentialSpecName"), name, check_dns_subdomain(name));
    }
    if let Some(spec) = &options.gmsa_credential_spec
        && !(1..=LONGEST_CREDENTIAL_SPEC).contains(&spec.len())
    {
        let why = format!("expected 1 to {LONGEST_CREDENTIAL_SPEC} bytes");
        findings.forbidden(&path.child("gmsaCredentialSpec"), why);
    }
    if let Some(name) = &options.run_as_user_name
        && let Err(why) = user_name(name)
    {
        findings.invalid(&path.child("runAsUserName"), name, why);
    }
}

fn user_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("expected a name");
    }
    if name.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("may not contain control characters");
    }
    let (domain, user) = match name.split_once('\\') {
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    if user.contains('\\') {
        return Err("may contain one backslash");
    }
    if !domain.is_none_or(is_domain) {
        return Err("expected a NetBIOS or DNS name before the backslash");
    }
    let odd = |each: char| "\"/:;|=,+*?<>@[]".contains(each);
    if user.is_empty() || user.len() > LONGEST_USER || user.contains(odd) {
        return Err("expected a user name of 1 to 104 characters without \"/\\:;|=,+*?<>@[]");
    }
    if user.chars().all(|each| matches!(each, '.' | ' ')) {
        return Err("expected a user name of more than dots and spaces");
    }
    Ok(())
}

fn is_domain(domain: &str) -> bool {
    domain.len() <= LONGEST_DOMAIN && (is_net_bios(domain) || is_dns(domain))
}

fn is_net_bios(domain: &str) -> bool {
    let odd = |each: char| "\\/:*?\"<>|".contains(each);
    (1..=15).contains(&domain.chars().count()) && !domain.contains(odd) && !domain.starts_with('.')
}

fn is_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        (1..=63).contains(&label.len())
            && edge(label.bytes().next())
            && edge(label.bytes().next_back())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}
