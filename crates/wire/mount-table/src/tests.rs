//! Tables as kernels write them, with names that are not UTF-8.

use super::*;

const TABLE: &[u8] = b"\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /proc rw - proc proc rw
30 22 8:2 / /var/lib rw master:4 - ext4 /dev/sdb rw
31 30 8:2 /kubelet /var/lib/kubelet rw shared:7 master:4 - ext4 /dev/sdb rw,discard
32 22 8:3 / /mnt/my\\040disk rw - ext4 /dev/sdc rw
33 22 8:4 / /twice rw - ext4 /dev/sdd rw
34 33 8:5 / /twice rw shared:9 - ext4 /dev/sde rw
35 22 0:40 / /mnt/\xff\xfe rw shared:3 - tmpfs  rw,size=4k
36 22 0:41 / /mnt/after rw unbindable - tmpfs none rw
37 22 0:42 / /mnt/\xe2\x82 rw propagate_from:2 master:3 - tmpfs a\\040b rw
short line
38
39 22 0:42 / /mnt/no/dash rw
";

fn table() -> MountTable {
    MountTable::from(TABLE)
}

fn bytes(path: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(path.to_vec()))
}

#[test]
fn the_containing_mount_is_the_longest_and_last_mounted_prefix() {
    for (path, point, propagation_type) in [
        (&b"/"[..], &b"/"[..], PropagationType::Shared),
        (b"/home/x", b"/", PropagationType::Shared),
        (b"/proc/self", b"/proc", PropagationType::Private),
        (b"/var/lib", b"/var/lib", PropagationType::Slave),
        (b"/var/lib/kubelet/pods", b"/var/lib/kubelet", PropagationType::Shared),
        (b"/var/lib/kubelets", b"/var/lib", PropagationType::Slave),
        (b"/mnt/my disk/a", b"/mnt/my disk", PropagationType::Private),
        (b"/twice/over", b"/twice", PropagationType::Shared),
        (b"/mnt/\xff\xfe/a", b"/mnt/\xff\xfe", PropagationType::Shared),
        (b"/mnt/\xef\xbf\xbd\xef\xbf\xbd", b"/", PropagationType::Shared),
        (b"/mnt/after", b"/mnt/after", PropagationType::Private),
        (b"/mnt/\xe2\x82/a", b"/mnt/\xe2\x82", PropagationType::Slave),
    ] {
        let table = table();
        let mount = table.containing_mount(&bytes(path)).expect("a mount");
        assert_eq!(
            (&*mount.point, mount.propagation_type),
            (&*bytes(point), propagation_type),
            "{path:?}"
        );
    }
    for nothing in ["", "nonsense", "1 2 3 4 5 6 7\n\n"] {
        assert_eq!(MountTable::from(nothing).containing_mount(Path::new("/")), None, "{nothing:?}");
    }
}

#[test]
fn mount_points_beneath_a_path_are_sorted_deepest_and_latest_first() {
    let table = MountTable::from(
        &b"21 1 0:5 / / rw - ext4 /dev/vda rw\n\
        30 21 0:9 / /pods/a rw shared:1 - tmpfs tmpfs rw\n\
        31 30 0:9 / /pods/a/with\\040space rw - tmpfs tmpfs rw\n\
        34 30 0:9 / /pods/a/\xff\xfe\xfd\xfc rw - tmpfs tmpfs rw\n\
        32 21 0:9 / /pods/ab rw - tmpfs tmpfs rw\n\
        33 30 0:9 / /pods/a rw - tmpfs tmpfs rw\n\
        short line\n"[..],
    );
    let expected: [&[u8]; 4] =
        [b"/pods/a/with space", b"/pods/a/\xff\xfe\xfd\xfc", b"/pods/a", b"/pods/a"];
    assert_eq!(table.beneath(Path::new("/pods/a")), expected.map(bytes));
}

#[test]
fn fields_are_parsed_even_when_the_source_is_empty() {
    let table = table();
    let of = |path: &[u8]| table.containing_mount(&bytes(path)).expect("a mount");
    let kubelet = of(b"/var/lib/kubelet");
    assert_eq!(kubelet.root, Path::new("/kubelet"));
    assert_eq!((kubelet.kind.to_str(), kubelet.options().count()), (Some("ext4"), 2));
    let odd = of(b"/mnt/\xff\xfe");
    assert_eq!((odd.kind.to_str(), odd.source.to_str()), (Some("tmpfs"), Some("")));
    assert_eq!(odd.options().collect::<Vec<_>>(), ["rw", "size=4k"]);
    let spaced = of(b"/mnt/\xe2\x82");
    assert!(spaced.is_of_type("tmpfs") && !spaced.is_of_type("tmp"));
    assert_eq!(spaced.source.to_str(), Some("a b"));
    assert_eq!(spaced.options().collect::<Vec<_>>(), ["rw"]);
    assert_eq!(table.mounts().count(), 10, "three lines are no mounts");
}

#[test]
fn escaped_mount_points_are_decoded() {
    for byte in 1..=u8::MAX {
        let escaped = if b" \t\n\\#".contains(&byte) {
            format!("\\{byte:03o}").into_bytes()
        } else {
            vec![byte]
        };
        let line = [b"1 0 8:1 / /a", &escaped[..], b"b rw - ext4 x rw\n"].concat();
        let found = MountTable::from(line).beneath(Path::new("/"));
        assert_eq!(found, [bytes(&[b"/a", &[byte][..], b"b"].concat())], "byte {byte}");
    }
    for (escaped, plain) in [
        ("\\1", "\\1"),
        ("\\04", "\\04"),
        ("\\+40", "\\+40"),
        ("\\048", "\\048"),
        ("\\777", "\\777"),
        ("\\134040", "\\040"),
        ("\\\\040", "\\ "),
    ] {
        assert_eq!(text(escaped.as_bytes()), OsStr::new(plain), "{escaped}");
    }
}
