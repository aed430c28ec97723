//! On real directories: attacks that a container can mount on processes that read, write and remove
//! below.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use super::*;

fn test_dir() -> (tempfile::TempDir, OpenDir) {
    let test_dir = tempfile::tempdir().unwrap();
    let dir = OpenDir::open(test_dir.path()).unwrap();
    (test_dir, dir)
}

#[test]
fn no_name_reaches_outside_the_dir() {
    let (test_dir, _) = test_dir();
    std::fs::create_dir(test_dir.path().join("inside")).unwrap();
    std::fs::write(test_dir.path().join("outside"), "secret").unwrap();
    let inside = OpenDir::open(&test_dir.path().join("inside")).unwrap();
    symlink("../outside", test_dir.path().join("inside/relative")).unwrap();
    symlink(test_dir.path().join("outside"), test_dir.path().join("inside/absolute")).unwrap();
    symlink("loop", test_dir.path().join("inside/loop")).unwrap();
    for symlinks in [SymlinkPolicy::Refused, SymlinkPolicy::Within] {
        for name in ["relative", "absolute", "loop", "../outside", "./../outside", "/etc/passwd"] {
            assert!(inside.read(name, symlinks, 100).is_err(), "{name} {symlinks:?}");
        }
    }
}

#[test]
fn symlinks_inside_are_followed_only_on_request() {
    let (test_dir, dir) = test_dir();
    std::fs::write(test_dir.path().join("real"), "x").unwrap();
    symlink("real", test_dir.path().join("link")).unwrap();
    assert_eq!(dir.read("link", SymlinkPolicy::Within, 10).unwrap(), b"x");
    assert!(dir.read("link", SymlinkPolicy::Refused, 10).is_err());
}

#[test]
fn a_fifo_or_dir_is_refused_without_blocking() {
    let (test_dir, dir) = test_dir();
    let pipe = test_dir.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let reason = dir.read("pipe", SymlinkPolicy::Within, 10).unwrap_err().to_string();
    assert!(reason.ends_with("not a regular file but a named pipe"), "{reason}");
    std::fs::create_dir(test_dir.path().join("folder")).unwrap();
    assert!(dir.read("folder", SymlinkPolicy::Within, 10).is_err());
}

#[test]
fn reads_and_listings_beyond_their_limit_fail() {
    let (test_dir, dir) = test_dir();
    std::fs::write(test_dir.path().join("nine"), "123456789").unwrap();
    std::fs::write(test_dir.path().join("ten"), "1234567890").unwrap();
    assert_eq!(dir.read("nine", SymlinkPolicy::Refused, 10).unwrap().len(), 9);
    assert!(dir.read("ten", SymlinkPolicy::Refused, 10).is_err());
    assert!(dir.names(1).is_err());
    assert_eq!(dir.names(2).unwrap(), ["nine", "ten"]);
}

#[test]
fn new_dirs_get_the_given_mode_and_existing_ones_keep_theirs() {
    let (test_dir, dir) = test_dir();
    dir.make_dir("a/b", 0o777).unwrap();
    let mode = |name: &str| {
        std::fs::metadata(test_dir.path().join(name)).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!((mode("a"), mode("a/b")), (0o777, 0o777));
    dir.make_dir("a/b/c", 0o750).unwrap();
    assert_eq!((mode("a/b"), mode("a/b/c")), (0o777, 0o750));
    for name in ["../x", "a/../../x", "a//../..", "/x"] {
        assert!(dir.make_dir(name, 0o750).is_err(), "{name}");
    }
    symlink("/tmp", test_dir.path().join("a/out")).unwrap();
    assert!(dir.make_dir("a/out/x", 0o750).is_err());
}

#[test]
fn a_write_is_atomic_and_leaves_no_temporary_file() {
    let (test_dir, dir) = test_dir();
    write_whole(&dir, "name", b"one", 0o644, WriteDurability::Synced).unwrap();
    write_whole(&dir, "name", b"two", 0o640, WriteDurability::Atomic).unwrap();
    assert_eq!(std::fs::read(test_dir.path().join("name")).unwrap(), b"two");
    let mode = std::fs::metadata(test_dir.path().join("name")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    std::fs::create_dir(test_dir.path().join("full")).unwrap();
    std::fs::write(test_dir.path().join("full/x"), "").unwrap();
    assert!(write_whole(&dir, "full", b"x", 0o600, WriteDurability::Atomic).is_err());
    assert_eq!(dir.names(9).unwrap(), ["full", "name"]);
    std::fs::write(test_dir.path().join(".writing-1-1"), "cut").unwrap();
    assert_eq!(dir.committed_names(9).unwrap(), ["full", "name"]);
    assert_eq!(dir.names(9).unwrap(), ["full", "name"]);
}

#[test]
fn invalid_names_are_refused() {
    for bad in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256)] {
        assert!(check_name(bad).is_err(), "{bad:?}");
    }
    for good in ["a", "...", "..data", &"x".repeat(255)] {
        assert!(check_name(good).is_ok(), "{good:?}");
    }
}

