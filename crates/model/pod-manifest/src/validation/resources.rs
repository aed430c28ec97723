//! Rules for amounts: names of resources, requests against limits, huge pages, claims.

use std::collections::BTreeSet;

use pod_model::pod::resources::{
    CPU, HUGE_PAGES_PREFIX, MEMORY, ResourceClaim, ResourceList, ResourceRequirements,
    is_pod_level_resource,
};
use pod_model::{Quantity, check_dns_label, check_qualified_name};

use super::findings::{FieldPath, PodFindings};

const CONTAINER_RESOURCES: [&str; 3] = [CPU, MEMORY, "ephemeral-storage"];
/// Names without a domain that mean something somewhere in the API.
const STANDARD_RESOURCES: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
const COUNTED_RESOURCES: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// The owner of the resources.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NameRules {
    Container,
    Pod,
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES_PREFIX)
}

/// Whether a name is one of Kubernetes' own.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a resource may be requested below its limit.
pub(crate) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && check_qualified_name(&format!("requests.{name}")).is_ok()
}

pub(super) fn check(
    requirements: &ResourceRequirements,
    rules: NameRules,
    claim_names: Option<&BTreeSet<&str>>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    check_list(&requirements.limits, rules, findings, &limits);
    check_list(&requirements.requests, rules, findings, &requests);
    for (name, amount) in requirements.requests.iter() {
        match requirements.limits.get(name) {
            Some(limit) if amount != limit && !is_overcommit_allowed(name) => {
                let why = format!("expected the {name} limit of {limit}");
                findings.invalid(&requests, amount, why);
            }
            Some(limit) if amount > limit => {
                let why = format!("expected at most the {name} limit of {limit}");
                findings.invalid(&requests, amount, why);
            }
            None if !is_overcommit_allowed(name) => {
                findings.forbidden(&limits, format!("{name} needs a limit"));
            }
            _ => {}
        }
    }
    let names = || requirements.limits.keys().chain(requirements.requests.keys());
    if names().any(is_huge_pages) && !names().any(|name| name == CPU || name == MEMORY) {
        findings.forbidden(path, "huge pages need cpu or memory beside them");
    }
    check_claims(&requirements.claims, claim_names, findings, &path.child("claims"));
}

fn check_list(list: &ResourceList, rules: NameRules, findings: &mut PodFindings, path: &FieldPath) {
    for (name, amount) in list.iter() {
        let path = path.key(name);
        check_name(name, rules, findings, &path);
        check_amount(name, amount, findings, &path);
        if is_huge_pages(name) && !is_multiple_of_page(name, amount) {
            findings.invalid(&path, amount, "expected a multiple of the page size in the name");
        }
    }
}

fn check_name(name: &str, rules: NameRules, findings: &mut PodFindings, path: &FieldPath) {
    if let Err(diagnostic) = check_qualified_name(name) {
        findings.invalid(path, name, diagnostic.to_string());
        return;
    }
    let plain = !name.contains('/');
    let standard = STANDARD_RESOURCES.contains(&name)
        || is_huge_pages(name)
        || name.starts_with("requests.hugepages-");
    if plain && !standard {
        findings.invalid(path, name, "expected a known resource or a name with a domain");
        return;
    }
    match rules {
        NameRules::Pod if !is_pod_level_resource(name) => {
            findings.unsupported(path, name, &["cpu", "memory", "hugepages-*"]);
        }
        NameRules::Container
            if plain && !CONTAINER_RESOURCES.contains(&name) && !is_huge_pages(name) =>
        {
            findings.invalid(path, name, "expected a resource that containers have");
        }
        NameRules::Container if !is_native(name) && !is_extended(name) => {
            findings.invalid(path, name, "expected the name of an extended resource");
        }
        _ => {}
    }
}

pub(super) fn check_amount(
    name: &str,
    amount: &Quantity,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    if amount.sign() < 0 {
        findings.invalid(path, amount, "expected zero or more");
    }
    let counted = COUNTED_RESOURCES.contains(&name) || is_extended(name);
    if counted && amount.milli_value() % 1000 != 0 {
        findings.invalid(path, amount, "expected a whole number");
    }
}

fn is_multiple_of_page(name: &str, amount: &Quantity) -> bool {
    let Ok(page) = Quantity::parse(name.strip_prefix(HUGE_PAGES_PREFIX).unwrap_or_default()) else {
        return false;
    };
    let whole = page.sign() > 0 && page.milli_value() % 1000 == 0;
    whole && page.value() != 0 && amount.value() % page.value() == 0
}

fn check_claims(
    claims: &[ResourceClaim],
    known: Option<&BTreeSet<&str>>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    // A claim is used as a whole or by its requests, each once.
    let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (&*claim.name, &*claim.request);
        if !findings.require(name, &path) {
            continue;
        }
        if used.contains(&(name, "")) {
            findings.duplicate(&path, name);
        } else {
            if !request.is_empty() {
                findings.name(&path.child("request"), request, check_dns_label(request));
            }
            let clash = if request.is_empty() {
                used.iter().any(|(other, _)| *other == name)
            } else {
                used.contains(&(name, request))
            };
            if clash {
                findings.duplicate(&path, format!("{name}/{request}"));
            }
            used.insert((name, request));
        }
        if !known.is_some_and(|known| known.contains(name)) {
            findings.invalid(&path, name, "expected a name of spec.resourceClaims");
        }
    }
}
