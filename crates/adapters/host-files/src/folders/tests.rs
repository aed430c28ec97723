//! Real directories, and what containers and full disks do to them.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use ports::pod_host::HostError;

use super::*;

struct Bed {
    folder: tempfile::TempDir,
    host: HostFolders,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let host = HostFolders::new(&path.join("root"), &path.join("logs"), &path.join("links"));
        Self { folder, host }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn mode(&self, name: &str) -> u32 {
        std::fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o7777
    }
}

/// A mount that is removed with the test, however it ends.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(path: &Path, options: &str) -> Self {
        let options = std::ffi::CString::new(options).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(options.as_c_str())).unwrap();
        Self(path.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW;
        rustix::mount::unmount(&self.0, flags).unwrap();
    }
}

#[tokio::test]
async fn a_pods_folders_have_upstreams_modes() {
    let bed = Bed::new();
    for _ in 0..2 {
        bed.host.make_pod("u1", &bed.text("logs/ns_name_u1")).await.unwrap();
    }
    for name in ["root/pods", "root/pods/u1", "root/pods/u1/volumes", "root/pods/u1/plugins"] {
        assert_eq!(bed.mode(name), 0o750, "{name}");
    }
    assert_eq!(bed.mode("logs/ns_name_u1"), 0o755);
    assert_eq!(bed.host.pods().await.unwrap(), ["u1"]);
    assert_eq!(bed.host.pod_logs().await.unwrap(), ["ns_name_u1"]);
    bed.host.remove_pod("u1").await.unwrap();
    bed.host.remove_pod("u1").await.unwrap();
    bed.host.remove_pod_log("ns_name_u1").await.unwrap();
    assert!(bed.host.pods().await.unwrap().is_empty());
    assert!(bed.host.pod_logs().await.unwrap().is_empty());
}

