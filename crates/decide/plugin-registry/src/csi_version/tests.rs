//! Versions as a table.

use super::*;

#[test]
fn the_highest_version_1_counts_in_any_order() {
    let cases: [(&[&str], Result<&str, &str>); 9] = [
        (&["1.0.0"], Ok("1.0.0")),
        (&["1.0.0", "1.10.0", "1.9.0"], Ok("1.10.0")),
        (&["v1.2.3-rc1", "0.3.0"], Ok("1.2.3")),
        (&["2.0.0", "1.1"], Ok("1.1")),
        (&["0.3.0"], Err("its highest version is 0.3.0, must be v1.x")),
        (&["2.0.0"], Err("none of the versions [\"2.0.0\"] is supported, must be v1.x")),
        (&["1"], Err("none of the versions [\"1\"] is supported, must be v1.x")),
        (
            &["", "abc", "1..2", "01.0"],
            Err(
                "none of the versions [\"\", \"abc\", \"1..2\", \"01.0\"] is supported, must be v1.x",
            ),
        ),
        (&[], Err("it returned an empty list for supported versions")),
    ];
    for (versions, expected) in cases {
        let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
        let found = highest_supported(&versions).map(|it| it.to_string());
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{versions:?}");
    }
}

#[test]
fn missing_numbers_are_zero() {
    let version = |text| CsiVersion::parse(text).expect("a version");
    assert_eq!(version("1.0").cmp(&version("1.0.0")), Ordering::Equal);
    assert!(version("1.0.1") > version("1.0"));
    assert!(version("1.2") < version("1.10"));
}
