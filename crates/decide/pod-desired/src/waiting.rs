//! Pods that are wanted and have no UID yet, and what they keep from being taken for unwanted.
//!
//! Rule: a manifest that waits for its UID may adopt a pod of its own name, so no such pod may end; a
//! pod whose name nobody knows yet may turn out to be one. Every other pod is no matter of those who
//! wait.

use std::collections::BTreeSet;

use pod_model::pod::Pod;

#[cfg(test)]
mod tests;

/// The names of pods that wait for their UIDs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitingPods {
    /// Namespace and name.
    names: BTreeSet<(String, String)>,
}

impl WaitingPods {
    pub fn new<'a>(pods: impl Iterator<Item = &'a Pod>) -> Self {
        let name = |pod: &Pod| (pod.metadata.namespace.to_string(), pod.metadata.name.to_string());
        Self { names: pods.map(name).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a pod that runs under this name may turn out to be one that waits.
    pub fn may_adopt(&self, namespace: &str, name: &str) -> bool {
        if namespace.is_empty() || name.is_empty() {
            return !self.is_empty();
        }
        self.names.contains(&(namespace.to_owned(), name.to_owned()))
    }
}
