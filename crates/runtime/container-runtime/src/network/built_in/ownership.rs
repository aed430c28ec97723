//! The root that owns a bridge or a pod's link, by the alias that its creator wrote. Pure.
//!
//! | alias | owner |
//! |---|---|
//! | `keelson pods of ID`, `keelson pod SANDBOX of ID` | the root with this id |
//! | `keelson pods`, `keelson pod SANDBOX` | this root, whose older version did not write it |
//! | none, on a link called `keel…` | this root, whose server was killed before it wrote one |
//! | any other | no root: never removed |

const BRIDGE: &str = "keelson pods";
const POD: &str = "keelson pod ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkOwner<'a> {
    ThisRoot,
    /// Another root, with its id.
    Root(&'a str),
    /// Not made by a root.
    NoRoot,
}

pub(super) fn bridge_alias(id: &str) -> String {
    format!("{BRIDGE} of {id}")
}

pub(super) fn pod_alias(sandbox: &str, id: &str) -> String {
    format!("{POD}{sandbox} of {id}")
}

pub(super) fn of_bridge<'a>(name: &str, alias: &'a str, id: &str) -> LinkOwner<'a> {
    match alias.strip_prefix(BRIDGE) {
        Some("") => LinkOwner::ThisRoot,
        Some(rest) => rest.strip_prefix(" of ").map_or(LinkOwner::NoRoot, |owner| of_id(owner, id)),
        None if alias.is_empty() && name.starts_with("keel") => LinkOwner::ThisRoot,
        None => LinkOwner::NoRoot,
    }
}

/// The owner of a pod's veth pair on a bridge of this root.
pub(super) fn of_pod<'a>(alias: &'a str, id: &str) -> LinkOwner<'a> {
    match alias.strip_prefix(POD).map(|rest| rest.split_once(" of ")) {
        Some(Some((_, owner))) => of_id(owner, id),
        Some(None) => LinkOwner::ThisRoot,
        None => LinkOwner::NoRoot,
    }
}

fn of_id<'a>(owner: &'a str, id: &str) -> LinkOwner<'a> {
    if owner == id { LinkOwner::ThisRoot } else { LinkOwner::Root(owner) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_belong_to_the_root_that_wrote_their_alias() {
        let bridge = |name, alias| of_bridge(name, alias, "a1");
        let (own, other) = (bridge_alias("a1"), bridge_alias("b2"));
        assert_eq!(bridge("keelson0", &own), LinkOwner::ThisRoot);
        assert_eq!(bridge("keelson0", &other), LinkOwner::Root("b2"));
        assert_eq!(bridge("keelson0", "keelson pods"), LinkOwner::ThisRoot);
        assert_eq!(bridge("keel-a1", ""), LinkOwner::ThisRoot);
        assert_eq!(bridge("br0", ""), LinkOwner::NoRoot);
        assert_eq!(bridge("keelson0", "of the office"), LinkOwner::NoRoot);
        assert_eq!(bridge("keelson0", "keelson podsy"), LinkOwner::NoRoot);
        let pod = |alias| of_pod(alias, "a1");
        let (own, other) = (pod_alias("5a", "a1"), pod_alias("5a", "b2"));
        assert_eq!(pod(&own), LinkOwner::ThisRoot);
        assert_eq!(pod(&other), LinkOwner::Root("b2"));
        assert_eq!(pod("keelson pod 5a"), LinkOwner::ThisRoot);
        assert_eq!(pod(""), LinkOwner::NoRoot);
    }
}
