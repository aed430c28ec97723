//! `/etc/passwd` and `/etc/group` of an image.

use container_runtime::{UserTables, resolve_identity};
use cri_wire::v1;

/// Between the parts of an input; no byte of a text.
const NEXT: u8 = 0xff;

/// Any bytes as an image's passwd and group files and a user that the image or the pod names: a
/// user with at least one group and a home directory, or an error of one line; always the same for
/// the same files. A numeric user is that number whatever the files say: admission of pods relies
/// on it.
pub fn users(input: &[u8]) {
    let mut parts = input.split(|byte| *byte == NEXT);
    let mut next = || parts.next().map(|part| String::from_utf8_lossy(part).into_owned());
    let tables = UserTables { passwd: next(), group: next() };
    let user = next().unwrap_or_default();
    let named = next().unwrap_or_default();
    let policies = [v1::SupplementalGroupsPolicy::Merge, v1::SupplementalGroupsPolicy::Strict];
    for policy in policies {
        let security = v1::LinuxContainerSecurityContext {
            run_as_username: named.clone(),
            supplemental_groups: vec![7],
            supplemental_groups_policy: policy.into(),
            ..Default::default()
        };
        let identity = match resolve_identity(&security, &user, &tables) {
            Ok(identity) => identity,
            Err(failure) => {
                let words = failure.to_string();
                assert!(!words.is_empty() && !words.contains('\n'), "not one line: {words}");
                continue;
            }
        };
        assert!(identity.groups.contains(&identity.gid), "not in its own group");
        assert!(identity.groups.contains(&7), "without what the pod asked for");
        assert!(identity.groups.is_sorted(), "groups out of order");
        assert!(!identity.home.is_empty() && !identity.home.contains(['\n', ':']), "its home");
        let asked = if named.is_empty() { &user } else { &named };
        let (name, group) = asked.split_once(':').unwrap_or((asked, ""));
        if let Ok(number) = name.parse::<i64>() {
            assert_eq!(i64::from(identity.uid), number, "another user than was asked for");
        }
        if let Ok(number) = group.parse::<i64>() {
            assert_eq!(i64::from(identity.gid), number, "another group than was asked for");
        }
        // Beyond, the kernel would take one for "as it is".
        let ids = [identity.uid, identity.gid].into_iter().chain(identity.groups.iter().copied());
        assert!(ids.into_iter().all(|id| i32::try_from(id).is_ok()), "no id: {identity:?}");
        if policy == v1::SupplementalGroupsPolicy::Strict {
            assert!(identity.groups.len() <= 2, "groups of the image: {:?}", identity.groups);
        }
        let again = resolve_identity(&security, &user, &tables).ok();
        assert_eq!(again, Some(identity), "read twice");
    }
}
