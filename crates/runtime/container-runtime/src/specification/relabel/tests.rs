//! The walk on real directories, with a writer that records its calls.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;

/// The files that a walk visits, by inode number.
fn walked(path: &Path) -> Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    walk(path, &mut |file| {
        assert!(found.insert(fstat(file)?.st_ino), "twice the same file");
        Ok(())
    })?;
    Ok(found)
}

fn number(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn everything_beneath_is_labelled_and_nothing_that_links_lead_to() {
    let outer = tempfile::tempdir().unwrap();
    let outer = outer.path().canonicalize().unwrap();
    let root = outer.join("volume");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/file"), "").unwrap();
    fs::create_dir(outer.join("secret")).unwrap();
    fs::write(outer.join("secret/file"), "").unwrap();
    symlink(outer.join("secret"), root.join("folder")).unwrap();
    symlink(outer.join("secret/file"), root.join("a/link")).unwrap();
    let wanted = ["", "a", "a/b", "a/b/file", "folder", "a/link"];
    let wanted: BTreeSet<u64> = wanted.iter().map(|name| number(&root.join(name))).collect();
    assert_eq!(walked(&root).unwrap(), wanted);
    // A single file is a volume too.
    let file = root.join("a/b/file");
    assert_eq!(walked(&file).unwrap(), BTreeSet::from([number(&file)]));
    let through = root.join("folder/file");
    assert!(walked(&through).is_err(), "its links were to be resolved before");
}

#[test]
fn dirs_of_the_machine_are_refused() {
    for path in ["/", "/usr", "/etc", "/home", "/var/lib", "/etc/"] {
        let failure = walked(Path::new(path)).unwrap_err();
        assert!(failure.text.contains("is not allowed"), "{path}: {failure}");
    }
}

#[test]
fn files_without_label_support_are_skipped_and_other_errors_returned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    fs::write(path.join("file"), "").unwrap();
    for error in [Errno::NOTSUP, Errno::ROFS] {
        let mut count = 0;
        let outcome = walk(&path, &mut |_| {
            count += 1;
            Err(error)
        });
        assert_eq!((outcome, count), (Ok(()), 2));
    }
    let failure = walk(&path, &mut |_| Err(Errno::PERM)).unwrap_err();
    assert!(failure.text.contains("labelling"), "{failure}");
}

#[test]
fn depth_and_count_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    let mut deep = path.clone();
    for _ in 0..=MAX_DEPTH {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
    }
    let failure = walked(&path).unwrap_err();
    assert!(failure.text.contains("folders in each other"), "{failure}");
}

/// Root can write the attribute on any kernel if the file system supports attributes.
#[test]
fn the_attribute_is_written_to_files_and_links_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    fs::write(path.join("file"), "").unwrap();
    symlink("file", path.join("link")).unwrap();
    let label = "system_u:object_r:container_file_t:s0:c1,c2";
    match relabel(&path, label) {
        Err(failure) if failure.text.contains("not permitted") => return,
        outcome => outcome.unwrap(),
    }
    for name in ["", "file", "link"] {
        let mut have = [0; 256];
        match rustix::fs::lgetxattr(path.join(name), ATTRIBUTE, &mut have[..]) {
            Ok(length) => assert_eq!(&have[..length], label.as_bytes(), "{name:?}"),
            Err(error) => assert!(matches!(error, Errno::NOTSUP | Errno::NODATA), "{error}"),
        }
    }
}
