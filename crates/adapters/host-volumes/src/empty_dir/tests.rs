//! Sizes of huge pages.

use super::bytes;

#[test]
fn sizes_are_read_as_the_api_and_the_kernel_write_them() {
    for (text, expected) in [
        ("2Mi", Some(2 << 20)),
        ("2MB", Some(2 << 20)),
        ("64kB", Some(64 << 10)),
        ("1Gi", Some(1 << 30)),
        ("2097152", Some(2 << 20)),
        ("0", None),
        ("Mi", None),
        ("2Ti", None),
        // Overflows any integer.
        ("18446744073709551615Ki", None),
        ("18446744073709551616", None),
    ] {
        assert_eq!(bytes(text), expected, "{text}");
    }
}