#[test]
fn deep_and_wide_trees_are_removed() {
    let (test_dir, dir) = test_dir();
    let mut here = dir.make_dir("tree", 0o700).unwrap();
    for depth in 0..400 {
        rustix::fs::mkdirat(&here, "d", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        rustix::fs::mkdirat(&here, ".removing-3", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        let inner = here.dir(".removing-3").unwrap();
        write_whole(&inner, "f", b"", 0o000, WriteDurability::Atomic).unwrap();
        if depth % 50 == 0 {
            for number in 0..30 {
                write_whole(&here, format!("f{number}"), b"", 0o600, WriteDurability::Atomic)
                    .unwrap();
            }
        }
        here = here.dir("d").unwrap();
    }
    remove_tree(&dir, "tree").unwrap();
    assert!(!test_dir.path().join("tree").exists());
    remove_tree(&dir, "tree").unwrap();
}

#[test]
fn concurrent_removals_of_one_tree_all_succeed() {
    let (test_dir, dir) = test_dir();
    for _ in 0..5 {
        let mut here = dir.make_dir("tree", 0o700).unwrap();
        for _ in 0..200 {
            here = here.make_dir("d", 0o700).unwrap();
            here.make_dir("beside", 0o700).unwrap();
        }
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| remove_tree(&dir, "tree").unwrap());
            }
        });
        assert!(!test_dir.path().join("tree").exists());
    }
}

/// Needs `CAP_LINUX_IMMUTABLE` and a file system with such flags.
#[test]
fn immutable_files_are_removed_and_the_parent_dir_keeps_its_flag() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let (test_dir, dir) = test_dir();
    let set = |path: &Path, flags: IFlags| {
        let file = std::fs::File::open(path).unwrap();
        let had = ioctl_getflags(&file).unwrap();
        ioctl_setflags(&file, (had - (IFlags::IMMUTABLE | IFlags::APPEND)) | flags).unwrap();
    };
    let tree = test_dir.path().join("tree");
    std::fs::create_dir_all(tree.join("shut/inner")).unwrap();
    std::fs::create_dir_all(tree.join("deep")).unwrap();
    let mut chain = vec![OpenDir::open(&tree.join("deep")).unwrap()];
    for depth in 0..100 {
        let inner = chain[depth].make_dir("d", 0o700).unwrap();
        inner.make_dir("beside", 0o700).unwrap();
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
    set(test_dir.path(), IFlags::IMMUTABLE);
    let refused = remove_tree(&dir, "tree");
    set(test_dir.path(), IFlags::empty());
    assert!(refused.is_err() && tree.exists());
    remove_tree(&dir, "tree").unwrap();
    assert!(!tree.exists());
}

#[test]
fn removal_follows_no_symlink() {
    let (test_dir, dir) = test_dir();
    std::fs::create_dir(test_dir.path().join("keep")).unwrap();
    std::fs::write(test_dir.path().join("keep/me"), "").unwrap();
    std::fs::create_dir(test_dir.path().join("tree")).unwrap();
    symlink("../keep", test_dir.path().join("tree/link")).unwrap();
    remove_tree(&dir, "tree").unwrap();
    assert!(test_dir.path().join("keep/me").exists());
    symlink("keep", test_dir.path().join("top")).unwrap();
    remove_tree(&dir, "top").unwrap();
    assert!(test_dir.path().join("keep/me").exists());
}

#[test]
fn removal_stops_at_a_mount() {
    let (test_dir, dir) = test_dir();
    std::fs::create_dir_all(test_dir.path().join("tree/point")).unwrap();
    std::fs::create_dir(test_dir.path().join("kept")).unwrap();
    std::fs::write(test_dir.path().join("kept/me"), "").unwrap();
    let point = test_dir.path().join("tree/point");
    // A bind mount of the same file system: device numbers say nothing.
    rustix::mount::mount_bind(test_dir.path().join("kept"), &point).unwrap();
    let seen = mounts_beneath(&test_dir.path().join("tree")).unwrap();
    let root = is_mount_root(dir.dir("tree").unwrap(), Path::new("point"));
    let refused = remove_tree(&dir, "tree");
    rustix::mount::unmount(&point, rustix::mount::UnmountFlags::NOFOLLOW).unwrap();
    assert_eq!(seen, [std::fs::canonicalize(&point).unwrap()]);
    assert_eq!(root, Ok(true));
    assert!(refused.unwrap_err().is_transient());
    assert!(test_dir.path().join("kept/me").exists());
    remove_tree(&dir, "tree").unwrap();
}

#[tokio::test]
async fn a_hanging_call_is_abandoned_and_occupies_one_thread() {
    let blocking_pool = BlockingPool::new("test-apart", 2, Duration::from_millis(50));
    let (release_call, held) = std::sync::mpsc::channel::<()>();
    let hung = blocking_pool.run(move || held.recv().is_ok()).await;
    assert_eq!(hung, Err(BlockingPoolError::TimedOut(Duration::from_millis(50))));
    let patient = Duration::from_secs(20);
    assert_eq!(blocking_pool.run_within(patient, || 7).await, Ok(7));
    let panicked =
        blocking_pool.run_within(patient, || u8::try_from(700).expect("as planned")).await;
    assert_eq!(panicked, Err(BlockingPoolError::NoResult));
    assert_eq!(blocking_pool.run_within(patient, || 8).await, Ok(8));
    release_call.send(()).unwrap();
}

#[tokio::test]
async fn when_all_threads_hang_a_further_call_times_out() {
    let blocking_pool = BlockingPool::new("test-apart", 1, Duration::from_millis(30));
    let (release_call, held) = std::sync::mpsc::channel::<()>();
    assert!(blocking_pool.run(move || held.recv().is_ok()).await.is_err());
    assert!(matches!(blocking_pool.run(|| ()).await, Err(BlockingPoolError::TimedOut(_))));
    release_call.send(()).unwrap();
    assert_eq!(blocking_pool.run_within(Duration::from_secs(20), || 1).await, Ok(1));
}
