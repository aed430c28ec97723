//! The images of the benchmark: one with lines to log, and a large one of several layers.

use anyhow::Result;
use node_testkit::images::{self, TestImage};

pub const LINES: &str = "registry.test/lines:1";
pub const LARGE: &str = "registry.test/large:1";
/// Size of the file that is logged repeatedly.
pub const LINES_BYTES: usize = 4 << 20;

/// A shell and a file of lines of a hundred bytes.
pub fn lines() -> Result<TestImage> {
    let line = format!("{:-<99}\n", "a line of a program that says what it does ");
    let text: Vec<u8> = line.bytes().cycle().take(LINES_BYTES / line.len() * line.len()).collect();
    Ok(images::busybox()?.named(LINES).with_bytes("/lines", 0o644, text))
}

/// The given number of layers of about this many MiB each before compression, which saves about a
/// third: larger files and many small ones, as in real images.
pub fn large(layers: usize, mebibytes: usize) -> Result<Vec<TestImage>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = move |count: usize| -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Five bits of each byte: programs and texts are not noise.
            bytes.extend(state.to_le_bytes().map(|byte| byte & 0x1f | 0x40));
        }
        bytes.truncate(count);
        bytes
    };
    let mut all = Vec::new();
    for layer in 0..layers {
        let mut image =
            if layer == 0 { images::busybox()?.named(LARGE) } else { TestImage::new(LARGE) };
        for file in 0..mebibytes.saturating_sub(1) {
            image = image.with_bytes(&format!("/data/{layer}/large-{file}"), 0o644, noise(1 << 20));
        }
        for file in 0..256 {
            image = image.with_bytes(&format!("/data/{layer}/small-{file}"), 0o644, noise(4096));
        }
        all.push(image);
    }
    Ok(all)
}
