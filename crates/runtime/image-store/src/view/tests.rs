//! Views: their options as text, their life cycle, and real mounts in a mount namespace.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{OverlayOptions, Upper};
use crate::error::Error;
use crate::mount::{mount_overlay, unmount};
use crate::testing::{Tar, in_private_mount_namespace, test_store};

#[test]
fn options_are_escaped() {
    let options = OverlayOptions {
        lower: vec![PathBuf::from("/a:b"), PathBuf::from("/c,d\\e")],
        upper: Some(Upper { changes: PathBuf::from("/u:1,2"), work: PathBuf::from("/w") }),
        user_attributes: true,
        label: "u:o:f:s0:c1,c2".to_owned(),
    };
    assert_eq!(
        String::from_utf8(options.data()).unwrap(),
        r#"lowerdir=/a\:b:/c\,d\\e,upperdir=/u:1\,2,workdir=/w,userxattr,context="u:o:f:s0:c1,c2""#
    );
}

#[test]
fn a_view_is_made_once_and_keeps_its_image() {
    let test_store = test_store();
    let (store, layer) = (&test_store.store, Tar::new().dir("./", 0o711).file("a", "x"));
    test_store.take("one", &[layer.bytes()]).unwrap();
    test_store.take("two", &[Tar::new().file("b", "x").bytes()]).unwrap();
    let view = store.create_view("c1", "one").unwrap();
    assert_eq!(store.create_view("c1", "one").unwrap(), view);
    assert!(matches!(store.create_view("c1", "two"), Err(Error::ViewTaken(_))));
    assert!(matches!(store.create_read_only_view("c1", "one"), Err(Error::ViewTaken(_))));
    let upper = view.overlay.upper.clone().unwrap();
    assert_eq!(fs::metadata(&upper.changes).unwrap().mode() & 0o7777, 0o711);
    for id in ["", ".", "..", "a/b", ".hidden", &"x".repeat(129), "a\n"] {
        assert!(matches!(store.create_view(id, "one"), Err(Error::ViewName { .. })), "{id:?}");
    }
    assert!(matches!(store.create_view("c2", "none"), Err(Error::ImageMissing(_))));
    fs::write(upper.changes.join("new"), vec![1; 100_000]).unwrap();
    assert!(store.view_usage("c1").unwrap().bytes >= 100_000);
    // After removing the image, what the view needs stays; after removing the view, nothing does.
    assert!(store.remove("one").unwrap());
    assert_eq!(store.collect().unwrap().snapshots, 0);
    assert!(view.overlay.lower[0].join("a").is_file());
    assert_eq!(store.create_view("c1", "one").unwrap(), view, "by its lease alone");
    assert_eq!(store.view("c1").unwrap(), Some(view.clone()));
    assert_eq!(store.list_views().unwrap(), ["c1"]);
    store.remove_view("c1").unwrap();
    store.remove_view("c1").unwrap();
    assert_eq!(store.collect().unwrap().snapshots, 1);
    assert!(!upper.changes.exists() && !view.overlay.lower[0].exists());
    assert!(store.image("two").is_ok());
}

#[test]
fn a_mounted_view_shows_the_layers_and_takes_changes() {
    if !in_private_mount_namespace("view::tests::a_mounted_view_shows_the_layers_and_takes_changes")
    {
        return;
    }
    let test_store = test_store();
    let lower = Tar::new()
        .dir("./", 0o711)
        .file("kept", "lower")
        .file("gone", "x")
        .file("opaque/below", "x")
        .dir("merged/", 0o750)
        .file("merged/below", "x")
        .file("usr/lib/old", "x")
        .symlink("lib", "usr/lib");
    let upper = Tar::new()
        .file(".wh.gone", "")
        .file("opaque/.wh..wh..opq", "")
        .file("opaque/above", "x")
        .file("merged/above", "x")
        .file("lib/new", "x")
        .file("made/.wh.never", "");
    test_store.take("it", &[lower.bytes(), upper.bytes()]).unwrap();
    let view = test_store.store.create_view("c", "it").unwrap();
    let target = test_store.dir.path().join("mounted");
    fs::create_dir(&target).unwrap();
    mount_overlay(&view.overlay, &target).unwrap();
    let names = |path: &str| {
        let entries = fs::read_dir(target.join(path)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names("."), ["kept", "lib", "made", "merged", "opaque", "usr"]);
    assert_eq!(names("opaque"), ["above"]);
    assert_eq!(names("merged"), ["above", "below"]);
    assert_eq!(names("usr/lib"), ["new", "old"]);
    assert!(names("made").is_empty());
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o7777, 0o711);
    assert_eq!(fs::metadata(target.join("merged")).unwrap().mode() & 0o7777, 0o750);
    fs::write(target.join("kept"), "changed").unwrap();
    fs::remove_file(target.join("merged/below")).unwrap();
    let below = view.overlay.lower.last().unwrap();
    assert_eq!(fs::read_to_string(below.join("kept")).unwrap(), "lower");
    assert!(below.join("merged/below").exists());
    let read_only = test_store.store.create_read_only_view("v", "it").unwrap();
    let second = test_store.dir.path().join("second");
    fs::create_dir(&second).unwrap();
    mount_overlay(&read_only.overlay, &second).unwrap();
    assert_eq!(fs::read_to_string(second.join("kept")).unwrap(), "lower");
    assert!(fs::write(second.join("kept"), "x").is_err());
    for place in [&target, &second] {
        unmount(place).unwrap();
        unmount(place).unwrap();
        assert_eq!(fs::read_dir(place).unwrap().count(), 0);
    }
}

