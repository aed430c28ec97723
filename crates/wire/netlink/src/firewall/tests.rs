//! What can be tested without a kernel; the rules themselves are tested in a namespace, by root.

use super::*;

#[test]
fn prefix_lengths_become_masks() {
    for (prefix, expected) in [
        (0, [0, 0, 0, 0]),
        (8, [255, 0, 0, 0]),
        (12, [255, 240, 0, 0]),
        (16, [255, 255, 0, 0]),
        (31, [255, 255, 255, 254]),
        (32, [255; 4]),
    ] {
        assert_eq!(expressions::prefix_mask(4, prefix), expected, "/{prefix}");
    }
}