#[tokio::test]
async fn names_and_log_paths_stay_where_they_belong() {
    let bed = Bed::new();
    let log = bed.text("logs/x");
    for bad in ["", "..", "a/b", "."] {
        assert!(bed.host.make_pod(bad, &log).await.is_err(), "{bad}");
        assert!(bed.host.remove_pod(bad).await.is_err(), "{bad}");
        assert!(bed.host.remove_pod_log(bad).await.is_err(), "{bad}");
        assert!(bed.host.link_log(bad, "x").await.is_err(), "{bad}");
    }
    for bad in ["/etc/x", &bed.text("logs"), &bed.text("logs/../y"), "logs/x", ""] {
        let refused = bed.host.make_pod("u", bad).await;
        assert!(matches!(refused, Err(HostError::Lasting(_))), "{bad}: {refused:?}");
        assert!(bed.host.remove_container_log(bad).await.is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_termination_message_file_is_made_once_and_open_to_all() {
    let bed = Bed::new();
    let log = bed.text("logs/pod/c");
    let path = bed.host.make_container("u", "c", "id1", &log).await.unwrap();
    assert_eq!(path, bed.path("root/pods/u/containers/c/id1"));
    assert_eq!(bed.mode("root/pods/u/containers/c/id1"), 0o666);
    std::fs::write(&path, "said").unwrap();
    bed.host.make_container("u", "c", "id1", &log).await.unwrap();
    let told = bed.host.read_tail(path.to_str().unwrap(), 4096).await.unwrap();
    assert_eq!(told.as_deref(), Some(&b"said"[..]));
    let none = bed.host.make_container("u", "c", "", &log).await.unwrap();
    assert_eq!(none, PathBuf::new());
}

#[tokio::test]
async fn a_message_is_read_whatever_the_container_made_of_it() {
    let bed = Bed::new();
    bed.host.make_pod("u", &bed.text("logs/x")).await.unwrap();
    let path = |name: &str| bed.path("root/pods/u/containers").join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    std::fs::File::create(path("sparse")).unwrap().set_len(1 << 42).unwrap();
    std::fs::write(path("long"), "x".repeat(5000) + "end").unwrap();
    symlink("/etc/passwd", path("link")).unwrap();
    let mode = Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), FileType::Fifo, mode, 0).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    assert_eq!(bed.host.read_tail(&text("sparse"), 9).await.unwrap().unwrap(), [0; 9]);
    let long = bed.host.read_tail(&text("long"), 4096).await.unwrap().unwrap();
    assert!(long.len() == 4096 && long.ends_with(b"end"));
    for bad in ["link", "pipe", "folder"] {
        let refused = bed.host.read_tail(&text(bad), 9).await;
        assert!(matches!(refused, Err(HostError::Lasting(_))), "{bad}: {refused:?}");
    }
    assert_eq!(bed.host.read_tail(&text("none"), 9).await, Ok(None));
    assert!(bed.host.read_tail("/etc/passwd", 9).await.is_err());
    let around = format!("{}/../../../../../../etc/passwd", text(""));
    assert!(bed.host.read_tail(&around, 9).await.is_err());
}

#[tokio::test]
async fn a_file_is_written_whole_and_only_when_it_differs() {
    let bed = Bed::new();
    let file = |content: &str| PodFile {
        path: "etc-hosts".to_owned(),
        content: content.as_bytes().to_vec(),
        mode: 0o644,
    };
    let inode =
        |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let path = bed.host.write("u", &file("one")).await.unwrap();
    let first = inode(&path);
    bed.host.write("u", &file("one")).await.unwrap();
    assert_eq!(inode(&path), first);
    bed.host.write("u", &file("two")).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
    assert_eq!(bed.mode("root/pods/u/etc-hosts"), 0o644);
    for bad in ["", "../x", "/etc/x", "a/../../x", "a/", "."] {
        let file = PodFile { path: bad.to_owned(), content: Vec::new(), mode: 0o600 };
        assert!(bed.host.write("u", &file).await.is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_pod_with_a_mount_is_not_removed_and_nothing_through_it() {
    let bed = Bed::new();
    bed.host.make_pod("u", &bed.text("logs/x")).await.unwrap();
    let point = bed.path("root/pods/u/volumes/foreign");
    std::fs::create_dir(&point).unwrap();
    let mounted = Mounted::tmpfs(&point, "size=64k");
    std::fs::write(point.join("data"), "precious").unwrap();
    let refused = bed.host.remove_pod("u").await;
    let Err(HostError::Passing(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("volumes/foreign"), "{why}");
    assert!(point.join("data").exists());
    drop(mounted);
    bed.host.remove_pod("u").await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_told_and_leaves_nothing_half_done() {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("root")).unwrap();
    let _mounted = Mounted::tmpfs(&bed.path("root"), "size=64k");
    bed.host.make_pod("u", &bed.text("logs/x")).await.unwrap();
    let file = PodFile { path: "big".to_owned(), content: vec![1; 1 << 20], mode: 0o644 };
    let full = bed.host.write("u", &file).await;
    let Err(HostError::Passing(why)) = full else { panic!("{full:?}") };
    assert!(why.contains("No space left") && why.contains("pods/u/big"), "{why}");
    let names: Vec<_> = std::fs::read_dir(bed.path("root/pods/u")).unwrap().collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let records = crate::HostRecords::new(&bed.path("root"));
    ports::pod_host::Records::save(&records, "pods", "a", b"old".to_vec()).await.unwrap();
    let full = ports::pod_host::Records::save(&records, "pods", "a", vec![0; 1 << 20]).await;
    assert!(matches!(full, Err(HostError::Passing(_))), "{full:?}");
    let loaded = ports::pod_host::Records::load(&records, "pods").await.unwrap();
    assert_eq!(loaded.records, [("a".to_owned(), b"old".to_vec())]);
}

#[tokio::test]
async fn logs_are_counted_linked_and_removed() {
    let bed = Bed::new();
    let folder = bed.text("logs/pod/c");
    assert_eq!(bed.host.highest_log_number(&folder).await, Ok(None));
    bed.host.make_container("u", "c", "", &folder).await.unwrap();
    assert_eq!(bed.host.highest_log_number(&folder).await, Ok(None));
    for name in ["0.log", "2.log.20260101-101010.gz", "10.log", "99.txt", "+77.log", "5.logs"] {
        std::fs::write(format!("{folder}/{name}"), "").unwrap();
    }
    assert_eq!(bed.host.highest_log_number(&folder).await, Ok(Some(10)));
    for target in ["/nowhere", &format!("{folder}/0.log")] {
        bed.host.link_log("p_ns_c-id.log", target).await.unwrap();
        let there = std::fs::read_link(bed.path("links/p_ns_c-id.log")).unwrap();
        assert_eq!(there, Path::new(target));
    }
    bed.host.link_log("p_ns_c-other.log", &format!("{folder}/2.log")).await.unwrap();
    bed.host.link_log("p_ns_c-dead.log", &format!("{folder}/3.log")).await.unwrap();
    bed.host.link_log("p_ns_c-runs.log", &format!("{folder}/4.log")).await.unwrap();
    bed.host.link_log("not-ours", "/nowhere").await.unwrap();
    // Left by an agent that was killed midway.
    symlink(format!("{folder}/5.log"), bed.path("links/.linking-1-77")).unwrap();
    // Links to another agent's logs, which it may just be creating or whose logs do not exist yet.
    symlink("/another/pod/c/0.log", bed.path("links/.linking-2-78")).unwrap();
    symlink("/another/pod/c/0.log", bed.path("links/p_ns_c-another.log")).unwrap();
    let running = BTreeSet::from([format!("{folder}/4.log")]);
    bed.host.remove_dead_links(running).await.unwrap();
    let left = |bed: &Bed| {
        let mut names: Vec<_> = std::fs::read_dir(bed.path("links"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let of_others = [".linking-2-78", "not-ours", "p_ns_c-another.log"];
    let own = ["p_ns_c-id.log", "p_ns_c-other.log", "p_ns_c-runs.log"];
    assert_eq!(left(&bed), [of_others, own].concat());
    bed.host.remove_container_log(&format!("{folder}/2.log")).await.unwrap();
    bed.host.remove_container_log(&format!("{folder}/2.log")).await.unwrap();
    bed.host.remove_container_log(&format!("{folder}/0.log")).await.unwrap();
    bed.host.remove_dead_links(BTreeSet::new()).await.unwrap();
    assert_eq!(left(&bed), of_others);
    assert!(bed.path("logs/pod/c/10.log").exists());
}
