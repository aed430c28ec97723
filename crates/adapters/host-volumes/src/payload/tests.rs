//! Files in real directories and on real mounts, and what may be found in their place.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

struct PayloadFixture {
    dir: tempfile::TempDir,
    kind: PayloadVolumeKind,
    group: Option<i64>,
    mount_points: Vec<String>,
}

impl Drop for PayloadFixture {
    fn drop(&mut self) {
        for point in host_paths::mounts_beneath(self.dir.path()).unwrap() {
            let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW;
            let _gone = rustix::mount::unmount(&point, flags);
        }
    }
}

fn file(path: &str, content: &str) -> PayloadFile {
    PayloadFile { path: path.into(), mode: 0o644, owner: None, content: content.into() }
}

impl PayloadFixture {
    fn new(kind: PayloadVolumeKind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, kind, group: None, mount_points: Vec::new() }
    }

    fn pod(&self) -> PodDirPath {
        PodDirPath::new(self.dir.path(), "u").unwrap()
    }

    fn set_up(&self, files: Vec<PayloadFile>) -> Result<PathBuf, StepError> {
        let wanted = PayloadVolume {
            name: "v".into(),
            kind: self.kind,
            size: Some(1 << 20),
            files: Arc::new(files),
            mount_points: self.mount_points.clone(),
            group: self.group,
        };
        set_up(&self.pod(), &wanted)
    }

    /// Path of the volume.
    fn put(&self, files: &[(&str, &str)]) -> PathBuf {
        self.set_up(files.iter().map(|(path, content)| file(path, content)).collect()).unwrap()
    }
}

/// The names in a directory, without those that begin with two dots.
fn shown(path: &Path) -> String {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with(".."))
        .collect();
    names.sort();
    names.join(",")
}

fn versions(path: &Path) -> usize {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().starts_with("..2")).count()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn files_are_there_change_and_go() {
    let fixture = PayloadFixture::new(PayloadVolumeKind::ConfigMap);
    let path = fixture.put(&[("a", "1"), ("d/b", "2"), ("d/e/c", "3")]);
    assert!(path.ends_with("pods/u/volumes/kubernetes.io~configmap/v"));
    assert_eq!((shown(&path), text(&path.join("d/e/c"))), ("a,d".to_owned(), "3".to_owned()));
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
    assert_eq!(std::fs::read_link(path.join("a")).unwrap(), Path::new("..data/a"));
    let version = std::fs::read_link(path.join("..data")).unwrap();
    assert_eq!(version.to_str().unwrap().len(), "..2026_01_02_03_04_05.123456789".len());
    // The same again changes nothing.
    fixture.put(&[("a", "1"), ("d/b", "2"), ("d/e/c", "3")]);
    assert_eq!(std::fs::read_link(path.join("..data")).unwrap(), version);
    for (files, names) in [
        (&[("a", "2"), ("d/b", "2")][..], "a,d"),
        (&[("f", "x")][..], "f"),
        (&[][..], ""),
        (&[("a", "1")][..], "a"),
    ] {
        fixture.put(files);
        assert_eq!((shown(&path).as_str(), versions(&path)), (names, 1));
        for (name, content) in files {
            assert_eq!(text(&path.join(name)), *content);
        }
    }
    crate::tear_down::tear_down(&fixture.pod()).unwrap();
    assert!(!path.exists());
}

#[test]
fn modes_owners_and_groups() {
    let mut fixture = PayloadFixture::new(PayloadVolumeKind::Projected);
    let token = PayloadFile { mode: 0o600, owner: Some(1234), ..file("t", "jwt") };
    let path = fixture.set_up(vec![PayloadFile { mode: 0o400, ..file("d/a", "") }, token.clone()]);
    let path = path.unwrap();
    let of = |name: &str| {
        let found = std::fs::metadata(path.join(name)).unwrap();
        (found.permissions().mode() & 0o7777, found.uid(), found.gid())
    };
    assert_eq!((of("t"), of("d/a"), of("d")), ((0o600, 1234, 0), (0o400, 0, 0), (0o755, 0, 0)));
    assert_eq!(of("").0, 0o1777);
    fixture.group = Some(4321);
    fixture
        .set_up(vec![
            PayloadFile { mode: 0o400, ..file("d/a", "") },
            PayloadFile { content: "new".into(), ..token },
        ])
        .unwrap();
    assert_eq!((of("t"), of("d/a")), ((0o640, 1234, 4321), (0o440, 0, 4321)));
    assert_eq!((of("d"), of("").2), ((0o2755, 0, 4321), 4321));
}

#[test]
fn secret_kinds_are_in_memory_and_nothing_is_left_of_them() {
    for kind in PayloadVolumeKind::ALL {
        let fixture = PayloadFixture::new(kind);
        let path = fixture.put(&[("a", "1")]);
        let is_memory = is_memory_mount(&OpenDir::open(&path).unwrap()).unwrap();
        let mounts = || host_paths::mounts_beneath(fixture.dir.path()).unwrap().len();
        let own = usize::from(kind.is_in_memory());
        assert_eq!((is_memory && mounts() == 1, mounts()), (kind.is_in_memory(), own), "{kind:?}");
        fixture.put(&[("a", "2")]);
        assert_eq!(mounts(), own);
        crate::tear_down::tear_down(&fixture.pod()).unwrap();
        assert!(mounts() == 0 && !path.exists(), "{kind:?}");
    }
}

