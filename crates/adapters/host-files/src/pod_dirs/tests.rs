//! Real directories, and what containers and full disks do to them.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use ports::pod_host::HostError;

use super::*;

struct PodDirsFixture {
    dir: tempfile::TempDir,
    host: HostPodDirs,
}

impl PodDirsFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let host = HostPodDirs::new(&path.join("root"), &path.join("logs"), &path.join("links"));
        Self { dir, host }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
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
async fn a_pods_dirs_have_upstreams_modes() {
    let fixture = PodDirsFixture::new();
    for _ in 0..2 {
        fixture.host.make_pod("u1", &fixture.text("logs/ns_name_u1")).await.unwrap();
    }
    for name in ["root/pods", "root/pods/u1", "root/pods/u1/volumes", "root/pods/u1/plugins"] {
        assert_eq!(fixture.mode(name), 0o750, "{name}");
    }
    assert_eq!(fixture.mode("logs/ns_name_u1"), 0o755);
    assert_eq!(fixture.host.pods().await.unwrap(), ["u1"]);
    assert_eq!(fixture.host.pod_logs().await.unwrap(), ["ns_name_u1"]);
    fixture.host.remove_pod("u1").await.unwrap();
    fixture.host.remove_pod("u1").await.unwrap();
    fixture.host.remove_pod_log("ns_name_u1").await.unwrap();
    assert!(fixture.host.pods().await.unwrap().is_empty());
    assert!(fixture.host.pod_logs().await.unwrap().is_empty());
}

