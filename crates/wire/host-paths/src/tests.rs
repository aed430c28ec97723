//! On real directories: attacks that a container can mount on processes that read, write and remove
//! below.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use super::*;

fn bed() -> (tempfile::TempDir, Folder) {
    let bed = tempfile::tempdir().unwrap();
    let folder = Folder::open(bed.path()).unwrap();
    (bed, folder)
}

#[test]
fn nothing_outside_is_reached() {
    let (bed, _) = bed();
    std::fs::create_dir(bed.path().join("inside")).unwrap();
    std::fs::write(bed.path().join("outside"), "secret").unwrap();
    let inside = Folder::open(&bed.path().join("inside")).unwrap();
    symlink("../outside", bed.path().join("inside/relative")).unwrap();
    symlink(bed.path().join("outside"), bed.path().join("inside/absolute")).unwrap();
    symlink("loop", bed.path().join("inside/loop")).unwrap();
    for links in [Links::Refused, Links::Within] {
        for name in ["relative", "absolute", "loop", "../outside", "./../outside", "/etc/passwd"] {
            assert!(inside.read(name, links, 100).is_err(), "{name} {links:?}");
        }
    }
}

#[test]
fn links_inside_are_followed_only_when_asked() {
    let (bed, folder) = bed();
    std::fs::write(bed.path().join("real"), "x").unwrap();
    symlink("real", bed.path().join("link")).unwrap();
    assert_eq!(folder.read("link", Links::Within, 10).unwrap(), b"x");
    assert!(folder.read("link", Links::Refused, 10).is_err());
}

#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let (bed, folder) = bed();
    let pipe = bed.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let why = folder.read("pipe", Links::Within, 10).unwrap_err().to_string();
    assert!(why.ends_with("not a regular file but a named pipe"), "{why}");
    std::fs::create_dir(bed.path().join("folder")).unwrap();
    assert!(folder.read("folder", Links::Within, 10).is_err());
}

#[test]
fn a_limit_holds() {
    let (bed, folder) = bed();
    std::fs::write(bed.path().join("nine"), "123456789").unwrap();
    std::fs::write(bed.path().join("ten"), "1234567890").unwrap();
    assert_eq!(folder.read("nine", Links::Refused, 10).unwrap().len(), 9);
    assert!(folder.read("ten", Links::Refused, 10).is_err());
    assert!(folder.names(1).is_err());
    assert_eq!(folder.names(2).unwrap(), ["nine", "ten"]);
}

#[test]
fn folders_get_their_mode_and_keep_an_older_one() {
    let (bed, folder) = bed();
    folder.make_folder("a/b", 0o777).unwrap();
    let mode = |name: &str| {
        std::fs::metadata(bed.path().join(name)).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!((mode("a"), mode("a/b")), (0o777, 0o777));
    folder.make_folder("a/b/c", 0o750).unwrap();
    assert_eq!((mode("a/b"), mode("a/b/c")), (0o777, 0o750));
    for name in ["../x", "a/../../x", "a//../..", "/x"] {
        assert!(folder.make_folder(name, 0o750).is_err(), "{name}");
    }
    symlink("/tmp", bed.path().join("a/out")).unwrap();
    assert!(folder.make_folder("a/out/x", 0o750).is_err());
}

#[test]
fn a_write_is_whole_and_leaves_nothing_beside() {
    let (bed, folder) = bed();
    write_whole(&folder, "name", b"one", 0o644, Settled::OnDisk).unwrap();
    write_whole(&folder, "name", b"two", 0o640, Settled::Whole).unwrap();
    assert_eq!(std::fs::read(bed.path().join("name")).unwrap(), b"two");
    let mode = std::fs::metadata(bed.path().join("name")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    std::fs::create_dir(bed.path().join("full")).unwrap();
    std::fs::write(bed.path().join("full/x"), "").unwrap();
    assert!(write_whole(&folder, "full", b"x", 0o600, Settled::Whole).is_err());
    assert_eq!(folder.names(9).unwrap(), ["full", "name"]);
    std::fs::write(bed.path().join(".writing-1-1"), "cut").unwrap();
    assert_eq!(folder.finished_names(9).unwrap(), ["full", "name"]);
    assert_eq!(folder.names(9).unwrap(), ["full", "name"]);
}

#[test]
fn names_are_checked() {
    for bad in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256)] {
        assert!(check_name(bad).is_err(), "{bad:?}");
    }
    for good in ["a", "...", "..data", &"x".repeat(255)] {
        assert!(check_name(good).is_ok(), "{good:?}");
    }
}

#[test]
fn a_deep_and_a_wide_tree_go() {
    let (bed, folder) = bed();
    let mut here = folder.make_folder("tree", 0o700).unwrap();
    for depth in 0..400 {
        rustix::fs::mkdirat(&here, "d", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        rustix::fs::mkdirat(&here, ".removing-3", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        let inner = here.folder(".removing-3").unwrap();
        write_whole(&inner, "f", b"", 0o000, Settled::Whole).unwrap();
        if depth % 50 == 0 {
            for number in 0..30 {
                write_whole(&here, format!("f{number}"), b"", 0o600, Settled::Whole).unwrap();
            }
        }
        here = here.folder("d").unwrap();
    }
    remove_tree(&folder, "tree").unwrap();
    assert!(!bed.path().join("tree").exists());
    remove_tree(&folder, "tree").unwrap();
}

#[test]
fn several_may_remove_one_tree() {
    let (bed, folder) = bed();
    for _ in 0..5 {
        let mut here = folder.make_folder("tree", 0o700).unwrap();
        for _ in 0..200 {
            here = here.make_folder("d", 0o700).unwrap();
            here.make_folder("beside", 0o700).unwrap();
        }
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| remove_tree(&folder, "tree").unwrap());
            }
        });
        assert!(!bed.path().join("tree").exists());
    }
}

