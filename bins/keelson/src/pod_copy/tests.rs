//! Arguments of `cp`, and trees that are made to lead a copy outside.

use super::container_root::ContainerRoot;
use super::id_map::root_outside;
use super::pod_path::{Direction, PodPath, direction, last_name};
use super::tree::{TreeCopy, local_source};
use super::{into, out};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

#[test]
fn one_side_is_in_a_pod_and_the_other_is_not() {
    let pod_path = |pod: &str, path: &str| PodPath { pod: pod.to_owned(), path: path.to_owned() };
    let brought_out = |pod: &str, path: &str, to: &str| {
        Some(Direction::Out { from: pod_path(pod, path), to: PathBuf::from(to) })
    };
    let put_in = |from: &str, pod: &str, path: &str| {
        Some(Direction::In { from: PathBuf::from(from), to: pod_path(pod, path) })
    };
    for (from, to, expected) in [
        ("web:/a", "b", brought_out("web", "/a", "b")),
        ("ns/web:a", ".", brought_out("ns/web", "a", ".")),
        ("web:/a:b", "/c:d", brought_out("web", "/a:b", "/c:d")),
        ("./a:b", "web:/c", put_in("./a:b", "web", "/c")),
        ("a", "web:/c/", put_in("a", "web", "/c/")),
        ("a", "b", None),
        ("web:/a", "web:/b", None),
        (":/a", "b", None),
        ("web:", "b", None),
        ("a/b/c:/d", "b", None),
        ("/web:/d", "b", None),
    ] {
        assert_eq!(direction(from, to).ok(), expected, "{from} {to}");
    }
}

#[test]
fn a_path_is_called_by_its_last_name() {
    for (path, expected) in [
        ("/a/b", Some("b")),
        ("/a/b/", Some("b")),
        ("/a/b/.", Some("b")),
        ("a", Some("a")),
        ("/", None),
        ("", None),
        ("/a/..", None),
    ] {
        assert_eq!(last_name(path), expected.map(OsStr::new), "{path}");
    }
}

#[test]
fn the_root_user_of_a_container_maps_to_a_host_user() {
    for (text, expected) in [
        ("         0          0 4294967295\n", Some(0)),
        ("         0     100000      65536\n", Some(100_000)),
        ("1 200000 5\n0 5000 1\n", Some(5000)),
        ("1 200000 5\n", None),
        ("0 5 0\n", None),
        ("", None),
        ("x\n", None),
    ] {
        assert_eq!(root_outside(text), expected, "{text}");
    }
}

/// A container's tree beside something that must stay out of reach.
struct CopyFixture {
    _dir: tempfile::TempDir,
    root: PathBuf,
    host: PathBuf,
}

fn copy_fixture() -> CopyFixture {
    let dir = tempfile::tempdir().unwrap();
    let (root, host) = (dir.path().join("root"), dir.path().join("host"));
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::create_dir_all(root.join("data/deep")).unwrap();
    fs::create_dir(&host).unwrap();
    fs::write(root.join("etc/secret"), "inside").unwrap();
    fs::write(root.join("data/deep/file"), "deep").unwrap();
    fs::write(host.join("secret"), "outside").unwrap();
    CopyFixture { _dir: dir, root, host }
}

impl CopyFixture {
    fn bring_out(&self, from: &str, to: &Path) -> anyhow::Result<TreeCopy> {
        let mut walk = TreeCopy { is_outward: true, ..TreeCopy::default() };
        out(&ContainerRoot::of_dir(&self.root)?, from, to, &mut walk)?;
        Ok(walk)
    }

    fn put_in(&self, from: &Path, to: &str) -> anyhow::Result<TreeCopy> {
        let mut walk = TreeCopy::default();
        into(&ContainerRoot::of_dir(&self.root)?, from, to, &mut walk)?;
        Ok(walk)
    }
}

