//! The hash of a container as the reference computes it: equal hashes mean "this container is that
//! specification's", so that pods of the reference go on under us, and ours under it.
//!
//! The rule it keeps: only name and image count. The JSON of the two is written as Go writes it,
//! printed as a list of byte values, and hashed by FNV-1a of 32 bits.
//!
//! upstream: container/helpers.go (HashContainer), pkg/util/hash

use std::fmt::Write as _;

use super::container::Container;

#[cfg(test)]
mod tests;

/// As the number that the annotation `io.kubernetes.container.hash` holds, in hexadecimal.
pub fn container_hash(container: &Container) -> u32 {
    let mut json = String::from("{\"image\":");
    push_go_text(&mut json, &container.image);
    json.push_str(",\"name\":");
    push_go_text(&mut json, &container.name);
    json.push('}');

    let mut printed = String::from("([]uint8)[");
    for (at, byte) in json.bytes().enumerate() {
        let space = if at == 0 { "" } else { " " };
        let _ = write!(printed, "{space}{byte}");
    }
    printed.push(']');
    printed
        .bytes()
        .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// As the annotation writes it.
pub fn container_hash_text(container: &Container) -> String {
    format!("{:x}", container_hash(container))
}

/// A JSON string with the escapes of Go's encoder, which also hides what HTML could mistake.
fn push_go_text(json: &mut String, text: &str) {
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(json, "\\u{:04x}", u32::from(letter));
            }
            other => json.push(other),
        }
    }
    json.push('"');
}
