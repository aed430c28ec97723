//! The ELF reader on real files, and the promise in the specification.

use super::*;

#[test]
fn a_dynamic_program_asks_for_an_interpreter() {
    let this = std::fs::read(std::env::current_exe().expect("this program")).expect("its bytes");
    assert_eq!(asks_for_interpreter(&this), Some(true));
    assert_eq!(asks_for_interpreter(b"#!/bin/sh"), None);
    assert_eq!(asks_for_interpreter(&this[..60]), None);
}

#[test]
fn the_specification_promises_the_same_size() {
    let text = std::fs::read_to_string(workspace::root().join("SPECIFICATION.md")).expect("it");
    let promise = format!("{LARGEST_BINARY_KIB} KiB");
    assert!(text.contains(&promise), "SPECIFICATION.md does not say {promise}");
}

#[test]
fn a_supervisor_embedded_in_a_binary_is_found() {
    let part: Vec<u8> = (0..200).collect();
    let whole = [b"before".as_slice(), &part[..100], &part, b"after"].concat();
    assert!(contains(&whole, &part));
    assert!(!contains(&whole[..whole.len() - 6], &part), "the end is missing");
}
