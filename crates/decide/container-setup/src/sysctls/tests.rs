//! The resulting sysctls.

use super::*;
use crate::testing::one_with;

#[test]
fn all_are_told_under_their_usual_names() {
    let asked = "securityContext: {sysctls: [{name: kernel/shm_rmid_forced, value: \"1\"}, \
                 {name: net.core.somaxconn, value: \"9\"}]},";
    let told = of_pod(&one_with(asked, ""));
    let expected = [("kernel.shm_rmid_forced", "1"), ("net.core.somaxconn", "9")];
    assert_eq!(told, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert!(of_pod(&one_with("", "")).is_empty());
}