#[test]
fn images_of_no_layer_and_of_one_can_be_mounted_read_only() {
    if !in_private_mount_namespace(
        "view::tests::images_of_no_layer_and_of_one_can_be_mounted_read_only",
    ) {
        return;
    }
    let test_store = test_store();
    let target = test_store.dir.path().join("mounted");
    fs::create_dir(&target).unwrap();
    for (name, layers) in [("none", vec![]), ("one", vec![Tar::new().file("a", "x").bytes()])] {
        test_store.take(name, &layers).unwrap();
        for view in [
            test_store.store.create_view(&format!("w-{name}"), name).unwrap(),
            test_store.store.create_read_only_view(&format!("r-{name}"), name).unwrap(),
        ] {
            mount_overlay(&view.overlay, &target).unwrap();
            assert_eq!(fs::read_dir(&target).unwrap().count(), layers.len(), "{name}");
            unmount(&target).unwrap();
        }
    }
}

/// More layers than fit in a page of options, with both ways of mounting.
#[test]
fn many_layers_are_mounted_by_both_ways() {
    if !in_private_mount_namespace("view::tests::many_layers_are_mounted_by_both_ways") {
        return;
    }
    let test_store = test_store();
    let layers: Vec<_> =
        (0..150).map(|at| Tar::new().file(&format!("file-{at}"), "x").bytes()).collect();
    test_store.take("it", &layers).unwrap();
    let view = test_store.store.create_view("c", "it").unwrap();
    assert!(view.overlay.data().len() > 4096);
    let target = test_store.dir.path().join("mounted");
    fs::create_dir(&target).unwrap();
    type MountFunction = fn(&OverlayOptions, &Path) -> crate::error::Result<()>;
    let mounts: [MountFunction; 2] = [mount_overlay, crate::mount::mount_by_descriptors];
    for mount in mounts {
        mount(&view.overlay, &target).unwrap();
        assert_eq!(fs::read_dir(&target).unwrap().count(), 150);
        unmount(&target).unwrap();
    }
}

/// The older way, which this kernel would not need.
#[test]
fn an_overlay_without_a_place_shows_the_layers_in_no_mount_table() {
    if !in_private_mount_namespace(
        "view::tests::an_overlay_without_a_place_shows_the_layers_in_no_mount_table",
    ) {
        return;
    }
    let test_store = test_store();
    for (name, count) in [("two", 2), ("many", 150)] {
        let layers: Vec<_> = (0..count)
            .map(|at| {
                Tar::new().file("etc/top", &at.to_string()).file(&format!("f{at}"), "").bytes()
            })
            .collect();
        test_store.take(name, &layers).unwrap();
        let view = test_store.store.create_view(name, name).unwrap();
        let lower = OverlayOptions { upper: None, ..view.overlay };
        type MountFunction = fn(&OverlayOptions) -> crate::error::Result<std::os::fd::OwnedFd>;
        let mounts: [MountFunction; 2] =
            [crate::mount::detached_overlay, crate::mount::detached_by_descriptors];
        for mount in mounts {
            let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let made = mount(&lower).unwrap();
            assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
            let root = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&made));
            let top = fs::read_to_string(format!("{root}/etc/top")).unwrap();
            assert_eq!(top, (count - 1).to_string(), "{name}: the topmost layer counts");
            assert_eq!(fs::read_dir(&root).unwrap().count(), count + 1, "{name}");
            assert!(fs::write(format!("{root}/new"), "").is_err(), "{name}: it can be written to");
        }
    }
}

#[test]
fn an_older_kernel_is_detected_by_its_error_at_any_step() {
    use crate::mount::is_of_an_older_kernel as older;
    use rustix::io::Errno;
    for step in [("lowerdir+", Errno::INVAL), ("fsconfig", Errno::INVAL), ("fsopen", Errno::NOSYS)]
    {
        assert!(older(step), "{step:?}");
    }
    for step in [("fsopen", Errno::PERM), ("fsconfig", Errno::NOENT), ("fsmount", Errno::NOSYS)] {
        assert!(!older(step), "{step:?}");
    }
}

#[test]
fn paths_with_the_bytes_that_separate_options_can_be_mounted() {
    if !in_private_mount_namespace(
        "view::tests::paths_with_the_bytes_that_separate_options_can_be_mounted",
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for odd in ["a:b,c", "back\\slash"] {
        let at = |name: &str| {
            let path = dir.path().join(odd).join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let options = OverlayOptions {
            lower: vec![at("one"), at("two")],
            upper: Some(Upper { changes: at("changes"), work: at("work") }),
            user_attributes: false,
            label: String::new(),
        };
        fs::write(at("two").join("file"), "x").unwrap();
        let target = at("target");
        for mount in [mount_overlay, crate::mount::mount_by_descriptors] {
            mount(&options, &target).unwrap_or_else(|error| panic!("{odd}: {error}"));
            assert!(target.join("file").is_file(), "{odd}");
            unmount(&target).unwrap();
        }
    }
}