/// Needs `CAP_LINUX_IMMUTABLE` and a file system with such flags.
#[test]
fn what_is_immutable_goes_and_the_folder_around_it_stays_so() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let (bed, folder) = bed();
    let set = |path: &Path, flags: IFlags| {
        let file = std::fs::File::open(path).unwrap();
        let had = ioctl_getflags(&file).unwrap();
        ioctl_setflags(&file, (had - (IFlags::IMMUTABLE | IFlags::APPEND)) | flags).unwrap();
    };
    let tree = bed.path().join("tree");
    std::fs::create_dir_all(tree.join("shut/inner")).unwrap();
    std::fs::create_dir_all(tree.join("deep")).unwrap();
    let mut chain = vec![Folder::open(&tree.join("deep")).unwrap()];
    for depth in 0..100 {
        let inner = chain[depth].make_folder("d", 0o700).unwrap();
        inner.make_folder("beside", 0o700).unwrap();
        chain.push(inner);
    }
    for one in chain {
        ioctl_setflags(&one, ioctl_getflags(&one).unwrap() | IFlags::IMMUTABLE).unwrap();
    }
    std::fs::write(tree.join("shut/file"), "").unwrap();
    std::fs::write(tree.join("log"), "").unwrap();
    set(&tree.join("shut/file"), IFlags::IMMUTABLE);
    set(&tree.join("log"), IFlags::APPEND);
    set(&tree.join("shut"), IFlags::IMMUTABLE);
    set(&tree, IFlags::APPEND);
    // The tree's parent directory belongs to others.
    set(bed.path(), IFlags::IMMUTABLE);
    let refused = remove_tree(&folder, "tree");
    set(bed.path(), IFlags::empty());
    assert!(refused.is_err() && tree.exists());
    remove_tree(&folder, "tree").unwrap();
    assert!(!tree.exists());
}

#[test]
fn removal_follows_no_symlink() {
    let (bed, folder) = bed();
    std::fs::create_dir(bed.path().join("keep")).unwrap();
    std::fs::write(bed.path().join("keep/me"), "").unwrap();
    std::fs::create_dir(bed.path().join("tree")).unwrap();
    symlink("../keep", bed.path().join("tree/link")).unwrap();
    remove_tree(&folder, "tree").unwrap();
    assert!(bed.path().join("keep/me").exists());
    symlink("keep", bed.path().join("top")).unwrap();
    remove_tree(&folder, "top").unwrap();
    assert!(bed.path().join("keep/me").exists());
}

#[test]
fn removal_stops_at_a_mount() {
    let (bed, folder) = bed();
    std::fs::create_dir_all(bed.path().join("tree/point")).unwrap();
    std::fs::create_dir(bed.path().join("kept")).unwrap();
    std::fs::write(bed.path().join("kept/me"), "").unwrap();
    let point = bed.path().join("tree/point");
    // A bind mount of the same file system: device numbers say nothing.
    rustix::mount::mount_bind(bed.path().join("kept"), &point).unwrap();
    let seen = mounts_beneath(&bed.path().join("tree")).unwrap();
    let root = is_mount_root(folder.folder("tree").unwrap(), Path::new("point"));
    let refused = remove_tree(&folder, "tree");
    rustix::mount::unmount(&point, rustix::mount::UnmountFlags::NOFOLLOW).unwrap();
    assert_eq!(seen, [std::fs::canonicalize(&point).unwrap()]);
    assert_eq!(root, Ok(true));
    assert!(refused.unwrap_err().is_passing());
    assert!(bed.path().join("kept/me").exists());
    remove_tree(&folder, "tree").unwrap();
}

#[tokio::test]
async fn a_call_that_hangs_is_left_behind_and_costs_one_place() {
    let apart = Apart::new("test-apart", 2, Duration::from_millis(50));
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let hung = apart.run(move || held.recv().is_ok()).await;
    assert_eq!(hung, Err(ApartError::Late(Duration::from_millis(50))));
    let patient = Duration::from_secs(20);
    assert_eq!(apart.run_within(patient, || 7).await, Ok(7));
    let panicked = apart.run_within(patient, || u8::try_from(700).expect("as planned")).await;
    assert_eq!(panicked, Err(ApartError::Lost));
    assert_eq!(apart.run_within(patient, || 8).await, Ok(8));
    let_go.send(()).unwrap();
}

#[tokio::test]
async fn when_every_place_hangs_the_next_waits_no_longer_than_its_limit() {
    let apart = Apart::new("test-apart", 1, Duration::from_millis(30));
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    assert!(apart.run(move || held.recv().is_ok()).await.is_err());
    assert!(matches!(apart.run(|| ()).await, Err(ApartError::Late(_))));
    let_go.send(()).unwrap();
    assert_eq!(apart.run_within(Duration::from_secs(20), || 1).await, Ok(1));
}