#[tokio::test]
async fn names_and_log_paths_cannot_leave_their_root() {
    let fixture = PodDirsFixture::new();
    let log = fixture.text("logs/x");
    for bad in ["", "..", "a/b", "."] {
        assert!(fixture.host.make_pod(bad, &log).await.is_err(), "{bad}");
        assert!(fixture.host.remove_pod(bad).await.is_err(), "{bad}");
        assert!(fixture.host.remove_pod_log(bad).await.is_err(), "{bad}");
        assert!(fixture.host.link_log(bad, "x").await.is_err(), "{bad}");
    }
    for bad in ["/etc/x", &fixture.text("logs"), &fixture.text("logs/../y"), "logs/x", ""] {
        let refused = fixture.host.make_pod("u", bad).await;
        assert!(matches!(refused, Err(HostError::Permanent(_))), "{bad}: {refused:?}");
        assert!(fixture.host.remove_container_log(bad).await.is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_termination_message_file_is_made_once_and_open_to_all() {
    let fixture = PodDirsFixture::new();
    let log = fixture.text("logs/pod/c");
    let path = fixture.host.make_container("u", "c", "id1", &log).await.unwrap();
    assert_eq!(path, fixture.path("root/pods/u/containers/c/id1"));
    assert_eq!(fixture.mode("root/pods/u/containers/c/id1"), 0o666);
    std::fs::write(&path, "said").unwrap();
    fixture.host.make_container("u", "c", "id1", &log).await.unwrap();
    let tail = fixture.host.read_tail(path.to_str().unwrap(), 4096).await.unwrap();
    assert_eq!(tail.as_deref(), Some(&b"said"[..]));
    let none = fixture.host.make_container("u", "c", "", &log).await.unwrap();
    assert_eq!(none, PathBuf::new());
}

#[tokio::test]
async fn the_termination_message_is_read_safely_whatever_replaced_it() {
    let fixture = PodDirsFixture::new();
    fixture.host.make_pod("u", &fixture.text("logs/x")).await.unwrap();
    let path = |name: &str| fixture.path("root/pods/u/containers").join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    std::fs::File::create(path("sparse")).unwrap().set_len(1 << 42).unwrap();
    std::fs::write(path("long"), "x".repeat(5000) + "end").unwrap();
    symlink("/etc/passwd", path("link")).unwrap();
    let mode = Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), FileType::Fifo, mode, 0).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    assert_eq!(fixture.host.read_tail(&text("sparse"), 9).await.unwrap().unwrap(), [0; 9]);
    let long = fixture.host.read_tail(&text("long"), 4096).await.unwrap().unwrap();
    assert!(long.len() == 4096 && long.ends_with(b"end"));
    for bad in ["link", "pipe", "folder"] {
        let refused = fixture.host.read_tail(&text(bad), 9).await;
        assert!(matches!(refused, Err(HostError::Permanent(_))), "{bad}: {refused:?}");
    }
    assert_eq!(fixture.host.read_tail(&text("none"), 9).await, Ok(None));
    assert!(fixture.host.read_tail("/etc/passwd", 9).await.is_err());
    let around = format!("{}/../../../../../../etc/passwd", text(""));
    assert!(fixture.host.read_tail(&around, 9).await.is_err());
}

#[tokio::test]
async fn a_file_is_written_whole_and_only_when_it_differs() {
    let fixture = PodDirsFixture::new();
    let file = |content: &str| PodFile {
        path: "etc-hosts".to_owned(),
        content: content.as_bytes().to_vec(),
        mode: 0o644,
    };
    let inode =
        |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let path = fixture.host.write("u", &file("one")).await.unwrap();
    let first = inode(&path);
    fixture.host.write("u", &file("one")).await.unwrap();
    assert_eq!(inode(&path), first);
    fixture.host.write("u", &file("two")).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
    assert_eq!(fixture.mode("root/pods/u/etc-hosts"), 0o644);
    for bad in ["", "../x", "/etc/x", "a/../../x", "a/", "."] {
        let file = PodFile { path: bad.to_owned(), content: Vec::new(), mode: 0o600 };
        assert!(fixture.host.write("u", &file).await.is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_pod_with_a_mount_is_not_removed_and_nothing_through_it() {
    let fixture = PodDirsFixture::new();
    fixture.host.make_pod("u", &fixture.text("logs/x")).await.unwrap();
    let point = fixture.path("root/pods/u/volumes/foreign");
    std::fs::create_dir(&point).unwrap();
    let mounted = Mounted::tmpfs(&point, "size=64k");
    std::fs::write(point.join("data"), "precious").unwrap();
    let refused = fixture.host.remove_pod("u").await;
    let Err(HostError::Transient(reason)) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("volumes/foreign"), "{reason}");
    assert!(point.join("data").exists());
    drop(mounted);
    fixture.host.remove_pod("u").await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_leaves_no_partial_file() {
    let fixture = PodDirsFixture::new();
    std::fs::create_dir(fixture.path("root")).unwrap();
    let _mounted = Mounted::tmpfs(&fixture.path("root"), "size=64k");
    fixture.host.make_pod("u", &fixture.text("logs/x")).await.unwrap();
    let file = PodFile { path: "big".to_owned(), content: vec![1; 1 << 20], mode: 0o644 };
    let full = fixture.host.write("u", &file).await;
    let Err(HostError::Transient(reason)) = full else { panic!("{full:?}") };
    assert!(reason.contains("No space left") && reason.contains("pods/u/big"), "{reason}");
    let names: Vec<_> = std::fs::read_dir(fixture.path("root/pods/u")).unwrap().collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let records = crate::HostRecords::new(&fixture.path("root"));
    ports::pod_host::AgentRecords::save(&records, "pods", "a", b"old".to_vec()).await.unwrap();
    let full = ports::pod_host::AgentRecords::save(&records, "pods", "a", vec![0; 1 << 20]).await;
    assert!(matches!(full, Err(HostError::Transient(_))), "{full:?}");
    let loaded = ports::pod_host::AgentRecords::load(&records, "pods").await.unwrap();
    assert_eq!(loaded.records, [("a".to_owned(), b"old".to_vec())]);
}

#[tokio::test]
async fn logs_are_counted_linked_and_removed() {
    let fixture = PodDirsFixture::new();
    let dir = fixture.text("logs/pod/c");
    assert_eq!(fixture.host.highest_log_number(&dir).await, Ok(None));
    fixture.host.make_container("u", "c", "", &dir).await.unwrap();
    assert_eq!(fixture.host.highest_log_number(&dir).await, Ok(None));
    for name in ["0.log", "2.log.20260101-101010.gz", "10.log", "99.txt", "+77.log", "5.logs"] {
        std::fs::write(format!("{dir}/{name}"), "").unwrap();
    }
    assert_eq!(fixture.host.highest_log_number(&dir).await, Ok(Some(10)));
    for target in ["/nowhere", &format!("{dir}/0.log")] {
        fixture.host.link_log("p_ns_c-id.log", target).await.unwrap();
        let there = std::fs::read_link(fixture.path("links/p_ns_c-id.log")).unwrap();
        assert_eq!(there, Path::new(target));
    }
    fixture.host.link_log("p_ns_c-other.log", &format!("{dir}/2.log")).await.unwrap();
    fixture.host.link_log("p_ns_c-dead.log", &format!("{dir}/3.log")).await.unwrap();
    fixture.host.link_log("p_ns_c-runs.log", &format!("{dir}/4.log")).await.unwrap();
    fixture.host.link_log("not-ours", "/nowhere").await.unwrap();
    // Left by an agent that was killed midway.
    symlink(format!("{dir}/5.log"), fixture.path("links/.linking-1-77")).unwrap();
    // Links to another agent's logs, which it may just be creating or whose logs do not exist yet.
    symlink("/another/pod/c/0.log", fixture.path("links/.linking-2-78")).unwrap();
    symlink("/another/pod/c/0.log", fixture.path("links/p_ns_c-another.log")).unwrap();
    let running = BTreeSet::from([format!("{dir}/4.log")]);
    fixture.host.remove_dead_links(running).await.unwrap();
    let left = |fixture: &PodDirsFixture| {
        let mut names: Vec<_> = std::fs::read_dir(fixture.path("links"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let of_others = [".linking-2-78", "not-ours", "p_ns_c-another.log"];
    let own = ["p_ns_c-id.log", "p_ns_c-other.log", "p_ns_c-runs.log"];
    assert_eq!(left(&fixture), [of_others, own].concat());
    fixture.host.remove_container_log(&format!("{dir}/2.log")).await.unwrap();
    fixture.host.remove_container_log(&format!("{dir}/2.log")).await.unwrap();
    fixture.host.remove_container_log(&format!("{dir}/0.log")).await.unwrap();
    fixture.host.remove_dead_links(BTreeSet::new()).await.unwrap();
    assert_eq!(left(&fixture), of_others);
    assert!(fixture.path("logs/pod/c/10.log").exists());
}
