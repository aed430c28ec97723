//! The check works here and leaves nothing behind.

use super::{TEST_ERRNO, self_check};

#[test]
fn the_self_check_observes_its_filter_and_does_not_affect_the_caller() {
    let before = std::fs::read_to_string("/proc/thread-self/status").expect("own status");
    let report = self_check().expect("filters work where tests run");
    assert_eq!(report.errno, i32::from(TEST_ERRNO));
    assert!(report.instructions > 4);
    std::env::current_dir().expect("getcwd works as before");
    let after = std::fs::read_to_string("/proc/thread-self/status").expect("own status");
    let of_interest = |status: &str| -> Vec<String> {
        let kept = |line: &&str| line.starts_with("NoNewPrivs") || line.starts_with("Seccomp");
        status.lines().filter(kept).map(ToOwned::to_owned).collect()
    };
    assert_eq!(of_interest(&before), of_interest(&after));
    assert!(!of_interest(&after).is_empty());
}
