//! Where a runtime does not do what a case asks, and why that is accepted.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Containerd,
    Keelson,
}

const DIFFERENCES: &[(Which, &str, &str)] = &[];

pub(crate) fn reason(which: Which, case: &str) -> Option<&'static str> {
    DIFFERENCES
        .iter()
        .find(|(runtime, name, _)| *runtime == which && *name == case)
        .map(|(.., reason)| *reason)
}