#[test]
fn a_reader_sees_one_version_only() {
    let fixture = PayloadFixture::new(PayloadVolumeKind::ConfigMap);
    let path = fixture.put(&[("a", "0"), ("b", "0")]);
    let is_over = Arc::new(AtomicBool::new(false));
    let (stop, dir) = (is_over.clone(), path.clone());
    let reader = std::thread::spawn(move || {
        let mut seen = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            // As a program does that follows `..data` once.
            let version = dir.join(std::fs::read_link(dir.join("..data")).unwrap());
            let pair = (
                std::fs::read_to_string(version.join("a")),
                std::fs::read_to_string(version.join("b")),
            );
            if let (Ok(a), Ok(b)) = pair {
                assert_eq!(a, b);
                seen += 1;
            }
        }
        seen
    });
    for number in 1..300 {
        let number = number.to_string();
        fixture.put(&[("a", &number), ("b", &number)]);
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
}

#[test]
fn what_is_in_the_way_is_replaced_and_nothing_outside_is_touched() {
    let fixture = PayloadFixture::new(PayloadVolumeKind::ConfigMap);
    let outside = fixture.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("a"), "kept").unwrap();
    let path = fixture.put(&[("a", "1"), ("d/b", "1")]);
    type Tamper = fn(&Path, &Path);
    let tampers: [(&str, Tamper); 7] = [
        ("a link out in place of the data", |path, outside| {
            std::fs::remove_file(path.join("..data")).unwrap();
            symlink(outside, path.join("..data")).unwrap();
        }),
        ("a link out in place of a version", |path, outside| {
            let version = path.join(std::fs::read_link(path.join("..data")).unwrap());
            std::fs::remove_dir_all(&version).unwrap();
            symlink(outside, version).unwrap();
        }),
        ("a link out in place of a name", |path, outside| {
            std::fs::remove_file(path.join("a")).unwrap();
            symlink(outside.join("a"), path.join("a")).unwrap();
        }),
        ("a link out in place of a directory of the version", |path, outside| {
            std::fs::remove_dir_all(path.join("..data/d")).unwrap();
            symlink(outside, path.join("..data/d")).unwrap();
        }),
        ("a FIFO in place of a file", |path, _| {
            std::fs::remove_file(path.join("..data/a")).unwrap();
            let (mode, at) = (Mode::from_raw_mode(0o666), path.join("..data/a"));
            rustix::fs::mknodat(rustix::fs::CWD, at, FileType::Fifo, mode, 0).unwrap();
        }),
        ("a directory in place of the next link", |path, _| {
            std::fs::create_dir_all(path.join("..data_tmp/x")).unwrap();
            std::fs::write(path.join("..data/a"), "other").unwrap();
        }),
        ("another file", |path, _| std::fs::write(path.join("..data/extra"), "").unwrap()),
    ];
    for (what, tamper) in tampers {
        tamper(&path, &outside);
        fixture.put(&[("a", "1"), ("d/b", "1")]);
        assert_eq!(
            (text(&path.join("a")), text(&path.join("d/b"))),
            ("1".into(), "1".into()),
            "{what}"
        );
        assert_eq!(std::fs::read_link(path.join("a")).unwrap(), Path::new("..data/a"), "{what}");
        assert!(!path.join("..data/extra").exists(), "{what}");
        assert_eq!(
            (shown(&outside), text(&outside.join("a"))),
            ("a".into(), "kept".into()),
            "{what}"
        );
        assert_eq!(versions(&path), 1, "{what}");
    }
}

#[test]
fn a_full_disk_leaves_the_old_files_whole() {
    let fixture = PayloadFixture::new(PayloadVolumeKind::Secret);
    let path = fixture.put(&[("a", "old"), ("b", "old")]);
    let long = "x".repeat(700_000);
    for _ in 0..3 {
        let full = fixture.set_up(vec![file("a", &long), file("b", &long)]).unwrap_err();
        assert!(full.transient && full.text.contains("/b"), "{full:?}");
        assert!(!full.text.contains("xxx"));
        assert_eq!((text(&path.join("a")), text(&path.join("b"))), ("old".into(), "old".into()));
        assert_eq!(versions(&path), 1);
    }
    fixture.put(&[("a", "new"), ("b", "new")]);
    assert_eq!(text(&path.join("b")), "new");
}

#[test]
fn what_a_killed_agent_left_is_removed() {
    let mut fixture = PayloadFixture::new(PayloadVolumeKind::ConfigMap);
    fixture.mount_points = vec!["nested/deep".into()];
    let path = fixture.put(&[("a", "1")]);
    assert!(path.join("nested/deep").is_dir());
    std::fs::create_dir(path.join("..2020_01_01_00_00_00.1")).unwrap();
    std::fs::write(path.join("..2020_01_01_00_00_00.1/a"), "half").unwrap();
    symlink("..2020_01_01_00_00_00.1", path.join("..data_tmp")).unwrap();
    symlink("..data/gone", path.join("gone")).unwrap();
    for files in [&[("a", "1")], &[("a", "2")]] {
        fixture.put(files);
        assert_eq!((shown(&path).as_str(), versions(&path)), ("a,nested", 1));
        assert!(!path.join("..data_tmp").exists());
    }
}

#[test]
fn paths_that_leave_are_refused() {
    for bad in ["../a", "a/../../b", "/a", ".."] {
        let fixture = PayloadFixture::new(PayloadVolumeKind::ConfigMap);
        let path = fixture.put(&[("a", "1")]);
        let refused = fixture.set_up(vec![file(bad, "x")]);
        assert!(refused.is_err(), "{bad}");
        assert_eq!(text(&path.join("a")), "1");
        assert_eq!(versions(&path), 1, "{bad}");
    }
}

#[test]
fn ten_thousand_files() {
    let fixture = PayloadFixture::new(PayloadVolumeKind::ConfigMap);
    let names: Vec<String> = (0..10_000).map(|number| format!("k{number:05}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
    let path = fixture.put(&files);
    fixture.put(&files[..9_999]);
    assert_eq!(shown(&path).split(',').count(), 9_999);
}
