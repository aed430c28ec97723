//! Paths that stay in a volume, and those that do not.

use super::*;

#[test]
fn paths() {
    for good in ["a", "a/b", ".hidden", "a..b", "a/..b", &"n".repeat(255)] {
        assert_eq!(check_path(good), Ok(()), "{good}");
    }
    let long = "n/".repeat(2049);
    let name = "n".repeat(256);
    for bad in
        ["", "/", "/a", "..", "../a", "a/../b", "a/..", "..data", "..a/b", "a\0b", &long, &name]
    {
        assert!(check_path(bad).is_err(), "{bad}");
    }
}
