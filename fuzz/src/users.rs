//! The fuzz target `users`; what it asserts stands in the crate fuzz-targets.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::users(input));
