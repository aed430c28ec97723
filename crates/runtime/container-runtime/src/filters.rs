//! Filters of list calls for sandboxes and containers.
//!
//! Pure. An id in a filter may be a prefix, as everywhere; a selector matches if the object has all
//! of its labels with the same values.

use std::collections::BTreeMap;

use cri_wire::v1;

#[cfg(test)]
mod tests;

pub(crate) fn labels_match(
    labels: &BTreeMap<String, String>,
    selector: &BTreeMap<String, String>,
) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// `id` is the full id; a prefix has been resolved.
pub(crate) fn sandbox_matches(
    sandbox: &v1::PodSandbox,
    filter: &v1::PodSandboxFilter,
    id: &str,
) -> bool {
    (id.is_empty() || sandbox.id == id)
        && filter.state.as_ref().is_none_or(|wanted| wanted.state == sandbox.state)
        && labels_match(&sandbox.labels, &filter.label_selector)
}

pub(crate) fn container_matches(
    container: &v1::Container,
    filter: &v1::ContainerFilter,
    (id, sandbox_id): (&str, &str),
) -> bool {
    (id.is_empty() || container.id == id)
        && (sandbox_id.is_empty() || container.pod_sandbox_id == sandbox_id)
        && filter.state.as_ref().is_none_or(|wanted| wanted.state == container.state)
        && labels_match(&container.labels, &filter.label_selector)
}
