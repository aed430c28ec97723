//! What a directory of manifests may contain, valid and invalid.

use std::os::unix::fs::symlink;

use super::*;

fn told(path: &Path) -> Vec<(String, Result<String, String>)> {
    let SourceTelling::All(files) = list(path).telling else { panic!("unreachable") };
    files
        .into_iter()
        .map(|file| {
            let name = file.name.rsplit('/').next().unwrap_or_default().to_owned();
            let content = match file.content {
                ManifestContent::Bytes(bytes) => Ok(String::from_utf8(bytes).unwrap()),
                ManifestContent::Unreadable(why) => Err(why),
            };
            (name, content)
        })
        .collect()
}

#[test]
fn files_are_told_in_order_and_dot_names_are_passed_over() {
    let bed = tempfile::tempdir().unwrap();
    for name in ["b.yaml", "a.json", ".hidden", "..data", "c"] {
        std::fs::write(bed.path().join(name), name).unwrap();
    }
    let found = told(bed.path());
    let wanted = ["a.json", "b.yaml", "c"].map(|name| (name.to_owned(), Ok(name.to_owned())));
    assert_eq!(found, wanted);
}

#[test]
fn a_missing_path_has_no_manifests() {
    let listing = list(Path::new("/nowhere/at/all"));
    assert_eq!(listing.telling, SourceTelling::All(Vec::new()));
    assert_eq!(listing.shape, Shape::Missing);
}

#[test]
fn a_path_through_a_file_is_unreachable() {
    let bed = tempfile::tempdir().unwrap();
    std::fs::write(bed.path().join("file"), "x").unwrap();
    let listing = list(&bed.path().join("file/below"));
    assert!(matches!(listing.telling, SourceTelling::Unreachable(_)), "{listing:?}");
    assert!(matches!(list(Path::new("/dev/null")).telling, SourceTelling::Unreachable(_)));
}

#[test]
fn one_file_may_be_the_path() {
    let bed = tempfile::tempdir().unwrap();
    let path = bed.path().join("pod.yaml");
    std::fs::write(&path, "x").unwrap();
    assert_eq!(told(&path), [("pod.yaml".to_owned(), Ok("x".to_owned()))]);
    assert_eq!(list(&path).shape, Shape::File);
}

#[test]
fn links_are_followed_to_files_as_mounted_config_maps_have_them() {
    let bed = tempfile::tempdir().unwrap();
    std::fs::create_dir(bed.path().join("..version-1")).unwrap();
    std::fs::write(bed.path().join("..version-1/pod.yaml"), "one").unwrap();
    symlink("..version-1", bed.path().join("..data")).unwrap();
    symlink("..data/pod.yaml", bed.path().join("pod.yaml")).unwrap();
    assert_eq!(told(bed.path()), [("pod.yaml".to_owned(), Ok("one".to_owned()))]);
    let end = std::fs::canonicalize(bed.path().join("..version-1/pod.yaml")).unwrap();
    assert_eq!(list(bed.path()).linked, [end]);
}

#[test]
fn what_is_no_manifest_is_told_with_why_and_does_not_block() {
    let bed = tempfile::tempdir().unwrap();
    let path = |name: &str| bed.path().join(name);
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
    let found = told(bed.path());
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
            Err(why) => assert!(why.ends_with(end) && !end.is_empty(), "{name}: {why}"),
        }
    }
}
