//! The resulting sysctls.

use super::*;
use crate::testing::one_with;

#[test]
fn all_sysctls_have_their_usual_names() {
    let asked = "securityContext: {sysctls: [{name: kernel/shm_rmid_forced, value: \"1\"}, \
                 {name: net.core.somaxconn, value: \"9\"}]},";
    let sysctls_of = of_pod(&one_with(asked, ""));
    let expected = [("kernel.shm_rmid_forced", "1"), ("net.core.somaxconn", "9")];
    assert_eq!(
        sysctls_of,
        expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    );
    assert!(of_pod(&one_with("", "")).is_empty());
}
