//! What a directory of manifests may contain, valid and invalid.

use std::os::unix::fs::symlink;

use super::*;

fn listed(path: &Path) -> Vec<(String, Result<String, String>)> {
    let SourceSnapshot::All(files) = list(path).snapshot else { panic!("unreachable") };
    files
        .into_iter()
        .map(|file| {
            let name = file.name.rsplit('/').next().unwrap_or_default().to_owned();
            let content = match file.content {
                ManifestContent::Bytes(bytes) => Ok(String::from_utf8(bytes).unwrap()),
                ManifestContent::Unreadable(reason) => Err(reason),
            };
            (name, content)
        })
        .collect()
}

#[test]
fn files_are_listed_in_order_and_dot_names_are_skipped() {
    let temp_dir = tempfile::tempdir().unwrap();
    for name in ["b.yaml", "a.json", ".hidden", "..data", "c"] {
        std::fs::write(temp_dir.path().join(name), name).unwrap();
    }
    let found = listed(temp_dir.path());
    let wanted = ["a.json", "b.yaml", "c"].map(|name| (name.to_owned(), Ok(name.to_owned())));
    assert_eq!(found, wanted);
}

#[test]
fn a_missing_path_has_no_manifests() {
    let listing = list(Path::new("/nowhere/at/all"));
    assert_eq!(listing.snapshot, SourceSnapshot::All(Vec::new()));
    assert_eq!(listing.path_kind, PathKind::Missing);
}

#[test]
fn a_path_through_a_file_is_unreachable() {
    let temp_dir = tempfile::tempdir().unwrap();
    std::fs::write(temp_dir.path().join("file"), "x").unwrap();
    let listing = list(&temp_dir.path().join("file/below"));
    assert!(matches!(listing.snapshot, SourceSnapshot::Unreachable(_)), "{listing:?}");
    assert!(matches!(list(Path::new("/dev/null")).snapshot, SourceSnapshot::Unreachable(_)));
}

#[test]
fn a_single_file_is_accepted_as_the_manifest_path() {
    let temp_dir = tempfile::tempdir().unwrap();
    let path = temp_dir.path().join("pod.yaml");
    std::fs::write(&path, "x").unwrap();
    assert_eq!(listed(&path), [("pod.yaml".to_owned(), Ok("x".to_owned()))]);
    assert_eq!(list(&path).path_kind, PathKind::File);
}

#[test]
fn symlinks_to_files_are_followed_as_in_mounted_config_maps() {
    let temp_dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp_dir.path().join("..version-1")).unwrap();
    std::fs::write(temp_dir.path().join("..version-1/pod.yaml"), "one").unwrap();
    symlink("..version-1", temp_dir.path().join("..data")).unwrap();
    symlink("..data/pod.yaml", temp_dir.path().join("pod.yaml")).unwrap();
    assert_eq!(listed(temp_dir.path()), [("pod.yaml".to_owned(), Ok("one".to_owned()))]);
    let end = std::fs::canonicalize(temp_dir.path().join("..version-1/pod.yaml")).unwrap();
    assert_eq!(list(temp_dir.path()).symlink_targets, [end]);
}

#[test]
fn an_unreadable_manifest_is_reported_with_its_error_without_blocking() {
    let temp_dir = tempfile::tempdir().unwrap();
    let path = |name: &str| temp_dir.path().join(name);
    symlink("loop", path("loop")).unwrap();
    symlink("other-half", path("half")).unwrap();
    symlink("half", path("other-half")).unwrap();
    symlink("gone", path("dangling")).unwrap();
    symlink("/dev/zero", path("device")).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), FileType::Fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    std::fs::File::create(path("huge")).unwrap().set_len(10 << 20).unwrap();
    std::fs::File::create(path("large")).unwrap().set_len((10 << 20) - 1).unwrap();
    let found = listed(temp_dir.path());
    let ends = [
        ("dangling", "is not there"),
        ("device", "not a regular file but a character device"),
        ("folder", "folders are not searched"),
        ("half", "leads back to itself"),
        ("huge", "too long: 10485760 bytes or more"),
        ("large", ""),
        ("loop", "leads back to itself"),
        ("other-half", "leads back to itself"),
        ("pipe", "not a regular file but a named pipe"),
        ("socket", "not a regular file but a socket"),
    ];
    assert_eq!(found.len(), ends.len());
    for ((name, content), (wanted, end)) in found.iter().zip(ends) {
        assert_eq!(name, wanted);
        match content {
            Ok(_) => assert_eq!(wanted, "large"),
            Err(reason) => assert!(reason.ends_with(end) && !end.is_empty(), "{name}: {reason}"),
        }
    }
}