#[test]
fn symlinks_of_the_container_stay_in_the_container() {
    let copy_fixture = copy_fixture();
    let (root, host) = (&copy_fixture.root, &copy_fixture.host);
    symlink(host.join("secret"), root.join("absolute")).unwrap();
    symlink("../../../../host/secret", root.join("data/upward")).unwrap();
    symlink("/etc/secret", root.join("data/own")).unwrap();
    symlink(host, root.join("data/folder")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    let copy = host.join("copy");
    for path in ["/absolute", "/data/upward", "/magic/etc/passwd", "/../../host/secret"] {
        assert!(copy_fixture.bring_out(path, &copy).is_err(), "{path}");
        assert!(!copy.exists(), "{path}");
    }
    copy_fixture.bring_out("/data/own", &copy).unwrap();
    assert_eq!(fs::read_to_string(&copy).unwrap(), "inside", "absolute means the container's");
    let walk = copy_fixture.bring_out("/data", &host.join("tree")).unwrap();
    assert_eq!(walk.skipped.len(), 3, "{:?}", walk.skipped);
    assert_eq!(fs::read_to_string(host.join("tree/deep/file")).unwrap(), "deep");
    assert!(fs::symlink_metadata(host.join("tree/own")).is_err());

    fs::write(host.join("new"), "new").unwrap();
    assert!(copy_fixture.put_in(&host.join("new"), "/data/folder/secret").is_err());
    assert!(copy_fixture.put_in(&host.join("new"), "/absolute").is_err());
    assert_eq!(fs::read_to_string(host.join("secret")).unwrap(), "outside");
}

#[test]
fn a_copy_takes_the_place_of_nothing_but_files_and_dirs() {
    let copy_fixture = copy_fixture();
    let (root, host) = (&copy_fixture.root, &copy_fixture.host);
    let site = host.join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("page"), "first").unwrap();
    fs::set_permissions(site.join("page"), fs::Permissions::from_mode(0o4751)).unwrap();
    symlink("page", site.join("link")).unwrap();
    copy_fixture.put_in(&site, "/data").unwrap();
    let page = root.join("data/site/page");
    assert_eq!(fs::read_to_string(&page).unwrap(), "first");
    assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(fs::read_link(root.join("data/site/link")).unwrap(), Path::new("page"));
    fs::write(site.join("page"), "2").unwrap();
    copy_fixture.put_in(&site, "/data").unwrap();
    assert_eq!(fs::read_to_string(&page).unwrap(), "2");
    copy_fixture.put_in(&site, "/data/other").unwrap();
    assert_eq!(fs::read_to_string(root.join("data/other/page")).unwrap(), "2");

    // Symlinks in place of a file and a directory, planted between two copies.
    for (from, planted) in [("/data/site", "site/page"), ("/data", "data/deep")] {
        let pod_path = host.join("planted").join(planted);
        fs::create_dir_all(pod_path.parent().unwrap()).unwrap();
        symlink(host.join("secret"), &pod_path).unwrap();
        assert!(copy_fixture.bring_out(from, &host.join("planted")).is_err(), "{from}");
    }
    assert_eq!(fs::read_to_string(host.join("secret")).unwrap(), "outside");
    for (from, to) in [("data", "/nowhere/x"), ("data", "/etc/secret/x"), ("missing", "/x")] {
        assert!(copy_fixture.put_in(&host.join(from), to).is_err(), "{from} {to}");
    }
    assert!(local_source(&host.join("missing")).is_err());
}

#[test]
fn a_pipe_neither_blocks_nor_comes_along() {
    let copy_fixture = copy_fixture();
    let pipe = copy_fixture.root.join("data/pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let walk = copy_fixture.bring_out("/data", &copy_fixture.host.join("tree")).unwrap();
    assert_eq!((walk.files, walk.dirs, walk.skipped.len()), (1, 2, 1), "{walk:?}");
    fs::write(copy_fixture.host.join("file"), "x").unwrap();
    assert!(copy_fixture.put_in(&copy_fixture.host.join("file"), "/data/pipe").is_err());
}
