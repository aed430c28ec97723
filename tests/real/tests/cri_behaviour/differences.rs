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
        Which::Keelson,
        "pid_namespace_of_the_pod",
        "defect of pod-supervisor: a static init aborts, std wants /dev/null for closed descriptors",
    ),
    (
        Which::Keelson,
        "log_of_a_line_without_an_end_is_partial",
        "defect of pod-supervisor: the rest without a line end is written with F instead of P",
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
