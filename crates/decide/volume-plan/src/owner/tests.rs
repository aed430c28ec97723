//! One user, several, none.

use super::*;
use crate::testing::pod;

#[test]
fn the_single_user() {
    for (spec, expected) in [
        ("{containers: [{name: a}]}", None),
        ("{securityContext: {runAsUser: 7}, containers: [{name: a}, {name: b}]}", Some(7)),
        ("{containers: [{name: a, securityContext: {runAsUser: 7}}, {name: b}]}", None),
        (
            "{securityContext: {runAsUser: 7}, initContainers: [{name: i, securityContext: {runAsUser: 8}}], \
             containers: [{name: a}]}",
            None,
        ),
        ("{securityContext: {runAsUser: 0}, containers: [{name: a}]}", Some(0)),
        ("{securityContext: {runAsUser: 4294967295}, containers: [{name: a}]}", None),
        ("{securityContext: {runAsUser: -1}, containers: [{name: a}]}", None),
    ] {
        assert_eq!(single_user(&pod(spec)), expected, "{spec}");
    }
}
