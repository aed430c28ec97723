//! Which sandboxes and containers a list asks for.
//!
//! Pure. An id in a filter may be the start of one, as everywhere; a selector matches when every
//! label in it is there with that value.

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

/// `id` is whole where it was the start of one.
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
