//! What counts as our code, and that a test goes on running after it was given back.

use super::*;

const MAPS: &str = "\
55d0a0000000-55d0a0100000 r--p 00000000 fe:00 77                         /usr/bin/keel son
55d0a0100000-55d0a0900000 r-xp 00100000 fe:00 77                         /usr/bin/keel son
55d0a0900000-55d0a0a00000 rw-p 00900000 fe:00 77                         /usr/bin/keel son
55d0a0a00000-55d0a0b00000 rwxp 00a00000 fe:00 77                         /usr/bin/keel son
7f0000000000-7f0000100000 r-xp 00000000 fe:00 78                         /usr/lib/libc.so.6
7f0000200000-7f0000300000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
nonsense
";

#[test]
fn only_our_own_code_is_meant() {
    let expected = [Range { begin: 0x55d0_a010_0000, end: 0x55d0_a090_0000 }];
    assert_eq!(code_of(MAPS, "/usr/bin/keel son"), expected);
    assert_eq!(code_of(MAPS, "/usr/bin/other"), []);
}

#[test]
fn a_process_that_gave_its_code_back_goes_on() {
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
    let bytes = give_back(Path::new("/proc/self")).expect("our code");
    let after = held();
    assert!(bytes > 0 && before > 0, "{bytes} bytes, {before} KiB held");
    assert!(after < before, "{after} KiB held, {before} before");
}
