//! Where a runtime does not do what a case asks, and why that is accepted.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Containerd,
    Keelson,
}

const DIFFERENCES: &[(Which, &str, &str)] = &[
    (
        Which::Containerd,
        "sandbox_resources_can_be_updated",
        "containerd 2.2 answers \"not implemented yet\"; the v1.36 API has the call",
    ),
    (
        Which::Containerd,
        "exec_at_its_limit_kills_the_whole_tree",
        "containerd kills the command's first process and then waits for whoever holds its output",
    ),
];

pub(crate) fn reason(which: Which, case: &str) -> Option<&'static str> {
    DIFFERENCES
        .iter()
        .find(|(runtime, name, _)| *runtime == which && *name == case)
        .map(|(.., reason)| *reason)
}
