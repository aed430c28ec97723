//! The sysctls that a pod gets.

use super::*;
use crate::testing::one_with;

#[test]
fn sysctl_names_are_written_with_dots() {
    let security_context = "securityContext: {sysctls: [\
                            {name: kernel/shm_rmid_forced, value: \"1\"}, \
                            {name: net.core.somaxconn, value: \"9\"}]},";
    let sysctls = of_pod(&one_with(security_context, ""));
    let expected = [("kernel.shm_rmid_forced", "1"), ("net.core.somaxconn", "9")];
    assert_eq!(sysctls, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert!(of_pod(&one_with("", "")).is_empty());
}
