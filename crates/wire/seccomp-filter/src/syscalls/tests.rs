//! The tables are searchable, and agree with what this program was compiled against.

use super::{X32_BIT, aarch64, syscall_number, x32, x86, x86_64};
use crate::profile::Architecture;

#[test]
fn syscall_tables_are_sorted_and_without_duplicates() {
    for table in [x86_64::NUMBERS, x86::NUMBERS, x32::NUMBERS, aarch64::NUMBERS] {
        assert!(table.is_sorted_by(|(left, _), (right, _)| left < right));
        let mut numbers: Vec<u32> = table.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "two names for one number");
        assert!(numbers.iter().all(|number| *number < 1024));
    }
}

#[test]
fn syscall_numbers_match_known_values() {
    let cases = [
        (Architecture::X86_64, "read", Some(0)),
        (Architecture::X86_64, "clone3", Some(435)),
        (Architecture::X86, "socketcall", Some(102)),
        (Architecture::X32, "rt_sigaction", Some(X32_BIT | 512)),
        (Architecture::Aarch64, "read", Some(63)),
        (Architecture::Aarch64, "open", None),
        (Architecture::X86_64, "socketcall", None),
        (Architecture::X86_64, "", None),
    ];
    for (architecture, name, number) in cases {
        assert_eq!(syscall_number(architecture, name), number, "{architecture:?} {name}");
    }
}

#[test]
fn the_native_syscall_table_agrees_with_libc() {
    let native = Architecture::native().expect("tests run on an architecture that we know");
    let system = [
        ("getcwd", libc::SYS_getcwd),
        ("openat", libc::SYS_openat),
        ("seccomp", libc::SYS_seccomp),
        ("statx", libc::SYS_statx),
        ("pidfd_open", libc::SYS_pidfd_open),
        ("mount_setattr", libc::SYS_mount_setattr),
    ];
    for (name, number) in system {
        assert_eq!(syscall_number(native, name).map(i64::from), Some(number), "{name}");
    }
}
