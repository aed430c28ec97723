//! A process gets a null device that it cannot change. Needs root.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::*;

fn host_null_device() -> (u64, u64, u32, u32, i64) {
    let of = std::fs::metadata(PATH).expect("there");
    (of.dev(), of.ino(), of.mode(), of.uid(), of.mtime())
}

#[test]
fn the_null_device_cannot_be_changed_through_a_descriptor() {
    let before = host_null_device();
    for (null, is_own) in [
        (NullDevice::make().expect("made"), true),
        (NullDevice::of_machine().expect("opened"), false),
    ] {
        let open = null.open(OFlags::RDWR).expect("opened");
        require_null(&open).expect("the null device");
        let mut file = File::from(open);
        let of = file.metadata().expect("metadata");
        assert_eq!((of.dev(), of.ino()) != (before.0, before.1), is_own);
        assert_eq!(of.mode() & 0o777, 0o666, "everybody may use it");
        let number = file.as_raw_fd();
        let path = format!("/proc/self/fd/{number}");
        if is_own {
            assert_eq!(std::fs::read_link(&path).expect("a link"), std::path::Path::new(PATH));
        }
        for (what, outcome) in [
            ("fchmod", file.set_permissions(Permissions::from_mode(0o000))),
            ("chmod", std::fs::set_permissions(&path, Permissions::from_mode(0o000))),
            ("fchown", std::os::unix::fs::fchown(&file, Some(1000), None)),
            ("chown", std::os::unix::fs::chown(&path, Some(1000), None)),
            ("times", file.set_modified(std::time::SystemTime::UNIX_EPOCH)),
            (
                "attribute",
                rustix::fs::setxattr(&path, "trusted.x", b"x", XattrFlags::empty())
                    .map_err(Into::into),
            ),
        ] {
            let kind = outcome.expect_err(what).kind();
            assert_eq!(kind, io::ErrorKind::ReadOnlyFilesystem, "{what} of its own {is_own}");
        }
        assert_eq!(file.write(b"gone").expect("written"), 4);
        assert_eq!(file.read(&mut [0; 8]).expect("read"), 0);
        // `/dev/stdin` and `/dev/stdout` are reopened this way, with truncation too.
        let again =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        assert_eq!(again.expect("opened").write(b"gone").expect("written"), 4);
        assert_eq!(host_null_device(), before, "the machine's is as it was");
    }
}
