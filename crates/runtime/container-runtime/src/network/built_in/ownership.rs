//! Whose a bridge or a pod's link is, by what its maker wrote into its alias. Pure.
//!
//! | alias | whose |
//! |---|---|
//! | `keelson pods of ID`, `keelson pod SANDBOX of ID` | the root with this id |
//! | `keelson pods`, `keelson pod SANDBOX` | of a version that did not say: this root's, for a bridge's name is claimed |
//! | none, on a link called `keel…` | the same: its maker was killed before it wrote one |
//! | any other | of somebody else: never removed |

const BRIDGE: &str = "keelson pods";
const POD: &str = "keelson pod ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner<'a> {
    ThisRoot,
    /// Another root, with its id.
    Root(&'a str),
    /// No root.
    Nobody,
}

pub(super) fn bridge_alias(id: &str) -> String {
    format!("{BRIDGE} of {id}")
}

pub(super) fn pod_alias(sandbox: &str, id: &str) -> String {
    format!("{POD}{sandbox} of {id}")
}

pub(super) fn of_bridge<'a>(name: &str, alias: &'a str, id: &str) -> Owner<'a> {
    match alias.strip_prefix(BRIDGE) {
        Some("") => Owner::ThisRoot,
        Some(rest) => rest.strip_prefix(" of ").map_or(Owner::Nobody, |owner| of_id(owner, id)),
        None if alias.is_empty() && name.starts_with("keel") => Owner::ThisRoot,
        None => Owner::Nobody,
    }
}

/// Of a pair of links on a bridge of this root.
pub(super) fn of_pod<'a>(alias: &'a str, id: &str) -> Owner<'a> {
    match alias.strip_prefix(POD).map(|rest| rest.split_once(" of ")) {
        Some(Some((_, owner))) => of_id(owner, id),
        Some(None) => Owner::ThisRoot,
        None => Owner::Nobody,
    }
}

fn of_id<'a>(owner: &'a str, id: &str) -> Owner<'a> {
    if owner == id { Owner::ThisRoot } else { Owner::Root(owner) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_belong_to_the_root_that_wrote_their_alias() {
        let bridge = |name, alias| of_bridge(name, alias, "a1");
        let (own, other) = (bridge_alias("a1"), bridge_alias("b2"));
        assert_eq!(bridge("keelson0", &own), Owner::ThisRoot);
        assert_eq!(bridge("keelson0", &other), Owner::Root("b2"));
        assert_eq!(bridge("keelson0", "keelson pods"), Owner::ThisRoot);
        assert_eq!(bridge("keel-a1", ""), Owner::ThisRoot);
        assert_eq!(bridge("br0", ""), Owner::Nobody);
        assert_eq!(bridge("keelson0", "of the office"), Owner::Nobody);
        assert_eq!(bridge("keelson0", "keelson podsy"), Owner::Nobody);
        let pod = |alias| of_pod(alias, "a1");
        let (own, other) = (pod_alias("5a", "a1"), pod_alias("5a", "b2"));
        assert_eq!(pod(&own), Owner::ThisRoot);
        assert_eq!(pod(&other), Owner::Root("b2"));
        assert_eq!(pod("keelson pod 5a"), Owner::ThisRoot);
        assert_eq!(pod(""), Owner::Nobody);
    }
}
