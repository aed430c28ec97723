//! The counting, on lines as the test harness prints them.

use super::*;

#[test]
fn counts_are_read_from_the_harness() {
    let mut counts = TestCounts::default();
    for line in [
        "running 3 tests",
        "test a::b ... ok",
        "test a::c ... FAILED",
        "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.01s",
        "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
    ] {
        counts.read_line(line);
    }
    let expected = TestCounts { passed: 13, failed: 1, ignored: 1, failures: vec!["a::c".into()] };
    assert_eq!(counts, expected);
}

#[test]
fn the_last_line_is_plain() {
    let mut tally = CheckTally::default();
    tally.add(&TestCounts { passed: 7, failed: 0, ignored: 0, failures: vec![] });
    tally.check("planted", || anyhow::bail!("no"));
    let closing = tally.closing(2);
    assert_eq!(closing.lines().last(), Some("7 passed, 1 failed"));
    assert!(closing.contains("failed: planted"));
    assert!(closing.contains("could not run: 2"));
}
