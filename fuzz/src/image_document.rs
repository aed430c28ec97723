//! The fuzz target `image-document`; what it asserts stands in the crate fuzz-targets.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::image_document(input));
