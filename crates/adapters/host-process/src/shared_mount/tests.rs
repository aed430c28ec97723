//! Mount tables as kernels write them. The mounts themselves are tested through the agent.

use std::os::unix::ffi::OsStrExt as _;

use super::*;

const TABLE: &[u8] = b"\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /proc rw - proc proc rw
30 22 8:2 / /var/lib rw master:4 - ext4 /dev/sdb rw
31 30 8:2 /kubelet /var/lib/kubelet rw shared:7 master:4 - ext4 /dev/sdb rw
32 22 8:3 / /mnt/my\\040disk rw - ext4 /dev/sdc rw
33 22 8:4 / /twice rw - ext4 /dev/sdd rw
34 33 8:5 / /twice rw shared:9 - ext4 /dev/sde rw
35 22 0:40 / /mnt/\xff\xfe rw shared:3 - tmpfs tmpfs rw
";

#[test]
fn the_nearest_mount_above_a_path_counts() {
    for (path, shared) in [
        ("/", true),
        ("/home/x", true),
        ("/proc/self", false),
        ("/var/lib", false),
        ("/var/lib/other", false),
        ("/var/lib/kubelet", true),
        ("/var/lib/kubelet/pods", true),
        ("/var/lib/kubelets", false),
        ("/mnt/my disk/root", false),
        ("/twice/over", true),
    ] {
        assert_eq!(is_shared(&TABLE.into(), Path::new(path)), shared, "{path}");
    }
    let odd = std::ffi::OsStr::from_bytes(b"/mnt/\xff\xfe/root");
    assert!(is_shared(&TABLE.into(), Path::new(odd)));
    for nothing in ["", "nonsense"] {
        assert!(!is_shared(&nothing.into(), Path::new("/")), "{nothing:?}");
    }
}

#[test]
fn a_missing_directory_is_an_error_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let message = make_shared(&dir.path().join("none")).unwrap_err().to_string();
    assert!(message.starts_with("cannot find ") && message.contains("/none"), "{message}");
}
