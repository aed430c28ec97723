//! Which mappings count as code and constants, and that a test goes on running after the drop.

use super::*;

const MAPS: &str = "\
55d0a0000000-55d0a0100000 r--p 00000000 fe:00 77                         /usr/bin/keel son
55d0a0100000-55d0a0900000 r-xp 00100000 fe:00 77                         /usr/bin/keel son
55d0a0900000-55d0a0a00000 r--p 00900000 fe:00 77                         /usr/bin/keel son
55d0a0a00000-55d0a0b00000 r--p 00a00000 fe:00 77                         /usr/bin/keel son
55d0a0b00000-55d0a0c00000 rw-p 00b00000 fe:00 77                         /usr/bin/keel son
55d0a0c00000-55d0a0d00000 rwxp 00000000 fe:00 77                         /usr/bin/keel son
7f0000000000-7f0000100000 r-xp 00100000 fe:00 78                         /usr/lib/libc.so.6
7f0000200000-7f0000300000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00002000 r-xp 00100000 00:00 0                          [vdso]
nonsense
";

#[test]
fn only_the_programs_own_read_only_ranges_are_released() {
    let range = |begin, end| PageRange { begin, end };
    let expected = [
        range(0x55d0_a000_0000, 0x55d0_a010_0000),
        range(0x55d0_a010_0000, 0x55d0_a090_0000),
        range(0x55d0_a090_0000, 0x55d0_a0a0_0000),
    ];
    // The segment at 0xa00000 was relocated at the start and then made read-only.
    let read_only = [0, 0x10_0000, 0x90_0000];
    assert_eq!(ranges_of(MAPS, "/usr/bin/keel son", &read_only), expected);
    assert_eq!(ranges_of(MAPS, "/usr/bin/other", &read_only), []);
    assert_eq!(ranges_of(MAPS, "/usr/bin/keel son", &[]), []);
}

/// An ELF file with these segments: type, flags, offset.
fn program(parts: &[(u32, u32, u64)]) -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    elf[32] = 64;
    elf[54] = 56;
    elf[56] = u8::try_from(parts.len()).expect("few");
    for (kind, leave, offset) in parts {
        let mut header = [0; 56];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[4..8].copy_from_slice(&leave.to_le_bytes());
        header[8..16].copy_from_slice(&offset.to_le_bytes());
        elf.extend_from_slice(&header);
    }
    elf
}

#[test]
fn read_only_segments_are_found_in_the_program_headers() {
    let parts = [(6, 4, 64), (1, 4, 0), (1, 5, 0xa_1000), (1, 4, 0xea_cfff), (1, 6, 0x12f_ef88)];
    let elf = program(&parts);
    assert_eq!(read_only_segments(&elf), Some(vec![0, 0xa_1000, 0xea_c000]));
    assert_eq!(read_only_segments(&elf[..elf.len() - 50]), None);
    assert_eq!(read_only_segments(b"#!/bin/sh"), None);
    assert_eq!(read_only_segments(&[]), None);
}

#[test]
fn a_process_keeps_running_after_releasing_its_code_pages() {
    let held = || -> u64 {
        let smaps = fs::read_to_string("/proc/self/smaps").expect("our own map");
        let mut in_code = false;
        let mut held = 0;
        for line in smaps.lines() {
            if line.contains("r-xp") {
                in_code = true;
            } else if let Some(rest) = line.strip_prefix("Rss:")
                && std::mem::take(&mut in_code)
            {
                held += rest.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
            }
        }
        held
    };
    let before = held();
    let bytes = release_clean_pages(Path::new("/proc/self")).expect("our code");
    let after = held();
    assert!(bytes > 0 && before > 0, "{bytes} bytes, {before} KiB held");
    assert!(after < before, "{after} KiB held, {before} before");
}
