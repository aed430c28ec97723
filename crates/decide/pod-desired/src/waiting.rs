//! Desired pods without a UID yet, and the running pods that must not be treated as orphans because
//! of them.
//!
//! Rule: a manifest that waits for its UID may adopt a running pod of its own name, so such a pod
//! must not be stopped; neither may a pod whose name is not known yet. All other pods are
//! unaffected.

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

    /// Whether a running pod of this name may be adopted by a waiting one.
    pub fn may_adopt(&self, namespace: &str, name: &str) -> bool {
        if namespace.is_empty() || name.is_empty() {
            return !self.is_empty();
        }
        self.names.contains(&(namespace.to_owned(), name.to_owned()))
    }
}
